"""How much work those may ask for who only want to see tokens."""

from typing import Any

import pytest

from pagewire.frontend.openai import prompts, tokenize
from pagewire.frontend.tokenizer import Tokenizer
from tests.fake_engine import LIMITS, FakeEngine
from tests.frontend.running import Server

MOST = 16 * LIMITS.max_model_len
LONG = "x" * (MOST + 1)


@pytest.fixture(autouse=True)
def lower_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds at which a test is still quick."""
    monkeypatch.setattr(prompts, "_COUNTED_CHARS", 1)
    monkeypatch.setattr(tokenize, "_MOST_IDS", 1)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"prompt": LONG}),
        ("/tokenize", {"messages": [{"role": "user", "content": LONG}]}),
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": LONG}]}),
        ("/detokenize", {"tokens": [1] * (LIMITS.max_model_len + 1)}),
    ],
)
async def test_what_is_far_longer_than_the_context_is_refused(server: Server, path: str, body: dict[str, Any]) -> None:
    status, answer = await server.post(path, body)
    assert status == 400
    assert f"at most {LIMITS.max_model_len if 'tokens' in body else MOST} " in answer["error"]["message"]


async def test_the_bound_itself_is_allowed(server: Server) -> None:
    assert (await server.post("/tokenize", {"prompt": LONG[1:]}))[1]["count"] == MOST
    ids = [72] * LIMITS.max_model_len
    assert (await server.post("/detokenize", {"tokens": ids}))[1] == {"prompt": "H" * LIMITS.max_model_len}


async def test_of_a_prompt_to_be_cut_only_the_end_is_tokenized(
    server: Server, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    encode = Tokenizer.encode_async

    async def watched(self: Tokenizer, text: str, add_special_tokens: bool) -> list[int]:
        seen.append(len(text))
        return await encode(self, text, add_special_tokens)

    monkeypatch.setattr(Tokenizer, "encode_async", watched)
    await server.complete(LONG + "abc", truncate_prompt_tokens=3, max_tokens=1)
    await server.complete([999_999] + [97] * LIMITS.max_model_len, truncate_prompt_tokens=3, max_tokens=1)
    assert seen == [MOST]
    assert [bytes(request.prompt) for request in engine.received] == [b"abc", b"aaa"]
