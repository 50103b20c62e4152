"""``llm``: its command line, and the library below it with schemas and tools."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from driver import TASK, Report, answer, exception_of

# As its manual has it for any server of this kind; YAML is a superset of JSON.
SETTINGS = [
    {
        "model_id": "served",
        "model_name": TASK["model"],
        "api_base": TASK["base_url"],
        "supports_tools": True,
        "supports_schema": True,
    }
]
home = tempfile.TemporaryDirectory()
Path(home.name, "extra-openai-models.yaml").write_text(json.dumps(SETTINGS), encoding="utf-8")
os.environ |= {"LLM_USER_PATH": home.name, "OPENAI_API_KEY": "none"}

import llm  # noqa: E402

model = llm.get_model("served")
[question] = [message["content"] for message in TASK["messages"]]
options = {"temperature": 0, "max_tokens": TASK["max_tokens"]}


def plan_trip(city: str, days: int) -> str:
    """Plan a trip."""
    return TASK["result"]


def answer_of(response: Any) -> Any:
    text, usage = response.text(), response.usage()
    return answer(text, None, usage.input, usage.output)


with home, Report() as report:

    @report.answers("plain")
    def _() -> Any:
        return answer_of(model.prompt(question, stream=False, **options))

    @report.answers("stream")
    def _() -> Any:
        return answer_of(model.prompt(question, **options))

    @report.answers("command line")
    def _() -> Any:
        command = [sys.executable, "-m", "llm", "prompt", "--model", "served", question]
        chosen = [part for name, value in options.items() for part in ("--option", name, str(value))]
        ended = subprocess.run([*command, *chosen], capture_output=True, text=True, check=True, timeout=60)
        return answer(ended.stdout.removesuffix("\n"), None, None, None)

    for stream in (False, True):

        @report.objects("stream" if stream else "plain")
        def _(stream: bool = stream) -> Any:
            limit = options | {"max_tokens": TASK["max_tokens_of_calls"]}
            return json.loads(model.prompt(question, schema=TASK["tool"]["parameters"], stream=stream, **limit).text())

    @report.others("with tools")
    def _() -> Any:
        # It cannot insist on a call; what must work is a request that has tools, and one after a call.
        return model.conversation(tools=[plan_trip]).chain(question, options=options, chain_limit=3).text()

    @report.others("too long")
    def _() -> Any:
        return exception_of(lambda: model.prompt(TASK["too_long"], **options).text())
