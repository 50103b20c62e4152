"""Grammars for answers that may begin with reasoning: free until its closing tag, and bound from there on."""

import json
from collections.abc import Mapping

from pagewire.frontend.grammar_frames import as_regex, framed
from pagewire.frontend.reasoning import ReasoningTags


def after_reasoning(source: str, tags: ReasoningTags, special: Mapping[str, int], *, opened: bool) -> str:
    """A grammar that binds to ``source`` only what is not reasoning.

    ``special`` are the tags that are special tokens, with their ids; ``opened`` as ``ReasoningTags.opened_by`` tells.
    """
    return framed(lambda answer: _frame(tags, special, opened, answer), source)


def _frame(tags: ReasoningTags, special: Mapping[str, int], opened: bool, answer: str) -> str:
    if tags.close in special:
        thought = rf"thought: /(.|\n)*/ <[{special[tags.close]}]>"
    else:
        # Lazy: it ends with the first closing tag that there is.
        thought = rf"thought[lazy]: /(.|\n)*{as_regex(tags.close)}/"
    opening = f"<[{special[tags.open]}]>" if tags.open in special else json.dumps(tags.open)
    # Space may follow a thought only: there it belongs to neither, but without one it would be part of the answer.
    start = f"{opening}? thought space" if opened else f"({opening} thought space)?"
    return f"start: {start} {answer}\n{thought}\nspace: /\\n{{0,2}}/"
