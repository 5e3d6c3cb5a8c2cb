"""One check of seeds at every entrance, and whole seeds that count."""

import numpy as np
import pytest

import tidelog as tl
from tidelog.envs import make
from tidelog.envs.satiation import simulate_visits
from tidelog.policies.statistics import bootstrap_interval

LOG = tl.Log.from_arrays(
    observation=np.zeros((8, 1), np.float32),
    action=np.arange(8) % 2,
    reward=np.arange(8.0),
    episode=np.arange(8) // 2,
    terminated=np.arange(8) % 2 == 1,
)
ENTRANCES = {
    "split": lambda seed: LOG.split(0.5, seed=seed),
    "collect": lambda seed: tl.collect("treatment", episodes=1, seed=seed),
    "gymnasium": lambda seed: make("MountainCar-v0", 1).reset(seed),
    "vector": lambda seed: make("CartPole-v1", 2).reset(seed),
    "tabular": lambda seed: make("treatment", 1).reset(seed),
    "point-mass": lambda seed: make("point-mass", 1).reset(seed),
    "jax": lambda seed: make("jax:treatment", 1).reset(seed),
    "visits": lambda seed: simulate_visits(lambda *_: None, 1, seed),
    "bootstrap": lambda seed: bootstrap_interval(np.arange(3.0), seed=seed),
    "random_search": lambda seed: tl.random_search(tl.BC(), 1, seed, learning_rate=(1e-4, 1e-3)),
    "fit": lambda seed: tl.fit(tl.BC(), LOG, 1, seeds=[seed], progress=False),
    "split_seed": lambda seed: tl.fit(tl.BC(), LOG, 1, held_out=0.5, split_seed=seed, progress=False),
    "estimate": lambda seed: tl.estimate(None, LOG, seed=seed),
}


@pytest.mark.parametrize("seed", [-1, 1.5, None, True, "0"])
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_seed_that_is_none_is_refused_in_one_sentence(entrance, seed):
    with pytest.raises(tl.ConfigError, match=r"seed.*: (expected (a whole number|at least 0)|-1 is outside)"):
        ENTRANCES[entrance](seed)


def test_seeds_of_any_size_split_a_log_and_those_of_models_have_a_limit():
    assert LOG.split(0.5, seed=2**100)[0].steps == 4
    with pytest.raises(tl.ConfigError, match=r"seed = 1099511627776: expected at most 2,147,483,647"):
        tl.estimate(None, LOG, seed=2**40)


def test_seeds_of_numpy_and_large_ones_count():
    seeds = (0, 2**32, np.int64(0))
    worlds = [np.hstack([*make("jax:treatment", 64).reset(seed).observation.values()]) for seed in seeds]
    assert not np.array_equal(worlds[0], worlds[1])
    np.testing.assert_array_equal(worlds[0], worlds[2])
