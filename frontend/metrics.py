"""Prometheus metrics: what this frontend measures itself, and what its engines report about their load.

Names and buckets are those that dashboards for such servers already read, under our own prefix.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pagewire.frontend.metrics_compat import vllm_registry
from pagewire.frontend.pool import EngineModel, EnginePool
from pagewire.protocol.messages import Load

_TTFT_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5),
    *(5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN_LATENCY_BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5),
    *(0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_BUCKETS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_WORK_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_TOKEN_COUNT_BUCKETS = tuple(float(step * 10**power) for power in range(6) for step in (1, 2, 5))
_N_BUCKETS = (1.0, 2.0, 5.0, 10.0, 20.0)
# Field of ``Load``, name of the metric, what it counts.
_ENGINE_COUNTERS = (
    ("prompt_tokens", "prompt_tokens", "Prompt tokens processed."),
    ("cached_tokens", "prompt_tokens_cached", "Prompt tokens that were not computed again."),
    ("generation_tokens", "generation_tokens", "Tokens generated."),
    ("prefix_queries", "prefix_cache_queries", "Prompt tokens looked up in the prefix cache."),
    ("prefix_hits", "prefix_cache_hits", "Prompt tokens found in the prefix cache."),
    ("preemptions", "num_preemptions", "Requests preempted for lack of KV blocks."),
    ("rejections", "engine_rejections", "Requests the engine refused."),
    ("aborts", "engine_aborts", "Requests aborted."),
    ("steps", "engine_steps", "Steps run."),
    ("step_seconds", "engine_step_seconds", "Seconds spent in steps."),
)


@dataclass(frozen=True, slots=True)
class ModelMetrics:
    """The series of one model, looked up once: observing costs no search by labels."""

    time_to_first_token: Histogram
    inter_token_latency: Histogram
    e2e_latency: Histogram
    queue_time: Histogram
    prefill_time: Histogram
    decode_time: Histogram
    prompt_tokens: Histogram
    generation_tokens: Histogram
    params_n: Histogram
    params_max_tokens: Histogram
    finished: dict[str, Counter]


class Metrics:
    """All metrics of one frontend, in a registry of their own."""

    def __init__(
        self,
        pool: EnginePool,
        prefix: str,
        version: str,
        served_name: str | None = None,
        *,
        with_vllm_names: bool = False,
    ):
        """``prefix`` begins every name; ``served_name`` is what models are called here, if not by their own name."""
        self.registry = CollectorRegistry()
        self._renamed = vllm_registry(self.registry, prefix) if with_vllm_names else None
        self._prefix = prefix
        self._models: dict[str, ModelMetrics] = {}
        self.registry.register(EngineCollector(pool, prefix, served_name))
        self.http_requests = self._counter("http_requests", "HTTP requests answered.", "method", "route", "status")
        self.http_duration = self._histogram(
            "http_request_duration_seconds", "Seconds from request to end of answer.", _REQUEST_BUCKETS, "route"
        )
        self.rejections = self._counter("admission_rejections", "Requests refused for load.", "reason")
        self.disconnects = self._counter("client_disconnects", "Clients gone before their answer ended.")
        self.streams_open = self._gauge("streams_open", "Streams being sent.")
        self.render_seconds = self._histogram("template_render_seconds", "Seconds to apply a template.", _WORK_BUCKETS)
        self.tokenize_seconds = self._histogram("tokenize_seconds", "Seconds to tokenize a prompt.", _WORK_BUCKETS)
        self._gauge("build_info", "Version of this frontend.", "version").labels(version).set(1)
        self._finished = self._counter("request_success", "Choices ended.", "model_name", "finished_reason")
        self._families = self._model_families()

    def for_model(self, name: str) -> ModelMetrics:
        """The series of one model."""
        if name not in self._models:
            self._models[name] = self._bind(name)
        return self._models[name]

    def render(self) -> bytes:
        """All metrics in the text format that Prometheus reads."""
        own = generate_latest(self.registry)
        return own + generate_latest(self._renamed) if self._renamed else own

    def _model_families(self) -> dict[str, Histogram]:
        latency, tokens = _REQUEST_BUCKETS, _TOKEN_COUNT_BUCKETS
        rows: list[tuple[str, str, str, tuple[float, ...]]] = [
            ("time_to_first_token", "time_to_first_token_seconds", "Seconds until the first token.", _TTFT_BUCKETS),
            ("inter_token_latency", "inter_token_latency_seconds", "Seconds per token.", _TOKEN_LATENCY_BUCKETS),
            ("e2e_latency", "e2e_request_latency_seconds", "Seconds until the last token.", latency),
            ("queue_time", "request_queue_time_seconds", "Seconds in the engine's queue.", latency),
            ("prefill_time", "request_prefill_time_seconds", "Seconds from the queue to the first token.", latency),
            ("decode_time", "request_decode_time_seconds", "Seconds from first to last token.", latency),
            ("prompt_tokens", "request_prompt_tokens", "Prompt tokens.", tokens),
            ("generation_tokens", "request_generation_tokens", "Generated tokens.", tokens),
            ("params_n", "request_params_n", "Choices asked for.", _N_BUCKETS),
            ("params_max_tokens", "request_params_max_tokens", "Tokens asked for at most.", tokens),
        ]
        return {
            attribute: self._histogram(name, help_text, buckets, "model_name")
            for attribute, name, help_text, buckets in rows
        }

    def _bind(self, name: str) -> ModelMetrics:
        finished = {reason: self._finished.labels(name, reason) for reason in ("stop", "length", "abort", "error")}
        return ModelMetrics(**{key: family.labels(name) for key, family in self._families.items()}, finished=finished)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"{self._prefix}_{name}", help_text, labels, registry=self.registry)

    def _gauge(self, name: str, help_text: str, *labels: str) -> Gauge:
        return Gauge(f"{self._prefix}_{name}", help_text, labels, registry=self.registry)

    def _histogram(self, name: str, help_text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"{self._prefix}_{name}", help_text, labels, registry=self.registry, buckets=buckets)


class EngineCollector(Collector):
    """Exports the last load that each engine reported, read when Prometheus asks."""

    def __init__(self, pool: EnginePool, prefix: str, served_name: str | None):
        """Nothing is copied: the pool always has the newest."""
        self._pool = pool
        self._served_name = served_name
        self._prefix = prefix

    def collect(self) -> Iterator[Metric]:
        """One family per number, one sample per engine."""
        loads = list(enumerate(self._pool.loads()))
        yield from self._gauges(loads)
        yield from self._counters(loads)

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: names are fixed, samples depend on the engines."""
        return []

    def _gauges(self, loads: list[tuple[int, tuple[EngineModel, Load, bool]]]) -> Iterator[Metric]:
        up = self._gauge("engine_up", "Whether the engine takes requests.")
        running = self._gauge("num_requests_running", "Requests in the engine's batch.")
        waiting = self._gauge("num_requests_waiting", "Requests in the engine's queue.")
        usage = self._gauge("kv_cache_usage_perc", "Share of KV cache blocks in use, 0 to 1.")
        info = GaugeMetricFamily(
            f"{self._prefix}_cache_config_info",
            "The engine's KV cache.",
            labels=("model_name", "engine", "block_size", "num_gpu_blocks"),
        )
        for index, (entry, load, ready) in loads:
            labels = (self._served_name or entry.model.name, str(index))
            up.add_metric(labels, float(ready))
            # What a lost engine reported last is no longer so.
            running.add_metric(labels, load.running if ready else 0)
            waiting.add_metric(labels, load.waiting if ready else 0)
            usage.add_metric(labels, load.kv_usage if ready else 0)
            info.add_metric((*labels, str(entry.limits.block_size), str(entry.limits.num_blocks)), 1)
        yield from (up, running, waiting, usage, info)

    def _counters(self, loads: list[tuple[int, tuple[EngineModel, Load, bool]]]) -> Iterator[Metric]:
        for attribute, name, help_text in _ENGINE_COUNTERS:
            family = CounterMetricFamily(f"{self._prefix}_{name}", help_text, labels=("model_name", "engine"))
            for index, (entry, load, _) in loads:
                family.add_metric((self._served_name or entry.model.name, str(index)), getattr(load, attribute))
            yield family

    def _gauge(self, name: str, help_text: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"{self._prefix}_{name}", help_text, labels=("model_name", "engine"))
