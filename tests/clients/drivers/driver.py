"""What the Python drivers share; it must run in every client's environment, so it imports nothing but Python's own.

A driver reads one task from its standard input and writes one report to its standard output. The report has a section
for each kind of result, and in a section the result of each way in which the client can be asked for it. What a way
raised stands in the section ``failures``: the other ways are still tried.
"""

import json
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

TASK: dict[str, Any] = json.load(sys.stdin)


class Report:
    """Collects results and prints them when the ``with`` block ends."""

    def __init__(self) -> None:
        self._sections: dict[str, Any] = {"failures": {}}

    def __enter__(self) -> "Report":
        return self

    def __exit__(self, *exception: object) -> None:
        if exception[0] is None:
            print(json.dumps(self._sections))

    def answers(self, way: str) -> Callable[[Callable[[], Any]], None]:
        """The function decorated returns an ``answer``."""
        return self._way("answers", way)

    def calls(self, way: str) -> Callable[[Callable[[], Any]], None]:
        """The function decorated returns a list of ``call``."""
        return self._way("calls", way)

    def objects(self, way: str) -> Callable[[Callable[[], Any]], None]:
        """The function decorated returns an object that follows the schema of the task."""
        return self._way("objects", way)

    def others(self, way: str) -> Callable[[Callable[[], Any]], None]:
        """The function decorated returns something that only this client has."""
        return self._way("others", way)

    def errors(self, ask: Callable[..., Any], way: str = "") -> None:
        """Let ``ask`` run into each failure of the task; it takes ``base_url``, ``model`` and ``content``."""
        for failure, request in TASK["failing"].items():
            self._way("errors", f"{way} {failure}".strip())(partial(exception_of, partial(ask, **request)))

    def _way(self, section: str, way: str) -> Callable[[Callable[[], Any]], None]:
        def run(ask: Callable[[], Any]) -> None:
            try:
                self._sections.setdefault(section, {})[way] = ask()
            except Exception:
                self._sections["failures"][f"{section}: {way}"] = traceback.format_exc()

        return run


def answer(text: str | None, finish: str | None, prompt_tokens: int | None, completion_tokens: int | None) -> Any:
    """One answer in words; ``None`` is what this client does not tell."""
    return {
        "text": text,
        "finish": finish,
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
    }


def call(identity: str, name: str, arguments: str | dict[str, Any]) -> Any:
    """One call of a tool."""
    return {
        "id": identity,
        "name": name,
        "arguments": json.loads(arguments) if isinstance(arguments, str) else arguments,
    }


def exception_of(ask: Callable[[], Any]) -> Any:
    """The exception that asking raises: its class and those above it, its message, and the status it knows."""
    try:
        ask()
    except Exception as error:
        classes = [kind.__name__ for kind in type(error).__mro__]
        status = getattr(error, "status_code", None)
        return {"type": classes[0], "classes": classes, "message": str(error), "status": status}
    raise AssertionError("nothing was raised")
