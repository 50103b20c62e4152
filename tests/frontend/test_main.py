"""``pagewire-frontend`` as a process: starting, refusing to start, draining, stopping, reading keys again."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.fake_engine import FakeEngine, Say, Stop, Wait, until

TIMEOUT = aiohttp.ClientTimeout(total=20)


class Program:
    """The process, its address, and what it wrote."""

    def __init__(self, process: asyncio.subprocess.Process, url: str):
        self.process = process
        self.url = url
        self.log = ""

    async def read_until(self, *words: str) -> None:
        assert self.process.stderr
        while not all(word in self.log for word in words):
            line = await asyncio.wait_for(self.process.stderr.readline(), 20)
            assert line, self.log
            self.log += line.decode()

    async def end(self) -> int:
        assert self.process.stderr
        self.log += (await asyncio.wait_for(self.process.stderr.read(), 20)).decode()
        return await self.process.wait()


@asynccontextmanager
async def frontend(
    engine: FakeEngine, *options: str, program: tuple[str, ...] = ("-m", "pagewire.frontend.main")
) -> AsyncIterator[Program]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = (sys.executable, *program, "--engine", engine.address, "--port", str(port))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PAGEWIRE_")}
    process = await asyncio.create_subprocess_exec(*command, *options, stderr=asyncio.subprocess.PIPE, env=environment)
    try:
        yield Program(process, f"http://127.0.0.1:{port}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_stop_lets_open_requests_finish(engine: FakeEngine) -> None:
    go_on = asyncio.Event()
    engine.script = lambda request: [Say("a"), Wait(go_on), Say("b"), Stop()]
    async with engine.serving(), frontend(engine) as program, aiohttp.ClientSession(timeout=TIMEOUT) as http:
        await program.read_until("listening", "is ready")
        answer = asyncio.create_task(http.post(f"{program.url}/v1/completions", json={"prompt": "x"}))
        await until(lambda: engine.received)
        program.process.send_signal(signal.SIGTERM)
        await program.read_until("open requests")
        with pytest.raises(aiohttp.ClientConnectorError):
            await http.get(f"{program.url}/ready")
        go_on.set()
        assert (await (await answer).json())["choices"][0]["text"] == "ab"
        assert await program.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_stop_ends_it_at_once(engine: FakeEngine, number: signal.Signals) -> None:
    engine.script = lambda request: [Wait(asyncio.Event())]
    async with engine.serving(), frontend(engine) as program, aiohttp.ClientSession(timeout=TIMEOUT) as http:
        await program.read_until("listening", "is ready")
        answer = asyncio.create_task(http.post(f"{program.url}/v1/completions", json={"prompt": "x"}))
        await until(lambda: engine.received)
        program.process.send_signal(number)
        await program.read_until("open requests")
        program.process.send_signal(number)
        assert await program.end() == 128 + number
        with pytest.raises(aiohttp.ClientError):
            await answer


async def test_what_does_not_finish_in_time_is_cut_off(engine: FakeEngine) -> None:
    engine.script = lambda request: [Wait(asyncio.Event())]
    async with engine.serving(), frontend(engine, "--shutdown-timeout", "0.1") as program:
        await program.read_until("listening", "is ready")
        async with aiohttp.ClientSession(timeout=TIMEOUT) as http:
            answer = asyncio.create_task(http.post(f"{program.url}/v1/completions", json={"prompt": "x"}))
            await until(lambda: engine.received)
            program.process.send_signal(signal.SIGTERM)
            assert (await answer).status == 503
            assert await program.end() == 0


async def test_a_grammar_that_is_still_being_checked_does_not_keep_it_from_ending(engine: FakeEngine) -> None:
    endless = (
        "import sys, time; from pagewire.frontend import main; from pagewire.frontend.grammars import checker;"
        "checker.grammar_source = lambda *_: print('checking', file=sys.stderr, flush=True) or time.sleep(600);"
        "sys.exit(main.main())"
    )
    async with (
        engine.serving(),
        frontend(engine, "--shutdown-timeout", "0.1", program=("-c", endless)) as program,
        aiohttp.ClientSession(timeout=TIMEOUT) as http,
    ):
        await program.read_until("listening", "is ready")
        body = {"prompt": "x", "structured_outputs": {"regex": "a"}}
        answer = asyncio.create_task(http.post(f"{program.url}/v1/completions", json=body))
        await program.read_until("checking")
        program.process.send_signal(signal.SIGTERM)
        assert await program.end() == 0
        await asyncio.wait([answer])


async def test_keys_are_read_again_on_sighup(engine: FakeEngine, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("old-key\n")
    async with frontend(engine, "--api-key-file", str(keys)) as program, aiohttp.ClientSession(timeout=TIMEOUT) as http:
        await program.read_until("listening")
        for key, words in (
            ("new-key", "read the keys again"),
            ("alice:", "keys stay as they were"),
            ("", "there is no key in"),
        ):
            keys.write_text(key)
            program.process.send_signal(signal.SIGHUP)
            await program.read_until(words)
            headers = {"Authorization": "Bearer new-key"}
            async with http.get(f"{program.url}/v1/models", headers=headers) as response:
                assert response.status == 200


async def test_the_chat_template_is_read_again_on_sighup(engine: FakeEngine, tmp_path: Path) -> None:
    template = tmp_path / "template.jinja"
    template.write_text("first")
    body = {"messages": [{"role": "user", "content": "x"}]}
    async with engine.serving(), frontend(engine, "--chat-template", str(template)) as program:
        await program.read_until("listening", "is ready")
        async with aiohttp.ClientSession(timeout=TIMEOUT) as http:
            for text, words, expected in (
                ("first", "", "first"),
                ("second", "read the chat template again", "second"),
                ("{% if %}", "the chat template stays as it was", "second"),
            ):
                if words:
                    template.write_text(text)
                    program.process.send_signal(signal.SIGHUP)
                    await program.read_until(words)
                async with http.post(f"{program.url}/v1/chat/completions/render", json=body) as response:
                    assert (await response.json())["data"][0]["prompt"] == expected


async def test_requests_are_logged_with_their_id_and_without_their_text(engine: FakeEngine) -> None:
    async with engine.serving(), frontend(engine) as program, aiohttp.ClientSession(timeout=TIMEOUT) as http:
        await program.read_until("listening", "is ready")
        body, headers = {"prompt": "my secret"}, {"X-Request-Id": "id-of-mine"}
        async with http.post(f"{program.url}/v1/completions", json=body, headers=headers) as response:
            assert response.status == 200
        await http.get(f"{program.url}/health")
        program.process.send_signal(signal.SIGTERM)
        assert await program.end() == 0
    [line] = [line for line in program.log.splitlines() if "/v1/completions" in line]
    assert "id-of-mine" in line
    assert "finish=stop" in line
    assert "secret" not in program.log
    assert "/health" not in program.log


@pytest.mark.parametrize(
    "options",
    [
        ("--chat-template", "./no/such/template.jinja"),
        ("--chat-template", "{% if %}"),
        ("--api-key-file", "/no/such/file"),
        ("--api-key-file", "/dev/null"),
        ("--ssl-certfile", "/no/such/file"),
        ("--ssl-keyfile", "/no/such/file"),
        ("--override-generation-config", '{"temprature": 1}'),
        ("--override-generation-config", '{"temperature": 5}'),
        ("--default-chat-template-kwargs", '{"tools": []}'),
    ],
)
async def test_wrong_options_are_refused_at_start_in_one_line(engine: FakeEngine, options: tuple[str, ...]) -> None:
    async with frontend(engine, *options) as program:
        assert await program.end() == 2
    [line] = program.log.splitlines()
    assert line.startswith("pagewire-frontend: ")


async def test_an_address_that_is_taken_ends_the_start(engine: FakeEngine) -> None:
    async with frontend(engine) as first:
        await first.read_until("listening")
        async with frontend(engine, "--port", first.url.rpartition(":")[2]) as second:
            assert await second.end() == 1
    assert "cannot listen" in second.log


async def test_listening_at_a_unix_socket(engine: FakeEngine, tmp_path: Path) -> None:
    path = tmp_path / "http"
    async with engine.serving(), frontend(engine, "--uds", str(path)) as program:
        await program.read_until("listening", "is ready")
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as http:
            assert (await http.get("http://localhost/health")).status == 200
        program.process.send_signal(signal.SIGINT)
        assert await program.end() == 0
    assert not path.exists()
