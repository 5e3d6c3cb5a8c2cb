"""The study of randomised parts: its truths are the exact values where these are sums over few states."""

import numpy as np
import pytest

from benchmarks import randomised_part


def test_plain_means_of_matching_decisions_are_exact_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomised_part, "RANDOMISED", 40_000)
    loyalty, segment = (part.reshape(-1, 1) for part in np.meshgrid(np.arange(4), np.arange(5)))
    states, world = {"loyalty": loyalty, "segment": segment}, randomised_part.WORLDS["coupons"]
    profit = randomised_part._profit(states)
    truths = randomised_part.truths.__wrapped__("coupons")
    for policy, chances in world.policies.items():
        exact = float(((chances(states) - world.logger(states)) * profit).sum(1).mean())
        found, error = truths[policy]
        assert abs(found - exact) < 4.0 * error, policy
