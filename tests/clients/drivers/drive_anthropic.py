"""The ``anthropic`` package against ``/v1/messages``."""

from typing import Any

import anthropic
from driver import TASK, Report, answer, call, exception_of

client = anthropic.Anthropic(base_url=TASK["base_url"].removesuffix("/v1"), api_key="none", max_retries=0)
asked: dict[str, Any] = {
    "model": TASK["model"],
    "messages": TASK["messages"],
    "max_tokens": TASK["max_tokens"],
    # The route takes it, but this release of the package has no parameter for it.
    "extra_body": {"temperature": 0},
}
tool = {
    "name": TASK["tool"]["name"],
    "description": TASK["tool"]["description"],
    "input_schema": TASK["tool"]["parameters"],
}
asked_to_call: dict[str, Any] = {
    **asked,
    "max_tokens": TASK["max_tokens_of_calls"],
    "tools": [tool],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
}


def answer_of(message: Any) -> Any:
    text = "".join(block.text for block in message.content if block.type == "text")
    usage = message.usage
    return answer(text, message.stop_reason, usage.input_tokens + usage.cache_read_input_tokens, usage.output_tokens)


def calls_of(message: Any) -> Any:
    assert message.stop_reason == "tool_use", message.stop_reason
    return [call(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"]


def ask_other(base_url: str, model: str, content: str) -> Any:
    other = anthropic.Anthropic(base_url=base_url.removesuffix("/v1"), api_key="none", max_retries=0)
    return other.messages.create(model=model, messages=[{"role": "user", "content": content}], max_tokens=4)


with Report() as report:
    report.errors(ask_other)

    @report.answers("plain")
    def _() -> Any:
        return answer_of(client.messages.create(**asked))

    @report.answers("stream helper")
    def _() -> Any:
        with client.messages.stream(**asked) as stream:
            text = "".join(stream.text_stream)
            message = stream.get_final_message()
        assert text == message.content[0].text
        return answer_of(message)

    @report.calls("plain")
    def _() -> Any:
        return calls_of(client.messages.create(**asked_to_call))

    @report.calls("stream helper")
    def _() -> Any:
        with client.messages.stream(**asked_to_call) as stream:
            return calls_of(stream.get_final_message())

    @report.others("after a call")
    def _() -> Any:
        message = client.messages.create(**asked_to_call)
        result = {"type": "tool_result", "tool_use_id": message.content[0].id, "content": TASK["result"]}
        turns = [
            *TASK["messages"],
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": [result]},
        ]
        return answer_of(client.messages.create(**asked | {"messages": turns, "tools": [tool]}))

    @report.others("count of tokens")
    def _() -> Any:
        return client.messages.count_tokens(model=TASK["model"], messages=TASK["messages"]).input_tokens

    @report.others("too long")
    def _() -> Any:
        long = [{"role": "user", "content": TASK["too_long"]}]
        return exception_of(lambda: client.messages.create(**asked | {"messages": long}))
