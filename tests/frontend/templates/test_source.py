import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagewire.frontend.template import ChatTemplate
from pagewire.frontend.templates.errors import TemplateError
from pagewire.frontend.templates.source import read_template, unescape_literal

USER_HI = [{"role": "user", "content": "hi"}]


def rendered(value: str) -> str:
    found = read_template(value, {})
    return ChatTemplate(found.text, found.origin).render(USER_HI, add_generation_prompt=True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (r"{% for m in messages %}{{ m['role'] + '\n' }}{{ m['content'] }}\n{% endfor %}", "user\nhi\n"),
        (r"[énd]\n{{ 'é\n' }}", "[énd]\né\n"),
        (r"{{ 'it\'s' }}", "it's"),
        ("{{ 'x' }}\\", "x\\"),
        (r"\"{{ 'x' }}\'\t\\n", "\"x'\t\\n"),
        (r"\u00e9\xe9\ud83d\ude00{{ '' }}", "éé😀"),
        (r"\ud83d\q\u12{{ '' }}", r"\ud83d\q\u12"),
        (r"{# a \n b #}{% raw %}\n{{ x }}{% endraw %}", "\n{{ x }}"),
        (r"{{ {'a': {'b': '\\'}}['a']['b'] }}", "\\"),
        (r"{{ '}}\n' }}\n", "}}\n"),
    ],
)
def test_a_literal_is_decoded_outside_of_the_delimiters_only(value: str, text: str) -> None:
    assert rendered(value) == text


def test_a_literal_and_the_same_template_in_a_file_give_the_same_text(tmp_path: Path) -> None:
    file = tmp_path / "template.jinja"
    file.write_text("{% for m in messages %}\n{{ m.role }}:\n {% if 1 %}\n{{ m.content }}\n{% endif %}\n{% endfor %}\n")
    literal = file.read_text().replace("\n", "\\n")
    assert rendered(literal) == rendered(str(file)) == "user:\nhi\n"


def test_a_file_is_taken_as_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "template.jinja"
    file.write_text("é\\n{{ 'x' }}\n\n")
    assert read_template(str(file), {}).text == "é\\n{{ 'x' }}\n\n"


TEXT_WITHOUT_DELIMITERS = st.text(st.characters(blacklist_characters="{}%#\r", blacklist_categories=["Cs"]))


@given(TEXT_WITHOUT_DELIMITERS, st.text(st.sampled_from("\\nt'\"{}%ué x")), TEXT_WITHOUT_DELIMITERS)
def test_decoding_never_changes_a_string_inside_of_an_expression(before: str, inner: str, after: str) -> None:
    string = "'" + inner.replace("\\", "\\\\").replace("'", "\\'") + "'"
    decoded = unescape_literal(before + "{{ " + string + " }}" + after)
    assert "{{ " + string + " }}" in decoded


@given(TEXT_WITHOUT_DELIMITERS.filter(lambda text: "\\" not in text))
def test_a_literal_without_backslashes_is_unchanged(text: str) -> None:
    assert unescape_literal(text + "{{ x }}") == text + "{{ x }}"


@pytest.mark.parametrize("value", ["./no/such/file.jinja", "template.jinja", ".", "x" * 5000, r"a\nb", "nul\0"])
def test_a_value_that_is_neither_file_nor_template_is_refused(value: str) -> None:
    with pytest.raises(TemplateError, match="there is no such file"):
        read_template(value, {})


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "template.jinja"
    file.write_bytes(b"{{ x }}\xff")
    with pytest.raises(TemplateError, match="not UTF-8"):
        read_template(str(file), {})


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    file = tmp_path / "template.jinja"
    file.touch()
    monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(TemplateError, match="cannot be read: Permission denied"):
        read_template(str(file), {})


def test_a_name_means_a_template_of_the_model_before_a_shipped_one() -> None:
    assert read_template("name:rag", {"rag": "R"}).text == "R"
    assert read_template("name:chatml", {"chatml": "M"}).text == "M"
    assert "<|im_start|>" in read_template("name:chatml", {}).text
    with pytest.raises(TemplateError, match=r"known: rag, alpaca, chatml"):
        read_template("name:nope", {"rag": "R"})


class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        redirects = {"/to-file": "file:///etc/passwd", "/to-ftp": "ftp://127.0.0.1/x", "/to-page": "/page"}
        if self.path in redirects:
            self.send_response(302)
            self.send_header("Location", redirects[self.path])
            self.end_headers()
            return
        pages = {"/page": "é\\n{{ x }}".encode(), "/large": b"x" * (2**20 + 1), "/latin": b"\xe9"}
        body = pages.get(self.path)
        self.send_response(200 if body else 404)
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_page_is_taken_as_it_stands_and_its_digest_is_told(web: str) -> None:
    found = read_template(f"{web}/page", {})
    assert found.text == "é\\n{{ x }}"
    assert hashlib.sha256(found.text.encode()).hexdigest() in found.origin
    assert read_template(f"{web}/to-page", {}).text == found.text


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/none", "404"),
        ("/large", "larger than"),
        ("/latin", "not UTF-8"),
        ("/to-file", "not allowed"),
        ("/to-ftp", "unknown url type"),
    ],
)
def test_a_page_that_is_no_template_is_refused(web: str, path: str, reason: str) -> None:
    with pytest.raises(TemplateError, match=reason):
        read_template(web + path, {})


def test_nothing_is_fetched_offline(web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TemplateError, match="offline"):
        read_template(f"{web}/page", {}, offline=True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(TemplateError, match="offline"):
        read_template(f"{web}/page", {})


def test_a_host_that_does_not_answer_is_refused() -> None:
    with pytest.raises(TemplateError, match="could not be fetched"):
        read_template("http://127.0.0.1:9/template.jinja", {})
