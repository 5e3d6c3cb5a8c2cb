"""The contract of an algorithm: phases in turn, several samplers, and shares of a run."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from tests.algorithms.diary import LEFT, RIGHT, Diary
from tests.algorithms.worlds import stores, world
from tests.training.runs import untimed
from tidelog import ConfigError
from tidelog.algorithms.contract import Phase
from tidelog.training.engine import Engine
from tidelog.training.loop import Member, Position, RoundSchedule, updates_of_share

RAGGED = world("discrete")
LOG = world("discrete", terminated=RAGGED.terminated | RAGGED.truncated, truncated=None)  # every row is usable
STEPS = 17


def trainer(*seeds, vmap=False, **changes):
    members = [Member(i, Diary(**changes), seed) for i, seed in enumerate(seeds or (0,))]
    return Engine.fresh(members, LOG.spec, stores(Diary(), LOG), STEPS, vmap=vmap)


def run(training, updates=STEPS, most=100):
    taken = []
    while sum(taken) < updates:
        taken.append(training.advance(min(most, updates - sum(taken))))
    return taken


def page(training, member=0):
    return jax.device_get(training.learners[member].state)


def test_phases_take_turns():
    training = trainer()
    assert run(training) == [3, 2, 3, 2, 3, 2, 2]
    np.testing.assert_array_equal(page(training).phase, ([1] * 3 + [2] * 2) * 3 + [1] * 2)
    assert training.position == Position(round=3, phase=0, updates=2)


def test_each_draw_has_its_own_rows_and_each_update_new_ones():
    training = trainer()
    run(training)
    rows = page(training).rows
    wide, narrow = rows[page(training).phase == 1], rows[page(training).phase == 2]
    assert (wide >= 0).all()
    assert (narrow[:, LEFT:] == -1).all()
    assert len(np.unique(rows, axis=0)) == STEPS
    # two of 65 rows, 11 times: right draws are once the same pair for 3 in 1,000 seeds, more updates would cost more
    assert (wide[:, :RIGHT] != wide[:, LEFT:]).any(1).all()


def test_a_phase_that_asks_for_no_updates_is_skipped():
    training = trainer(wide=0)
    assert run(training) == [2] * 8 + [1]
    assert set(page(training).phase.tolist()) == {2}


def test_a_phase_can_rest_for_a_round():
    training = trainer(rest=True)
    assert run(training) == [3, 2, 3, 3, 2, 3, 1]


def test_updates_and_a_share_contradict_each_other():
    with pytest.raises(ConfigError, match=r"phase 'both' has updates and a share\. fix: set only one of them"):
        Phase("both", None, None, None, updates=lambda config, round: 1, share=lambda config: 0.5)


def test_nothing_but_zeros_is_refused():
    with pytest.raises(ConfigError, match="every phase of this algorithm has 0 updates"):
        trainer(wide=0, narrow=0).advance(1)


def test_reports_are_means_by_phase_since_the_last():
    training = trainer(scale=2.0)
    training.advance(3)
    assert untimed(training.report()) == [{"wide/size": 10.0}]
    run(training, updates=3)
    assert untimed(training.report()) == [{"wide/size": 10.0, "narrow/size": 6.0}]


def test_at_the_end_of_a_run_nothing_is_left():
    training = trainer()
    run(training)
    assert training._schedule.next_phase(training.position, training.update)[1] == 0
    assert training.advance(5) == 0


# Shares of a run: how many updates a phase over a log takes, and what is left for the next one.


@pytest.mark.parametrize(
    ("share", "steps", "expected"),
    [
        (0.1, 20_000, 2_000),
        (5_000 / 6_500, 6_500, 5_000),
        (0.8, 5_000, 4_000),
        (0.4, 10_000, 4_000),
        (1 / 3, 6, 2),
        (0.0, 7, 0),
        (1.0, 7, 7),
        (0.99, 7, 6),
        (0.9, 1, 0),
    ],
)
def test_a_share_is_rounded_and_leaves_an_update_unless_it_is_all(share, steps, expected):
    assert updates_of_share(share, steps) == expected


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), 2_000])
def test_a_share_outside_0_to_1_is_refused(share):
    with pytest.raises(ConfigError, match=r"expected a share of the run's updates in \[0, 1\]. fix: use 0.1"):
        updates_of_share(share, 10)


def two_phases(share, updates=None):
    nothing = None
    first = Phase("first", nothing, nothing, nothing, share=lambda config: config.share)
    return SimpleNamespace(phases=lambda: (first, Phase("second", nothing, nothing, nothing, updates)), share=share)


def taken_of(algorithm, steps, chunk):
    """The updates of both phases in a run that is cut into chunks."""
    schedule, position, taken = RoundSchedule(algorithm, 0, steps), Position(), [0, 0]
    for _ in range(steps):
        position, left = schedule.next_phase(position, sum(taken))
        count = min(chunk, left)
        taken[position.phase] += count
        position = position._replace(updates=position.updates + count)
    return taken


@pytest.mark.parametrize(("share", "steps", "first"), [(0.3, 10, 3), (1.0, 10, 10), (0.0, 10, 0), (0.5, 1, 0)])
@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_the_first_phase_takes_its_share_once_however_a_run_is_cut(share, steps, first, chunk):
    assert taken_of(two_phases(share), steps, chunk) == [first, steps - first]
    rounds = two_phases(share, lambda config, round: 2)  # a share is taken in the first round only
    assert taken_of(rounds, steps, chunk) == [first, steps - first]


def test_a_share_has_no_meaning_in_an_environment():
    with pytest.raises(TypeError, match=r"Phase\.share are only for algorithms that learn from a log"):
        RoundSchedule(two_phases(0.5), 4, 10).asked(0, 0)
