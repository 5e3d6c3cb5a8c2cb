"""Logs of decisions: sources, validation and the canonical log. Does not import JAX."""
