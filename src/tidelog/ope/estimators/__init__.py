"""Off-policy estimators, their intervals, distributions of returns, slates."""
