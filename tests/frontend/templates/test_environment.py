"""Our rendering against that of transformers, whose environment templates are written for."""

import json
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils.chat_template_utils import render_jinja_template

from pagewire.frontend.template import ChatTemplate, TemplateError
from pagewire.frontend.templates.source import read_template, shipped_names

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
CONVERSATION = [
    {"role": "system", "content": "Be <b>brief</b> & 'kind'."},
    {"role": "user", "content": "Grüße,\n  was ist 1 + 1? "},
    {"role": "assistant", "content": "<think>hm</think>\n2", "reasoning": "hm"},
    {"role": "user", "content": "{{ 7 * 7 }} {% raise %}"},
]
CALLS = [
    {"role": "user", "content": "Weather?"},
    {
        "role": "assistant",
        "content": "Let me look.",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": {"city": "Zürich"}}}],
        "reasoning": "It is about weather.",
    },
    {"role": "tool", "tool_call_id": "c1", "content": "sun"},
]
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Wetter für <Ort>", "parameters": {}}}]

BLOCKS = """
{%- set ns = namespace(last=-1, found=false) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if not ns.found and message.role == "user" and message.content is string %}
        {%- set ns.found = true %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{% for message in messages %}
  {% if message.role == 'system' %}
    {% continue %}
  {% endif %}
  {% if loop.index > 9 %}{% break %}{% endif %}
  [{{ loop.index0 }}/{{ loop.length }} {{ message.role ~ ':' ~ loop.first ~ loop.last }}]
  {% generation %}
{{ message.content.split('</think>')[-1].lstrip('\\n') | trim }}
  {% endgeneration %}
  {% if loop.index0 > ns.last and message.reasoning_content %}R{{ message.reasoning_content }}{% endif %}
{% else %}
nothing
{% endfor %}
{% if add_generation_prompt is defined and add_generation_prompt %}>{{ bos_token }}{% endif %}
{{ messages[0].nobody is defined }}{{ nothing }}|{{ documents is none }}{{ tools is none }}{{ eos_token }}
"""
TOOLS_TEMPLATE = """
{%- macro describe(tool, depth=1) -%}
  {{ tool.function.name | upper }}({{ tool | tojson(indent=2) }}){{ caller() if caller }}
{%- endmacro -%}
{%- if tools %}{% for tool in tools %}{{ describe(tool) }}{% endfor %}{% endif -%}
{%- for message in messages %}
{{ message.role }}:{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<{{ call.function | tojson }}{{ call.function.arguments.items() | list }}>
{%- for key, value in call.function.arguments | dictsort %}{{ key }}={{ value }};{% endfor %}
{%- endfor %}
{%- endfor %}
{{- dict(a=1, **{'b': 2}) | tojson(sort_keys=true, separators=(',', ':')) }}
{{- {'x': ['é', none, true, 1.5]} | tojson(ensure_ascii=true) }}
{{- ['a', 'b', 'c'] | join(', ') ~ '%s-%03d' | format('x', 7) ~ '{:>5}|{}'.format('r', 2) ~ 'abc'.replace('b', 'BB') }}
{{- 'ab' * 3 ~ 2 ** 10 ~ 7 // 2 ~ 7 % 4 ~ ('%d%%' % 5) ~ (['a'] + ['b']) ~ 'x' | center(7) ~ '\nq' | indent(2) }}
{{- messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}
{%- set text %}kept {% for i in range(3) %}{{ i }}{{ ',' if not loop.last }}{% endfor %}{% endset %}{{ text }}
{%- call describe({'function': {'name': 'f'}}) %}inner{% endcall %}
{%- for letter in 'abc' recursive %}{{ letter }}{{ loop('xy') if loop.depth < 2 }}{% endfor %}
"""
SHIPPED = {name: read_template(f"name:{name}", {}).text for name in shipped_names()}
REFUSED = "refused"
TEMPLATES = {"dump": "{{ messages | tojson }}{{ messages }}", "blocks": BLOCKS, "tools": TOOLS_TEMPLATE, **SHIPPED}


def theirs(text: str, messages: list[dict[str, Any]], **options: Any) -> str:
    """What transformers renders."""
    rendered, _ = render_jinja_template([messages], chat_template=text, **SPECIAL, **options)
    return str(rendered[0])


def ours(text: str, messages: list[dict[str, Any]], **options: Any) -> str:
    return compiled(text).render(messages, **options)


@cache
def compiled(text: str) -> ChatTemplate:
    return ChatTemplate(text, "test", SPECIAL, content_format="string")


def outcome(render: Callable[..., str], *args: Any, **options: Any) -> str:
    try:
        return render(*args, **options)
    except (TemplateError, jinja2.TemplateError, ValueError):
        return REFUSED


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("messages", [CONVERSATION, CALLS, CONVERSATION[1:2]], ids=["conversation", "calls", "single"])
@pytest.mark.parametrize("generate", [True, False])
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["plain", "tools"])
def test_renders_what_transformers_renders(
    name: str, messages: list[dict[str, Any]], generate: bool, tools: list[dict[str, Any]] | None
) -> None:
    options = {"add_generation_prompt": generate, "tools": tools}
    expected = outcome(theirs, TEMPLATES[name], messages, **options)
    assert (expected == REFUSED) == (name == "alpaca" and messages is CALLS)
    assert outcome(ours, TEMPLATES[name], messages, **options) == expected


@pytest.mark.parametrize("name", sorted(TEMPLATES.keys() - {"dump"}))
@pytest.mark.parametrize("content", ["Hi there", "OK! \n", " spaces ", "", "a</think>b", "the same", "Hi there\n\nHi"])
def test_continues_what_transformers_continues(name: str, content: str) -> None:
    messages = [{"role": "user", "content": "the same"}, {"role": "assistant", "content": content}]
    options = {"add_generation_prompt": False, "continue_final_message": True}
    assert outcome(ours, TEMPLATES[name], messages, **options) == outcome(theirs, TEMPLATES[name], messages, **options)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["user", "assistant", "system", "tool", "x-y"]), st.text()), min_size=1),
    st.booleans(),
)
def test_any_conversation_renders_as_in_transformers(turns: list[tuple[str, str]], generate: bool) -> None:
    messages = [{"role": role, "content": content} for role, content in turns]
    for text in (BLOCKS, TEMPLATES["chatml"], TEMPLATES["tool_use"], TEMPLATES["many_roles"]):
        assert ours(text, messages, add_generation_prompt=generate) == theirs(
            text, messages, add_generation_prompt=generate
        )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)


@settings(max_examples=50, deadline=None)
@given(JSON, st.booleans(), st.none() | st.integers(0, 8), st.booleans())
def test_tojson_is_plain_json(value: Any, ascii_only: bool, indent: int | None, sort_keys: bool) -> None:
    template = ChatTemplate("{{ messages[0].value | tojson(a, i, none, s) }}", "test")
    message = {"role": "user", "value": {"it": value}}
    rendered = template.render(
        [message], add_generation_prompt=True, template_kwargs={"a": ascii_only, "i": indent, "s": sort_keys}
    )
    assert rendered == json.dumps({"it": value}, ensure_ascii=ascii_only, indent=indent, sort_keys=sort_keys)


def test_strftime_now_reads_the_clock() -> None:
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", "test", now=lambda: datetime(2024, 7, 26))
    assert template.render([{"role": "user", "content": ""}], add_generation_prompt=True) == "26 Jul 2024"


@pytest.mark.parametrize(
    "text",
    [
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__ }}{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ namespace.__init__.__globals__ }}{{ namespace.__init__.__globals__['os'] }}",
        "{{ dict.__class__.__init__ }}{{ dict.mro() }}",
        "{{ raise_exception.__globals__['__builtins__'] }}",
        "{{ strftime_now.__globals__ }}{{ strftime_now.__closure__[0].cell_contents() }}",
        "{{ '{0.__class__.__init__.__globals__}'.format(raise_exception) }}",
        "{{ ('{0.__class__.__init__.__globals__}' | attr('format'))(messages) }}",
        "{{ self.__init__.__globals__ }}{{ self._TemplateReference__context.environment.x() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{% set ns = namespace(__class__=1) %}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{{ lipsum.__globals__ }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}{{ os.getcwd() }}",
        "{{ none | _tick }}{{ joiner.__init__.__globals__.x }}",
    ],
)
def test_the_sandbox_holds(text: str) -> None:
    with pytest.raises(TemplateError):
        ours(text, [{"role": "user", "content": "x"}], add_generation_prompt=True)
