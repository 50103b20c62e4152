import itertools
import time
from contextlib import suppress

import pytest

from pagewire.frontend.template import ChatTemplate, TemplateError
from pagewire.frontend.templates.environment import build_environment, compile_template, render_template
from pagewire.frontend.templates.limits import Budget, LimitError, TimeLimitError, check_method, check_percent_format

HELLO = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    "text",
    [
        "{{ 'a' * 10**9 }}",
        "{{ 10**9 * 'a' }}",
        "{{ [0] * 10**9 }}",
        "{{ 10 ** 1000000000 }}",
        "{% set ns = namespace(n=9**99) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%.*f' % (1000000000, 1.0) }}",
        "{{ '%((a))1000000000d' % {'(a)': 1} }}",
        "{{ '%%(%1000000000d' % 1 }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 1000000000) }}",
        "{{ 'a' | center(1000000000) }}",
        "{{ 'a'.ljust(1000000000) }}{{ 'a'.zfill(1000000000) }}",
        "{{ 'a\nb' | indent(width=1000000000) }}",
        "{{ [[1]] | tojson(indent=1000000000) }}",
        "{{ [1] | batch(1000000000, 0) | list }}",
        "{{ ('a' * 9999).replace('a', 'b' * 9999) }}",
        "{{ 'a' * 9999 | replace('a', 'b' * 9999) }}",
        "{{ ('b' * 9999).join('a' * 9999) }}",
        "{{ range(9999) | list | join('b' * 9999) }}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{% set ns = namespace(x='aa') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='aa') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% for i in range(99999) %}{% for c in range(9) %}{{ 'x' * 99999 }}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ '(' * 9999 }}{% set x = namespace() %}{% set x.x = x %}{{ x.x | tojson }}",
    ],
)
def test_a_template_cannot_make_something_huge(text: str) -> None:
    with pytest.raises(TemplateError):
        ChatTemplate(text, "test").render(HELLO, add_generation_prompt=True)


@pytest.mark.parametrize(
    "text",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(9) recursive %}{{ loop(range(99)) if loop.depth < 9 }}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) ~ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
        "{% block a scoped %}{% for a in range(99999) %}{% generation %}{% endgeneration %}{% endfor %}{% endblock %}",
    ],
)
def test_a_template_cannot_run_for_ever(text: str) -> None:
    ticks = itertools.count()  # a clock that moves by one second each time somebody looks
    template = compile_template(build_environment(), text)
    with pytest.raises(TimeLimitError, match="longer than 500 seconds"):
        render_template(template, {}, Budget(500, lambda: float(next(ticks))))


def test_ordinary_formatting_is_not_touched() -> None:
    text = "{{ '%5.1f|%-4s|' % (1.5, 'x') }}{{ '{:>4}|{:.2f}|'.format('a', 2) }}{{ 'a' | center(5) }}{{ 'ab' * 3 }}"
    rendered = ChatTemplate(text, "test").render(HELLO, add_generation_prompt=True)
    assert rendered == "  1.5|x   |   a|2.00|  a  ababab"


@pytest.mark.parametrize(
    "text", ["%(" * 200_000, "{" + ":" * 200_000, "{:" * 200_000, "%" + "0" * 200_000, "%." * 200_000]
)
def test_looking_for_widths_takes_time_in_proportion_to_the_text(text: str) -> None:
    begun = time.process_time()
    check_percent_format(text)
    with suppress(LimitError):
        check_method(text.format, ())
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("text", ["%5d (a)*", "%%12345", "%-5.3f%%", "%(12345)s", "{:>9}", "{12345}", "%ld%5d"])
def test_ordinary_widths_are_allowed(text: str) -> None:
    check_percent_format(text)
    check_method(text.format, ())
