"""OpenAI's Responses API: items in, items out, with answers that can be continued by id."""
