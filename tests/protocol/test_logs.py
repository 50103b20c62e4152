import json
import logging

import pytest

from pagewire.protocol.logs import configure_logging, current_request_id

logger = logging.getLogger("pagewire.frontend.app")


@pytest.fixture(autouse=True)
def _restore_logging():
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_text_lines_name_level_and_place(capsys):
    configure_logging("info", "text")
    logger.warning("a %s", "b")
    assert capsys.readouterr().err.split(" ", 1)[1] == "warning frontend.app: a b\n"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a\n12:00:00 info main: b", r"a\n12:00:00 info main: b"),
        ("\x1b[2J\r\x00\x9b", r"\x1b[2J\r\x00\x9b"),
        ("\u2028\u202e\udc80", r"\u2028\u202e\udc80"),
        ("häßlich 日本 🙂", "häßlich 日本 🙂"),
    ],
)
def test_what_a_line_shows_can_neither_end_it_nor_control_a_terminal(value, shown, capsys):
    configure_logging("info", "text")
    logger.info("frontend %s connected", value, extra={"request_id": value})
    line = f" info frontend.app: frontend {shown} connected [request {shown}]\n"
    assert capsys.readouterr().err.partition(" ")[1:] == (" ", line[1:])


def test_no_line_of_a_trace_looks_like_one_of_the_log(capsys):
    configure_logging("info", "text")
    try:
        raise ValueError("bad\n12:00:00 info main: \x1bforged")
    except ValueError:
        logger.exception("failed")
    _, *trace = capsys.readouterr().err.splitlines()
    assert all(line.startswith("    ") for line in trace)
    assert trace[-1] == r"    12:00:00 info main: \x1bforged"


def test_lines_below_the_level_are_dropped(capsys):
    configure_logging("warning", "text")
    logger.info("quiet")
    assert capsys.readouterr().err == ""


def test_a_line_carries_the_request_it_belongs_to(capsys):
    configure_logging("info", "text")
    logger.info("a", extra={"request_id": "r1"})
    assert capsys.readouterr().err.endswith("a [request r1]\n")


def test_a_line_carries_the_request_of_its_task(capsys):
    configure_logging("info", "json")
    token = current_request_id.set("r2")
    logger.info("a")
    current_request_id.reset(token)
    assert json.loads(capsys.readouterr().err)["request_id"] == "r2"


def test_json_lines_are_one_object_each_even_with_an_exception(capsys):
    configure_logging("info", "json")
    try:
        raise ValueError("bad\nvalue")
    except ValueError:
        logger.exception("failed é")
    (line,) = capsys.readouterr().err.splitlines()
    entry = json.loads(line)
    assert (entry["level"], entry["logger"], entry["message"]) == ("error", "frontend.app", "failed é")
    assert "ValueError: bad\nvalue" in entry["exception"]


def test_libraries_are_quiet_unless_they_warn(capsys):
    configure_logging("debug", "text")
    logging.getLogger("asyncio").info("chatter")
    assert capsys.readouterr().err == ""


def test_configuring_again_does_not_double_lines(capsys):
    configure_logging("info", "text")
    configure_logging("info", "text")
    logger.info("once")
    assert len(capsys.readouterr().err.splitlines()) == 1
