"""Builds the checks of ``limits`` into a template: into its syntax tree, its filters and the context it renders in."""

from collections.abc import Callable
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.runtime import Context

from pagewire.frontend.templates import limits

_TICK = "_tick"
_CONCAT = "_concat"


class RenderContext(Context):
    """The variables of one rendering, and the budget it has."""

    budget: limits.Budget

    def derived(self, locals: dict[str, Any] | None = None) -> "RenderContext":
        """Return the context of an inner scope; it spends from the same budget."""
        context = super().derived(locals)
        assert isinstance(context, RenderContext)
        context.budget = self.budget
        return context


def spend(context: Context) -> None:
    """Check the budget of a rendering; raises TimeLimitError."""
    assert isinstance(context, RenderContext)
    context.budget.check()


def add_checks(tree: nodes.Template, environment: jinja2.Environment) -> None:
    """Add a budget check to every loop body and macro of ``tree``, and let ``~`` be measured."""
    for node in list(tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock))):
        assert isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock)
        tick = nodes.ExprStmt(_filter(nodes.Const(None), _TICK))
        node.body.insert(0, tick.set_lineno(node.lineno, override=True).set_environment(environment))
    _replace_concats(tree, environment)


def guard_filters(filters: dict[str, Callable[..., Any]]) -> None:
    """Add the filters that ``add_checks`` uses, and measure those that make something huge out of something small."""
    filters[_TICK] = _tick
    filters[_CONCAT] = _concat
    for name in ("center", "indent", "batch", "slice", "wordwrap"):
        filters[name] = _guarded(filters[name], lambda value, *args: limits.require_width(*args))
    filters["replace"] = _guarded(filters["replace"], limits.check_replace)
    filters["join"] = _guarded(filters["join"], lambda items, separator="", *_: limits.check_join(separator, items))
    filters["format"] = _guarded(filters["format"], lambda value, *args: limits.check_percent_format(str(value)))


@jinja2.pass_context
def _tick(context: Context, _: None) -> None:
    spend(context)


@jinja2.pass_context
def _concat(context: Context, parts: list[Any]) -> str:
    texts = [str(part) for part in parts]
    limits.require_size(sum(map(len, texts)))
    return "".join(texts)


def _guarded(function: Callable[..., Any], check: Callable[..., None]) -> Callable[..., Any]:
    # jinja marks filters that want the environment or context by an attribute, which the wrapper must carry too.
    passes_argument = hasattr(function, "jinja_pass_arg")

    def guarded(*args: Any, **kwargs: Any) -> Any:
        values = args[1:] if passes_argument else args
        check(*values, *kwargs.values())
        return function(*args, **kwargs)

    if passes_argument:
        guarded.jinja_pass_arg = function.jinja_pass_arg  # type: ignore[attr-defined]
    return guarded


def _replace_concats(node: nodes.Node, environment: jinja2.Environment) -> None:
    for field, value in node.iter_fields():
        if isinstance(value, list):
            setattr(node, field, [_replaced_concat(item, environment) for item in value])
        else:
            setattr(node, field, _replaced_concat(value, environment))
    for child in node.iter_child_nodes():
        _replace_concats(child, environment)


def _replaced_concat(value: Any, environment: jinja2.Environment) -> Any:
    if not isinstance(value, nodes.Concat):
        return value
    call = _filter(nodes.List(value.nodes), _CONCAT)
    return call.set_lineno(value.lineno, override=True).set_environment(environment)


def _filter(value: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None)
