"""A policy behind HTTP: JSON in, JSON out. Nothing of JAX or of training is imported."""
