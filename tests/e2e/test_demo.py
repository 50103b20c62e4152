"""The demo model from its GGUF file, served by the real programs: what a stranger tries first.

Where the words of an answer must be known, a bias forces each token to be the same word.
"""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.e2e.programs import Deployment, Frontend

NAME = "smollm2-135m-instruct"
WORD = " zebra"
QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def demo() -> Iterator[Frontend]:
    with Deployment.running() as deployment:
        deployment.start_engine("demo", "--num-kv-blocks", "256")
        frontend = deployment.start_frontend()
        frontend.wait_until_ready()
        yield frontend


@pytest.fixture(scope="module")
def client(demo: Frontend) -> Iterator[openai.OpenAI]:
    with demo.client() as client:
        yield client


def post(client: openai.OpenAI, path: str, **body: Any) -> dict[str, Any]:
    """A route that the client has no method for, outside its base address."""
    url = str(client.base_url).removesuffix("/v1/") + path
    return client.post(url, body=body, cast_to=dict[str, Any])


def tokens(client: openai.OpenAI, text: str) -> list[int]:
    ids: list[int] = post(client, "/tokenize", prompt=text, add_special_tokens=False)["tokens"]
    return ids


@pytest.fixture(scope="module")
def word(client: openai.OpenAI) -> dict[str, int]:
    """The bias that leaves one word to say; it is a single token."""
    (token,) = tokens(client, WORD)
    return {str(token): 100}


def chat(client: openai.OpenAI, messages: list[Any], **fields: Any) -> Any:
    return client.chat.completions.create(model=NAME, messages=messages, temperature=0, **fields)


def test_the_model_answers_a_question_of_its_size(client: openai.OpenAI) -> None:
    assert "Paris" in chat(client, QUESTION, max_tokens=16).choices[0].message.content


def test_an_answer_ends_by_itself(client: openai.OpenAI) -> None:
    answer = chat(client, QUESTION, max_tokens=100)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens < 100
    assert "<|im_end|>" not in answer.choices[0].message.content


def test_the_template_gives_the_tokens_that_are_counted(client: openai.OpenAI, word: dict[str, int]) -> None:
    written = (
        "<|im_start|>system\nYou are terse.<|im_end|>\n<|im_start|>user\nName a fruit.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    messages = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "Name a fruit."}]
    by_hand = client.completions.create(model=NAME, prompt=written, max_tokens=2, logit_bias=word)
    assert by_hand.usage is not None
    assert chat(client, messages, max_tokens=2, logit_bias=word).usage.prompt_tokens == by_hand.usage.prompt_tokens
    assert by_hand.usage.prompt_tokens == len(tokens(client, written))


def test_content_in_parts_is_the_same_as_one_string(client: openai.OpenAI) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": QUESTION[0]["content"]}]}]
    whole, split = (chat(client, messages, max_tokens=8) for messages in (QUESTION, parts))
    assert split.choices[0].message.content == whole.choices[0].message.content
    assert split.usage.prompt_tokens == whole.usage.prompt_tokens


def test_a_forced_word_is_said_as_often_as_allowed(client: openai.OpenAI, word: dict[str, int]) -> None:
    answer = chat(client, QUESTION, max_tokens=3, logit_bias=word)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (WORD * 3, "length")


@pytest.mark.parametrize(("include", "text"), [(False, " "), (True, " zebra zeb")])
def test_a_stop_string_may_end_within_a_token(
    client: openai.OpenAI, word: dict[str, int], include: bool, text: str
) -> None:
    fields = {"include_stop_str_in_output": include}
    answer = client.completions.create(
        model=NAME, prompt="Stripes:", max_tokens=9, stop="zebra zeb", logit_bias=word, extra_body=fields
    )
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.text) == ("stop", text)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 2
    assert choice.model_extra is not None
    assert choice.model_extra["stop_reason"] == "zebra zeb"


def test_a_prompt_can_be_scored_without_an_answer(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=NAME, prompt="The sky is blue", max_tokens=0, echo=True, logprobs=1)
    (choice,) = answer.choices
    assert choice.text == "The sky is blue"
    assert choice.logprobs is not None
    assert choice.logprobs.tokens == ["The", " sky", " is", " blue"]
    assert choice.logprobs.token_logprobs is not None
    first, *others = choice.logprobs.token_logprobs
    assert first is None
    assert all(entry < 0 for entry in others)


def test_a_message_is_continued_where_it_stops(client: openai.OpenAI, word: dict[str, int]) -> None:
    messages = [*QUESTION, {"role": "assistant", "content": "I think it is a"}]
    fields = {"continue_final_message": True, "add_generation_prompt": False, "echo": True}
    answer = chat(client, messages, max_tokens=2, logit_bias=word, extra_body=fields)
    assert answer.choices[0].message.content == f"I think it is a{WORD * 2}"


def test_a_second_request_finds_its_prefix_cached(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "Tell me about a river. " * 10}]
    cold, warm = (chat(client, messages, max_tokens=4) for _ in range(2))
    assert cold.choices[0].message.content == warm.choices[0].message.content
    assert cold.usage.prompt_tokens_details.cached_tokens < 48
    assert warm.usage.prompt_tokens_details.cached_tokens >= warm.usage.prompt_tokens // 16 * 16 - 16


@pytest.mark.parametrize("text", ["naïve café 🙂 日本語", "  two  spaces\n\ttab", "1234567890", "<|im_start|>user"])
def test_text_survives_tokenizing_and_back(client: openai.OpenAI, text: str) -> None:
    assert post(client, "/detokenize", tokens=tokens(client, text))["prompt"] == text


def test_an_image_is_refused_and_the_server_lives_on(client: openai.OpenAI) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with pytest.raises(openai.BadRequestError):
        chat(client, [{"role": "user", "content": [image]}], max_tokens=1)
    assert chat(client, QUESTION, max_tokens=1).usage.completion_tokens == 1


def test_an_unknown_route_is_an_error_that_the_client_understands(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="There is no such route"):
        client.get("/nothing", cast_to=object)
