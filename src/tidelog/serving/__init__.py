"""A policy over HTTP: JSON in, JSON out, without an import of JAX or training code."""
