import argparse
import io
import json
from pathlib import Path

import pytest

from pagewire import template_tool
from pagewire.protocol.messages import Model
from tests.toy_tokenizer import CHATML, IM_END, VOCAB_SIZE, tokenizer_json

MESSAGES = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]


def model(templates: dict[str, str]) -> Model:
    return Model(
        name="toy",
        path="toy",
        created=0,
        vocab_size=VOCAB_SIZE,
        eos_token_ids=(IM_END,),
        tokenizer_json=tokenizer_json(),
        chat_templates=templates,
        special_tokens={"eos_token": "<|im_end|>"},
        generation_defaults={},
        dtype="float32",
    )


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    templates = {"toy": {"default": CHATML, "rag": "{{ documents }}"}, "bare": {}}
    monkeypatch.setattr(template_tool, "read_model", lambda name: model(templates[name]))


@pytest.fixture
def messages(tmp_path: Path) -> str:
    path = tmp_path / "messages.json"
    path.write_text(json.dumps(MESSAGES))
    return str(path)


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    template_tool.add_arguments(parser)
    return template_tool.run(parser.parse_args(arguments))


@pytest.mark.usefixtures("toy")
def test_show_prints_the_template_alone_and_tells_where_it_is_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "toy") == 0
    output = capsys.readouterr()
    assert output.out == CHATML + "\n"
    assert "# from: model" in output.err
    assert "# the model's templates: default, rag" in output.err


@pytest.mark.usefixtures("toy")
def test_show_names_the_variables_a_request_can_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "--chat-template", "{{ eos_token }}{{ enable_thinking }}{{ messages }}", "toy") == 0
    assert "# chat_template_kwargs: enable_thinking\n" in capsys.readouterr().err


@pytest.mark.usefixtures("toy")
def test_a_template_of_the_model_is_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "toy", "--chat-template", "name:rag") == 0
    assert capsys.readouterr().out == "{{ documents }}\n"


@pytest.mark.usefixtures("toy")
def test_render_prints_each_combination_with_its_tokens(messages: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("render", "toy", "--messages", messages) == 0
    output = capsys.readouterr().out
    history = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo"
    blocks = dict(block.split("\n", 1) for block in output.split("=== add_generation_prompt: ")[1:])
    assert list(blocks) == [
        f"{generate}, continue_final_message: {proceed}"
        for generate, proceed in [("true", "false"), ("false", "false"), ("true", "true"), ("false", "true")]
    ]
    first, second, third, fourth = blocks.values()
    assert first.startswith(history + "<|im_end|>\n<|im_start|>assistant\n")
    assert second == fourth
    assert second.startswith(history + "\n\n23 tokens:\n")
    assert "     257 special '<|im_end|>'\n" in second
    assert "      72         'H'\n" in second
    assert third.startswith("refused: continue_final_message")


def test_render_needs_no_model(messages: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--add-generation-prompt", "false", "--continue-final-message", "false")
    assert run("render", "--chat-template", "name:chatml", "--messages", messages, *options) == 0
    output = capsys.readouterr().out
    assert output.count("===") == 1
    assert output.endswith("<|im_start|>assistant\nYo\n\n")


def test_render_reads_a_request_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"model": "x", "messages": MESSAGES})))
    assert run("render", "--chat-template", "name:last_content") == 0
    assert "\nYo\n" in capsys.readouterr().out


def test_render_passes_tools_documents_and_further_variables(
    tmp_path: Path, messages: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "list.json"
    file.write_text("[1]")
    template = "{{ tools }}{{ documents }}{{ mood }}"
    options = ("--tools", str(file), "--documents", str(file), "--chat-template-kwargs", '{"mood": "good"}')
    assert run("render", "--chat-template", template, "--messages", messages, *options) == 0
    assert "[1][1]good\n" in capsys.readouterr().out


def test_render_fails_if_every_combination_is_refused(messages: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("render", "--chat-template", "{{ raise_exception('never') }}", "--messages", messages) == 1
    assert capsys.readouterr().out.count("refused: never") == 3


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("lint", "toy"), 0, "note: ignores-tools"),
        (("lint", "--chat-template", "name:tool_use"), 0, "nothing found"),
        (("lint", "toy", "--chat-template", "{{ messages[-1].content }}"), 0, "warning: drops-history"),
        (("lint", "--strict", "--chat-template", "{{ messages[-1].content }}"), 1, "warning: drops-history"),
        (("lint", "--chat-template", "{{ x"), 1, "error: syntax: chat template, line 1"),
        (("lint", "--chat-template", "{{ 1 }}"), 1, "error: drops-content"),
    ],
)
def test_lint_fails_for_errors_and_not_for_warnings(
    arguments: tuple[str, ...], status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == status
    assert words in capsys.readouterr().out


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show",), "give a model, --chat-template, or both"),
        (("show", "bare"), "no chat template"),
        (("show", "--chat-template", "./none.jinja"), "no such file"),
        (("render", "toy", "--messages", "./none.json"), "cannot be read"),
        (("render", "toy", "--chat-template-kwargs", "[]"), "cannot be read|JSON object"),
    ],
)
def test_wrong_input_is_one_line_and_status_1(
    arguments: tuple[str, ...],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("[]"))
    assert run(*arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("pagewire template: ")
    assert error.count("\n") == 1
    assert any(word in error for word in words.split("|"))


def test_a_model_that_does_not_exist_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "./no/such/model") == 1
    assert "no/such/model" in capsys.readouterr().err


def test_the_demo_model_has_the_prompts_its_users_know(messages: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gguf")
    if run("show", "demo") != 0:
        pytest.skip(capsys.readouterr().err)
    Path(messages).write_text(json.dumps([{"role": "user", "content": "Hello!"}]))
    capsys.readouterr()
    assert run("render", "demo", "--messages", messages) == 0
    first = capsys.readouterr().out.split("===")[1]
    assert "\n32 tokens:\n" in first
