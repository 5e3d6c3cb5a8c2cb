"""Own decisions as transitions, computed by hand; and minibatches from two stores."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tidelog import IQL, ConfigError
from tidelog.algorithms.contract import Feedback, StoreSpec
from tidelog.algorithms.finetune import LOG, OWN, FinetuneConfig, FinetunedAlgorithm, Recent, Scales, joined
from tidelog.algorithms.sampling import Batch
from tidelog.algorithms.segments import added, empty

SCALES = Scales({"x": np.asarray([1.0], np.float32)}, {"x": np.asarray([2.0], np.float32)}, 10.0, -0.1)


def played(numbers, ends=(), cut=()):
    """One segment of decisions whose observation, reward and action are their number; the next observation is +100."""
    seen = jnp.asarray(numbers, jnp.float32)[None]
    flags = [jnp.asarray([[number in those for number in numbers]]) for those in (ends, cut)]
    return {
        "observation": {"x": seen[..., None]}, "following": {"x": 100 + seen[..., None]}, "reward": seen,
        "action": seen[..., None] / 2, "terminated": flags[0], "truncated": flags[1],
    }  # fmt: skip


def store():
    """Six decisions in three segments of two: 0 1 | 2. 3 | 4, 5, the third terminated, the fifth truncated."""
    parts = [played([0, 1]), played([2, 3], ends=(2,)), played([4, 5], cut=(4,))]
    found = empty(parts[0], StoreSpec((), 5))
    for part in parts:
        found = added(found, part)
    return found


def test_transitions_of_one_step():
    unit = Recent(1, 0.5, SCALES)
    assert int(unit.rows(store())[0]) == 6
    row = unit.gather(store(), jnp.arange(6)).data
    np.testing.assert_allclose(row.observation["x"][:, 0], (np.arange(6) - 1) / 2)
    np.testing.assert_allclose(row.next_observation["x"][:, 0], (np.arange(6) + 99) / 2)
    np.testing.assert_allclose(row.reward, np.arange(6) * 10 + 1)
    np.testing.assert_allclose(row.discount, [0.5, 0.5, 0.0, 0.5, 0.5, 0.5])
    np.testing.assert_allclose(row.action[:, 0], [0.0, 0.5, 1.0, 1.0, 1.0, 1.0])  # clipped at the bounds


def test_returns_never_cross_an_end_or_what_is_known():
    row = Recent(3, 0.5, SCALES).gather(store(), jnp.arange(6)).data
    # rewards 1, 11, 21. | 31, 41, | 51: sums over at most three, to the end of the episode or to the last decision
    np.testing.assert_allclose(row.reward, [1 + 5.5 + 5.25, 11 + 10.5, 21, 31 + 20.5, 41, 51])
    np.testing.assert_allclose(row.discount, [0.0, 0.0, 0.0, 0.25, 0.5, 0.5])
    np.testing.assert_allclose(row.next_observation["x"][:, 0], (np.asarray([102, 102, 102, 104, 104, 105]) - 1) / 2)


def test_returns_count_elapsed_times():
    kept = store()
    hours = jnp.asarray([[2.0, 1.0], [3.0, 2.0], [2.0, 0.0], [9.0, 9.0], [9.0, 9.0]])  # of slots, three filled
    kept = kept._replace(columns={**kept.columns, "elapsed": hours})
    row = Recent(1, 0.5, SCALES).gather(kept, jnp.arange(6)).data
    np.testing.assert_allclose(row.discount, [0.25, 0.5, 0.0, 0.25, 0.25, 1.0])
    row = Recent(3, 0.5, SCALES).gather(kept, jnp.arange(6)).data
    # rewards 1, 11, 21. | 31, 41, | 51, each after the hours before it
    np.testing.assert_allclose(row.reward, [1 + 11 / 4 + 21 / 8, 11 + 21 / 2, 21, 31 + 41 / 4, 41, 51])
    np.testing.assert_allclose(row.discount, [0.0, 0.0, 0.0, 1 / 16, 1 / 4, 1.0])


@pytest.mark.parametrize(
    ("n", "following"), [(1, [0.5, 1.0, None, 1.0, None, None]), (2, [1.0, None, None, None, None, None])]
)
def test_the_next_own_action_is_that_of_the_same_episode(n, following):
    row = Recent(n, 0.5, SCALES, next_action=True).gather(store(), jnp.arange(6)).data
    given = zip(np.asarray(row.next_action)[:, 0].tolist(), np.asarray(row.has_next_action).tolist(), strict=True)
    assert [action if known else None for action, known in given] == following
    assert Recent(n, 0.5, SCALES).gather(store(), jnp.arange(6)).data.next_action is None


def test_two_minibatches_become_one():
    one = Batch({"x": jnp.zeros(2)}, jnp.arange(2), jnp.asarray([2.0, 3.0]))
    two = Batch({"x": jnp.ones(3)}, jnp.arange(5, 8))
    found = joined({OWN: two, LOG: one})
    assert found.data["x"].tolist() == [0, 0, 1, 1, 1]
    assert found.rows.tolist() == [0, 1, 5, 6, 7]
    assert found.weight.tolist() == [2, 3, 1, 1, 1]
    assert joined({OWN: two}).weight is None


@pytest.mark.parametrize(
    ("offline", "sizes"),
    [(0.5, {LOG: 5, OWN: 5}), (0.25, {LOG: 2, OWN: 8}), (1.0, {LOG: 10}), (0.0, {OWN: 10})],
)
def test_the_mix_is_a_share_of_the_minibatch(offline, sizes):
    assert FinetuneConfig(offline=offline).sizes(10) == sizes
    (phase,) = FinetunedAlgorithm(IQL(batch_size=10), SCALES, FinetuneConfig(offline=offline), 5).phases()
    assert {name: draw.size for name, draw in phase.samplers.items()} == sizes
    assert all(draw.store == name for name, draw in phase.samplers.items())


def test_updates_may_be_a_fraction_of_decisions():
    for updates, every in ((1.0, 10), (0.25, 10), (2.0, 1), (0.3, 1)):
        tuning = FinetuneConfig(updates=updates, collect_every=every)
        assert sum(tuning.taken(round) for round in range(100)) == int(100 * every * updates)


def test_priorities_of_the_logs_half_go_back_to_the_log():
    h = FinetunedAlgorithm(IQL(batch_size=4, priority_exponent=0.5), SCALES, FinetuneConfig(), 5)
    (plain,) = h.inner.phases()
    told = replace(plain, step=lambda h, state, batch: (state, Feedback({}, jnp.arange(4.0))))
    batch = {name: Batch(jnp.zeros(2), jnp.arange(2)) for name in (LOG, OWN)}
    _, feedback = h._mixed(told).step(h, None, batch)
    assert {name: priority.tolist() for name, priority in feedback.priority.items()} == {LOG: [0.0, 1.0]}


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"offline": 1.5}, r"offline = 1.5: expected a share of a minibatch in \[0, 1\]"),
        ({"offline": "half"}, "offline = 'half': expected a finite number. fix: use 0.5"),
        ({"updates": 0}, "updates = 0: expected more than 0 per decision"),
        ({"collect_every": 0}, "collect_every = 0: expected a whole number of at least 1"),
    ],
)
def test_impossible_numbers_are_refused(numbers, said):
    with pytest.raises(ConfigError, match=said):
        FinetuneConfig(**numbers)


def test_scales_are_numbers_and_not_part_of_the_program():
    leaves = jax.tree.leaves(FinetunedAlgorithm(IQL(), SCALES, FinetuneConfig(), 5))
    assert any(np.shape(leaf) == (1,) for leaf in leaves)
