import pytest

from pagewire.frontend.template import ChatTemplate

STRING = [
    "{% for m in messages %}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{{ m['content'] | trim }}{% endfor %}",
    "{% for m in messages %}{% for line in m.content.split('x') %}{{ line }}{% endfor %}{% endfor %}",
    "{% for m in messages %}{{ m.content[0] }}{% if m.content[0] == ' ' %}{% endif %}{% endfor %}",
    "{% for m in messages %}{% for call in m.tool_calls %}{{ call.content }}{% endfor %}{% endfor %}",
    "{% for m in messages %}{% set content = m.content.split('</think>')[-1] %}{{ content }}{% endfor %}",
    "{{ messages | selectattr('role', 'equalto', 'x') | map(attribute='content') | join }}",
]
PARTS = [
    "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}",
    "{% for m in messages %}{% for part in m['content'] | selectattr('type') %}{{ part.text }}{% endfor %}{% endfor %}",
    "{% for m in messages %}{% set c = m.content %}{% set d = c %}{% for p in d %}{{ p.text }}{% endfor %}{% endfor %}",
    "{% for m in messages %}{{ m['content'][0]['text'] }}{% endfor %}",
    "{% for m in messages %}{{ m.content | map(attribute='text') | join }}{% endfor %}",
    "{% for m in messages %}{% with c = m.content %}{% for p in c %}{{ p.text }}{% endfor %}{% endwith %}{% endfor %}",
    "{% macro show(c) %}{% for p in c %}{{ p.text }}{% endfor %}{% endmacro %}"
    "{% for m in messages %}{{ show(m.content) }}{% endfor %}",
    "{% macro show(c) %}{% for p in c %}{{ p.text }}{% endfor %}{% endmacro %}"
    "{% for m in messages %}{{ show(c=m.content) }}{% endfor %}",
    "{% for m in messages %}{% for p in (m.content or [])[0:9] %}{{ p.text }}{% endfor %}{% endfor %}",
]
BOTH = (
    "{% for m in messages %}{% if m.content is string %}<{{ m.content }}>{% else %}"
    "{% for p in m.content %}({{ p.text }}){% endfor %}{% endif %}{% endfor %}"
)


def render(template: ChatTemplate, content: object) -> str:
    return template.render([{"role": "user", "content": content}], add_generation_prompt=False)


@pytest.mark.parametrize("text", STRING)
def test_a_template_that_prints_content_wants_a_string(text: str) -> None:
    assert ChatTemplate(text, "test").content_format == "string"


@pytest.mark.parametrize("text", PARTS)
def test_a_template_that_takes_content_apart_wants_parts(text: str) -> None:
    template = ChatTemplate(text, "test")
    assert template.content_format == "openai"
    assert render(template, "hello") == "hello" == render(template, [{"type": "text", "text": "hello"}])


def test_a_template_that_takes_both_gets_a_string_as_it_came_and_one_part_alike() -> None:
    template = ChatTemplate(BOTH, "test")
    assert template.content_format == "openai"
    assert render(template, "a") == "<a>" == render(template, [{"type": "text", "text": "a"}])
    assert render(template, ["a", "b"]) == "(a)(b)"


def test_the_format_can_be_forced() -> None:
    text = "{{ messages[0].content }}"
    assert render(ChatTemplate(text, "test", content_format="openai"), "a") == "[{'type': 'text', 'text': 'a'}]"
    assert render(ChatTemplate(BOTH, "test", content_format="string"), ["a", "b"]) == "<a\nb>"
