"""The ``openai`` package: chat, its stream helper, structured output, tools, responses, embeddings."""

from typing import Any, Literal

import openai
from driver import TASK, Report, answer, call, exception_of
from pydantic import BaseModel, ConfigDict


class Trip(BaseModel):
    """The schema of the task."""

    model_config = ConfigDict(extra="forbid")
    city: Literal["Rome", "Bern"]
    days: int


client = openai.OpenAI(base_url=TASK["base_url"], api_key="none", max_retries=0)
chat = client.chat.completions
asked: dict[str, Any] = {
    "model": TASK["model"],
    "messages": TASK["messages"],
    "max_tokens": TASK["max_tokens"],
    "temperature": 0,
}
tool = {"type": "function", "function": TASK["tool"]}
asked_to_call: dict[str, Any] = {
    **asked,
    "max_tokens": TASK["max_tokens_of_calls"],
    "tools": [tool],
    "tool_choice": "required",
    "parallel_tool_calls": False,
}


def answer_of(completion: Any) -> Any:
    [choice] = completion.choices
    usage = completion.usage
    return answer(choice.message.content, choice.finish_reason, usage.prompt_tokens, usage.completion_tokens)


def answer_of_response(response: Any) -> Any:
    usage = response.usage
    return answer(response.output_text, response.status, usage.input_tokens, usage.output_tokens)


def calls_of(completion: Any) -> Any:
    calls = completion.choices[0].message.tool_calls
    return [call(item.id, item.function.name, item.function.arguments) for item in calls]


def ask_other(base_url: str, model: str, content: str) -> Any:
    other = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0)
    return other.chat.completions.create(model=model, messages=[{"role": "user", "content": content}], max_tokens=4)


with Report() as report:
    report.errors(ask_other)

    @report.answers("plain")
    def _() -> Any:
        return answer_of(chat.create(**asked))

    @report.answers("stream")
    def _() -> Any:
        text, finish, usage = "", None, None
        for chunk in chat.create(**asked, stream=True, stream_options={"include_usage": True}):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
        assert usage is not None
        return answer(text, finish, usage.prompt_tokens, usage.completion_tokens)

    @report.answers("stream helper")
    def _() -> Any:
        with chat.stream(**asked, stream_options={"include_usage": True}) as stream:
            told = [event.content for event in stream if event.type == "content.done"]
            completion = stream.get_final_completion()
        assert told == [completion.choices[0].message.content]
        return answer_of(completion)

    responding: dict[str, Any] = {
        "model": TASK["model"],
        "input": TASK["messages"],
        "max_output_tokens": TASK["max_tokens"],
        "temperature": 0,
    }

    @report.answers("responses")
    def _() -> Any:
        return answer_of_response(client.responses.create(**responding))

    @report.answers("responses stream helper")
    def _() -> Any:
        with client.responses.stream(**responding) as stream:
            text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            response = stream.get_final_response()
        assert text == response.output_text
        return answer_of_response(response)

    @report.calls("plain")
    def _() -> Any:
        return calls_of(chat.create(**asked_to_call))

    @report.calls("stream helper")
    def _() -> Any:
        with chat.stream(**asked_to_call) as stream:
            return calls_of(stream.get_final_completion())

    @report.calls("responses")
    def _() -> Any:
        response = client.responses.create(
            **responding | {"max_output_tokens": TASK["max_tokens_of_calls"]},
            tools=[{"type": "function", **TASK["tool"], "strict": False}],
            tool_choice="required",
            parallel_tool_calls=False,
        )
        return [call(item.call_id, item.name, item.arguments) for item in response.output]

    @report.objects("parse")
    def _() -> Any:
        completion = chat.parse(**asked | {"max_tokens": TASK["max_tokens_of_calls"]}, response_format=Trip)
        return completion.choices[0].message.parsed.model_dump()

    @report.objects("responses parse")
    def _() -> Any:
        fields = responding | {"max_output_tokens": TASK["max_tokens_of_calls"]}
        return client.responses.parse(**fields, text_format=Trip).output_parsed.model_dump()

    @report.others("after a call")
    def _() -> Any:
        message = chat.create(**asked_to_call).choices[0].message
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": TASK["result"]}
        return answer_of(chat.create(**asked | {"messages": [*TASK["messages"], message, result], "tools": [tool]}))

    @report.others("embedding")
    def _() -> Any:
        return client.embeddings.create(model=TASK["model"], input="a river").data[0].embedding

    @report.others("models")
    def _() -> Any:
        return [model.id for model in client.models.list()]

    @report.others("too long")
    def _() -> Any:
        long = [{"role": "user", "content": TASK["too_long"]}]
        return exception_of(lambda: chat.create(**asked | {"messages": long}))
