"""The table of fields in ``docs/responses.md`` says what the code does with every field that OpenAI's client knows."""

import re
from pathlib import Path
from typing import get_type_hints

import msgspec
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

from pagewire.frontend.responses.schema import RULES, ResponsesRequest

DOCUMENT = Path(__file__).parents[3] / "docs" / "responses.md"


def test_every_field_of_the_client_is_documented_as_it_is_treated() -> None:
    works = {field.encode_name for field in msgspec.structs.fields(ResponsesRequest)}
    documented = dict(re.findall(r"^\| `(\w+)` \| (works|refused|ignored) \|", DOCUMENT.read_text("utf-8"), re.M))
    fields = get_type_hints(ResponseCreateParamsStreaming)
    assert documented == {
        name: "works" if name in works else "refused" if name in RULES.refused else "ignored" for name in fields
    }


def test_every_ignored_field_has_a_reason() -> None:
    known = {field.encode_name for field in msgspec.structs.fields(ResponsesRequest)} | RULES.refused.keys()
    assert get_type_hints(ResponseCreateParamsStreaming).keys() - known <= RULES.ignored.keys()
