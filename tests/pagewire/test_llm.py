"""Offline use: the whole server in one process, over a tiny random model."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagewire import LLM
from pagewire.llm import RequestError

HELLO = [{"role": "user", "content": "Hello"}]
FORCE_X = {"temperature": 0, "logit_bias": {"120": 100}}  # the tiny model's tokens are bytes


@pytest.fixture(scope="module")
def llm(tiny_model_directory: Path) -> Iterator[LLM]:
    with LLM(str(tiny_model_directory), num_kv_blocks=64, dtype="float32", warmup=False) as llm:
        yield llm


def test_a_conversation_is_answered(llm: LLM) -> None:
    answer = llm.chat(HELLO, max_tokens=4, **FORCE_X)
    assert (str(answer), answer.json["usage"]["completion_tokens"]) == ("xxxx", 4)


def test_a_last_message_is_continued_and_echoed_as_by_the_server(llm: LLM) -> None:
    conversation = [*HELLO, {"role": "assistant", "content": "Hi"}]
    assert llm.chat(conversation, continue_final_message=True, echo=True, max_tokens=2, **FORCE_X).text == "Hixx"


def test_several_prompts_are_answered_in_order(llm: LLM) -> None:
    answers = llm.generate(["one", "three"], echo=True, max_tokens=1, **FORCE_X)
    assert [answer.text for answer in answers] == ["onex", "threex"]


def test_every_choice_has_its_text(llm: LLM) -> None:
    assert llm.chat(HELLO, n=2, max_tokens=2, **FORCE_X).texts == ["xx", "xx"]


def test_what_the_server_would_refuse_is_an_error_with_its_words(llm: LLM) -> None:
    with pytest.raises(RequestError, match="temperature") as refused:
        llm.chat(HELLO, temperature=5)
    assert refused.value.error["param"] == "temperature"


def test_a_field_that_means_nothing_is_an_error(llm: LLM) -> None:
    with pytest.raises(RequestError, match="temprature"):
        llm.chat(HELLO, temprature=0)


NEVER_CLOSED = """
import atexit, os, signal, sys, threading
from pagewire import LLM
from pagewire.engine.core import EngineCore

def interrupt(core):
    EngineCore.step = step
    os.kill(os.getpid(), signal.SIGINT)
    return step(core)

# A shell has its background jobs ignore it, and what they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
atexit.register(lambda: print(*(thread.name for thread in threading.enumerate())))
step, EngineCore.step = EngineCore.step, interrupt
llm = LLM(sys.argv[1], num_kv_blocks=256, dtype="float32", warmup=False)
try:
    llm.generate(["x"] * 64, max_tokens=400, ignore_eos=True)
except KeyboardInterrupt:
    sys.exit(3)
"""


def test_a_script_that_never_closes_leaves_no_thread_to_crash_in_its_end(tiny_model_directory: Path) -> None:
    command = (sys.executable, "-c", NEVER_CLOSED, str(tiny_model_directory))
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=False)
    assert ended.returncode == 3
    assert not {"pagewire-engine", "pagewire-frontend"} & set(ended.stdout.split())
