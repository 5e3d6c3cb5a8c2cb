"""Off-policy estimators, their intervals, return distributions, slates."""
