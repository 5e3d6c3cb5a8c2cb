"""Cross-fitted models of action values and occupancy ratios.

`tabular` (exact, for few different observations), `function_approximation` (networks and random features, for all
others), `fqe` (fitted Q evaluation, which trains those networks).
"""
