"""Chat templates: where they come from, the sandbox they run in, and what they make of a conversation."""
