"""The environment that templates are written for: transformers' flavour of Jinja, always sandboxed.

What templates of published models rely on: blocks are trimmed (``trim_blocks``, ``lstrip_blocks``), loops know
``break`` and ``continue``, ``{% generation %}`` marks what the model says, ``tojson`` is plain JSON without HTML
escapes, ``raise_exception`` refuses a conversation and ``strftime_now`` tells the date. Undefined names are empty.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from pagewire.frontend.templates import limits
from pagewire.frontend.templates.errors import TemplateError
from pagewire.frontend.templates.guards import RenderContext, add_checks, guard_filters, spend


class GenerationBlock(Extension):
    """``{% generation %} ... {% endgeneration %}``: marks training targets; when rendering it is only its content."""

    tags = {"generation"}  # noqa: RUF012 (declared so by the base class)

    def parse(self, parser: Parser) -> nodes.CallBlock:
        """Parse the block into a call that returns its body."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        block = nodes.CallBlock(self.call_method("_body"), [], [], body)
        block.set_lineno(line)
        return block

    def _body(self, caller: Callable[[], str]) -> str:
        return caller()


class TemplateNamespace(Namespace):
    """Jinja's ``namespace`` without attributes that begin with an underscore, as transformers has it."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        """Take the attributes as ``dict`` does. No parameter has a name, so that any keyword can be an attribute."""
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _require_public(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        """Assign an attribute: ``{% set ns.name = value %}``."""
        _require_public(name)
        super().__setitem__(name, value)


def _require_public(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace attribute must not begin with an underscore: {name!r}")


class DictFactory:
    """``dict`` as templates may use it: to build dictionaries, not to reach the type."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """Build a dictionary as Python's ``dict`` does."""
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        """Build a dictionary with the same value for each key."""
        return dict.fromkeys(*args)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, with a budget checked at every call and operator."""

    context_class = RenderContext
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Run one of the intercepted operators, unless its result would be huge."""
        limits.check_operator(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call ``__obj``, unless its result would be huge or the time is over."""
        spend(__context)
        limits.check_method(__obj, args)
        return super().call(__context, __obj, *args, **kwargs)


def build_environment(now: Callable[[], datetime] = datetime.now) -> TemplateEnvironment:
    """Return an environment with the filters and globals that templates expect; ``now`` is the clock they see."""
    environment = TemplateEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, loopcontrols])

    def strftime_now(format: str) -> str:
        return now().strftime(format)

    environment.globals.update(
        raise_exception=_raise_exception, strftime_now=strftime_now, dict=DictFactory(), namespace=TemplateNamespace
    )
    # Random filler text: of no use in a prompt, and a favourite way into Python's internals.
    del environment.globals["lipsum"]
    environment.filters["tojson"] = _tojson
    guard_filters(environment.filters)
    return environment


def parse_template(environment: TemplateEnvironment, text: str) -> nodes.Template:
    """Return the syntax tree of ``text``; TemplateError names the line of a syntax error."""
    with _as_compile_error():
        return environment.parse(text)


def compile_template(environment: TemplateEnvironment, text: str) -> jinja2.Template:
    """Compile ``text`` with the budget checks built in; TemplateError names the line of a syntax error."""
    tree = parse_template(environment, text)
    with _as_compile_error():
        add_checks(tree, environment)
        code = environment.compile(tree)
    return jinja2.Template.from_code(environment, code, environment.make_globals(None))


def render_template(template: jinja2.Template, variables: Mapping[str, Any], budget: limits.Budget) -> str:
    """Render ``template``; whatever goes wrong in it becomes a TemplateError."""
    context = template.new_context(dict(variables))
    assert isinstance(context, RenderContext)
    context.budget = budget
    pieces: list[str] = []
    size = 0
    with _as_template_error(template):
        for piece in template.root_render_func(context):
            size += len(piece)
            limits.require_size(size)
            pieces.append(piece)
    return "".join(pieces)


@contextmanager
def _as_compile_error() -> Iterator[None]:
    try:
        yield
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"chat template, line {error.lineno}: {error.message}", None) from error
    except (RecursionError, SyntaxError) as error:  # nested too deeply, or a break outside of a loop
        raise TemplateError(f"chat template: cannot be compiled ({error})", None) from error


@contextmanager
def _as_template_error(template: jinja2.Template) -> Iterator[None]:
    try:
        yield
    except TemplateError:
        raise
    except _Refusal as refusal:
        raise TemplateError(str(refusal.message)) from refusal
    except Exception as error:  # a template can provoke any exception there is
        line = _line_of(error, template)
        words = str(error) or type(error).__name__
        raise TemplateError(f"{words} (chat template, line {line})" if line else words) from error


def _line_of(error: Exception, template: jinja2.Template) -> int | None:
    """Return the template's line in which ``error`` arose: that of the innermost frame of compiled template code."""
    line, frame = None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_globals.get("environment") is template.environment:
            line = template.get_corresponding_lineno(frame.tb_lineno)
        frame = frame.tb_next
    return line


class _Refusal(jinja2.TemplateError):
    """Raised by the template itself."""


def _raise_exception(message: Any) -> None:
    raise _Refusal(str(message))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    limits.require_width(indent)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
