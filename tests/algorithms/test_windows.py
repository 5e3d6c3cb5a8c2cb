"""Windows of a log: real steps, valid steps, and next observations; against plain NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.worlds import uneven, world
from tests.data.nstep import n_step
from tidelog import Log
from tidelog.algorithms.contract import StoreSpec
from tidelog.algorithms.sampling import Batch, LoggedAction, NStep, Sampler, Window
from tidelog.data.statistics import Scaler
from tidelog.training.stores import stored

KEEP = StoreSpec(("reward", "terminated"))


@pytest.fixture(scope="module")
def log():
    return world("discrete")


@eqx.filter_jit
def gathered(window, store, rows, offset):
    """Return the windows of these rows, as one program."""
    return window.gather(store, rows, offset)


@pytest.mark.sample("3-2-1")
@pytest.mark.parametrize(("length", "burn_in", "n"), [(4, 0, 1), (3, 2, 1), (5, 3, 2), (1, 0, 1)])
def test_windows_of_transitions_are_those_of_numpy(log, length, burn_in, n):
    store = stored(log, KEEP, Scaler())
    rows = np.flatnonzero(log.has_target)
    offset = np.random.default_rng(0).integers(0, length, len(rows))
    window = Window(NStep(n, 0.9), length, burn_in)
    data, _, valid, valid_steps = jax.device_get(gathered(window, store, rows, offset))
    assert np.array_equal(valid_steps, valid.sum(axis=1))
    for b, row in enumerate(rows):
        episode = log.episode[row]
        first, end = log.starts[episode], log.reach[row]
        begin = row - offset[b]  # of the steps that count; it may lie before the episode
        for t, place in enumerate(range(begin - burn_in, begin + length)):
            real = first <= place <= end
            assert bool(data.real[b, t]) == real
            assert bool(valid[b, t]) == (real and place >= begin)
            if not real:
                continue
            cut = min(end, begin + length - 1) - place + 1  # no reward is summed beyond the window
            wanted = n_step(log, np.asarray([place]), min(n, cut), 0.9)
            assert float(data.reward[b, t]) == pytest.approx(float(wanted.reward[0]), abs=1e-6)
            assert float(data.discount[b, t]) == pytest.approx(float(wanted.discount[0]), abs=1e-6)
            assert int(data.last[b, t]) == t + int(wanted.m[0]) - 1
            for name, leaf in log.observation.items():
                assert np.array_equal(data.observation[name][b, t], leaf[log.position[place]])
                assert np.array_equal(data.next_observation[name][b, t], leaf[wanted.next_position[0]])


@pytest.mark.full
def test_windows_of_decisions_reach_to_the_end_of_the_episode(log):
    store = stored(log, StoreSpec(()), Scaler())
    rows = np.arange(log.steps)
    data, _, valid, _ = jax.device_get(gathered(Window(LoggedAction(), 6, 1), store, rows, np.zeros_like(rows)))
    for b, row in enumerate(rows):
        end = log.starts[log.episode[row] + 1] - 1
        assert valid[b, 1:].tolist() == [row + k <= end for k in range(6)]
        assert int(data.action[b, 1]) == log.action[row]


def test_what_counts_is_averaged_over_valid_steps(log):
    valid = np.asarray([[True, True], [True, False]])
    batch = Batch(None, np.arange(2), np.asarray([[1.0, 2.0], [3.0, 100.0]], np.float32), valid)
    errors = np.asarray([[1.0, 10.0], [100.0, 1e9]], np.float32)
    # (1 * 1 + 2 * 10 + 3 * 100) / 3, without weights (1 + 10 + 100) / 3, per sample 11 / 2 and 100 / 1
    mean, average, each = jax.jit(lambda batch: (batch.mean(errors), batch.average(errors), batch.per_sample(errors)))(
        batch
    )
    assert float(mean) == pytest.approx(107.0)
    assert float(average) == pytest.approx(37.0)
    assert np.asarray(each).tolist() == [5.5, 100.0]
    with pytest.raises(TypeError, match="shape"):
        batch.mean(errors[:, 0])


def test_what_followed_is_encoded_from_its_predecessors_state():
    from tidelog.networks.encoder import Encoder, EncoderConfig
    from tidelog.types import Discrete, Spec, Transition, Vector

    spec = Spec({"o": Vector(3)}, Discrete(2))
    encoder = Encoder.create(np.random.default_rng(0), spec, EncoderConfig(4, 8, recurrent_size=5))
    seen = np.random.default_rng(1).standard_normal((2, 5, 3)).astype(np.float32)  # T + 1 observations
    row = Transition(
        {"o": seen[:, :4]},
        np.zeros((2, 4), np.int32),
        np.zeros((2, 4), np.float32),
        np.zeros((2, 4), np.float32),
        {"o": seen[:, 1:]},
        real=np.ones((2, 4), bool),
        last=np.broadcast_to(np.arange(4), (2, 4)),
    )
    now, after = jax.jit(lambda row: encoder.both(row))(row)
    whole = np.asarray(jax.jit(lambda seen: encoder({"o": seen}, jnp.ones((2, 5), bool)))(seen))
    assert np.asarray(now) == pytest.approx(whole[:, :4], abs=1e-6)
    assert np.asarray(after) == pytest.approx(whole[:, 1:], abs=1e-6)


# The weight of every step of the log.


def numbered(seed=3, episodes=9):
    """A log whose observation is the row's number; episodes of 1 to 12 steps, some with an unknown end."""
    rng = np.random.default_rng(seed)
    columns = uneven(rng, episodes, longest=12)
    rows = np.arange(len(columns["episode"]), dtype=np.float32)
    known = ~columns["truncated"] | (rng.random(len(rows)) < 0.5)
    return Log.from_arrays(
        **columns, observation=rows[:, None], action=rows.astype(int) % 3, next_observation=rows[:, None] + 1,
        followed=known,
    )  # fmt: skip


def counted_rows(log, batch):
    """Return the weight of each row of the log [N] in the mean over a batch."""
    weight = jax.jit(lambda batch: jax.grad(batch.mean)(jnp.zeros(batch.valid.shape)))(batch)
    rows = np.asarray(batch.data.observation["observation"])[..., 0].astype(int)
    return np.bincount(rows.ravel(), np.asarray(weight).ravel(), minlength=log.steps)


def test_drawn_windows_count_every_step_as_often_as_any_other():
    log = numbered()
    draw = Sampler("log", 40_000, Window(NStep(3, 0.9), 8, 2))
    batch = eqx.filter_jit(draw.batch)(stored(log, KEEP, Scaler()), None, jax.random.key(0), jnp.zeros(()))[0]
    usable = log.has_target
    share = counted_rows(log, batch) * usable.sum()
    assert not share[~usable].any()
    assert share[usable] == pytest.approx(np.ones(usable.sum()), abs=0.16)  # an episode of one step: 4.5 deviations


UNITS = {"decisions": LoggedAction(), "transitions": NStep(1, 0.9), "n-step": NStep(3, 0.9)}


def expected_weight(log, unit, length, burn_in, likelihood=None, importance=None):
    """Return the exact expected weight [N] of every row in batches of one window, over all drawn rows and positions.

    `likelihood` [count] of each sample, uniform without one.
    """
    store, draw = stored(log, KEEP, Scaler()), Sampler("log", 1, Window(unit, length, burn_in))
    count, table = draw.unit.rows(store)
    likelihood = np.full(count, 1 / count) if likelihood is None else likelihood
    importance = np.ones(count, np.float32) if importance is None else np.asarray(importance, np.float32)
    samples, places = np.repeat(np.arange(count), length), np.tile(np.arange(length), count)

    def one(store, table, importance, sample, offset):
        row = sample if table is None else table[sample]
        batch = draw.at(store, row[None], importance[sample][None], offset[None])
        return jax.grad(batch.mean)(jnp.zeros(batch.valid.shape)), batch.data.observation["observation"][..., 0]

    each = jax.jit(jax.vmap(one, in_axes=(None, None, None, 0, 0)))
    weight, seen = each(store, table, importance, samples, places)
    weight = np.asarray(weight) * (likelihood[samples] / length)[:, None, None]
    return np.bincount(np.asarray(seen, int).ravel(), weight.ravel(), minlength=log.steps)


def learnt_from(log, unit):
    """Return the valid rows."""
    return np.arange(log.steps) if unit == LoggedAction() else np.flatnonzero(log.has_target)


@pytest.mark.sample("n-step-5-0")
@pytest.mark.parametrize(("length", "burn_in"), [(1, 0), (5, 0), (8, 3), (30, 1)])
@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_every_step_has_exactly_the_same_expected_weight(unit, length, burn_in):
    log = numbered()
    rows, share = learnt_from(log, unit), expected_weight(log, unit, length, burn_in)
    np.testing.assert_allclose(share[rows], 1 / len(rows), rtol=1e-5)
    assert share.sum() == pytest.approx(1.0, rel=1e-5)


@pytest.mark.full
def test_windows_drawn_by_priority_count_by_it_and_at_full_correction_not_at_all():
    log, unit, length = numbered(), NStep(2, 0.9), 5
    rows = learnt_from(log, unit)
    likelihood = np.random.default_rng(0).gamma(0.5, size=len(rows))
    likelihood /= likelihood.sum()
    corrected = expected_weight(log, unit, length, 2, likelihood, 1 / (len(rows) * likelihood))
    np.testing.assert_allclose(corrected[rows], 1 / len(rows), rtol=1e-4)
    plain = expected_weight(log, unit, length, 2, likelihood)
    wanted = np.zeros(log.steps)
    for episode in range(len(log.episode_ids)):  # of every window that holds a step: the mean likelihood of its steps
        own = rows[log.episode[rows] == episode]
        for begin in range(own[0] - length + 1, own[-1] + 1) if len(own) else ():
            window = own[(own >= begin) & (own < begin + length)]
            wanted[window] += likelihood[np.searchsorted(rows, window)].mean() / length
    np.testing.assert_allclose(plain, wanted, rtol=1e-4, atol=1e-9)
    assert plain[rows].std() > 0.3 / len(rows)


@pytest.mark.sample("n-step")
@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_without_offsets_windows_follow_each_other_and_all_rows_together_count_equally(unit):
    log = numbered()
    rows, length = learnt_from(log, unit), 4
    batch = eqx.filter_jit(Sampler("log", 1, Window(unit, length, 1)).at)(stored(log, KEEP, Scaler()), rows)
    np.testing.assert_allclose(counted_rows(log, batch)[rows], 1 / len(rows), rtol=1e-5)
    begin = rows - (rows - log.starts[log.episode[rows]]) % length
    np.testing.assert_array_equal(np.asarray(batch.data.observation["observation"])[:, 1, 0], begin)


def test_windows_drawn_in_proportion_to_their_steps_count_equally_whatever_their_length():
    valid = np.asarray([[True, True, True], [False, True, False]])
    batch = Batch(None, np.arange(2), None, valid, np.asarray([3, 1]))
    errors = np.asarray([[1.0, 2.0, 3.0], [1e9, 10.0, 1e9]], np.float32)
    # ((1 + 2 + 3) / 3 + 10 / 1) / 2
    assert float(jax.jit(batch.mean)(errors)) == pytest.approx(6.0)
