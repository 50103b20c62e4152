"""Grammars in the engine: whatever the model wants, what is finished follows the grammar."""

import itertools
import json
import re
import threading
import time
from typing import Any

import jsonschema
import numpy as np
import pytest
from llguidance import LLMatcher
from torch import Tensor

from pagewire.engine.grammar import GrammarCompiler
from pagewire.engine.models.base import Model
from pagewire.engine.sampling.grammar import GrammarMasks
from pagewire.engine.sampling.primitives import Ints
from pagewire.engine.vocabulary import Vocabulary
from pagewire.protocol.grammar import MAX_GRAMMAR_CHARS
from pagewire.protocol.messages import Error, Sampling
from tests.engine.driving import FRONTEND, Answer, Driver, make_core
from tests.toy_tokenizer import IM_END, VOCAB_SIZE, tokenizer_json

pytestmark = pytest.mark.usefixtures("one_thread")

PROMPT = list(b"Answer in JSON: ")
SCHEMAS: dict[str, Any] = {
    "object": {
        "type": "object",
        "properties": {"id": {"type": "integer", "minimum": 0, "maximum": 999}, "kind": {"enum": ["a", "bb", None]}},
        "required": ["id", "kind"],
        "additionalProperties": False,
    },
    "array": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 4},
    "string": {"type": "string", "minLength": 2, "maxLength": 6, "pattern": "^[a-z]+$"},
    "choice of types": {"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 10, "maximum": 20}]},
    "recursive": {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                "required": ["next"],
                "additionalProperties": False,
            }
        },
        "$ref": "#/$defs/node",
    },
    "free strings": {
        "type": "object",
        "properties": {"text": {"type": "string", "maxLength": 12}},
        "required": ["text"],
        "additionalProperties": False,
    },
}


def of_schema(schema: Any) -> str:
    source: str = LLMatcher.grammar_from_json_schema(schema, overrides={"whitespace_flexible": False})
    return source


def of_regex(pattern: str) -> str:
    source: str = LLMatcher.grammar_from_regex(pattern)
    return source


@pytest.fixture
def driver(model: Model, runs_ahead: bool) -> Driver:
    return Driver(make_core(model, runs_ahead=runs_ahead))


def answers_of(driver: Driver, samplings: list[Sampling]) -> list[Answer]:
    rids = [driver.submit(PROMPT, sampling) for sampling in samplings]
    driver.run()
    return [driver.answers[rid] for rid in rids]


def wild(grammar: str | None, seed: int, **fields: Any) -> Sampling:
    """A sampling so hot that only the grammar decides."""
    return Sampling(**{"max_tokens": 200, "temperature": 5.0, "seed": seed, "grammar": grammar} | fields)


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_finished_answer_is_valid_and_every_cut_one_could_have_become_so(driver: Driver, name: str) -> None:
    grammar = of_schema(SCHEMAS[name])
    shapes: list[dict[str, Any]] = [{}, {"top_k": 5}, {"top_p": 0.9}, {"repetition_penalty": 1.3}, {"max_tokens": 8}]
    samplings = [wild(grammar, seed, **shape) for seed, shape in enumerate(shapes * 3)]
    for answer in answers_of(driver, samplings):
        if answer.finish.reason == "stop":
            assert answer.ids[-1] == IM_END
            jsonschema.validate(json.loads(answer.text), SCHEMAS[name])
        else:
            assert answer.finish.reason == "length"
            assert accepts_prefix(grammar, answer.ids)


def accepts_prefix(grammar: str, token_ids: list[int]) -> bool:
    compiler = GrammarCompiler(Vocabulary(tokenizer_json()), VOCAB_SIZE, [IM_END])
    matcher = compiled(compiler, grammar)
    assert isinstance(matcher, LLMatcher)
    taken: int = matcher.try_consume_tokens(token_ids)
    return taken == len(token_ids)


def compiled(compiler: GrammarCompiler, source: str) -> LLMatcher | Error:
    compiler.start((FRONTEND, 0), source)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for _, outcome in compiler.ready(1.0):
            return outcome
    raise AssertionError("the grammar is never ready")


def test_an_answer_does_not_depend_on_its_neighbours_or_on_preemption(model: Model) -> None:
    grammar = of_schema(SCHEMAS["free strings"])
    samplings = [wild(grammar if seed % 2 else None, seed, max_tokens=40) for seed in range(8)]
    alone = [answers_of(Driver(make_core(model)), [sampling])[0] for sampling in samplings]
    crowded = Driver(make_core(model, num_blocks=8, budget_tokens=16))
    together = answers_of(crowded, samplings)
    assert [answer.text for answer in together] == [answer.text for answer in alone]
    assert crowded.core.load().preemptions > 0


def test_greedy_answers_take_the_best_token_that_the_grammar_allows(driver: Driver) -> None:
    sampling = Sampling(max_tokens=20, temperature=0.0, grammar=of_regex("[ab]{6}"), logprobs=0)
    (answer,) = answers_of(driver, [sampling])
    assert re.fullmatch("[ab]{6}", answer.text)
    assert answer.finish.reason == "stop"
    free = driver.answer(PROMPT, Sampling(max_tokens=1, temperature=0.0, logprobs=20))
    of_model = {entry.id: entry.logprob for entry in free.logprobs[0].top}
    # Log-probabilities are the model's own, whatever the grammar forbids.
    assert answer.logprobs[0].logprob <= min(of_model.values()) or answer.logprobs[0].id in of_model


@pytest.mark.parametrize("fields", [{"min_tokens": 50}, {"ignore_eos": True}, {"stop_token_ids": (ord("y"),)}])
def test_a_complete_grammar_ends_an_answer_that_should_go_on(driver: Driver, fields: dict[str, Any]) -> None:
    (answer,) = answers_of(driver, [wild(of_regex("x"), 1, **fields)])
    assert (answer.text, answer.finish.reason, answer.finish.error) == ("x", "stop", None)


def test_an_end_is_held_back_while_the_grammar_has_more(driver: Driver) -> None:
    held = answers_of(driver, [wild(of_regex("x*"), seed, min_tokens=12) for seed in range(6)])
    assert all(len(answer.text) >= 12 for answer in held)
    endless = answers_of(driver, [wild(of_regex("x*"), seed, ignore_eos=True, max_tokens=30) for seed in range(6)])
    assert {(len(answer.text), answer.finish.reason) for answer in endless} == {(30, "length")}


def test_stop_strings_end_a_bound_answer_early(driver: Driver) -> None:
    (answer,) = answers_of(driver, [wild(of_regex("ab.{20}"), 1, stop=("b",))])
    assert (answer.text, answer.finish.reason, answer.finish.matched) == ("a", "stop", "b")


def test_special_tokens_are_no_text(driver: Driver) -> None:
    answers = answers_of(driver, [wild(of_regex(r"(?s:.){30}"), seed, skip_special_tokens=False) for seed in range(10)])
    special = set(range(256, VOCAB_SIZE))
    assert all(special.isdisjoint(answer.ids[:-1]) for answer in answers)


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("start: missing", "unknown name"),
        (of_regex("(?=a)b"), "look-around"),
        (of_schema({"not": {}}), "not"),
        ("x" * (MAX_GRAMMAR_CHARS + 1), "characters"),
        ("", "the grammar cannot be used"),
    ],
)
def test_a_grammar_that_cannot_be_used_is_refused_and_its_neighbour_answered(
    driver: Driver, source: str, what: str
) -> None:
    bad, good = answers_of(driver, [wild(source, 1), wild(of_regex("ok"), 1)])
    assert bad.finish.error is not None
    assert (bad.finish.error.code, bad.ids) == ("invalid", [])
    assert what in bad.finish.error.message
    assert good.text == "ok"


def test_masks_can_be_written_into_the_models_own_logits_as_on_a_gpu(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def apply(self: GrammarMasks, logits: Tensor, slots: Ints, positions: Ints) -> None:
        rows = np.flatnonzero(self.constrained(slots))
        self._forbid_on_device(logits, rows, self._fill(slots[rows]))

    monkeypatch.setattr(GrammarMasks, "apply", apply)
    assert driver.answer(PROMPT, wild(of_regex("ok"), 1)).text == "ok"


def test_a_request_is_accepted_only_when_its_grammar_is_compiled(driver: Driver) -> None:
    rid = driver.submit(PROMPT, wild(of_regex("ok"), 1))
    assert driver.core.is_compiling((FRONTEND, rid))
    assert driver.core.load().waiting == 1
    driver.run(until=lambda: rid in driver.answers)
    first = driver.answers[rid].deltas[0]
    assert (first.text, first.ids, first.finish) == ("", (), None)


def test_waiting_for_a_grammar_is_no_step(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def waiting(*arguments: Any, **fields: Any) -> LLMatcher:
        released.wait(60)
        return LLMatcher(*arguments, **fields)

    monkeypatch.setattr("pagewire.engine.grammar.LLMatcher", waiting)
    monkeypatch.setattr("pagewire.engine.core.GRAMMAR_WAIT_S", 0.001)
    monkeypatch.setattr(driver.core, "_clock", itertools.count().__next__)  # each look at it is a second later
    driver.submit(PROMPT, wild(of_regex("ok"), 1))
    for _ in range(3):
        driver.step()
    assert (driver.core.load().steps, driver.core.load().step_seconds) == (0, 0)
    released.set()
    driver.run()
    assert driver.core.load().steps > 0
    assert driver.core.load().step_seconds > 0


def test_a_request_can_be_aborted_while_it_is_compiled(driver: Driver) -> None:
    rid = driver.submit(PROMPT, wild(of_regex("ok"), 1))
    driver.abort(rid)
    assert not driver.core.has_work
    assert driver.answer(PROMPT, wild(of_regex("ok"), 2)).text == "ok"


def test_a_grammar_that_meets_a_limit_ends_its_own_request_only(driver: Driver) -> None:
    ambiguous = 'start: a{500,3000}\na: b{1,3000}\nb: "x" | "y"'
    bad, good = answers_of(driver, [wild(ambiguous, 1), wild(None, 1, max_tokens=150)])
    assert bad.finish.error is not None
    assert bad.finish.error.code == "invalid"
    assert good.finish.error is None


@pytest.mark.parametrize(
    "source",
    [
        "start: a0\n" + "\n".join(f"a{i}: a{i + 1}" for i in range(15_000)) + '\na15000: "y"',
        "start: A0\n" + "\n".join(f"A{i}: A{i + 1}" for i in range(15_000)) + '\nA15000: "y"',
        of_schema(
            {
                "$ref": "#/$defs/a0",
                "$defs": {
                    **{f"a{i}": {"properties": {"x": {"$ref": f"#/$defs/a{i + 1}"}}} for i in range(4000)},
                    "a4000": {},
                },
            }
        ),
        "start: " + "(" * 100_000,
        '{"grammars":[{"json_schema":' + '{"items":' * 20_000 + "}" * 20_000,
    ],
    ids=["rules", "terminals", "references", "parentheses", "json"],
)
def test_no_depth_of_nesting_overflows_the_stack(source: str) -> None:
    compiler = GrammarCompiler(Vocabulary(tokenizer_json()), VOCAB_SIZE, [IM_END])
    assert isinstance(compiled(compiler, source), LLMatcher | Error)


def test_one_grammar_is_compiled_once_for_all_who_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def counting(*arguments: Any, **fields: Any) -> LLMatcher:
        built.append(arguments[1])
        return LLMatcher(*arguments, **fields)

    monkeypatch.setattr("pagewire.engine.grammar.LLMatcher", counting)
    compiler = GrammarCompiler(Vocabulary(tokenizer_json()), VOCAB_SIZE, [IM_END])
    first, second = (compiled(compiler, of_regex("ab")) for _ in range(2))
    assert len(built) == 1
    assert isinstance(first, LLMatcher)
    assert isinstance(second, LLMatcher)
    first.consume_token(ord("a"))
    assert second.validate_tokens([ord("a")]) == 1


def test_a_grammar_that_nobody_waits_for_any_more_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    released = threading.Event()

    def waiting(*arguments: Any, **fields: Any) -> LLMatcher:
        built.append(arguments[1])
        released.wait(60)
        return LLMatcher(*arguments, **fields)

    monkeypatch.setattr("pagewire.engine.grammar.LLMatcher", waiting)
    compiler = GrammarCompiler(Vocabulary(tokenizer_json()), VOCAB_SIZE, [IM_END])
    busy, left, kept = [of_regex("a"), of_regex("b")], of_regex("left"), of_regex("kept")
    for number, source in enumerate([*busy, left, kept, kept]):
        compiler.start((FRONTEND, number), source)
    compiler.drop((FRONTEND, 2))
    compiler.drop((FRONTEND, 3))
    released.set()
    while len(compiler):
        assert all(isinstance(outcome, LLMatcher) for _, outcome in compiler.ready(60))
    assert sorted(built) == sorted([*busy, kept])
    assert isinstance(compiled(compiler, left), LLMatcher)
