"""Finds out from a template's syntax tree whether it wants message content as a string or as a list of parts."""

from collections.abc import Iterator
from dataclasses import dataclass

from jinja2 import nodes

from pagewire.frontend.templates.messages import ContentFormat

_PART_FILTERS = frozenset({"selectattr", "rejectattr", "groupby"})
_PART_KEYS = frozenset({"type", "text"})


@dataclass(frozen=True)
class ContentUse:
    """How a template uses content; ``tests_string``: it looks whether it is a string, so it takes both."""

    content_format: ContentFormat
    tests_string: bool


def content_use(tree: nodes.Template) -> ContentUse:
    """Return how the template handles the content of messages.

    A template that loops over content, picks parts by attribute or indexes into it for a part's type or text wants
    parts. Content is followed through assignments and macro arguments.
    """
    names = _content_names(tree)
    takes_parts = any(_takes_parts(node, names) for node in tree.find_all(nodes.Node))
    tests_string = any(test.name == "string" and _is_content(test.node, names) for test in tree.find_all(nodes.Test))
    return ContentUse("openai" if takes_parts else "string", tests_string)


def _takes_parts(node: nodes.Node, names: set[str]) -> bool:
    if isinstance(node, nodes.For):
        return _is_content(node.iter, names)
    if isinstance(node, nodes.Filter) and node.node is not None:
        by_attribute = node.name in _PART_FILTERS or (node.name == "map" and bool(node.kwargs))
        return by_attribute and _is_content(node.node, names)
    key = _key(node)
    if key in _PART_KEYS and isinstance(node, nodes.Getattr | nodes.Getitem):
        inner = node.node
        return isinstance(inner, nodes.Getitem) and isinstance(_key(inner), int) and _is_content(inner.node, names)
    return False


def _is_content(node: nodes.Node | None, names: set[str]) -> bool:
    """Whether an expression is content as it came: ``message.content``, a name for it, or a choice or slice of it."""
    match node:
        case nodes.Name():
            return node.name in names
        case nodes.Getattr() | nodes.Getitem():
            if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
                return _is_content(node.node, names)
            return _key(node) == "content"
        case nodes.Filter():
            passes = node.name in ("default", "list", "reverse") or node.name in _PART_FILTERS
            return passes and _is_content(node.node, names)
        case nodes.CondExpr():
            return _is_content(node.expr1, names) or _is_content(node.expr2, names)
        case nodes.Or() | nodes.And():
            return _is_content(node.left, names) or _is_content(node.right, names)
        case _:
            return False


def _key(node: nodes.Node) -> str | int | None:
    if isinstance(node, nodes.Getattr):
        return node.attr
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        key = node.arg.value
        return key if isinstance(key, str | int) else None
    return None


def _content_names(tree: nodes.Template) -> set[str]:
    """Return the names that content is assigned or passed to anywhere, found by repeating until nothing is added."""
    bindings = list(_bindings(tree))
    names: set[str] = set()
    while True:
        found = {name for name, value in bindings if _is_content(value, names)}
        if found <= names:
            return names
        names |= found


def _bindings(tree: nodes.Template) -> Iterator[tuple[str, nodes.Node]]:
    for assign in tree.find_all(nodes.Assign):
        if isinstance(assign.target, nodes.Name):
            yield assign.target.name, assign.node
    for block in tree.find_all(nodes.With):
        for target, value in zip(block.targets, block.values, strict=True):
            if isinstance(target, nodes.Name):
                yield target.name, value
    macros = {macro.name: macro for macro in tree.find_all(nodes.Macro)}
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name in macros:
            parameters = [parameter.name for parameter in macros[call.node.name].args]
            yield from zip(parameters, call.args, strict=False)
            yield from ((keyword.key, keyword.value) for keyword in call.kwargs if keyword.key in parameters)
