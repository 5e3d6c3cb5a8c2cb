"""Actor-critic algorithms aim closer than cloning, from throws with a bias; in seconds."""

import numpy as np
import pytest

from tests.envs.corridor import chain
from tests.learns.test_iql import DISCOUNT, TINY, target, throws, trained, walks
from tidelog import BC, CQL, FQL, TD3BC, DiscreteCQL, ReBRAC

__all__ = ["throws", "walks"]  # fixtures
RATES = {"actor_learning_rate": 3e-3, "critic_learning_rate": 3e-3}
AIMING = {
    "td3-bc": TD3BC(alpha=10.0, tau=0.05, **RATES, **TINY),
    "rebrac": ReBRAC(actor_penalty=0.1, tau=0.05, **RATES, **TINY),
    "fql": FQL(alpha=1.0, normalise_q=True, tau=0.05, learning_rate=3e-3, **TINY),
    "cql": CQL(alpha=0.1, tau=0.05, samples=4, entropy_learning_rate=1e-2, **RATES, **TINY),
}


@pytest.mark.full
@pytest.mark.parametrize("name", AIMING)
def test_it_aims_closer_than_cloning(throws, name):
    seen = np.linspace(-1, 1, 101, dtype=np.float32)[:, None]

    def miss(policy):
        return float(np.abs(policy(seen) - target(seen)).mean())

    cloned = trained(BC(learning_rate=3e-3, schedule="linear", **TINY), throws, 400)
    assert miss(cloned) == pytest.approx(0.4, abs=0.08)
    assert miss(trained(AIMING[name], throws, 800)) < 0.6 * miss(cloned)


@pytest.mark.full
def test_discrete_cql_walks_the_chain_at_the_optimum(walks):
    problem = chain(5, slip=0.1)
    h = DiscreteCQL(discount=DISCOUNT, alpha=0.05, learning_rate=3e-3, tau=0.05, **TINY)
    worth = problem.value_of(trained(h, walks, 600)(problem.observations()), DISCOUNT)
    assert worth == pytest.approx(problem.optimal(DISCOUNT)[0], rel=1e-6)
