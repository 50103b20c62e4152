"""LiteLLM with its two providers for such a server, ``openai`` and ``hosted_vllm``."""

import functools
import json
import os
from typing import Any

from driver import TASK, Report, answer, call, exception_of

# Otherwise the prices of all models are fetched when it is imported.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm

# Its advice would be written to standard output, between the lines of the report.
litellm.suppress_debug_info = True

tool = {"type": "function", "function": TASK["tool"]}
schema = {"name": "trip", "schema": TASK["tool"]["parameters"], "strict": True}


def ask(provider: str, **fields: Any) -> Any:
    asked = {
        "model": f"{provider}/{TASK['model']}",
        "messages": TASK["messages"],
        "max_tokens": TASK["max_tokens"],
        "temperature": 0,
    }
    return litellm.completion(api_base=TASK["base_url"], api_key="none", max_retries=0, **asked | fields)


def ask_to_call(provider: str, **fields: Any) -> Any:
    limit = TASK["max_tokens_of_calls"]
    return ask(provider, max_tokens=limit, tools=[tool], tool_choice="required", parallel_tool_calls=False, **fields)


def joined(stream: Any) -> Any:
    return litellm.stream_chunk_builder(list(stream), messages=TASK["messages"])


def answer_of(completion: Any) -> Any:
    [choice] = completion.choices
    usage = completion.usage
    return answer(choice.message.content, choice.finish_reason, usage.prompt_tokens, usage.completion_tokens)


def calls_of(completion: Any) -> Any:
    calls = completion.choices[0].message.tool_calls
    return [call(item.id, item.function.name, item.function.arguments) for item in calls]


def ask_other(provider: str, base_url: str, model: str, content: str) -> Any:
    # By its Anthropic interface it adds the whole path itself.
    base = base_url.removesuffix("/v1") if provider == "anthropic" else base_url
    asked = {"model": f"{provider}/{model}", "messages": [{"role": "user", "content": content}], "max_tokens": 4}
    return litellm.completion(api_base=base, api_key="none", max_retries=0, **asked)


with Report() as report:
    for provider in ("openai", "hosted_vllm", "anthropic"):
        report.errors(functools.partial(ask_other, provider), provider)
    for provider in ("openai", "hosted_vllm"):

        @report.answers(f"{provider} plain")
        def _(provider: str = provider) -> Any:
            return answer_of(ask(provider))

        @report.answers(f"{provider} stream")
        def _(provider: str = provider) -> Any:
            return answer_of(joined(ask(provider, stream=True, stream_options={"include_usage": True})))

        @report.calls(f"{provider} plain")
        def _(provider: str = provider) -> Any:
            return calls_of(ask_to_call(provider))

        @report.calls(f"{provider} stream")
        def _(provider: str = provider) -> Any:
            return calls_of(joined(ask_to_call(provider, stream=True)))

        @report.objects(provider)
        def _(provider: str = provider) -> Any:
            wanted = {"type": "json_schema", "json_schema": schema}
            completion = ask(provider, max_tokens=TASK["max_tokens_of_calls"], response_format=wanted)
            return json.loads(completion.choices[0].message.content)

    @report.others("after a call")
    def _() -> Any:
        message = ask_to_call("openai").choices[0].message
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": TASK["result"]}
        return answer_of(ask("openai", messages=[*TASK["messages"], message, result], tools=[tool]))

    @report.others("too long")
    def _() -> Any:
        return exception_of(lambda: ask("openai", messages=[{"role": "user", "content": TASK["too_long"]}]))
