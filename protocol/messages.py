"""Every message between a frontend and an engine.

Messages are msgspec structs encoded as MessagePack arrays, so fields are append-only and new ones need a default;
anything else raises ``VERSION``. Direction is part of the type: ``ToEngine`` and ``ToFrontend`` are the two unions a
peer may receive, and a decoder refuses everything outside its union.

The contract: every accepted ``Generate`` is answered by ``Delta`` objects of which exactly one, the last, carries
``finish``, unless the request was aborted, its frontend vanished or the engine died. A refusal is a delta with
``finish.error``; acceptance into the queue is a delta without text, ids or finish.
"""

from typing import Literal

from msgspec import Struct

VERSION = 1

# The logprob that stands for "impossible": JSON has no infinity, and clients expect this number.
LOGPROB_FLOOR = -9999.0

# Below this temperature the most likely token wins with near certainty, and dividing by it would only lose precision.
GREEDY_BELOW = 1e-5


class Sampling(Struct, array_like=True, gc=False, frozen=True):
    """How one sequence is generated. All values are final: defaults were applied by the frontend.

    ``temperature`` 0 means greedy; ``top_k`` 0 means off; ``seed`` is always set (drawn by the frontend if the client
    gave none). ``logprobs`` and ``prompt_logprobs``: None is off, k is that many alternatives beside the chosen token.
    ``shown_token_ids`` are special tokens that stay in the text although ``skip_special_tokens`` hides the others.
    ``grammar``, in llguidance's notation (Lark, or JSON that lists grammars), is what the output must match when it
    ends; while it is unfinished there is no end token, whatever ``min_tokens`` and ``ignore_eos`` say.
    ``allowed_token_ids``, unless empty, are the only ones that may come; a sequence of ``bad_words`` never comes whole.
    """

    max_tokens: int
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    logit_bias: dict[int, float] = {}
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    shown_token_ids: tuple[int, ...] = ()
    grammar: str | None = None
    allowed_token_ids: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()


class TopLogprob(Struct, array_like=True, gc=False, frozen=True):
    """One alternative at one position. ``bytes`` are the token's true bytes, ``text`` their readable form."""

    id: int
    logprob: float
    text: str
    bytes: bytes


class Logprob(Struct, array_like=True, gc=False, frozen=True):
    """The raw log-probability (before temperature and penalties, natural log, finite) of one token.

    ``rank`` is 1 for the most likely token. ``offset`` counts characters of the text (the output for generated tokens,
    the prompt for prompt tokens) before this token's first character.
    """

    id: int
    logprob: float
    text: str
    bytes: bytes
    rank: int
    offset: int
    top: tuple[TopLogprob, ...] = ()


class Usage(Struct, array_like=True, gc=False, frozen=True):
    """Exact token counts of one request, and the times (milliseconds) that only the engine knows."""

    prompt: int
    completion: int
    cached: int = 0
    queued_ms: float = 0.0
    prefill_ms: float = 0.0
    preempted: int = 0


ErrorCode = Literal["invalid", "context_length_exceeded", "overloaded", "draining", "internal"]


class Error(Struct, array_like=True, gc=False, frozen=True):
    """Why a request failed. ``retryable`` says whether the same request may succeed later or elsewhere."""

    code: ErrorCode
    message: str
    retryable: bool = False
    param: str | None = None


class Finish(Struct, array_like=True, gc=False, frozen=True):
    """The end of a request. ``matched`` is the stop string or stop token id that ended it (None for plain EOS)."""

    reason: Literal["stop", "length", "error"]
    usage: Usage
    matched: str | int | None = None
    error: Error | None = None


class Delta(Struct, array_like=True, gc=False, frozen=True):
    """What one step (or several merged ones) added to one request. ``logprobs`` has one entry per id, if asked for.

    ``prompt_logprobs`` comes whole, once, before or with the first id; its first entry is None. ``embedding`` is the
    answer to ``Generate.embed``: little-endian float32, of length 1.
    """

    rid: int
    text: str = ""
    ids: tuple[int, ...] = ()
    logprobs: tuple[Logprob, ...] | None = None
    finish: Finish | None = None
    prompt_logprobs: tuple[Logprob | None, ...] | None = None
    embedding: bytes | None = None


class Model(Struct, array_like=True, frozen=True):
    """What a frontend must know of the served model to check, template and tokenize requests without its files.

    ``tokenizer_json`` is the serialized fast tokenizer; ``chat_templates`` maps names to Jinja sources ("default" is
    the unnamed one); ``special_tokens`` maps names such as ``bos_token`` to text; ``generation_defaults`` holds the
    sampling values of the model's generation config. ``embedding_size`` is the length of its embeddings, 0 if this
    engine makes none.
    """

    name: str
    path: str
    created: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    tokenizer_json: str
    chat_templates: dict[str, str]
    special_tokens: dict[str, str]
    generation_defaults: dict[str, float | int | bool]
    dtype: str
    quantization: str | None = None
    embedding_size: int = 0


class Limits(Struct, array_like=True, frozen=True):
    """What the engine decided at start. Lengths in tokens; ``num_blocks`` is the whole KV pool."""

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_logprobs: int
    block_size: int
    num_blocks: int


class Load(Struct, array_like=True, gc=False, frozen=True):
    """How busy the engine is now, and counters since its start (they only rise; a restart begins at zero)."""

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0
    steps: int = 0
    step_seconds: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generation_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    preemptions: int = 0
    rejections: int = 0
    aborts: int = 0


class Hello(Struct, tag=True, array_like=True, frozen=True):
    """First message on every (re)connection. A new ``epoch`` from a known frontend drops its older requests."""

    version: int
    frontend: str
    epoch: int


class Generate(Struct, tag=True, array_like=True, gc=False, frozen=True):
    """One sequence to generate. ``rid`` is unique within the frontend; lower ``priority`` values run first.

    With ``embed`` the prompt is only read: one delta brings its embedding and the finish.
    """

    rid: int
    prompt: tuple[int, ...]
    sampling: Sampling
    priority: int = 0
    salt: str = ""
    embed: bool = False


class Abort(Struct, tag=True, array_like=True, gc=False, frozen=True):
    """Drop these requests; unknown ones are ignored and nothing is answered."""

    rids: tuple[int, ...]


class End(Struct, tag=True, array_like=True, gc=False, frozen=True):
    """End these requests now, as if their texts ended here: each gets its finish, with reason ``stop`` and its usage.

    Unknown ones are ignored: they have finished by themselves.
    """

    rids: tuple[int, ...]


class Ping(Struct, tag=True, array_like=True, gc=False, frozen=True):
    """Are you alive? Answered by the engine's own loop, so that a hung loop is noticed."""

    seq: int


class Ready(Struct, tag=True, array_like=True, frozen=True):
    """Answer to ``Hello``: the engine can take requests. ``engine`` is new at every start of the process.

    A ``Pong`` with the present load may follow, so that the same ``Ready`` can be sent to everyone.
    """

    version: int
    engine: str
    model: Model
    limits: Limits
    load: Load


class Output(Struct, tag=True, array_like=True, gc=False, frozen=True):
    """All deltas of one step for one frontend; ``load`` rides along now and then."""

    deltas: tuple[Delta, ...]
    load: Load | None = None


class Pong(Struct, tag=True, array_like=True, gc=False, frozen=True):
    """Answer to ``Ping`` with the same ``seq``."""

    seq: int
    load: Load


class Closing(Struct, tag=True, array_like=True, frozen=True):
    """The engine takes no more requests: it drains, it failed, or it does not speak the frontend's version."""

    reason: Literal["drain", "fatal", "version"]
    message: str


ToEngine = Hello | Generate | Abort | End | Ping
ToFrontend = Ready | Output | Pong | Closing
