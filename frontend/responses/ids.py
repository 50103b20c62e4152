"""Ids of responses and items: what they belong to, and enough chance that nobody guesses one."""

import uuid


def new_id(kind: str) -> str:
    """A new id, such as ``resp_0123...`` for the kind ``resp``."""
    return f"{kind}_{uuid.uuid4().hex}"
