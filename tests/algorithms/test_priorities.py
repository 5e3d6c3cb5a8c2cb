"""The sum-tree against NumPy, and the probabilities of prioritised sampling."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tidelog.algorithms.sampling import Priorities, Prioritised, SumTree, find, full_tree, ordered, put, total

GRID = 1e-4  # resolution of probabilities


# Each of these is one program.


@eqx.filter_jit
def tree_of(values: np.ndarray) -> SumTree:
    return put(full_tree(len(values)), jnp.arange(len(values)), jnp.asarray(values, jnp.float32))


@eqx.filter_jit
def tree_of_ones(count: int, leaves: np.ndarray, values: np.ndarray) -> SumTree:
    """Return a tree of ones, but for the values at these leaves."""
    return put(full_tree(count), leaves, values)


@eqx.filter_jit
def all_seen(values: np.ndarray) -> Priorities:
    leaves = jnp.stack([jnp.asarray(values, jnp.float32), jnp.zeros(len(values))], axis=1)
    tree = put(full_tree(len(values), (0.0, 1.0)), jnp.arange(len(values)), leaves)
    return Priorities(tree, jnp.max(leaves))


@eqx.filter_jit
def begun(order: Prioritised, count: int) -> Priorities:
    return order.init(count)


@eqx.filter_jit
def learnt(order: Prioritised, state: Priorities, indices: np.ndarray, priority: np.ndarray) -> Priorities:
    return order.learn(state, indices, priority)


@eqx.filter_jit
def drawn(
    order: Prioritised, state: Priorities, seed: int, size: int, count: int, progress: np.float32
) -> tuple[jax.Array, jax.Array]:
    return order.draw(state, jax.random.key(seed), size, count, progress)


@pytest.mark.sample("17")
@pytest.mark.parametrize("count", [1, 15, 16, 17, 256, 257, 5_000])
def test_every_level_sums_the_one_below(count: int) -> None:
    values = np.random.default_rng(0).random(count)
    tree = tree_of(values)
    assert float(total(tree)) == pytest.approx(values.sum(), rel=1e-5)
    for below, above in zip(tree.levels, tree.levels[1:], strict=False):
        sums = np.asarray(below).sum(axis=1)
        assert np.asarray(above).ravel()[: len(sums)] == pytest.approx(sums, rel=1e-6)
    assert np.asarray(tree.levels[0]).ravel()[count:].sum() == 0


@pytest.mark.sample("3")
@pytest.mark.parametrize("count", [3, 100, 1_000])
def test_find_is_a_search_in_the_running_sum(count: int) -> None:
    values = np.random.default_rng(1).integers(0, 5, count).astype(float)
    values[0] = 1
    running = np.cumsum(values)
    mass = np.arange(0, running[-1]) + 0.5
    found = np.asarray(jax.jit(find)(tree_of(values), mass.astype(np.float32)))
    assert found.tolist() == np.searchsorted(running, mass, side="right").tolist()


@pytest.mark.full
def test_a_leaf_without_mass_is_never_found() -> None:
    values = np.zeros(1_000)
    values[[3, 500]] = 1.0
    mass = jnp.asarray([0.0, 0.5, 0.999999, 1.0, 1.5, 2.0, 2.1], jnp.float32)
    assert set(np.asarray(find(tree_of(values), mass)).tolist()) <= {3, 500}


def test_a_row_that_stands_twice_keeps_its_largest_value() -> None:
    for values in ([5.0, 1.0, 2.0], [1.0, 5.0, 2.0]):
        tree = tree_of_ones(40, np.asarray([7, 7, 9]), np.asarray(values))
        assert np.asarray(tree.levels[0]).ravel()[[7, 9]].tolist() == [5.0, 2.0]
        assert float(total(tree)) == pytest.approx(38 + 5 + 2)


def test_samples_come_in_proportion_and_weights_undo_it() -> None:
    values = np.asarray([1.0, 2.0, 4.0, 8.0, 1.0])
    order = Prioritised(1.0, 1.0)
    indices, weight = drawn(order, all_seen(values), 0, 100_000, 5, np.float32(0.0))
    share = np.bincount(np.asarray(indices), minlength=5) / 100_000
    assert share == pytest.approx(values / values.sum(), abs=1e-3)
    # at full correction the weighted mean of any value is its plain mean, up to the batch's common factor
    value = np.asarray([3.0, -1.0, 2.0, 5.0, 0.0])
    found = np.average(value[np.asarray(indices)], weights=np.asarray(weight))
    assert found == pytest.approx(value.mean(), abs=0.02)
    assert np.asarray(weight).max() == 1.0


@pytest.mark.full
def test_correction_grows_over_the_run() -> None:
    state = all_seen(np.asarray([1.0, 4.0]))
    for progress, exponent in ((0.0, 0.4), (0.5, 0.7), (1.0, 1.0)):
        indices, weight = drawn(Prioritised(1.0, 0.4), state, 1, 64, 2, np.float32(progress))
        rare = np.asarray(weight)[np.asarray(indices) == 1]
        assert rare == pytest.approx(0.25**exponent, rel=1e-4)


def test_exponent_zero_is_uniform_and_priorities_are_learnt() -> None:
    order = Prioritised(0.0, 0.5)
    state = learnt(order, begun(order, 3), np.asarray([0, 1]), np.asarray([10.0, 0.1]))
    assert likelihood(order, state, 3) == pytest.approx(np.full(3, 1 / 3), abs=GRID)
    order = Prioritised(0.5, 0.5)
    state = learnt(order, begun(order, 3), np.asarray([0, 1]), np.asarray([-4.0, 0.0]))
    masses = np.asarray([2.0, 1e-3, 2.0])
    assert likelihood(order, state, 3) == pytest.approx(masses / masses.sum(), abs=GRID)
    with pytest.raises(TypeError, match="priorities"):
        order.learn(state, np.asarray([0]), None)
    assert type(ordered(None, 0.4)).__name__ == "Uniform"


def test_without_a_correction_the_same_samples_have_no_weights() -> None:
    state = all_seen(np.asarray([1.0, 4.0, 2.0]))
    weighted, plain = (drawn(Prioritised(1.0, by), state, 1, 64, 3, np.float32(0.5)) for by in (0.4, None))
    np.testing.assert_array_equal(weighted[0], plain[0])
    assert plain[1] is None


def test_extreme_priorities_leave_every_sample_possible_and_none_infinite() -> None:
    order = Prioritised(1.0, 0.4)
    state = learnt(order, begun(order, 100_000), np.arange(3), np.asarray([0.0, 1e30, 0.0]))
    indices, weight = drawn(order, state, 0, 64, 100_000, np.float32(0.5))
    assert np.isfinite(np.asarray(weight)).all()
    assert np.asarray(indices).max() < 100_000
    assert (np.asarray(state.tree.levels[0])[0, :3, 0] > 0).all()
    assert np.isfinite(np.asarray(total(state.tree)) * np.asarray([1.0, 1e12], np.float32)).all()


def test_unseen_samples_have_the_largest_priority_so_far() -> None:
    order = Prioritised(0.5, 0.4)
    state = begun(order, 6)
    assert likelihood(order, state, 6) == pytest.approx(np.full(6, 1 / 6), abs=GRID)
    state = learnt(order, state, np.asarray([0, 1]), np.asarray([100.0, 4.0]))
    masses = np.asarray([10.0, 2.0, 10.0, 10.0, 10.0, 10.0])  # roots; where nothing was drawn, the largest one
    assert likelihood(order, state, 6) == pytest.approx(masses / masses.sum(), abs=GRID)
    state = learnt(order, state, np.asarray([0, 2]), np.asarray([0.25, 9.0]))  # the largest so far is still 100
    masses = np.asarray([0.5, 2.0, 3.0, 10.0, 10.0, 10.0])
    assert likelihood(order, state, 6) == pytest.approx(masses / masses.sum(), abs=GRID)
    state = learnt(order, state, np.arange(6), np.full(6, 16.0))
    assert likelihood(order, state, 6) == pytest.approx(np.full(6, 1 / 6), abs=GRID)


def likelihood(order: Prioritised, state: object, count: int) -> np.ndarray:
    """Return the probability of each sample, counted over a fine grid of the mass."""
    indices, _ = drawn(order, state, 0, 100_000, count, np.float32(0.0))
    return np.bincount(np.asarray(indices), minlength=count) / 100_000
