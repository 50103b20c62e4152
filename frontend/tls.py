"""TLS: one context for the life of the listener, whose certificate can be read again."""

import ssl

from pagewire.frontend.config import FrontendConfig


def tls_context(config: FrontendConfig) -> ssl.SSLContext | None:
    """Read certificate and key; None without TLS. Raises ``ValueError`` if they cannot be used."""
    if config.ssl_certfile is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    load_certificate(context, config)
    return context


def load_certificate(context: ssl.SSLContext, config: FrontendConfig) -> None:
    """Read certificate and key, for connections from now on. Raises ``ValueError`` if they cannot be used."""
    assert config.ssl_certfile is not None
    try:
        # A key that needs a password would ask for it on the terminal.
        context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"--ssl-certfile {config.ssl_certfile}: cannot be used: {error}") from None
