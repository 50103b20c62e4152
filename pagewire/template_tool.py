"""``pagewire template``: show, render and check chat templates, without a server."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from pagewire.frontend.template import NO_TEMPLATE, ChatTemplate, TemplateError, load_chat_template
from pagewire.frontend.template_lint import Finding, Subject, lint
from pagewire.frontend.templates.source import shipped_names
from pagewire.frontend.tokenizer import Tokenizer
from pagewire.protocol.messages import Model
from pagewire.template_model import ModelUnavailableError, read_model

DONE, FAILED = 0, 1


class InputError(Exception):
    """A file or argument that the tool cannot use."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions ``show``, ``render`` and ``lint`` with their options to ``parser``."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser("show", help="print the template in effect", description=_show.__doc__)
    render = actions.add_parser("render", help="render a conversation", description=_render.__doc__)
    check = actions.add_parser("lint", help="look for faults and risks", description=_lint.__doc__)
    for action in (show, render, check):
        _add_source_arguments(action)
    _add_render_arguments(render)
    check.add_argument("--strict", action="store_true", help="exit with status 1 for warnings, too")


def run(arguments: argparse.Namespace) -> int:
    """Do the chosen action and return the exit status: 0, or 1 when something is wrong."""
    act: Callable[[argparse.Namespace], int] = {"show": _show, "render": _render, "lint": _lint}[arguments.action]
    try:
        return act(arguments)
    except (TemplateError, ModelUnavailableError, InputError) as error:
        print(f"pagewire template: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _add_source_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", nargs="?", help="model directory, hub id, GGUF file or alias; without one, tokens are not looked at"
    )
    parser.add_argument(
        "--chat-template",
        metavar="TEMPLATE",
        help="file, template on one line, http(s) URL, or name:NAME for one of the model's or of "
        f"{', '.join(shipped_names())} (default: the model's)",
    )
    parser.add_argument(
        "--chat-template-content-format", choices=("auto", "string", "openai"), default="auto", dest="content_format"
    )


def _add_render_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--messages", metavar="FILE", default="-", help="JSON list of messages (default: from stdin)")
    parser.add_argument("--tools", metavar="FILE", help="JSON file with a list of tools")
    parser.add_argument("--documents", metavar="FILE", help="JSON file with a list of documents")
    parser.add_argument(
        "--chat-template-kwargs", metavar="JSON", default="{}", dest="kwargs", help="further variables of the template"
    )
    for name in ("--add-generation-prompt", "--continue-final-message"):
        parser.add_argument(name, choices=("true", "false"), help="this value only (default: try both)")
    parser.add_argument("--no-tokens", action="store_true", help="print the text only")


def _show(arguments: argparse.Namespace) -> int:
    """Print the template in effect; what is known about it goes to standard error."""
    model, template = _load(arguments)
    facts = [("from", template.source), ("content", f"as {template.content_format}")]
    if model and len(model.chat_templates) > 1:
        facts.append(("the model's templates", ", ".join(sorted(model.chat_templates))))
    if template.request_variables:
        facts.append(("chat_template_kwargs", ", ".join(sorted(template.request_variables))))
    for name, value in facts:
        print(f"# {name}: {value}", file=sys.stderr)
    print(template.text)
    return DONE


def _render(arguments: argparse.Namespace) -> int:
    """Print what a conversation renders to, for each combination of generation prompt and continuation."""
    model, template = _load(arguments)
    tokenizer = Tokenizer(model.tokenizer_json) if model and not arguments.no_tokens else None
    render = partial(
        template.render,
        _read_list(arguments.messages, "messages"),
        tools=_read_list(arguments.tools, "tools") if arguments.tools else None,
        documents=_read_list(arguments.documents, "documents") if arguments.documents else None,
        template_kwargs=_parse_object(arguments.kwargs, "--chat-template-kwargs"),
    )
    status = FAILED
    for proceed, generate in product(
        _values(arguments.continue_final_message, False), _values(arguments.add_generation_prompt, True)
    ):
        print(f"=== add_generation_prompt: {_word(generate)}, continue_final_message: {_word(proceed)}")
        try:
            text = render(add_generation_prompt=generate, continue_final_message=proceed)
        except TemplateError as error:
            print(f"refused: {error}\n")
            continue
        status = DONE
        print(text, end="\n\n")
        if tokenizer:
            print("\n".join(_token_lines(tokenizer, text)), end="\n\n")
    return status


def _lint(arguments: argparse.Namespace) -> int:
    """Look for what is wrong or risky in a template. Exit status 1 if there is an error."""
    try:
        model, template = _load(arguments)
    except TemplateError as error:
        print(_finding_line(Finding("error", "syntax", error.message)))
        return FAILED
    subject = Subject(
        template.text,
        model.special_tokens if model else {},
        Tokenizer(model.tokenizer_json) if model else None,
        model.eos_token_ids if model else (),
    )
    findings = lint(subject)
    for finding in findings:
        print(_finding_line(finding))
    if not findings:
        print("nothing found")
    failing = ("error", "warning") if arguments.strict else ("error",)
    return FAILED if any(finding.level in failing for finding in findings) else DONE


def _load(arguments: argparse.Namespace) -> tuple[Model | None, ChatTemplate]:
    if arguments.model is None and arguments.chat_template is None:
        raise InputError("give a model, --chat-template, or both")
    model = read_model(arguments.model) if arguments.model else None
    template = load_chat_template(
        arguments.chat_template,
        model.chat_templates if model else {},
        model.special_tokens if model else {},
        content_format=arguments.content_format,
    )
    if template is None:
        raise TemplateError(NO_TEMPLATE, None)
    return model, template


def _token_lines(tokenizer: Tokenizer, text: str) -> Iterator[str]:
    ids = tokenizer.encode(text, add_special_tokens=False)
    yield f"{len(ids)} tokens:"
    for token_id in ids:
        mark = "special" if token_id in tokenizer.special_ids else ""
        yield f"{token_id:>8} {mark:<8}{tokenizer.decode([token_id])!r}"


def _finding_line(finding: Finding) -> str:
    return f"{finding.level}: {finding.name}: {finding.message}"


def _values(chosen: str | None, usual: bool) -> tuple[bool, ...]:
    return (usual, not usual) if chosen is None else (chosen == "true",)


def _word(value: bool) -> str:
    return "true" if value else "false"


def _read_list(path: str, what: str) -> list[Any]:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
        values = json.loads(text)
    except (OSError, ValueError) as error:
        raise InputError(f"{what}: {path} cannot be read: {error}") from error
    # A whole request is as good as its messages.
    if isinstance(values, dict) and isinstance(values.get(what), list):
        values = values[what]
    if not isinstance(values, list):
        raise InputError(f"{what}: {path} must hold a JSON list")
    return values


def _parse_object(text: str, what: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except ValueError as error:
        raise InputError(f"{what}: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"{what} must be a JSON object")
    return values
