"""LangChain's ``ChatOpenAI``: invoke, stream, structured output, tools."""

from typing import Any, Literal

from driver import TASK, Report, answer, call, exception_of
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, ConfigDict


class Trip(BaseModel):
    """The schema of the task."""

    model_config = ConfigDict(extra="forbid")
    city: Literal["Rome", "Bern"]
    days: int


def model(max_tokens: int = TASK["max_tokens"], **options: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model=TASK["model"],
        base_url=TASK["base_url"],
        api_key="none",
        temperature=0,
        max_tokens=max_tokens,
        max_retries=0,
        **options,
    )


def answer_of(message: Any) -> Any:
    usage = message.usage_metadata
    reason = message.response_metadata.get("finish_reason") or message.response_metadata.get("status")
    return answer(message.text, reason, usage["input_tokens"], usage["output_tokens"])


def calls_of(message: Any) -> Any:
    assert not message.invalid_tool_calls, message.invalid_tool_calls
    return [call(item["id"], item["name"], item["args"]) for item in message.tool_calls]


question = [HumanMessage(message["content"]) for message in TASK["messages"]]
tool = {"type": "function", "function": TASK["tool"]}
calling = model(TASK["max_tokens_of_calls"])
caller = calling.bind_tools([tool], tool_choice="required", parallel_tool_calls=False)


def ask_other(base_url: str, model: str, content: str) -> Any:
    return ChatOpenAI(model=model, base_url=base_url, api_key="none", max_tokens=4, max_retries=0).invoke(content)


with Report() as report:
    report.errors(ask_other)

    @report.answers("invoke")
    def _() -> Any:
        return answer_of(model().invoke(question))

    @report.answers("stream")
    def _() -> Any:
        first, *others = model(stream_usage=True).stream(question)
        return answer_of(sum(others, first))

    @report.answers("invoke responses")
    def _() -> Any:
        return answer_of(model(use_responses_api=True).invoke(question))

    @report.answers("stream responses")
    def _() -> Any:
        first, *others = model(use_responses_api=True).stream(question)
        return answer_of(sum(others, first))

    @report.calls("invoke")
    def _() -> Any:
        return calls_of(caller.invoke(question))

    @report.calls("stream")
    def _() -> Any:
        first, *others = caller.stream(question)
        return calls_of(sum(others, first))

    @report.objects("json_schema")
    def _() -> Any:
        return calling.with_structured_output(Trip, method="json_schema").invoke(question).model_dump()

    @report.objects("function_calling")
    def _() -> Any:
        return calling.with_structured_output(Trip, method="function_calling").invoke(question).model_dump()

    @report.others("after a call")
    def _() -> Any:
        message = caller.invoke(question)
        result = ToolMessage(TASK["result"], tool_call_id=message.tool_calls[0]["id"])
        return answer_of(model().bind_tools([tool]).invoke([*question, message, result]))

    @report.others("too long")
    def _() -> Any:
        return exception_of(lambda: model().invoke(TASK["too_long"]))
