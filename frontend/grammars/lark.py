"""Grammars in notations that clients write themselves: Lark as llguidance reads it, and GBNF, which becomes Lark.

What they may say is limited to text: special tokens cannot be named, and what embeds other languages is left out,
because it would get past the checks of those.
"""

import re

from llguidance.gbnf_to_lark import gbnf_to_lark

from pagewire.frontend.grammars.errors import GrammarError
from pagewire.frontend.grammars.repeats import MAX_EXPANSION, expansion

# The library follows rules by recursion; it was seen to run out of stack at 5,000.
MAX_RULES = 500
# Each multiplies the alternatives that the lexer follows, and its limits notice too late: 8 were seen to take 50 MB,
# 12 five times that, and 200 all there is.
MAX_INTERSECTIONS = 8
# What the library's lexer takes as one piece, to be read from left to right; none of it is read twice, whatever it is.
# A literal that ends without its closing delimiter matches neither of the groups.
_TEXT = re.compile(
    r"(?P<comment>(?://|#)[^\n]*)"
    r'|"(?:\\.|[^"\\\n])*+(?P<string>"i?)?'
    r"|/(?:\\.|[^/\\])*+(?P<expression>/[imslux]*)?"
)
# GBNF writes a rule so; in Lark it can only stand in a literal.
_DEFINES_AS_GBNF = re.compile(r"^[ \t]*+[\w-]++[ \t]*+::=", re.MULTILINE)
_DIRECTIVE = re.compile(r"%(\w+)")
_OPTIONS = re.compile(r"%llguidance(?!\s*+\{\s*+\})")
_ALLOWED_DIRECTIVES = frozenset({"ignore", "import", "llguidance"})


def lark_source(text: str) -> str:
    """The grammar of a client, in Lark; raises GrammarError."""
    lark = _converted(text) if _DEFINES_AS_GBNF.search(text) else text
    structure = _TEXT.sub(_blank, lark)
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


def _blank(found: re.Match[str]) -> str:
    if found.lastgroup is None:
        raise GrammarError(f"what begins with {found[0][:20]!r} is not closed")
    return "" if found["comment"] else '""'


def _check_structure(structure: str) -> None:
    for name in _DIRECTIVE.findall(structure):
        if name not in _ALLOWED_DIRECTIVES:
            raise GrammarError(f"'%{name}' is not supported")
    if _OPTIONS.search(structure):
        raise GrammarError("'%llguidance' is supported without options only")
    if "<" in structure:
        raise GrammarError("special tokens ('<...>') are not supported; put text in quotes")
    if "@" in structure:
        raise GrammarError("references to other grammars ('@') are not supported")
    if "[" in structure:
        raise GrammarError("options of rules ('[...]') are not supported")


def _check_size(lark: str, structure: str) -> None:
    # Every rule has one colon, and nothing else has any.
    rules = structure.count(":")
    if rules > MAX_RULES:
        raise GrammarError(f"it has {rules} rules, more than {MAX_RULES}")
    intersections = structure.count("&")
    if intersections > MAX_INTERSECTIONS:
        raise GrammarError(f"it has {intersections} intersections ('&'), more than {MAX_INTERSECTIONS}")
    # One rule may repeat what another repeats, so the counts of all lines multiply.
    size = 1
    for line in lark.splitlines():
        size *= expansion(line)
        if size > MAX_EXPANSION:
            raise GrammarError(f"its repetitions, multiplied, are {size}, more than {MAX_EXPANSION}")
