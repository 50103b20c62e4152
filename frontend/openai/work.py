"""A request ready to run: one job per choice, and what is counted and measured while it runs."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aiohttp import web

from pagewire.frontend.catalog import ServedModel
from pagewire.frontend.generation import IsComplete
from pagewire.frontend.openai.choices import Job
from pagewire.frontend.openai.http import ARRIVED
from pagewire.frontend.openai.params import for_choices
from pagewire.frontend.openai.progress import Progress
from pagewire.frontend.openai.schema import SamplingFields
from pagewire.frontend.openai.usage import UsageCounter
from pagewire.frontend.pool import EngineModel
from pagewire.frontend.state import FRONTEND
from pagewire.protocol.messages import Sampling

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids, and how many may be generated after them."""

    ids: tuple[int, ...]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Work:
    """A request ready to run: job ``i`` belongs to prompt ``i // per_prompt``."""

    fields: SamplingFields
    target: EngineModel
    jobs: Sequence[Job]
    usage: UsageCounter
    progress: Progress
    grammar_field: str  # what binds the answers, if anything does

    def summary(self) -> str:
        """One line for the log, without any text of the request."""
        usage = self.usage
        return (
            f"model={self.target.model.name} choices={len(self.jobs)} prompt={usage.prompt_tokens} "
            f"cached={usage.cached_tokens} completion={usage.completion_tokens} {self.progress.summary()}"
        )


def plan_work(
    http: web.Request,
    served: ServedModel,
    fields: SamplingFields,
    base: Sampling,
    prompts: Sequence[Prompt],
    reasoning_tokens: Callable[[], int] | None = None,
    *,
    per_prompt: int | None = None,
    new_ending: Callable[[], IsComplete | None] = lambda: None,
    format_field: str = "response_format",
) -> Work:
    """Make ``per_prompt`` jobs (default ``n``) for each prompt, which differ in their seeds only.

    ``reasoning_tokens`` is for the usage; ``new_ending`` makes what tells when a job's answer is complete;
    ``format_field`` is what the API calls a ``response_format``.
    """
    per_prompt = per_prompt or fields.n
    jobs = [
        Job(prompt.ids, sampling, fields.priority, fields.cache_salt, new_ending())
        for prompt in prompts
        for sampling in for_choices(base, prompt.max_tokens, fields.seed, per_prompt)
    ]
    frontend = http.app[FRONTEND]
    if frontend.config.log_requests == "full":
        for prompt in prompts:
            logger.info("prompt %r", served.tokenizer.decode(prompt.ids))
    metrics = frontend.metrics.for_model(served.name)
    metrics.params_n.observe(fields.n)
    metrics.params_max_tokens.observe(prompts[0].max_tokens)
    return Work(
        fields=fields,
        target=served.engine_model,
        jobs=jobs,
        usage=UsageCounter([len(prompt.ids) for prompt in prompts], per_prompt, reasoning_tokens),
        progress=Progress(metrics, http[ARRIVED], len(jobs)),
        grammar_field=_grammar_field(fields, format_field),
    )


def _grammar_field(fields: SamplingFields, format_field: str) -> str:
    if fields.response_format is not None:
        return format_field
    return "tools" if fields.structured_outputs is None else "structured_outputs"
