from pathlib import Path

import msgspec
import pytest

from pagewire.bench.lengths import parse_lengths
from pagewire.bench.workloads import WorkloadSettings, make_workload


def settings(**fields: object) -> WorkloadSettings:
    base = WorkloadSettings(parse_lengths("20"), parse_lengths("5"))
    return msgspec.structs.replace(base, **fields)


def test_a_conversation_depends_on_the_seed_and_its_number_alone() -> None:
    first, second = make_workload(settings(), "7"), make_workload(settings(), "7")
    assert [first.conversation(index) for index in (3, 0)] == [second.conversation(index) for index in (3, 0)]
    assert first.conversation(0) != make_workload(settings(), "8").conversation(0)


def test_random_ids_have_the_length_and_stay_in_the_range() -> None:
    (turn,) = make_workload(settings(token_range=(50, 60)), "7").conversation(0).turns
    assert len(turn.prompt) == 20
    assert set(turn.prompt) <= set(range(50, 60))
    assert turn.output_tokens == 5


def test_a_shared_prefix_begins_every_prompt_of_its_group() -> None:
    workload = make_workload(settings(shared_prefix=8, prefix_groups=2), "7")
    prompts = [workload.conversation(index).turns[0].prompt for index in range(4)]
    assert prompts[0][:8] == prompts[2][:8] != prompts[1][:8] == prompts[3][:8]
    assert len({tuple(prompt[8:]) for prompt in prompts}) == 4
    assert {len(prompt) for prompt in prompts} == {28}


def test_text_prompts_have_a_word_for_each_token() -> None:
    conversation = make_workload(settings(prompt="text", shared_prefix=4, turns=2), "7").conversation(0)
    assert [len(str(turn.prompt).split()) for turn in conversation.turns] == [24, 20]


def test_chat_logs_give_questions_and_the_lengths_of_their_answers(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    said = [("system", "be brief"), ("human", "one?"), ("gpt", "a" * 40), ("human", "two?"), ("gpt", "b" * 80)]
    logged = {"conversations": [{"from": role, "value": text} for role, text in said]}
    log.write_bytes(msgspec.json.encode([logged, {"conversations": [{"from": "gpt", "value": "no question"}]}]))
    workload = make_workload(settings(sharegpt=str(log), turns=2, output=None), "7")
    assert workload.size == 1
    assert [(turn.prompt, turn.output_tokens) for turn in workload.conversation(5).turns] == [
        ("one?", 10),
        ("two?", 20),
    ]


def test_openai_messages_are_a_chat_log_too(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    log.write_text('[{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}]')
    (turn,) = make_workload(settings(sharegpt=str(log)), "7").conversation(0).turns
    assert (turn.prompt, turn.output_tokens) == ("q", 5)


def test_a_trace_gives_times_lengths_and_shared_blocks(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        '{"timestamp": 3500, "input_length": 600, "output_length": 7, "hash_ids": [1, 3]}\n'
        '{"timestamp": 1000, "input_length": 530, "output_length": 9, "hash_ids": [1, 2]}\n'
    )
    workload = make_workload(settings(trace=str(trace)), "7")
    first, second = (workload.conversation(index).turns[0] for index in (0, 1))
    assert workload.offsets == [0.0, 2.5]
    assert (len(first.prompt), first.output_tokens, len(second.prompt), second.output_tokens) == (530, 9, 600, 7)
    assert first.prompt[:512] == second.prompt[:512]
    assert first.prompt[512:530] != second.prompt[512:530]


@pytest.mark.parametrize("field", ["sharegpt", "trace"])
def test_a_file_that_is_something_else_is_refused_in_words(tmp_path: Path, field: str) -> None:
    other = tmp_path / "other"
    other.write_text("hello")
    with pytest.raises(ValueError, match="is not a"):
        make_workload(settings(**{field: str(other)}), "7")
