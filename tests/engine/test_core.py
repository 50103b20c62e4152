"""The core with a tiny model: what a request gets depends on the request alone, and it always gets an end."""

from typing import Any

import pytest
from msgspec import structs

from pagewire.engine.core import Admission, EngineCore
from pagewire.engine.models.base import Model
from pagewire.protocol.messages import Generate, Sampling
from tests.engine.driving import FRONTEND, Answer, Driver, make_core
from tests.toy_tokenizer import IM_END, VOCAB_SIZE

pytestmark = pytest.mark.usefixtures("one_thread")

GREEDY = Sampling(max_tokens=24, temperature=0.0, ignore_eos=True)
SEEDED = Sampling(max_tokens=24, temperature=1.0, top_p=0.95, seed=7, ignore_eos=True)
# Prompts of many lengths, some of several blocks.
PROMPTS = [list(f"{'prompt number ' * (number % 5)}{number}".encode()) for number in range(12)]


@pytest.fixture
def driver(model: Model, runs_ahead: bool) -> Driver:
    return Driver(make_core(model, runs_ahead=runs_ahead))


@pytest.fixture
def small_driver(model: Model, runs_ahead: bool) -> Driver:
    """A core whose pool holds two or three of the sequences that want to run."""
    return Driver(make_core(model, num_blocks=13, budget_tokens=16, max_model_len=208, runs_ahead=runs_ahead))


def alone(model: Model, prompt: list[int], sampling: Sampling) -> Answer:
    """What the prompt gets from a core that has never seen anything else."""
    return Driver(make_core(model)).answer(prompt, sampling)


def force(token: int, **values: Any) -> Sampling:
    """Sampling that can choose nothing but one token."""
    return Sampling(**{"max_tokens": 8, "temperature": 0.0, "logit_bias": {token: 1000.0}, **values})


# --- one request, whatever runs beside it


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_a_request_gets_the_same_ids_alone_and_among_others(model: Model, driver: Driver, sampling: Sampling) -> None:
    expected = [alone(model, prompt, sampling).ids for prompt in PROMPTS]
    assert [answer.ids for answer in driver.answer_all(PROMPTS, sampling)] == expected
    assert len({tuple(ids) for ids in expected}) == len(PROMPTS)


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_preemption_changes_nothing_but_the_count(model: Model, small_driver: Driver, sampling: Sampling) -> None:
    sampling = structs.replace(sampling, max_tokens=60, logprobs=2, frequency_penalty=0.5)
    expected = [alone(model, prompt, sampling) for prompt in PROMPTS[:6]]
    answers = small_driver.answer_all(PROMPTS[:6], sampling)
    assert small_driver.core.load().preemptions > 0
    assert sum(answer.finish.usage.preempted for answer in answers) == small_driver.core.load().preemptions
    for answer, other in zip(answers, expected, strict=True):
        assert (answer.ids, answer.text) == (other.ids, other.text)
        assert_same_logprobs(answer, other)


def test_prompt_logprobs_survive_chunks_and_preemption(model: Model, small_driver: Driver) -> None:
    sampling = structs.replace(GREEDY, max_tokens=60, prompt_logprobs=3)
    expected = [alone(model, prompt, sampling) for prompt in PROMPTS[:6]]
    answers = small_driver.answer_all(PROMPTS[:6], sampling)
    assert small_driver.core.load().preemptions > 0
    for answer, other, prompt in zip(answers, expected, PROMPTS, strict=False):
        entries = answer.prompt_logprobs
        assert [entry.id for entry in entries[1:] if entry] == prompt[1:]
        assert entries[0] is None
        for entry, same in zip(entries[1:], other.prompt_logprobs[1:], strict=True):
            assert entry is not None and same is not None  # noqa: PT018
            assert entry.logprob == pytest.approx(same.logprob, abs=1e-4)
            assert len(entry.top) == 3


def test_prompt_logprobs_alone_generate_nothing(driver: Driver) -> None:
    prompt = PROMPTS[4]
    answer = driver.answer(prompt, structs.replace(GREEDY, max_tokens=0, prompt_logprobs=0))
    assert len(answer.prompt_logprobs) == len(prompt)
    assert (answer.ids, answer.text, answer.finish.reason) == ([], "", "length")
    assert (answer.finish.usage.prompt, answer.finish.usage.completion) == (len(prompt), 0)


def test_seeds_that_differ_give_texts_that_differ_and_each_repeats(model: Model, driver: Driver) -> None:
    samplings = [structs.replace(SEEDED, seed=7 + index) for index in range(4)]
    rids = [driver.submit(PROMPTS[0], sampling) for sampling in samplings]
    driver.run()
    outputs = [driver.answers[rid].ids for rid in rids]
    assert outputs == [alone(model, PROMPTS[0], sampling).ids for sampling in samplings]
    assert len({tuple(ids) for ids in outputs}) == 4


def test_a_warm_prefix_cache_changes_nothing_but_the_count(driver: Driver) -> None:
    prompt = PROMPTS[4]
    cold, warm = driver.answer(prompt, GREEDY), driver.answer(prompt, GREEDY)
    assert warm.ids == cold.ids
    assert cold.finish.usage.cached == 0
    assert warm.finish.usage.cached == (len(prompt) - 1) // 16 * 16 > 0
    assert driver.core.load().cached_tokens == warm.finish.usage.cached


def test_a_prefix_is_not_shared_under_another_salt(driver: Driver) -> None:
    driver.answer(PROMPTS[4], GREEDY, salt="mine")
    assert driver.answer(PROMPTS[4], GREEDY, salt="yours").finish.usage.cached == 0


def test_with_prompt_logprobs_every_prompt_token_is_computed(driver: Driver) -> None:
    driver.answer(PROMPTS[4], GREEDY)
    answer = driver.answer(PROMPTS[4], structs.replace(GREEDY, prompt_logprobs=0))
    assert answer.finish.usage.cached == 0
    assert len(answer.prompt_logprobs) == len(PROMPTS[4])


def test_a_prompt_of_one_token_is_enough(driver: Driver) -> None:
    answer = driver.answer([65], structs.replace(GREEDY, prompt_logprobs=1))
    assert answer.prompt_logprobs == (None,)
    assert len(answer.ids) == GREEDY.max_tokens


# --- how a request ends


def test_usage_counts_what_was_delivered(driver: Driver) -> None:
    answer = driver.answer(PROMPTS[1], structs.replace(GREEDY, logprobs=0))
    usage = answer.finish.usage
    assert (usage.prompt, usage.completion) == (len(PROMPTS[1]), len(answer.ids))
    assert [entry.id for entry in answer.logprobs] == answer.ids
    assert answer.finish.reason == "length"


def test_the_end_token_ends_a_request_and_is_no_text(driver: Driver) -> None:
    answer = driver.answer(PROMPTS[0], force(IM_END))
    assert (answer.finish.reason, answer.finish.matched) == ("stop", None)
    assert (answer.ids, answer.text) == ([IM_END], "")


def test_the_end_token_can_be_ignored(driver: Driver) -> None:
    answer = driver.answer(PROMPTS[0], force(IM_END, ignore_eos=True, skip_special_tokens=False))
    assert (answer.finish.reason, answer.ids) == ("length", [IM_END] * 8)
    assert answer.text == "<|im_end|>" * 8


def test_the_end_token_waits_for_the_minimum(driver: Driver) -> None:
    answer = driver.answer(PROMPTS[0], force(IM_END, min_tokens=3))
    assert answer.finish.reason == "stop"
    assert answer.ids.index(IM_END) == 3
    assert answer.finish.usage.completion == 4


def test_a_stop_token_ends_a_request_and_is_named(driver: Driver) -> None:
    answer = driver.answer(PROMPTS[0], force(ord("x"), stop_token_ids=(ord("x"),)))
    assert (answer.finish.reason, answer.finish.matched, answer.text) == ("stop", ord("x"), "")


@pytest.mark.parametrize(("include", "text"), [(False, ""), (True, "xxx")])
def test_a_stop_string_ends_a_request_in_the_step_that_completes_it(driver: Driver, include: bool, text: str) -> None:
    answer = driver.answer(PROMPTS[0], force(ord("x"), stop=("xxx",), include_stop=include))
    assert (answer.finish.reason, answer.finish.matched, answer.text) == ("stop", "xxx", text)
    assert answer.finish.usage.completion == 3


def test_a_stop_prefix_that_comes_to_nothing_is_text_in_the_end(driver: Driver) -> None:
    answer = driver.answer(PROMPTS[0], force(ord("x"), stop=("xxxxxxxxxy",)))
    assert (answer.finish.reason, answer.text) == ("length", "x" * 8)


# --- more than fits


def test_a_prompt_beyond_the_context_is_refused_in_openais_words(driver: Driver) -> None:
    refusal = driver.try_submit([65] * 513, GREEDY)
    assert refusal is not None
    assert refusal.error is not None
    assert (refusal.error.code, refusal.error.param) == ("context_length_exceeded", "prompt")
    assert "maximum context length is 512 tokens" in refusal.error.message
    assert "513" in refusal.error.message


def test_an_answer_ends_with_the_context(driver: Driver) -> None:
    answer = driver.answer([65] * 500, structs.replace(GREEDY, max_tokens=100))
    assert (answer.finish.reason, len(answer.ids)) == ("length", 12)


def test_a_prompt_as_long_as_the_context_can_be_scored(driver: Driver) -> None:
    answer = driver.answer([65] * 512, structs.replace(GREEDY, max_tokens=0, prompt_logprobs=0))
    assert len(answer.prompt_logprobs) == 512


def test_a_prompt_that_the_pool_cannot_hold_ends_with_an_error(model: Model, runs_ahead: bool) -> None:
    driver = Driver(make_core(model, num_blocks=2, runs_ahead=runs_ahead))
    answer = driver.answer([65] * 33, GREEDY)
    assert answer.finish.error is not None
    assert answer.finish.error.code == "context_length_exceeded"


def test_an_answer_that_fills_the_pool_ends_early(model: Model, runs_ahead: bool) -> None:
    driver = Driver(make_core(model, num_blocks=2, runs_ahead=runs_ahead))
    answer = driver.answer([65] * 20, GREEDY)
    assert answer.finish.reason == "length"
    assert len(answer.ids) == answer.finish.usage.completion == 13


# --- refusals


@pytest.mark.parametrize(
    ("prompt", "words"), [([], "no tokens"), ([VOCAB_SIZE], f"outside 0..{VOCAB_SIZE - 1}"), ([-1], "outside")]
)
def test_a_prompt_that_makes_no_sense_is_refused(driver: Driver, prompt: list[int], words: str) -> None:
    refusal = driver.try_submit(prompt, GREEDY)
    assert refusal is not None
    assert refusal.error is not None
    assert (refusal.error.code, refusal.error.param) == ("invalid", "prompt")
    assert words in refusal.error.message
    assert driver.core.load().rejections == 1


@pytest.mark.parametrize(
    "values",
    [
        {"max_tokens": -1},
        {"min_tokens": 2**63},
        {"logprobs": 21},
        {"prompt_logprobs": -5},
        {"stop_token_ids": (2**63,)},
        {"allowed_token_ids": (-1,)},
    ],
    ids=lambda values: next(iter(values)),
)
def test_sampling_that_a_step_could_not_work_with_is_refused(driver: Driver, values: dict[str, Any]) -> None:
    refusal = driver.try_submit([65] * 600, structs.replace(GREEDY, **values))
    assert refusal is not None
    assert refusal.error is not None
    assert (refusal.error.code, refusal.error.param) == ("invalid", *values)


def test_a_request_id_in_use_is_refused_and_leaves_its_owner_alone(driver: Driver) -> None:
    rid = driver.submit(PROMPTS[0], GREEDY)
    refusal = driver.core.submit((FRONTEND, rid), Generate(rid, (65,), GREEDY))
    assert refusal is not None
    assert refusal.error is not None
    assert refusal.error.code == "invalid"
    driver.run()
    assert len(driver.answers[rid].ids) == GREEDY.max_tokens


@pytest.mark.parametrize("admission", [Admission(2, None), Admission(100, 2)], ids=["requests", "tokens"])
def test_a_full_queue_refuses_what_would_wait(model: Model, admission: Admission) -> None:
    driver = Driver(make_core(model, max_num_seqs=2, admission=admission))
    for _ in range(2):
        driver.submit([65], GREEDY)
    driver.step()
    for _ in range(2):
        driver.submit([65], GREEDY)
    refusal = driver.try_submit([65], GREEDY)
    assert refusal is not None
    assert refusal.error is not None
    assert (refusal.error.code, refusal.error.retryable) == ("overloaded", True)
    driver.run()
    assert driver.answer([65], GREEDY).finish.reason == "length"


def test_a_draining_core_refuses_what_is_new_and_finishes_what_runs(driver: Driver) -> None:
    rid = driver.submit(PROMPTS[0], GREEDY)
    driver.step()
    driver.core.refuse_new("the engine is shutting down")
    refusal = driver.try_submit(PROMPTS[1], GREEDY)
    assert refusal is not None
    assert refusal.error is not None
    assert (refusal.error.code, refusal.error.message) == ("draining", "the engine is shutting down")
    driver.run()
    assert len(driver.answers[rid].ids) == GREEDY.max_tokens


# --- aborts


@pytest.mark.parametrize("steps", [0, 1, 2, 5, 20])
def test_an_abort_at_any_time_frees_everything_and_disturbs_no_other(
    model: Model, small_driver: Driver, steps: int
) -> None:
    sampling = structs.replace(GREEDY, max_tokens=40)
    rids = [small_driver.submit(prompt, sampling) for prompt in PROMPTS[:6]]
    for _ in range(steps):
        small_driver.step()
    for rid in rids[::2]:
        small_driver.abort(rid)
    small_driver.run()
    for rid, prompt in list(zip(rids, PROMPTS, strict=False))[1::2]:
        assert small_driver.answers[rid].ids == alone(model, prompt, sampling).ids
    assert not any(small_driver.answers[rid].over for rid in rids[::2])
    assert small_driver.core.load().aborts == 3


def test_a_request_ends_when_told_with_what_it_has_counted(driver: Driver) -> None:
    ended, other = driver.submit(PROMPTS[1], GREEDY), driver.submit(PROMPTS[2], GREEDY)
    driver.run(until=lambda: len(driver.answers[ended].ids) == 3)
    delta = driver.core.end((FRONTEND, ended))
    assert delta is not None
    assert delta.finish is not None
    assert (delta.finish.reason, delta.finish.usage.completion) == ("stop", 3)
    assert driver.core.end((FRONTEND, ended)) is None
    driver.run()
    assert (len(driver.answers[ended].ids), len(driver.answers[other].ids)) == (3, GREEDY.max_tokens)


def test_an_abort_of_the_last_request_leaves_nothing_to_do(driver: Driver) -> None:
    rid = driver.submit(PROMPTS[0], GREEDY)
    driver.step()
    driver.step()
    driver.abort(rid)
    driver.abort(rid)
    driver.run()
    assert driver.core.load().aborts == 1
    assert not driver.answers[rid].over


def test_an_id_can_be_used_again_after_an_abort(model: Model, driver: Driver) -> None:
    """The aborted request's step may still be under way when its successor starts."""
    key = (FRONTEND, 5)
    driver.core.submit(key, Generate(5, tuple(PROMPTS[0]), GREEDY))
    driver.step()
    driver.step()
    driver.core.abort(key)
    driver.answers.clear()
    driver.core.submit(key, Generate(5, tuple(PROMPTS[1]), GREEDY))
    driver.run()
    assert driver.answers[5].ids == alone(model, PROMPTS[1], GREEDY).ids


def test_losing_a_frontend_drops_its_requests_alone(model: Model, driver: Driver) -> None:
    mine = driver.submit(PROMPTS[0], GREEDY)
    for rid in range(3):
        driver.core.submit((b"other", rid), Generate(rid, tuple(PROMPTS[rid]), GREEDY))
    assert driver.core.abort_all(b"other") == 3
    driver.run()
    assert driver.answers[mine].ids == alone(model, PROMPTS[0], GREEDY).ids


def assert_same_logprobs(answer: Answer, other: Answer) -> None:
    assert len(answer.logprobs) == len(answer.ids)
    for entry, same in zip(answer.logprobs, other.logprobs, strict=True):
        assert (entry.id, entry.rank, entry.offset) == (same.id, same.rank, same.offset)
        assert entry.logprob == pytest.approx(same.logprob, abs=1e-4)
        assert [top.id for top in entry.top] == [top.id for top in same.top]


def test_a_core_without_work_says_so(driver: Driver) -> None:
    core: EngineCore = driver.core
    assert not core.has_work
    driver.answer(PROMPTS[0], GREEDY)
    assert not core.has_work
