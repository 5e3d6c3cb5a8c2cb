"""Interactions: who took which item, when, and what came of it. No JAX."""
