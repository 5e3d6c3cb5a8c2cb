"""Interaction logs: who chose which item, when, and with what reward. Does not import JAX."""
