import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from pagewire.protocol.option_fields import computed_option, option, required_option
from pagewire.protocol.option_types import choice, integer, json_object, number, seconds, size, switch, text, texts
from pagewire.protocol.options import read_options

Colour = Literal["red", "green", "off"]


@dataclass(frozen=True, kw_only=True)
class Config:
    model: str = required_option(text("a model"), group="Model", help="what to load", positional=True)
    port: int = option(integer(1, 65535, "PORT"), 8000, group="HTTP", help="where to listen")
    colour: Colour = option(choice(Colour), "red", group="HTTP", help="of the bike shed")
    max_body_size: int | None = option(size(), None, group="HTTP", help="bytes", aliases=("--body-limit",))
    share: float = option(number(0, 1), 0.5, group="HTTP", help="100% is 1")
    grace: float = option(seconds(), 30.0, group="HTTP", help="time to leave")
    warmup: bool = option(switch(), True, group="HTTP", help="run first", off_aliases=("--cold",))
    api_key: tuple[str, ...] = option(texts(), (), group="HTTP", help="keys", secret=True)
    overrides: dict[str, Any] = option(json_object(), {}, group="HTTP", help="more")
    where: str = computed_option(text(), lambda: "here", group="HTTP", help="place", shown_default="nearby")

    def __post_init__(self) -> None:
        if self.port == 13:
            raise ValueError("--port: 13 and a warm-up do not go together")


def read(*argv: str, **environ: str) -> Config:
    return read_options(
        Config, argv, prog="tool", description="A tool.", other_names={"elsewhere_flag"}, environ=environ
    )


@pytest.fixture
def error_of(capsys: pytest.CaptureFixture[str]):
    """The one line on standard error with which reading options exits."""

    def error(*argv: str, **environ: str) -> str:
        with pytest.raises(SystemExit) as exit_info:
            read(*argv, **environ)
        assert exit_info.value.code == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        (line,) = captured.err.splitlines()
        return line

    return error


def output_of(capsys: pytest.CaptureFixture[str], *argv: str, **environ: str) -> str:
    with pytest.raises(SystemExit) as exit_info:
        read(*argv, **environ)
    assert exit_info.value.code == 0
    return capsys.readouterr().out


def config_file(directory: Path, content: str, name: str = "config.yaml") -> str:
    path = directory / name
    path.write_text(content, encoding="utf-8")
    return str(path)


def test_without_flags_defaults_apply():
    assert read("m") == Config(model="m")


def test_a_positional_value_can_also_be_given_by_flag():
    assert read("--model", "m").model == read("m").model == "m"


def test_a_positional_value_may_stand_anywhere():
    assert read("--port", "1", "m", "--no-warmup") == Config(model="m", port=1, warmup=False)


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path):
    path = config_file(tmp_path, "port: 1\nshare: 0.1\ngrace: 1\n")
    config = read("m", "--config", path, "--port", "3", PAGEWIRE_PORT="2", PAGEWIRE_SHARE="0.2")
    assert (config.port, config.share, config.grace) == (3, 0.2, 1.0)


@pytest.mark.parametrize(("written", "bytes_"), [("8k", 8192), ("512M", 512 << 20), ("2GiB", 2 << 30), ("1.5K", 1536)])
def test_sizes_take_binary_units(written, bytes_):
    assert read("m", "--max-body-size", written).max_body_size == bytes_


@pytest.mark.parametrize("written", ["true", "1", "on", "YES"])
def test_a_switch_is_turned_on_by_environment(written):
    assert read("m", "--cold").warmup is False
    assert read("m", PAGEWIRE_WARMUP=written).warmup is True


@pytest.mark.parametrize("written", ["false", "0", "off", "No"])
def test_a_switch_is_turned_off_by_environment(written):
    assert read("m", PAGEWIRE_WARMUP=written).warmup is False


@pytest.mark.parametrize(
    "argv",
    [
        ("--api-key", "a", "--api-key", "b,c"),
        ("--api-key", "a,b,c"),
        ("--api-key", '["a", "b", "c"]'),
        ("--api-key=a", "--api-key", '["b", "c"]'),
    ],
)
def test_lists_come_from_repeated_flags_commas_or_json(argv):
    assert read("m", *argv).api_key == ("a", "b", "c")


def test_an_alias_sets_the_same_option():
    assert read("m", "--body-limit", "1k").max_body_size == 1024


def test_an_empty_environment_variable_is_unset():
    assert read("m", PAGEWIRE_PORT="").port == 8000


def test_the_config_file_may_be_toml_and_may_use_underscores(tmp_path):
    path = config_file(tmp_path, 'max_body_size = "1k"\napi-key = ["a", "b"]\n[overrides]\nx = 1\n', "c.toml")
    config = read("m", "--config", path)
    assert (config.max_body_size, config.api_key, config.overrides) == (1024, ("a", "b"), {"x": 1})


def test_a_bare_off_in_yaml_is_an_ordinary_choice(tmp_path):
    assert read("m", "--config", config_file(tmp_path, "colour: off\n")).colour == "off"


def test_null_in_the_config_file_leaves_the_default(tmp_path):
    assert read("m", "--config", config_file(tmp_path, "port: null\n")).port == 8000


def test_the_config_file_can_be_named_by_environment(tmp_path):
    assert read("m", PAGEWIRE_CONFIG=config_file(tmp_path, "port: 9\n")).port == 9


def test_the_config_file_may_hold_options_of_the_other_program(tmp_path):
    assert read("m", "--config", config_file(tmp_path, "elsewhere-flag: 1\nport: 9\n")).port == 9


def test_a_default_mapping_is_not_shared():
    first = read("m")
    first.overrides["x"] = 1
    assert read("m").overrides == {}


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (("m", "--port", "abc"), "--port: expected an integer between 1 and 65535, got 'abc'"),
        (("m", "--port", "0"), "--port: expected an integer between 1 and 65535, got '0'"),
        (("m", "--colour", "blue"), "--colour: expected red, green or off, got 'blue'"),
        (
            ("m", "--max-body-size", "2x"),
            "--max-body-size: expected a size of at least 1, such as 8k, 512M or 2G, got '2x'",
        ),
        (
            ("m", "--max-body-size", "9" * 400),
            f"--max-body-size: expected a size of at least 1, such as 8k, 512M or 2G, got '{'9' * 400}'",
        ),
        (("m", "--share", "nan"), "--share: expected a number between 0 and 1, got 'nan'"),
        (("m", "--grace", "-1"), "--grace: expected a number of seconds of at least 0, got '-1'"),
        (("m", "--overrides", "[1]"), "--overrides: expected a JSON object, got '[1]'"),
        (("m", "--port"), "--port: expected one argument"),
        (("m", "--prot", "80"), "unknown option --prot (did you mean --port?)"),
        (("m", "--por", "80"), "unknown option --por (did you mean --port?)"),
        (("m", "--zzzzzz"), "unknown option --zzzzzz"),
        (("m", "n"), "unexpected argument 'n'"),
        (("m", "--model", "n"), "--model: given twice, as 'm' and 'n'"),
        ((), "--model: required (what to load)"),
        (("m", "--port", "13"), "--port: 13 and a warm-up do not go together"),
        (("m", "--config", "/no/such/file"), "--config: cannot read /no/such/file: No such file or directory"),
    ],
)
def test_a_wrong_option_is_one_line_that_says_what_was_expected(error_of, argv, line):
    assert error_of(*argv) == f"tool: {line}"


def test_a_wrong_variable_is_named(error_of):
    line = error_of("m", PAGEWIRE_WARMUP="maybe")
    assert line == "tool: PAGEWIRE_WARMUP: expected true or false, got 'maybe'"


def test_a_wrong_value_in_a_file_is_named_with_its_place(error_of, tmp_path):
    path = config_file(tmp_path, "port: [1]\n")
    assert error_of("m", "--config", path) == (f"tool: {path}: port: expected an integer between 1 and 65535, got [1]")


def test_an_unknown_key_in_a_file_is_refused_with_the_nearest_name(error_of, tmp_path):
    path = config_file(tmp_path, "max-body-siz: 1\n")
    assert error_of("m", "--config", path) == f"tool: {path}: unknown key 'max-body-siz' (did you mean max-body-size?)"


@pytest.mark.parametrize("content", ["- a\n", "port: [\n"])
def test_a_file_that_is_no_mapping_is_one_line(error_of, tmp_path, content):
    assert error_of("m", "--config", config_file(tmp_path, content)).startswith("tool: --config: ")


def test_a_wrong_secret_is_not_repeated(error_of):
    assert "s3cr3t" not in error_of("m", "--api-key", '["s3cr3t", ')


def test_an_unknown_variable_is_a_warning_with_the_nearest_name(capsys):
    assert read("m", PAGEWIRE_PROT="1", PAGEWIRE_ELSEWHERE_FLAG="1").port == 8000
    assert capsys.readouterr().err == (
        "tool: warning: environment variable PAGEWIRE_PROT is not an option (did you mean PAGEWIRE_PORT?)\n"
    )


def test_print_config_shows_each_value_with_its_source_and_no_secret(capsys, tmp_path):
    path = config_file(tmp_path, "grace: 5\n")
    argv = ("m", "--config", path, "--api-key", "s3cr3t", "--print-config")
    rows = dict(line.split(": ", 1) for line in output_of(capsys, *argv, PAGEWIRE_PORT="9").splitlines())
    shown = {key: [part.strip() for part in row.split("#")] for key, row in rows.items()}
    assert shown["port"] == ["9", "PAGEWIRE_PORT"]
    assert shown["grace"] == ["5", path]
    assert shown["model"] == ["m", "command line"]
    assert shown["api-key"] == ["***", "command line"]
    assert shown["warmup"] == ["on", "default"]


def test_help_is_grouped_and_names_every_option_with_its_default(capsys):
    text_ = output_of(capsys, "--help")
    assert "usage: tool [MODEL] [options]" in text_
    assert "--port PORT" in text_
    assert "where to listen [8000]" in text_
    assert "place [nearby]" in text_
    assert "100% is 1" in text_
    assert "--warmup, --no-warmup" in text_
    assert "(also --body-limit)" in text_
    assert text_.index("Model:") < text_.index("HTTP:") < text_.index("General:")


def test_a_json_object_may_come_from_flag_or_environment():
    value = json.dumps({"a": [1]})
    assert read("m", "--overrides", value).overrides == read("m", PAGEWIRE_OVERRIDES=value).overrides == {"a": [1]}
