import pytest
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import processors

from pagewire.frontend.template_lint import Finding, Subject, lint
from pagewire.frontend.templates.source import read_template, shipped_names
from pagewire.frontend.tokenizer import Tokenizer
from tests.toy_tokenizer import END_OF_TEXT, IM_END, IM_START, tokenizer_json

TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
TOOLS = "{{ tools | tojson if tools }}"
OPEN = read_template("name:tool_use", {}).text


def names(text: str, **options: object) -> dict[str, str]:
    return {finding.name: finding.level for finding in lint(Subject(text, **options))}  # type: ignore[arg-type]


def test_a_good_template_has_no_findings() -> None:
    assert lint(Subject(OPEN, {}, Tokenizer(tokenizer_json()), (IM_END,))) == []


@pytest.mark.parametrize("name", shipped_names())
def test_no_shipped_template_is_unusable(name: str) -> None:
    assert "error" not in names(read_template(f"name:{name}", {}).text).values()


@pytest.mark.parametrize(
    ("text", "name", "level"),
    [
        ("{{ x", "syntax", "error"),
        ("{{ raise_exception('no') }}", "fails", "error"),
        ("fixed", "drops-content", "error"),
        ("{{ messages[0].content | trim }}", "trims-content", "note"),
        ("{{ messages[-1].content }}", "drops-history", "warning"),
        (
            "{{ raise_exception('one turn') if messages | length > 1 }}{{ messages[0].content }}",
            "refuses-history",
            "warning",
        ),
        ("{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}", "drops-system-role", "warning"),
        ("{{ raise_exception('s') if messages[0].role == 'system' }}" + TURNS, "refuses-system-role", "warning"),
        ("{{ raise_exception('m') if 'meta' in messages[0].role }}" + TURNS, "refuses-other-role", "note"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "ignores-roles", "warning"),
        (TURNS, "no-generation-prompt", "warning"),
        (TURNS, "closes-last-message", "warning"),
        ("{% for m in messages %}{{ m.content.split('E')[0] }}{% endfor %}", "cannot-continue", "warning"),
        (TURNS, "ignores-tools", "note"),
        ("{{ strftime_now('%H:%M:%S') }}" + TURNS, "clock", "warning"),
    ],
)
def test_a_fault_is_found(text: str, name: str, level: str) -> None:
    assert names(text).get(name) == level


@pytest.mark.parametrize(
    ("format", "words"),
    [("%H:%M:%S", "every second from character 14"), ("%d %b", "every day from"), ("%Y", "every year from")],
)
def test_a_clock_in_the_prompt_is_reported_with_its_pace(format: str, words: str) -> None:
    text = "Today: {{ strftime_now('FORMAT') }}\n".replace("FORMAT", format) + TURNS
    assert any(finding.name == "clock" and words in finding.message for finding in lint(Subject(text)))


def test_errors_come_first() -> None:
    levels = [finding.level for finding in lint(Subject("{{ strftime_now('%S') }}"))]
    assert levels == sorted(levels, key=["error", "warning", "note"].index)
    assert levels[0] == "error"


def begin_findings(text: str, *, tokenizer_adds: bool) -> list[Finding]:
    fast = FastTokenizer.from_str(tokenizer_json())
    if tokenizer_adds:
        fast.post_processor = processors.TemplateProcessing("<|endoftext|> $A", None, [("<|endoftext|>", END_OF_TEXT)])
    subject = Subject(text, {"bos_token": "<|endoftext|>"}, Tokenizer(fast.to_str()), (IM_END,))
    return [finding for finding in lint(subject) if "begin-token" in finding.name]


def test_a_begin_token_written_twice_is_an_error() -> None:
    [finding] = begin_findings("{{ bos_token }}{{ bos_token }}" + TURNS, tokenizer_adds=False)
    assert (finding.level, finding.name) == ("error", "doubled-begin-token")


def test_a_begin_token_of_template_and_tokenizer_is_a_warning() -> None:
    [finding] = begin_findings("{{ bos_token }}" + TURNS, tokenizer_adds=True)
    assert (finding.level, finding.name) == ("warning", "doubled-begin-token")
    assert "add_special_tokens: false" in finding.message


def test_a_begin_token_that_only_the_tokenizer_adds_is_a_warning() -> None:
    [finding] = begin_findings(TURNS, tokenizer_adds=True)
    assert finding.name == "no-begin-token"
    assert begin_findings(TURNS, tokenizer_adds=False) == []
    assert begin_findings("{{ bos_token }}" + TURNS, tokenizer_adds=False) == []


def test_markers_and_turn_ends_are_compared_with_the_tokens_of_the_model() -> None:
    tokenizer = Tokenizer(tokenizer_json())
    foreign = TURNS.replace("<|im_end|>", "<|eot_id|>")
    assert names(foreign, tokenizer=tokenizer, eos_token_ids=(IM_END,))["unknown-marker"] == "warning"
    assert names(foreign, tokenizer=tokenizer, eos_token_ids=(IM_END,))["no-turn-end"] == "warning"
    assert names(TURNS, tokenizer=tokenizer, eos_token_ids=(IM_START,))["turn-end-is-no-stop"] == "warning"
    assert "turn-end-is-no-stop" not in names(TURNS, tokenizer=tokenizer, eos_token_ids=(IM_END,))
