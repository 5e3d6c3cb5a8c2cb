"""Metrics of ranked lists, and baselines without a network."""
