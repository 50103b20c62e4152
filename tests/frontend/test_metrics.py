"""``/metrics``: names that dashboards read, numbers that add up, series that stay few."""

import asyncio
import re

from prometheus_client.parser import text_string_to_metric_families

from pagewire.frontend.metrics_compat import SHARED_WITH_VLLM
from pagewire.protocol.messages import Error, Load
from tests.fake_engine import FakeEngine, Refuse, Say, Silence, Stop, until
from tests.frontend.running import Server, StartServer


async def scrape(server: Server) -> dict[str, float]:
    async with server.http.get(f"{server.url}/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain; version=")
        lines = (await response.text()).splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


async def test_the_load_of_engines_is_exported(start_server: StartServer, engine: FakeEngine) -> None:
    engine.load = Load(running=3, waiting=2, kv_usage=0.5, prefix_queries=100, prefix_hits=40, preemptions=1)
    samples = await scrape(await start_server())
    labels = '{engine="0",model_name="toy"}'
    assert samples[f"pagewire_num_requests_running{labels}"] == 3
    assert samples[f"pagewire_num_requests_waiting{labels}"] == 2
    assert samples[f"pagewire_kv_cache_usage_perc{labels}"] == 0.5
    assert samples[f"pagewire_prefix_cache_queries_total{labels}"] == 100
    assert samples[f"pagewire_prefix_cache_hits_total{labels}"] == 40
    assert samples[f"pagewire_num_preemptions_total{labels}"] == 1
    assert samples[f"pagewire_engine_up{labels}"] == 1


async def test_requests_are_measured(server: Server, engine: FakeEngine) -> None:
    engine.script = lambda request: [Say("abcd"), Stop()]
    await server.complete(n=2)
    await server.stream_completion(max_tokens=3)
    samples = await scrape(server)
    model = '{model_name="toy"}'
    assert samples[f"pagewire_time_to_first_token_seconds_count{model}"] == 3
    assert samples[f"pagewire_e2e_request_latency_seconds_count{model}"] == 3
    assert samples[f"pagewire_request_generation_tokens_sum{model}"] == 5 + 5 + 3
    assert samples[f"pagewire_request_prompt_tokens_sum{model}"] == 3 * 2
    assert samples['pagewire_request_success_total{finished_reason="stop",model_name="toy"}'] == 2
    assert samples['pagewire_request_success_total{finished_reason="length",model_name="toy"}'] == 1
    route = 'method="POST",route="/v1/completions",status="200"'
    assert samples[f"pagewire_http_requests_total{{{route}}}"] == 2


async def test_aborted_and_failed_requests_count_too(server: Server, engine: FakeEngine) -> None:
    engine.script = lambda request: [Say("x"), Refuse(Error("internal", "no"))]
    await server.complete()
    engine.script = lambda request: [Silence()]
    gone = asyncio.create_task(server.complete(n=2))
    await until(lambda: len(engine.received) == 3)
    gone.cancel()
    await until(lambda: server.frontend.inflight == 0)
    samples = await scrape(server)
    assert samples['pagewire_request_success_total{finished_reason="error",model_name="toy"}'] == 1
    assert samples['pagewire_request_success_total{finished_reason="abort",model_name="toy"}'] == 2
    assert samples["pagewire_client_disconnects_total"] == 1
    assert samples["pagewire_streams_open"] == 0


async def test_paths_that_do_not_exist_share_one_series(server: Server) -> None:
    for number in range(5):
        await server.get(f"/scan/{number}")
    names = [name for name in await scrape(server) if "http_requests_total" in name]
    assert len(names) == 1


async def test_names_follow_prometheus(server: Server) -> None:
    await server.complete()
    for name in await scrape(server):
        assert re.fullmatch(r"pagewire_[a-z0-9_]+(\{.*\})?", name)


async def test_two_frontends_of_one_process_count_apart(start_server: StartServer) -> None:
    first = await start_server()
    second = await start_server(with_engine=False)
    await first.get("/health")
    assert not any("http_requests" in name for name in await scrape(second))


async def test_metrics_can_be_off_and_prefixed(start_server: StartServer) -> None:
    off = await start_server(metrics=False, with_engine=False)
    assert (await off.get("/metrics"))[0] == 404
    named = await start_server(metrics_prefix="llm", with_engine=False)
    assert all(name.startswith("llm_") for name in await scrape(named))


async def test_metrics_can_be_had_once_more_under_the_names_of_vllm(
    start_server: StartServer, engine: FakeEngine
) -> None:
    engine.load = Load(running=3, waiting=2, kv_usage=0.5, prompt_tokens=70, preemptions=1)
    engine.script = lambda request: [Say("abcd"), Stop()]
    server = await start_server(metrics_compat="vllm", metrics_prefix="own", served_model_name=("shown",))
    await server.complete(model="shown", n=2)
    async with server.http.get(f"{server.url}/metrics") as response:
        families = {family.name: family for family in text_string_to_metric_families(await response.text())}
    for name in SHARED_WITH_VLLM:
        own, theirs = families[f"own_{name}"], families[f"vllm:{name}"]
        assert (theirs.type, theirs.documentation) == (own.type, own.documentation)
        assert [(sample.name.removeprefix("vllm:"), sample.labels, sample.value) for sample in theirs.samples] == [
            (sample.name.removeprefix("own_"), sample.labels, sample.value) for sample in own.samples
        ]
        assert all(sample.labels["model_name"] == "shown" for sample in theirs.samples)
    [prompt_tokens] = families["vllm:prompt_tokens"].samples
    assert (prompt_tokens.name, prompt_tokens.value) == ("vllm:prompt_tokens_total", 70)
    # The time at which a series began is a family of its own in this format.
    renamed = {name.removesuffix("_created") for name in families if name.startswith("vllm:")}
    assert renamed == {f"vllm:{name}" for name in SHARED_WITH_VLLM}
