"""BCQ and discrete BCQ solve what they should from others' bad habits, where cloning repeats them; in seconds."""

import numpy as np
import pytest

from tests.learns.test_iql import DISCOUNT, TINY, target, throws, trained, walks
from tidelog import BC, BCQ, DiscreteBCQ
from tidelog.envs.toys import chain

__all__ = ["throws", "walks"]  # fixtures


def test_bcq_aims_closer_than_cloning(throws):
    seen = np.linspace(-1, 1, 101, dtype=np.float32)[:, None]

    def miss(policy):
        return float(np.abs(policy(seen) - target(seen)).mean())

    small = {"generator_hidden": (64, 64), "perturbation_hidden": (32, 32), "target_samples": 2, "samples": 50}
    rates = {f"{part}_learning_rate": 3e-3 for part in ("generator", "critic", "perturbation")}
    learnt = trained(BCQ(kl_weight=0.02, phi=0.1, **TINY, **small, **rates), throws, 800)
    cloned = trained(BC(learning_rate=3e-3, schedule="linear", **TINY), throws, 400)
    assert miss(cloned) == pytest.approx(0.4, abs=0.08)
    assert miss(learnt) < 0.7 * miss(cloned)


def test_discrete_bcq_walks_the_chain_at_the_optimum_and_only_where_it_may(walks):
    problem = chain(5, slip=0.1)

    def worth(**changes):
        h = DiscreteBCQ(discount=DISCOUNT, learning_rate=3e-3, target_rate=0.05, **TINY, **changes)
        return problem.value_of(trained(h, walks, 600)(problem.observations()), DISCOUNT)

    assert worth() == pytest.approx(problem.optimal(DISCOUNT)[0], rel=1e-6)
    always_left = np.tile([1.0, 0.0], (6, 1))
    assert worth(threshold=1.0) == pytest.approx(problem.value_of(always_left, DISCOUNT), rel=1e-6)
