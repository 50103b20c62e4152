"""Micro-benchmarks: what the parts of this server cost, one at a time."""
