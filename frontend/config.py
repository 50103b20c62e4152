"""The frontend's configuration: built once at start, never changed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pagewire.frontend.reasoning import reasoning_tags
from pagewire.protocol.addresses import addresses, check_exposure, default_address
from pagewire.protocol.option_fields import computed_option, option
from pagewire.protocol.option_names import ENGINE_OPTIONS
from pagewire.protocol.option_types import Kind, choice, integer, json_object, seconds, size, switch, text, texts
from pagewire.protocol.options import read_options

ContentFormat = Literal["auto", "string", "openai"]
ToolCallParser = Literal["auto", "hermes", "json", "llama3_json", "mistral", "mistral_args", "pythonic", "none"]
MetricsCompat = Literal["none", "vllm"]
LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogRequests = Literal["off", "meta", "full"]

_ENGINE, _HTTP, _ACCESS, _CHAT, _LIMITS, _LOGS = (
    "Engine",
    "HTTP",
    "Access",
    "Model and templates",
    "Limits",
    "Logs and metrics",
)


def _is_reasoning_parser(value: str) -> bool:
    try:
        reasoning_tags(value, None)
    except ValueError:
        return False
    return True


def _keys() -> Kind[tuple[str, ...]]:
    """At least one key: to be given none must not mean that none is needed."""
    several = texts(metavar="KEY")

    def read(raw: object) -> tuple[str, ...]:
        keys = several.read(raw)
        if not keys:
            raise ValueError
        return keys

    return replace(several, expected="at least one key, several separated by commas or as a JSON list", read=read)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontendConfig:
    """Every option of ``pagewire-frontend``. Sizes are in bytes, durations in seconds."""

    engine: tuple[str, ...] = computed_option(
        addresses(),
        lambda: (default_address(),),
        group=_ENGINE,
        help="address of an engine; repeat for several",
        shown_default="a socket of this user alone",
        aliases=("--connect",),
    )
    insecure_tcp: bool = option(switch(), False, group=_ENGINE, help="allow a tcp address on another machine")
    host: str = option(text("a host name or IP address", "HOST"), "127.0.0.1", group=_HTTP, help="where to listen")
    port: int = option(integer(1, 65535, "PORT"), 8000, group=_HTTP, help="where to listen")
    uds: str | None = option(
        text("a path", "PATH"), None, group=_HTTP, help="listen at a Unix socket instead of host and port"
    )
    root_path: str = option(
        text("a path that begins with /", "PATH", check=lambda value: value.startswith("/")),
        "",
        group=_HTTP,
        help="prefix of every route, behind a proxy that keeps it",
        aliases=("--api-prefix",),
    )
    ssl_certfile: str | None = option(
        text("a path", "FILE"),
        None,
        group=_HTTP,
        help="serve HTTPS with this certificate chain (PEM); read again on SIGHUP",
        aliases=("--ssl-cert-file",),
    )
    ssl_keyfile: str | None = option(
        text("a path", "FILE"),
        None,
        group=_HTTP,
        help="its private key, if it is in a file of its own",
        aliases=("--ssl-key-file",),
    )
    sse_keep_alive_interval: float = option(
        seconds(),
        15.0,
        group=_HTTP,
        help="how often a stream that waits gets a comment; 0 is never",
        aliases=("--sse-ping-interval",),
    )
    stream_interval: int = option(
        integer(1), 1, group=_HTTP, help="tokens per streamed chunk, except the first and the last"
    )
    shutdown_timeout: float = option(
        seconds(),
        30.0,
        group=_HTTP,
        help="on SIGTERM, how long open requests may finish",
        aliases=("--graceful-termination-timeout",),
    )
    api_key: tuple[str, ...] = option(
        _keys(), (), group=_ACCESS, help="key that clients must send; repeat for several", secret=True
    )
    api_key_file: str | None = option(
        text("a path", "FILE"), None, group=_ACCESS, help="more keys, one a line, as KEY or NAME:KEY"
    )
    metrics_auth: bool = option(switch(), True, group=_ACCESS, help="/metrics needs a key too, if there are keys")
    allowed_origins: tuple[str, ...] = option(
        texts(metavar="ORIGIN"),
        (),
        group=_ACCESS,
        help="web origins that may call from a browser (CORS), or *",
        aliases=("--cors-origins",),
    )
    allowed_methods: tuple[str, ...] = option(
        texts(metavar="METHOD"), ("*",), group=_ACCESS, help="methods that CORS allows"
    )
    allowed_headers: tuple[str, ...] = option(
        texts(metavar="HEADER"), ("*",), group=_ACCESS, help="request headers that CORS allows"
    )
    allow_credentials: bool = option(switch(), False, group=_ACCESS, help="CORS with cookies")
    served_model_name: tuple[str, ...] = option(
        texts(metavar="NAME"),
        (),
        group=_CHAT,
        help="names of the model, the first one in answers",
        shown_default="the engine's",
        aliases=("--alias",),
    )
    chat_template: str | None = option(
        text("a template", "TEMPLATE"),
        None,
        group=_CHAT,
        help="file, http(s) URL, name:NAME, or the template itself on one line",
        shown_default="the model's",
    )
    chat_template_content_format: ContentFormat = option(
        choice(ContentFormat), "auto", group=_CHAT, help="message content as the template wants it: text or parts"
    )
    default_chat_template_kwargs: dict[str, Any] = option(
        json_object(),
        {},
        group=_CHAT,
        help="variables for the template unless the request sets them",
        aliases=("--chat-template-kwargs",),
    )
    response_role: str = option(
        text("a role", "ROLE"), "assistant", group=_CHAT, help="role of the answer after a generation prompt"
    )
    generation_config: str = option(
        text("auto, none or a path", "WHERE"),
        "auto",
        group=_CHAT,
        help="sampling defaults: auto is the model's, none is OpenAI's, or a JSON file",
    )
    override_generation_config: dict[str, Any] = option(
        json_object(), {}, group=_CHAT, help="sampling defaults that win over the others"
    )
    tokenizer_info: bool = option(
        switch(),
        True,
        group=_CHAT,
        help="serve /tokenizer_info, which shows special tokens and chat template",
        aliases=("--enable-tokenizer-info-endpoint",),
    )
    tool_call_parser: ToolCallParser = option(
        choice(ToolCallParser), "auto", group=_CHAT, help="how the model writes tool calls; auto asks the chat template"
    )
    reasoning_parser: str = option(
        text("deepseek_r1, qwen3, auto, none or tags:OPEN,CLOSE", "PARSER", check=_is_reasoning_parser),
        "none",
        group=_CHAT,
        help="tags around the reasoning of the model; auto asks the chat template",
    )
    strict_params: bool = option(switch(), False, group=_CHAT, help="refuse unknown request fields with a 400")
    max_inflight: int = option(integer(1), 1024, group=_LIMITS, help="open requests; beyond it 429")
    max_body_size: int = option(size(), 8 * 1024**2, group=_LIMITS, help="bytes of a request body", shown_default="8M")
    max_body_memory: int = option(
        size(),
        512 * 1024**2,
        group=_LIMITS,
        help="bytes of all request bodies together; beyond it 429",
        shown_default="512M",
    )
    max_header_size: int = option(
        size(1024), 16 * 1024, group=_LIMITS, help="bytes of a request header", shown_default="16k"
    )
    max_n: int = option(integer(1), 128, group=_LIMITS, help="choices per prompt")
    max_prompts: int = option(integer(1), 64, group=_LIMITS, help="prompts per completions request")
    max_embedding_inputs: int = option(integer(1), 2048, group=_LIMITS, help="inputs per embeddings request")
    max_stop: int = option(integer(0), 16, group=_LIMITS, help="stop strings per request")
    max_stored_responses: int = option(
        integer(0), 1000, group=_LIMITS, help="responses kept for previous_response_id; 0 stores none"
    )
    response_store_size: int = option(
        size(), 64 * 1024**2, group=_LIMITS, help="bytes of all stored responses", shown_default="64M"
    )
    header_timeout: float = option(
        seconds(0.001),
        60.0,
        group=_LIMITS,
        help="longest time for a new connection, or a request's first byte, to become a request",
    )
    body_timeout: float = option(seconds(0.001), 120.0, group=_LIMITS, help="longest time for a request's body to come")
    unread_timeout: float = option(
        seconds(0.001), 60.0, group=_LIMITS, help="longest time that a client may not read what it is sent"
    )
    request_timeout: float | None = option(
        seconds(0.001), None, group=_LIMITS, help="longest time for a request as a whole", shown_default="none"
    )
    metrics: bool = option(switch(), True, group=_LOGS, help="serve /metrics")
    metrics_prefix: str = option(
        text("letters, digits and underscores", "PREFIX", check=lambda value: value.isidentifier() and value.isascii()),
        "pagewire",
        group=_LOGS,
        help="first part of metric names",
    )
    metrics_compat: MetricsCompat = option(
        choice(MetricsCompat), "none", group=_LOGS, help="serve metrics once more under the names of vLLM"
    )
    access_log: bool = option(switch(), True, group=_LOGS, help="log each request when it ends")
    access_log_exclude: tuple[str, ...] = option(
        texts(metavar="PATH"),
        ("/health", "/ready", "/metrics"),
        group=_LOGS,
        help="paths without access log",
        aliases=("--disable-access-log-for-endpoints",),
    )
    log_requests: LogRequests = option(
        choice(LogRequests), "meta", group=_LOGS, help="what of a request to log; full includes prompts"
    )
    log_level: LogLevel = option(choice(LogLevel), "info", group=_LOGS, help="least severe message to log")
    log_format: LogFormat = option(choice(LogFormat), "text", group=_LOGS, help="lines for people or JSON objects")

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for options that contradict each other."""
        for address in self.engine:
            check_exposure(address, self.insecure_tcp)
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ValueError("--ssl-keyfile: expected --ssl-certfile with it")
        if self.max_body_memory < self.max_body_size:
            raise ValueError("--max-body-memory: expected no less than --max-body-size")


def read_config(argv: Sequence[str] | None = None) -> FrontendConfig:
    """Read flags, environment and config file; exits with status 2 and one line if something is wrong."""
    return read_options(
        FrontendConfig,
        argv,
        prog="pagewire-frontend",
        description="Serve OpenAI's HTTP API with the engines it is connected to.",
        other_names=ENGINE_OPTIONS,
    )
