"""What a grammar may cost. Both programs build grammars with these limits: one to check them, the other to use them."""

from llguidance import LLParserLimits

from pagewire.protocol.threads import DaemonPool

# Of the source of one grammar, in characters: schemas of several hundred properties, enumerations of thousands.
MAX_GRAMMAR_CHARS = 256 * 1024

# About 20 ms of preparation, and 2 ms a token: a grammar that wants more ends its own request, not its neighbours'.
_INITIAL_FUEL = 1_000_000
_FUEL_PER_TOKEN = 100_000
_PARSER_ITEMS_PER_TOKEN = 30_000
# States take 1 to 2 kB each.
_MAX_STATES = 50_000

# Compiling takes milliseconds as a rule, minutes at worst, and cannot be stopped; two threads keep one slow grammar
# from delaying all others.
_THREADS = 2
# The library follows rules and references by recursion, up to 13 kB a level: enough for as many as a source can hold.
# Address space only; what is not used is never there.
_STACK_BYTES = 512 * 1024 * 1024


def compiler_pool() -> DaemonPool:
    """Threads to compile grammars in. The library does not hold Python's lock while it works."""
    return DaemonPool(_THREADS, "grammar", _STACK_BYTES)


def parser_limits() -> LLParserLimits:
    """The limits as the library takes them."""
    return LLParserLimits(
        initial_lexer_fuel=_INITIAL_FUEL,
        step_lexer_fuel=_FUEL_PER_TOKEN,
        step_max_items=_PARSER_ITEMS_PER_TOKEN,
        max_lexer_states=_MAX_STATES,
        verbose_errors=False,
    )


def first_line(message: str) -> str:
    """What a message of the library says, without the pictures of grammar and parser that follow."""
    lines = [line.strip() for line in message.splitlines() if line.strip() and not line.startswith("<")]
    reasons = [line for line in lines[1:] if line.startswith("error: ")]
    return " ".join([*lines[:1], *reasons[:1]])[:300] or "it cannot be used"
