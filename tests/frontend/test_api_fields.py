"""docs/api.md says of every field what becomes of it, and is up to date."""

import pytest

from tests.api_fields import DOCUMENT, REFUSED_BY_RESPONSES, Endpoint, endpoints, rows, updated
from tests.frontend.running import Server


@pytest.fixture(params=endpoints(), ids=lambda endpoint: endpoint.path)
def endpoint(request: pytest.FixtureRequest) -> Endpoint:
    assert isinstance(request.param, Endpoint)
    return request.param


def test_the_document_is_current() -> None:
    document = DOCUMENT.read_text("utf-8")
    assert document == updated(document), "run: python -m tests.api_fields"


def test_the_document_has_a_table_for_every_endpoint(endpoint: Endpoint) -> None:
    assert f"<!-- fields of {endpoint.path}: made by tests/api_fields.py -->" in DOCUMENT.read_text("utf-8")


def test_every_field_has_an_outcome_and_a_reason(endpoint: Endpoint) -> None:
    outcomes = {row.field: row for row in rows(endpoint)}
    assert {*endpoint.openai, *endpoint.vllm} <= outcomes.keys()
    assert all(row.outcome in ("works", "refused", "ignored") and len(row.note) > 5 for row in outcomes.values())


def test_a_field_that_nothing_is_said_about_is_an_error(endpoint: Endpoint) -> None:
    unknown = Endpoint(endpoint.path, {*endpoint.openai, "brand_new"}, endpoint.vllm, endpoint.request, endpoint.rules)
    with pytest.raises(LookupError, match="brand_new"):
        list(rows(unknown))


@pytest.mark.parametrize("field", REFUSED_BY_RESPONSES)
async def test_responses_refuse_what_the_table_says(server: Server, field: str) -> None:
    value = {"type": "text"} if field == "response_format" else 2
    status, answer = await server.post("/v1/responses", {"input": "Hi", field: value})
    assert (status, answer["error"]["param"]) == (400, field)
