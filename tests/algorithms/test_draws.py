"""Compiled draws against the NumPy reference, on random logs with every kind of end."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

from tests.algorithms.worlds import uneven, world
from tests.data.nstep import n_step
from tidelog import IQL, Columns, LogError, SpecError, read_log
from tidelog.algorithms.contract import StoreSpec
from tidelog.algorithms.sampling import Batch, LoggedAction, NStep, Sampler, Uniform, shifted
from tidelog.data.statistics import Scaler
from tidelog.training.stores import stored
from tidelog.types import Image, Transition

REWARDS = StoreSpec(("reward", "terminated"))


@eqx.filter_jit
def gathered(unit, store, rows):
    """Return the data of these rows, as one program."""
    return unit.gather(store, rows).data


@eqx.filter_jit
def batch_drawn(draw, store):
    """Return a batch and its indices, as one program."""
    return draw.batch(store, None, jax.random.key(0), jnp.zeros(()))


def ragged(seed: int, kind: str):
    """A log of episodes of 1 to 7 steps; the next observation of a truncation is always, never or sometimes known."""
    rng = np.random.default_rng(seed)
    columns = uneven(rng, 25)
    ends = columns["terminated"] | columns["truncated"]
    now = rng.standard_normal(len(ends))
    then = np.where(ends, rng.standard_normal(len(ends)), np.roll(now, -1))
    known = ~ends | (kind == "known") | ((kind == "some") & (rng.random(len(ends)) < 0.5))
    frame = pl.DataFrame(
        {name: values.astype(int) if values.dtype == bool else values for name, values in columns.items()}
        | {"now": now, "then": pl.Series(then).set(pl.Series(~known), None), "action": np.arange(len(ends)) % 3}
    )
    return read_log(
        frame,
        Columns(
            observation=["now"], next_observation=["then"], action="action", reward="reward", episode="episode",
            terminated="terminated", truncated="truncated",
        ),
    )  # fmt: skip


@pytest.mark.sample("0-some-1", "2-known-3", "3-some-5")
@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize(("seed", "kind"), [(0, "some"), (1, "never"), (2, "known"), (3, "some")])
def test_rows_are_the_reference_windows(seed, kind, n):
    log = ragged(seed, kind)
    store = stored(log, REWARDS, Scaler())
    count, usable = NStep(n, 0.9).rows(store)
    rows = np.arange(len(log)) if usable is None else np.asarray(usable)
    assert count == len(rows) == log.has_target.sum()
    gather = jax.jit(lambda gamma, rows: NStep(n, gamma).gather(store, rows).data)
    for gamma in (0.0, 0.9, 1.0):
        found, wanted = gather(gamma, rows), n_step(log, rows, n, gamma)
        np.testing.assert_allclose(found.reward, wanted.reward, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found.discount, wanted.discount, rtol=1e-5)
        after = np.asarray(found.next_observation["numeric"])
        np.testing.assert_array_equal(after, log.observation["numeric"][wanted.next_position])
        np.testing.assert_array_equal(found.observation["numeric"], log.observation["numeric"][log.position[rows]])
        np.testing.assert_array_equal(found.action, log.action[rows])


def test_masks_follow_their_observations():
    log = world("discrete")
    store = stored(log, REWARDS, Scaler())
    rows = np.flatnonzero(log.has_target)
    found = gathered(NStep(2, 0.9), store, rows)
    np.testing.assert_array_equal(found.mask, log.action_mask[log.position[rows]])
    np.testing.assert_array_equal(found.next_mask, log.action_mask[n_step(log, rows, 2, 0.9).next_position])


def test_a_choice_is_the_decision_alone():
    log = world("discrete")
    rows = np.array([3, 0, 3])
    found = gathered(LoggedAction(), stored(log, StoreSpec(()), Scaler()), rows)
    for name, leaf in log.observation.items():
        np.testing.assert_array_equal(found.observation[name], leaf[log.position[rows]])
    np.testing.assert_array_equal(found.action, log.action[rows])
    np.testing.assert_array_equal(found.mask, log.action_mask[log.position[rows]])


def test_a_row_without_rewards_is_refused():
    with pytest.raises(TypeError, match="needs the columns 'reward' and 'terminated'"):
        NStep(1, 0.9).gather(stored(world("discrete"), StoreSpec(()), Scaler()), np.arange(3))


def test_exactly_the_usable_rows_are_drawn():
    log = ragged(0, "some")
    store = stored(log, REWARDS, Scaler())
    batch, indices = batch_drawn(Sampler("log", 5000, NStep(3, 0.9)), store)
    assert set(np.asarray(batch.rows).tolist()) == set(np.flatnonzero(log.has_target).tolist())
    assert 0 < log.has_target.sum() < len(log)
    np.testing.assert_array_equal(np.asarray(store.usable)[indices], batch.rows)
    cloned, _ = batch_drawn(Sampler("log", 5000, LoggedAction()), store)
    assert set(np.asarray(cloned.rows).tolist()) == set(range(len(log)))


def test_draws_are_uniform():
    counts = np.bincount(
        np.asarray(Uniform().draw(None, jax.random.key(1), 100_000, 50, jnp.zeros(()))[0]), minlength=50
    )
    assert len(counts) == 50
    # 4.5 standard errors of 50 counts: a right sampler fails for 3 in 10,000 seeds
    assert np.abs(counts - 2000).max() < 4.5 * np.sqrt(2000)


def test_a_batch_refuses_errors_of_another_shape():
    batch = Batch(None, jnp.arange(3))
    np.testing.assert_allclose(batch.mean(jnp.array([1.0, 2.0, 6.0])), 3.0)
    with pytest.raises(TypeError, match=r"errors have shape \(3, 1\), expected \(3,\)"):
        batch.mean(jnp.ones((3, 1)))


def test_a_batch_carries_the_logs_weights():
    log = world("discrete", weight=np.arange(65.0))
    batch, _ = batch_drawn(Sampler("log", 8, LoggedAction()), stored(log, StoreSpec(()), Scaler()))
    np.testing.assert_array_equal(batch.weight, np.asarray(batch.rows) / np.float32(32.0))  # over their mean


def test_weights_have_mean_one_over_the_rows_that_are_read():
    log = ragged(0, "some")
    log = replace(log, weight=np.random.default_rng(0).gamma(2.0, size=len(log)).astype(np.float32))
    assert not log.has_target.all()
    read = np.asarray(stored(log, REWARDS, Scaler()).weight)[log.has_target]
    assert read.mean(dtype=float) == pytest.approx(1.0, rel=1e-6)
    assert np.asarray(stored(log, StoreSpec(()), Scaler()).weight).mean(dtype=float) == pytest.approx(1.0, rel=1e-6)
    np.testing.assert_allclose(read, log.weight[log.has_target] / log.weight[log.has_target].mean(), rtol=1e-6)


def test_weights_that_are_all_zero_are_refused():
    log = ragged(0, "some")
    silent = replace(log, weight=np.where(log.has_target, 0.0, 1.0).astype(np.float32))
    with pytest.raises(LogError, match=r"all weights of the steps that are read are 0.*fix:"):
        stored(silent, REWARDS, Scaler())
    assert stored(silent, StoreSpec(()), Scaler()).weight is not None


def test_pictures_move_by_every_offset_and_go_on_beyond_their_edges():
    # a picture of rows and columns: its pixel (r, c) is 10 r + c; moved by (y, x) it shows clip(r + y), clip(c + x)
    picture = (10 * np.arange(4)[:, None] + np.arange(3))[..., None].astype(np.uint8)
    pictures, numbers = np.stack([picture] * 400), np.ones((400, 2), np.float32)
    one = {"picture": jnp.asarray(pictures), "numbers": jnp.asarray(numbers)}
    row = Transition(one, jnp.zeros(400), jnp.zeros(400), jnp.ones(400), one)
    moved = jax.jit(lambda batch, key: shifted(batch, key, 1))(Batch(row, jnp.arange(400)), jax.random.key(0)).data
    every = {}
    for y in (-1, 0, 1):
        for x in (-1, 0, 1):
            rows, columns = np.clip(np.arange(4) + y, 0, 3), np.clip(np.arange(3) + x, 0, 2)
            every[(10 * rows[:, None] + columns).tobytes()] = (y, x)
    offsets = {}
    for part in ("observation", "next_observation"):
        shown = np.asarray(getattr(moved, part)["picture"])
        assert shown.dtype == np.uint8
        offsets[part] = [every[one[..., 0].astype(np.int64).tobytes()] for one in shown]
        assert set(offsets[part]) == set(every.values())
        np.testing.assert_array_equal(getattr(moved, part)["numbers"], numbers)
    assert 0.05 < np.mean([a == b for a, b in zip(*offsets.values(), strict=True)]) < 0.2  # apart: 1 of 9 by chance
    window = jax.tree.map(lambda leaf: leaf.reshape(100, 4, *leaf.shape[1:]), row)
    together = jax.jit(lambda batch, key: shifted(batch, key, 1))(
        Batch(window, jnp.arange(100), valid=jnp.ones((100, 4), bool)), jax.random.key(0)
    ).data
    shown = np.asarray(together.observation["picture"])
    np.testing.assert_array_equal(shown, np.broadcast_to(shown[:, :1], shown.shape))
    np.testing.assert_array_equal(shown, together.next_observation["picture"])
    assert len(np.unique(shown[:, 0], axis=0)) == 9


def test_a_shift_without_pictures_is_refused():
    with pytest.raises(SpecError, match=r"IQL.picture_shift = 2, and the observations have no pictures. fix: set pict"):
        IQL(picture_shift=2).stores(world("discrete").spec)
    spec = replace(world("discrete").spec, observation={"picture": Image(8, 8, 1)})
    assert IQL(picture_shift=2).stores(spec)
