"""``POST /v1/completions``: parse, tokenize, generate, answer. Prompts are used as given, without a template."""

from aiohttp import web

from pagewire.frontend.catalog import ServedModel
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.openai.admission import admitted
from pagewire.frontend.openai.best_of import BestShape, generated_choices
from pagewire.frontend.openai.completion_prompts import completion_prompts
from pagewire.frontend.openai.completion_shape import CompletionShape, echo_of
from pagewire.frontend.openai.errors import invalid
from pagewire.frontend.openai.http import read_request
from pagewire.frontend.openai.params import base_sampling, check_logprobs, fit_length
from pagewire.frontend.openai.respond import Shape, respond
from pagewire.frontend.openai.schema import CompletionRequest
from pagewire.frontend.openai.structured import constrained
from pagewire.frontend.openai.token_names import NamedByIdShape
from pagewire.frontend.openai.work import Prompt, plan_work
from pagewire.frontend.state import FRONTEND
from pagewire.protocol.messages import Sampling

DEFAULT_MAX_TOKENS = 16


@admitted
async def completions(http: web.Request) -> web.StreamResponse:
    """Handle one completions request."""
    frontend = http.app[FRONTEND]
    completion = await read_request(http, CompletionRequest)
    served = await frontend.catalog.find(completion.model)
    generated = generated_choices(completion, frontend.config)
    base = _sampling(completion, generated, served, frontend.config)
    base = await constrained(base, completion, frontend.grammars)

    given = await completion_prompts(completion, served, frontend)
    _check_choices(generated, len(given), frontend.config)
    prompts = [Prompt(prompt.ids, _max_tokens(completion, prompt.ids, prompt.param, served)) for prompt in given]

    echoes = [await echo_of(prompt, completion, served.tokenizer) for prompt in given] if completion.echo else None
    shape: Shape = CompletionShape(completion, served.name, [prompt.ids for prompt in prompts], echoes)
    if completion.return_tokens_as_token_ids:
        shape = NamedByIdShape(shape)
    if generated > completion.n:
        shape = BestShape(shape, kept=completion.n, generated=generated)
    work = plan_work(http, served, completion, base, prompts, per_prompt=generated)
    return await respond(http, frontend, work, shape)


def _sampling(completion: CompletionRequest, generated: int, served: ServedModel, config: FrontendConfig) -> Sampling:
    """The sampling that all choices share; log-probabilities of the prompt if it is echoed with them."""
    check_logprobs(completion.logprobs, "logprobs", served)
    wanted = [completion.prompt_logprobs, completion.logprobs if completion.echo else None]
    of_prompt = max((count for count in wanted if count is not None), default=None)
    logprobs = completion.logprobs
    if generated > completion.n and logprobs is None:
        # The best are chosen by them.
        logprobs = 0
    return base_sampling(completion, served, config, logprobs=logprobs, prompt_logprobs=of_prompt)


def _check_choices(generated: int, num_prompts: int, config: FrontendConfig) -> None:
    most = max(config.max_n, config.max_prompts)
    if num_prompts * generated > most:
        raise invalid(f"'n' times the number of prompts must be at most {most}, got {num_prompts * generated}.", "n")


def _max_tokens(completion: CompletionRequest, ids: tuple[int, ...], param: str, served: ServedModel) -> int:
    return fit_length(len(ids), completion.max_tokens, DEFAULT_MAX_TOKENS, served, part="prompt", param=param)
