"""Compiles grammars beside the engine's own thread, and keeps those that were used lately.

A request whose grammar is not ready waits here and not in the scheduler, so nobody waits for it. The library leaves
Python's lock alone while it works.
"""

from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from pagewire.engine.sequence import Key
from pagewire.engine.vocabulary import Vocabulary
from pagewire.protocol.grammar import MAX_GRAMMAR_CHARS, compiler_pool, first_line, parser_limits
from pagewire.protocol.messages import Error
from pagewire.protocol.panics import no_panics

# A compiled grammar keeps what was found out while it was used: kilobytes as a rule, megabytes at worst.
_MAX_KEPT = 64


class GrammarError(Exception):
    """A grammar that cannot be used; the message says why."""


class GrammarCompiler:
    """Turns sources into matchers. Used by one thread, which ``start``s them and asks what is ``ready``."""

    def __init__(self, vocabulary: Vocabulary, vocab_size: int, eos_token_ids: Iterable[int]) -> None:
        """``vocab_size`` is the width of the logits. Nothing is made until the first grammar comes."""
        self._vocabulary = vocabulary
        self._vocab_size = vocab_size
        self._eos_token_ids = sorted(eos_token_ids)
        self._pool: Executor | None = None
        self._tokenizer: Future[LLTokenizer] | None = None
        self._compiled: OrderedDict[str, Future[LLMatcher]] = OrderedDict()
        self._waiting: dict[Key, tuple[str, Future[LLMatcher]]] = {}

    def __len__(self) -> int:
        """How many requests wait for their grammar."""
        return len(self._waiting)

    def start(self, key: Key, source: str) -> None:
        """Compile a grammar for a request, or find it among the compiled ones; ``ready`` gives the result."""
        if source not in self._compiled:
            self._compiled[source] = self._submit(source)
            if len(self._compiled) > _MAX_KEPT:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(source)
        self._waiting[key] = source, self._compiled[source]

    def __contains__(self, key: Key) -> bool:
        """Whether a request waits for its grammar."""
        return key in self._waiting

    def drop(self, key: Key) -> None:
        """Forget a request that waits no more; unknown ones are ignored.

        A grammar that nobody else waits for is not compiled unless that has begun, so that requests which come and go
        leave no work behind.
        """
        entry = self._waiting.pop(key, None)
        if entry is None or entry in self._waiting.values():
            return
        source, future = entry
        if future.cancel() and self._compiled.get(source) is future:
            del self._compiled[source]

    def ready(self, timeout_s: float) -> list[tuple[Key, LLMatcher | Error]]:
        """The requests whose grammar is done, each with a matcher of its own, or why there is none.

        Waits up to ``timeout_s`` for the first.
        """
        wait([future for _, future in self._waiting.values()], timeout_s, FIRST_COMPLETED)
        done = [(key, future) for key, (_, future) in self._waiting.items() if future.done()]
        for key, _ in done:
            del self._waiting[key]
        return [(key, _outcome(future)) for key, future in done]

    def _submit(self, source: str) -> Future[LLMatcher]:
        if self._pool is None or self._tokenizer is None:
            self._pool = compiler_pool()
            self._tokenizer = self._pool.submit(
                _make_tokenizer, self._vocabulary, self._vocab_size, self._eos_token_ids
            )
        return self._pool.submit(_compile, self._tokenizer, source)


@no_panics()
def follow(matcher: LLMatcher, token: int) -> Error | None:
    """Take a sampled token; fails if the grammar has met a limit, since all that a mask allows can be taken."""
    if matcher.consume_token(token):
        return None
    return Error(
        "invalid", f"the grammar cannot be followed further: {first_line(matcher.get_error())}", param="grammar"
    )


class _Tokens:
    """The vocabulary in the form in which the library asks for it: bytes of every token, and how to tokenize."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary, vocab_size: int, eos_token_ids: list[int]) -> None:
        known = min(vocab_size, vocabulary.size)
        self.eos_token_id = eos_token_ids[0]
        self.special_token_ids = sorted(vocabulary.special)
        self.tokens = [vocabulary.token_bytes(token) for token in range(known)] + [b""] * (vocab_size - known)
        self._tokenizer = vocabulary.tokenizer

    def __call__(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


@no_panics()
def _make_tokenizer(vocabulary: Vocabulary, vocab_size: int, eos_token_ids: list[int]) -> LLTokenizer:
    if vocabulary.scheme.kind == "opaque":
        raise GrammarError("the tokens of this model's tokenizer have no bytes of their own")
    if not eos_token_ids:
        raise GrammarError("this model has no token that ends a text")
    wrapper = TokenizerWrapper(_Tokens(vocabulary, vocab_size, eos_token_ids))
    return LLTokenizer(wrapper, n_vocab=vocab_size, eos_token=eos_token_ids)


@no_panics()
def _compile(tokenizer: Future[LLTokenizer], source: str) -> LLMatcher:
    if len(source) > MAX_GRAMMAR_CHARS:
        raise GrammarError(f"it has {len(source)} characters, more than {MAX_GRAMMAR_CHARS}")
    matcher = LLMatcher(tokenizer.result(), source, log_level=0, limits=parser_limits())
    if not matcher.is_error():
        # The first mask is the dearest, and shows the limits that a grammar meets at once.
        matcher.compute_bitmask()
    if matcher.is_error():
        raise GrammarError(first_line(matcher.get_error()))
    return matcher


def _outcome(future: Future[LLMatcher]) -> LLMatcher | Error:
    try:
        with no_panics():
            return future.result().deep_copy()
    except Exception as failure:  # of the grammar, as a rule; the library's own have no common kind
        return Error("invalid", f"the grammar cannot be used: {first_line(str(failure))}", param="grammar")
