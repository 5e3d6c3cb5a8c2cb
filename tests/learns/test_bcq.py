"""BCQ and discrete BCQ solve tasks from imperfect logs that cloning repeats; in seconds."""

import numpy as np
import pytest

from tests.envs.corridor import chain
from tests.learns.test_iql import DISCOUNT, TINY, target, throws, trained, walks
from tidelog import BC, BCQ, DiscreteBCQ, rollout
from tidelog.envs import make, play
from tidelog.envs.tabular import PointMass
from tidelog.policies.rollout import log_of

__all__ = ["throws", "walks"]  # fixtures


@pytest.mark.full
def test_bcq_aims_closer_than_cloning(throws):
    seen = np.linspace(-1, 1, 101, dtype=np.float32)[:, None]

    def miss(policy):
        return float(np.abs(policy(seen) - target(seen)).mean())

    small = {"generator_hidden": (64, 64), "perturbation_hidden": (32, 32), "target_samples": 2, "samples": 50}
    rates = {f"{part}_learning_rate": 3e-3 for part in ("generator", "critic", "perturbation")}
    learnt = trained(BCQ(kl_weight=0.02, phi=0.1, **TINY, **small, **rates), throws, 800)
    cloned = trained(BC(learning_rate=3e-3, schedule="linear", **TINY), throws, 400)
    assert miss(cloned) == pytest.approx(0.4, abs=0.08)  # 0 of 10 other seeds fail, here and below
    assert miss(learnt) < 0.7 * miss(cloned)


@pytest.mark.full
def test_discrete_bcq_walks_the_chain_at_the_optimum_and_only_where_it_may(walks):
    problem = chain(5, slip=0.1)

    def worth(**changes):
        h = DiscreteBCQ(discount=DISCOUNT, learning_rate=3e-3, tau=0.05, **TINY, **changes)
        return problem.value_of(trained(h, walks, 600)(problem.observations()), DISCOUNT)

    assert worth() == pytest.approx(problem.optimal(DISCOUNT)[0], rel=1e-6)  # 0 of 10 other seeds fail, here and below
    always_left = np.tile([1.0, 0.0], (6, 1))
    assert worth(threshold=1.0) == pytest.approx(problem.value_of(always_left, DISCOUNT), rel=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(5))
def test_bcq_is_better_than_a_demonstrator_who_acts_at_random_in_three_of_ten_steps(seed):
    """Imperfect demonstrations on the point-mass; the optimal return is known."""

    def demonstrate(observed, generator):
        position = observed.observation["observation"]
        lost = generator.random((len(position), 1)) < 0.3
        wild = generator.uniform(-1, 1, position.shape)
        return np.where(lost, wild, PointMass.best(position)).astype(np.float32), None

    environment = make("point-mass", 10)
    log = log_of(environment.spec, play(environment, demonstrate, 100, seed))
    small = {"generator_hidden": (64, 64), "perturbation_hidden": (32, 32), "target_samples": 4, "samples": 50}
    rates = {f"{part}_learning_rate": 2e-3 for part in ("generator", "critic", "perturbation")}
    policy = trained(BCQ(discount=0.9, tau=0.02, **TINY, **small, **rates), log, 500)

    same_starts = play(make("point-mass", 50), demonstrate, 200, 50 + seed).returns.mean()
    learnt = rollout(policy, "point-mass", 200, seed=50 + seed, num_envs=50).mean()
    starts = np.random.default_rng(50 + seed).uniform(-1, 1, (4000, 1))
    best = PointMass.best_return(starts).mean()
    assert best - 0.05 > same_starts  # 0 of 50 other seeds fail, here and below
    assert learnt > same_starts + 0.5 * (best - same_starts)
