"""Policies: the policy object, rollouts in environments, and statistics of returns."""
