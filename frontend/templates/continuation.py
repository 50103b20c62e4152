"""Leaving the last message open: the prompt ends where the message's content ends, whatever the template adds."""

import secrets
from typing import Any

from pagewire.frontend.templates.errors import TemplateError


class Continuation:
    """A mark at the end of the last message's content, by which the place is found again in the rendered text.

    The mark ends in a space: if that is gone in the rendered text, the template trims content, and the spaces that
    the content ended with have to go as well.
    """

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        """Mark the last of ``messages`` in place; TemplateError if it has no text to continue."""
        # Nobody can have written it.
        self._mark = f"END_OF_OPEN_MESSAGE_{secrets.token_hex(8)}"
        last = messages[-1]
        content = last.get("content")
        if isinstance(content, str):
            self._text = content
            last["content"] = f"{content}{self._mark} "
        elif content:
            self._text = content[-1]["text"]
            content[-1]["text"] = f"{self._text}{self._mark} "
        else:
            raise TemplateError("continue_final_message: the last message has no content to continue")

    def cut(self, rendered: str) -> str:
        """Return ``rendered`` up to the end of the open message; TemplateError if the message is not in it."""
        end = rendered.rfind(self._mark)
        if end < 0 or self._text.strip() not in rendered:
            raise TemplateError(
                "continue_final_message: the chat template drops or changes the content of the last message, "
                "so it cannot be continued"
            )
        kept_spaces = rendered.startswith(" ", end + len(self._mark))
        # A template may show the last message more than once; it stays open where it is shown last.
        open_text = rendered[:end].replace(f"{self._mark} ", "").replace(self._mark, "")
        return open_text if kept_spaces else open_text.rstrip()
