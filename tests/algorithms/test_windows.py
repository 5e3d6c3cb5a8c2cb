"""Windows of a log: which steps are real, which count, and what follows each; against plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.worlds import world
from tidelog.algorithms.contract import Keep
from tidelog.algorithms.draws import Choice, Row, Window
from tidelog.data.nstep import n_step
from tidelog.data.scaling import Scaler
from tidelog.training.stores import stored

KEEP = Keep(("reward", "terminated"))


@pytest.fixture(scope="module")
def log():
    return world("discrete")


@pytest.mark.parametrize(("length", "burn_in", "n"), [(4, 0, 1), (3, 2, 1), (5, 3, 2), (1, 0, 1)])
def test_windows_of_transitions_are_those_of_numpy(log, length, burn_in, n):
    store = stored(log, KEEP, Scaler())
    rows = np.flatnonzero(log.has_target)
    data, _, valid = Window(Row(n, 0.9), length, burn_in).gather(store, jnp.asarray(rows))
    for b, row in enumerate(rows):
        episode = log.episode[row]
        first, end = log.starts[episode], log.reach[row]
        for t, place in enumerate(range(row - burn_in, row + length)):
            real = first <= place <= end
            assert bool(data.real[b, t]) == real
            assert bool(valid[b, t]) == (real and place >= row)
            if not real:
                continue
            cut = min(end, row + length - 1) - place + 1  # no reward is summed beyond the window
            wanted = n_step(log, np.asarray([place]), min(n, cut), 0.9)
            assert float(data.reward[b, t]) == pytest.approx(float(wanted.reward[0]), abs=1e-6)
            assert float(data.discount[b, t]) == pytest.approx(float(wanted.discount[0]), abs=1e-6)
            assert int(data.last[b, t]) == t + int(wanted.m[0]) - 1
            for name, leaf in log.observation.items():
                assert np.array_equal(data.observation[name][b, t], leaf[log.position[place]])
                assert np.array_equal(data.next_observation[name][b, t], leaf[wanted.next_position[0]])


def test_windows_of_decisions_reach_to_the_end_of_the_episode(log):
    store = stored(log, Keep(()), Scaler())
    rows = np.arange(log.steps)
    data, _, valid = Window(Choice(), 6, 1).gather(store, jnp.asarray(rows))
    for b, row in enumerate(rows):
        end = log.starts[log.episode[row] + 1] - 1
        assert np.asarray(valid[b, 1:]).tolist() == [row + k <= end for k in range(6)]
        assert int(data.action[b, 1]) == log.action[row]


def test_what_counts_is_averaged_over_valid_steps(log):
    from tidelog.algorithms.contract import Batch

    valid = jnp.asarray([[True, True], [True, False]])
    batch = Batch(None, jnp.arange(2), jnp.asarray([[1.0, 2.0], [3.0, 100.0]]), valid)
    errors = jnp.asarray([[1.0, 10.0], [100.0, 1e9]])
    # (1 * 1 + 2 * 10 + 3 * 100) / 3, without weights (1 + 10 + 100) / 3, per sample 11 / 2 and 100 / 1
    assert float(batch.mean(errors)) == pytest.approx(107.0)
    assert float(batch.average(errors)) == pytest.approx(37.0)
    assert np.asarray(batch.per_sample(errors)).tolist() == [5.5, 100.0]
    with pytest.raises(TypeError, match="shape"):
        batch.mean(errors[:, 0])


def test_what_followed_is_encoded_from_its_predecessors_state():
    from tidelog.networks.encode import Encoder, Sight
    from tidelog.types import Discrete, Spec, Transition, Vector

    spec = Spec({"o": Vector(3)}, Discrete(2))
    encoder = Encoder.create(np.random.default_rng(0), spec, Sight(4, 8, memory=5))
    seen = np.random.default_rng(1).standard_normal((2, 5, 3)).astype(np.float32)  # T + 1 observations
    row = Transition(
        {"o": jnp.asarray(seen[:, :4])},
        jnp.zeros((2, 4), jnp.int32),
        jnp.zeros((2, 4)),
        jnp.zeros((2, 4)),
        {"o": jnp.asarray(seen[:, 1:])},
        real=jnp.ones((2, 4), bool),
        last=jnp.broadcast_to(jnp.arange(4), (2, 4)),
    )
    now, after = jax.jit(lambda row: encoder.both(row))(row)
    whole = encoder({"o": jnp.asarray(seen)}, jnp.ones((2, 5), bool))
    assert np.asarray(now) == pytest.approx(np.asarray(whole[:, :4]), abs=1e-6)
    assert np.asarray(after) == pytest.approx(np.asarray(whole[:, 1:]), abs=1e-6)
