"""How good ranked lists are, and baselines without a network."""
