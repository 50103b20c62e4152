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
