"""A policy without a density acts, samples and is saved like any other, and never returns a propensity."""

import numpy as np
import pytest

from tests.algorithms.worlds import small, world
from tidelog import fit, load_policy

LOG = world("continuous")


@pytest.mark.full
def test_bcq_has_no_propensity_anywhere(tmp_path):
    policy = fit(small("bcq"), LOG, 5, scale="none", eval_every=5, progress=False).policy()
    seen = LOG.transitions.observation
    action, propensity = policy.sample_with_propensity(seen, seed=1)
    assert propensity is None
    assert policy.log_probability(seen, LOG.action) is None
    assert (action != policy(seen)).any()
    again = load_policy(policy.save(tmp_path / "policy"))
    np.testing.assert_array_equal(again(seen), policy(seen))
    np.testing.assert_allclose(policy({n: leaf[0] for n, leaf in seen.items()}), policy(seen)[0], atol=1e-5)
