"""A policy without a density acts, samples and is saved like any other, and never returns a propensity."""

import numpy as np
import pytest

from tests.algorithms.worlds import small, world
from tidelog import Log, collect, fit, load_policy

LOG = world("continuous")


@pytest.mark.full
def test_bcq_has_no_propensity_anywhere(tmp_path):
    policy = fit(small("bcq"), LOG, 5, scale="none", every=5, progress=False).policy()
    seen = LOG.transitions.observation
    action, propensity = policy.sample_with_propensity(seen, seed=1)
    assert propensity is None
    assert policy.log_probability(seen, LOG.action) is None
    assert (action != policy(seen)).any()
    again = load_policy(policy.save(tmp_path / "policy"))
    np.testing.assert_array_equal(again(seen), policy(seen))
    np.testing.assert_allclose(policy({n: leaf[0] for n, leaf in seen.items()}), policy(seen)[0], atol=1e-5)


@pytest.mark.full
def test_what_it_plays_is_collected_without_propensities():
    rng = np.random.default_rng(0)
    log = Log.from_arrays(
        observation=rng.standard_normal((20, 1)).astype(np.float32), action=rng.uniform(-1, 1, (20, 1)),
        reward=rng.random(20), terminated=True, bounds=([-1.0], [1.0]),
    )  # fmt: skip
    policy = fit(small("bcq"), log, 2, scale="none", every=2, progress=False).policy()
    assert collect("point-mass", policy, episodes=1).propensity is None
