"""Grammars that clients ask for: read, reduced to what is enforced, and checked, before an engine sees them."""
