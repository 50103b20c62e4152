"""OpenAI's endpoints: what they take, what they answer, and what they say when something is wrong."""
