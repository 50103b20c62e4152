"""The load harness: measures any OpenAI-compatible server, and the parts of this one."""
