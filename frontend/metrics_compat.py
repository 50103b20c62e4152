"""The same metrics once more under the names that vLLM gives them, for dashboards, gateways and alerts made for it."""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

# Those that mean the same in both, with the same unit, buckets and labels; only that what a frontend measures has no
# ``engine``.
SHARED_WITH_VLLM = frozenset(
    {
        "cache_config_info",
        "e2e_request_latency_seconds",
        "generation_tokens",
        "inter_token_latency_seconds",
        "kv_cache_usage_perc",
        "num_preemptions",
        "num_requests_running",
        "num_requests_waiting",
        "prefix_cache_hits",
        "prefix_cache_queries",
        "prompt_tokens",
        "prompt_tokens_cached",
        "request_decode_time_seconds",
        "request_generation_tokens",
        "request_params_max_tokens",
        "request_params_n",
        "request_prefill_time_seconds",
        "request_prompt_tokens",
        "request_queue_time_seconds",
        "request_success",
        "time_to_first_token_seconds",
    }
)


class RenamingCollector(Collector):
    """Some of a registry's metrics under other names; it must itself be registered elsewhere."""

    def __init__(self, registry: CollectorRegistry, names: dict[str, str]) -> None:
        """``names`` are the families' names in ``registry``, and what they become."""
        self._registry = registry
        self._names = names

    def collect(self) -> Iterator[Metric]:
        """The values are those of this moment."""
        for family in self._registry.collect():
            if family.name in self._names:
                yield _renamed(family, self._names[family.name])

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance, so that registering collects nothing."""
        return []


def vllm_registry(registry: CollectorRegistry, prefix: str) -> CollectorRegistry:
    """A registry with the metrics of ``registry``, whose names begin with ``prefix``, that vLLM has as well."""
    renamed = CollectorRegistry()
    renamed.register(RenamingCollector(registry, {f"{prefix}_{name}": f"vllm:{name}" for name in SHARED_WITH_VLLM}))
    return renamed


def _renamed(family: Metric, name: str) -> Metric:
    copy = Metric(name, family.documentation, family.type, family.unit)
    copy.samples = [sample._replace(name=name + sample.name.removeprefix(family.name)) for sample in family.samples]
    return copy
