"""Choosing tokens: the sampler and its parts."""
