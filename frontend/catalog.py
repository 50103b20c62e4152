"""The models that requests can name: what the engines serve, with tokenizer, template and sampling defaults."""

import asyncio
import logging
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.openai.defaults import SamplingDefaults, sampling_defaults
from pagewire.frontend.openai.errors import model_not_found, unavailable
from pagewire.frontend.pool import EngineModel, EnginePool
from pagewire.frontend.reasoning import ReasoningTags, reasoning_tags
from pagewire.frontend.template import (
    NO_TEMPLATE,
    ChatTemplate,
    TemplateError,
    check_template_kwargs,
    load_chat_template,
)
from pagewire.frontend.templates.source import TemplateText, is_named, read_template
from pagewire.frontend.tokenizer import Tokenizer
from pagewire.frontend.tools.formats import ToolFormat, tool_format
from pagewire.protocol.messages import Limits, Model

logger = logging.getLogger(__name__)

# How soon after an engine became ready its tokenizer and template are made.
_WATCH_INTERVAL_S = 0.2


@dataclass(frozen=True, slots=True)
class ServedModel:
    """Everything that a request to one model needs. ``name`` is its canonical name.

    ``tool_format`` is how it writes calls and ``reasoning`` the tags around its thoughts; None leaves them in the text.
    """

    name: str
    engine_model: EngineModel
    tokenizer: Tokenizer
    template: ChatTemplate | None
    defaults: SamplingDefaults
    tool_format: ToolFormat | None
    reasoning: ReasoningTags | None
    # What a chat is told if there is no template.
    no_template: str = NO_TEMPLATE

    @property
    def model(self) -> Model:
        """What the engine said about the model."""
        return self.engine_model.model

    @property
    def limits(self) -> Limits:
        """What the engine decided at start."""
        return self.engine_model.limits


def read_supplied_template(config: FrontendConfig) -> TemplateText | None:
    """Read and compile what ``--chat-template`` stands for; a ``name:`` has to wait for the model's own templates.

    Raises TemplateError for a value that leads to no template, or to one with a syntax error, and for variables that
    no request may set either.
    """
    check_template_kwargs(config.default_chat_template_kwargs, "--default-chat-template-kwargs")
    if not config.chat_template or is_named(config.chat_template):
        return None
    supplied = read_template(config.chat_template, {})
    ChatTemplate(supplied.text, supplied.origin, content_format=config.chat_template_content_format)
    return supplied


class Catalog:
    """Finds the model of a request among the ready engines, and keeps what is expensive to make for each engine."""

    def __init__(self, config: FrontendConfig, pool: EnginePool, supplied_template: TemplateText | None):
        """``supplied_template`` comes from ``read_supplied_template``."""
        self._config = config
        self._pool = pool
        self._supplied_template = supplied_template
        self._prepared: dict[str, ServedModel] = {}
        self._preparing = asyncio.Lock()

    def names(self) -> dict[str, EngineModel]:
        """Every name a request may use, the canonical one of each model first."""
        given, first = self._config.served_model_name, self._pool.first_known()
        names: dict[str, EngineModel] = {}
        for entry in self._pool.models():
            # Theirs even while that model is away: no other may answer in its name.
            has_given = given and first and entry.model.path == first.model.path
            for name in given if has_given else (entry.model.name, PurePath(entry.model.path).name):
                if name:
                    names.setdefault(name, entry)
        return names

    def entry(self, name: str | None) -> EngineModel:
        """Return what an engine serves as ``name``, or the first model for None; raises ApiError 404 or 503."""
        names = self.names()
        if not names:
            raise unavailable(f"No engine is ready: {self._pool.not_ready()}.")
        given = self._config.served_model_name
        if name is None:
            name = given[0] if given else next(iter(names))
        if name in names:
            return names[name]
        if name in given:
            raise unavailable(f"No engine with the model '{name}' is ready.")
        raise model_not_found(name)

    async def find(self, name: str | None) -> ServedModel:
        """Return the model called ``name``, or the first one for None; raises ApiError 404 or 503."""
        entry = self.entry(name)
        return self._prepared.get(entry.engine) or await self._prepare(entry)

    def use_template(self, supplied: TemplateText) -> None:
        """Let requests from now on use another text of what ``--chat-template`` stands for."""
        self._supplied_template = supplied
        self._prepared = {
            engine: replace(served, **self._template_parts(served.model)) for engine, served in self._prepared.items()
        }

    async def watch(self) -> None:
        """Prepare models as their engines become ready, so that the first request need not wait; runs for ever."""
        tried: set[str] = set()
        while True:
            for entry in self._pool.models():
                if entry.engine not in tried:
                    tried.add(entry.engine)
                    try:
                        await self._prepare(entry)
                    except Exception:
                        logger.exception("model %s cannot be served", entry.model.name)
            await asyncio.sleep(_WATCH_INTERVAL_S)

    async def _prepare(self, entry: EngineModel) -> ServedModel:
        async with self._preparing:
            if entry.engine not in self._prepared:
                same = next((old for old in self._prepared.values() if old.model == entry.model), None)
                if same:
                    served = replace(same, engine_model=entry)
                else:
                    served = await asyncio.to_thread(self._make, entry)
                connected = {other.engine for other in self._pool.models()}
                self._prepared = {key: old for key, old in self._prepared.items() if key in connected}
                self._prepared[entry.engine] = served
            return self._prepared[entry.engine]

    def _make(self, entry: EngineModel) -> ServedModel:
        model = entry.model
        return ServedModel(
            name=self._config.served_model_name[0] if self._config.served_model_name else model.name,
            engine_model=entry,
            tokenizer=Tokenizer(model.tokenizer_json),
            defaults=sampling_defaults(self._config, model.generation_defaults),
            **self._template_parts(model),
        )

    def _template_parts(self, model: Model) -> dict[str, Any]:
        """The template, and what is told from its text; one that cannot be used counts as none."""
        template, no_template = None, NO_TEMPLATE
        try:
            template = self._load_template(model)
        except TemplateError as error:
            logger.error("the chat template of %s cannot be used: %s", model.name, error)
            no_template = f"Chat requests cannot be answered, since the chat template cannot be used: {error}."
        return {
            "template": template,
            "no_template": no_template,
            "tool_format": tool_format(
                self._config.tool_call_parser, template.tool_text if template and template.takes_tools else None
            ),
            "reasoning": reasoning_tags(self._config.reasoning_parser, template.text if template else None),
        }

    def _load_template(self, model: Model) -> ChatTemplate | None:
        """The supplied template, else the model's, if it has one; raises TemplateError."""
        content_format = self._config.chat_template_content_format
        supplied = self._supplied_template
        if supplied:
            logger.info("using the supplied chat template (%s)", supplied.origin)
            logger.debug("chat template: %s", supplied.text)
            return ChatTemplate(supplied.text, supplied.origin, model.special_tokens, content_format=content_format)
        return load_chat_template(
            self._config.chat_template, model.chat_templates, model.special_tokens, content_format=content_format
        )
