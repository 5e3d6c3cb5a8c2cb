"""Shares of a run: how many updates a phase over a log takes, and what is left for the next one."""

from types import SimpleNamespace

import pytest

from tidelog import ConfigError
from tidelog.algorithms.contract import Phase
from tidelog.training.loop import Position, RoundSchedule, updates_of_share


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
