"""The frontend program: OpenAI's HTTP API over one or more engines. Never imports torch."""
