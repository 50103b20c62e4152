"""What it costs to read a chat request of 20 messages, some of them calls and their results, and 5 tools."""

from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pagewire.bench.micro.byte_tokenizer import VOCAB_SIZE, byte_tokenizer_json
from pagewire.bench.micro.timing import Measurement, measure
from pagewire.frontend.catalog import ServedModel
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.grammars.checker import GrammarChecker
from pagewire.frontend.openai.conversation import conversation_of
from pagewire.frontend.openai.defaults import SamplingDefaults
from pagewire.frontend.openai.params import base_sampling
from pagewire.frontend.openai.parse import parse
from pagewire.frontend.openai.parsing import parsing_of
from pagewire.frontend.openai.schema import ChatRequest
from pagewire.frontend.openai.tools import ToolUse, tool_use
from pagewire.frontend.pool import EngineModel
from pagewire.frontend.template import ChatTemplate
from pagewire.frontend.tokenizer import Tokenizer
from pagewire.frontend.tools.formats import tool_format
from pagewire.protocol.messages import Limits, Model, Sampling

T = TypeVar("T")

_TEMPLATE = Path(__file__).parents[2] / "examples" / "template_tool_use.jinja"
_ROUNDS, _TOOLS = 4, 5
_WORDS = "the quick brown fox jumps over the lazy dog and looks for a place to sleep until the sun comes up again "


def measure_request() -> Iterator[Measurement]:
    """Measure the stages one by one, and together; tokenizing, which follows, depends on the model alone."""
    body = msgspec.json.encode(example_request())
    served, config, grammars = _served_model(), FrontendConfig(), GrammarChecker()
    chat = parse(body, ChatRequest, strict=False).request

    def check() -> tuple[ToolUse | None, Sampling]:
        use = tool_use(chat.tools, chat.tool_choice, parallel=chat.parallel_tool_calls)
        conversation_of(chat.messages, chat, config, use.shown if use else None)
        return use, base_sampling(chat, served, config, logprobs=None, prompt_logprobs=None)

    def render() -> str:
        return _render(served, chat)

    def prepare_answer() -> None:
        use, sampling = check()
        conversation = conversation_of(chat.messages, chat, config, chat.tools)
        parsing = parsing_of(served, use, conversation, prompt)
        assert parsing
        _result_at_once(parsing.bind(sampling, grammars))

    def all_of_it() -> None:
        parse(body, ChatRequest, strict=False)
        prepare_answer()
        render()

    prompt = render()
    size = f"{len(chat.messages)} messages, {_TOOLS} tools, {len(body) / 1000:.0f} kB"
    yield measure(f"parse a request ({size})", "request", lambda: parse(body, ChatRequest, strict=False))
    yield measure("check it", "request", check)
    yield measure("apply the template", "request", render)
    yield measure("all of that, and find out how calls are read", "request", all_of_it)


def example_request() -> dict[str, Any]:
    """A conversation with an assistant that calls tools: system, then rounds of question, call, result and answer."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": _text(60)}]
    for number in range(_ROUNDS):
        call = {"name": f"look_up_{number}", "arguments": '{"place": "Bern", "days": 3, "options": ["a", "b"]}'}
        messages += [
            {"role": "user", "content": _text(40)},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"call_{number}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"call_{number}", "content": '{"found": "' + _text(40) + '"}'},
            {"role": "assistant", "content": _text(80)},
        ]
    messages += [{"role": "user", "content": [{"type": "text", "text": _text(40)}]}]
    messages += [{"role": "assistant", "content": _text(20)}, {"role": "user", "content": _text(20)}]
    return {
        "model": "example",
        "messages": messages,
        "tools": [_tool(number) for number in range(_TOOLS)],
        "tool_choice": "auto",
        "temperature": 0.7,
        "top_p": 0.9,
        "max_completion_tokens": 512,
        "stop": ["###"],
        "stream": True,
        "stream_options": {"include_usage": True},
        "user": "someone",
    }


def rendered_example() -> str:
    """The prompt of the example."""
    return _render(_served_model(), parse(msgspec.json.encode(example_request()), ChatRequest, strict=False).request)


def _render(served: ServedModel, chat: ChatRequest) -> str:
    assert served.template
    return _result_at_once(served.template.render_async(chat.messages, add_generation_prompt=True, tools=chat.tools))


def _result_at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing, without the cost of an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise RuntimeError("this took so long that it was moved to a thread: measure again on a quieter machine")


def _text(words: int) -> str:
    return " ".join((_WORDS * 10).split()[:words])


def _tool(number: int) -> dict[str, Any]:
    fields = {
        "place": {"type": "string", "description": _text(12)},
        "days": {"type": "integer", "minimum": 1, "maximum": 14, "description": _text(8)},
        "unit": {"type": "string", "enum": ["metric", "imperial"]},
        "options": {"type": "array", "items": {"type": "string"}, "description": _text(10)},
    }
    parameters = {"type": "object", "properties": fields, "required": ["place"], "additionalProperties": False}
    function = {"name": f"look_up_{number}", "description": _text(25), "parameters": parameters}
    return {"type": "function", "function": function}


def _served_model() -> ServedModel:
    text = _TEMPLATE.read_text("utf-8")
    model = Model(
        name="example",
        path="example",
        created=0,
        vocab_size=VOCAB_SIZE,
        eos_token_ids=(),
        tokenizer_json=byte_tokenizer_json(),
        chat_templates={"default": text},
        special_tokens={},
        generation_defaults={},
        dtype="none",
    )
    limits = Limits(
        max_model_len=1 << 20,
        max_num_seqs=1 << 16,
        max_num_batched_tokens=1 << 20,
        max_logprobs=0,
        block_size=16,
        num_blocks=1 << 20,
    )
    template = ChatTemplate(text, "example")
    return ServedModel(
        name=model.name,
        engine_model=EngineModel("example", model, limits),
        tokenizer=Tokenizer(model.tokenizer_json),
        template=template,
        defaults=SamplingDefaults(),
        tool_format=tool_format("auto", template.tool_text),
        reasoning=None,
    )
