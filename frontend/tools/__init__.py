"""Tool calls: from a model's text to calls, and from a request's tools to what the model may write."""
