"""Logs of decisions: sources, one validation, and the canonical log. No JAX."""
