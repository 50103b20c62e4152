"""Grammars in notations that clients write themselves: Lark as llguidance reads it, and GBNF, which becomes Lark.

What they may say is limited to text: special tokens cannot be named, and what embeds other languages is left out,
because it would get past the checks of those.
"""

import re
from math import prod

from llguidance.gbnf_to_lark import gbnf_to_lark

from pagewire.frontend.grammars.errors import GrammarError
from pagewire.frontend.grammars.repeats import MAX_EXPANSION, expansion

# The library follows rules by recursion; it was seen to run out of stack at 5,000.
MAX_RULES = 500
_LITERAL = re.compile(
    r'"(?:\\.|[^"\\\n])*"i?|/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])*/[imslux]*'
)
_COMMENT = re.compile(r"(?://|#)[^\n]*")
_DIRECTIVE = re.compile(r"%(\w+)")
_ALLOWED_DIRECTIVES = frozenset({"ignore", "import", "llguidance"})


def lark_source(text: str) -> str:
    """The grammar of a client, in Lark; raises GrammarError."""
    lark = _converted(text) if "::=" in text else text
    structure = _COMMENT.sub("", _LITERAL.sub('""', lark))
    _check_structure(structure)
    _check_size(lark, structure)
    return lark


def _converted(gbnf: str) -> str:
    try:
        lark: str = gbnf_to_lark(gbnf)
    except Exception as error:
        # The converter has no error of its own for what it cannot read.
        raise GrammarError(f"it cannot be read as GBNF: {error}") from None
    return lark


def _check_structure(structure: str) -> None:
    for name in _DIRECTIVE.findall(structure):
        if name not in _ALLOWED_DIRECTIVES:
            raise GrammarError(f"'%{name}' is not supported")
    if "{" in _options_of(structure):
        raise GrammarError("'%llguidance' is supported without options only")
    if "<" in structure:
        raise GrammarError("special tokens ('<...>') are not supported; put text in quotes")
    if "@" in structure:
        raise GrammarError("references to other grammars ('@') are not supported")
    if "[" in structure:
        raise GrammarError("options of rules ('[...]') are not supported")


def _options_of(structure: str) -> str:
    """What stands in the braces of ``%llguidance {...}``, beside white space."""
    return "".join(found.strip() and "{" for found in re.findall(r"%llguidance\s*\{([^}]*)\}", structure))


def _check_size(lark: str, structure: str) -> None:
    rules = len(re.findall(r"^\s*[?!]*[\w-]+\s*(?:\.\d+)?\s*:", structure, re.MULTILINE))
    if rules > MAX_RULES:
        raise GrammarError(f"it has {rules} rules, more than {MAX_RULES}")
    # One rule may repeat what another repeats, so the counts of all lines multiply.
    size = prod(expansion(line) for line in lark.splitlines())
    if size > MAX_EXPANSION:
        raise GrammarError(f"its repetitions, multiplied, are {size}, more than {MAX_EXPANSION}")
