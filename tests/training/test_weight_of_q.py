"""The weight of Q in a score, chosen by what follows: rewards until the session's end, weighed by propensities."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tidelog.recommend.held_out import LEAST_USERS, QWeightSelection, rewards_if_shown
from tidelog.recommend.interactions import next_events
from tidelog.runtime.ranking import FoundItems

LOUD, KIND = 1, 2
VISITS = 1500


def visits(number=VISITS, propensity=True):
    """Visits of two steps, items shown at random: the loud item earns 1 and ends the visit, the kind one 0.4.

    The second step earns 1 for both.
    """
    generator = np.random.default_rng(0)
    rows = []
    for user in range(number):
        for step in range(2):
            item = int(generator.integers(2)) + 1
            rows.append(
                (user, 10.0 * user + step, "loud" if item == LOUD else "tame", 1.0 if step or item == LOUD else 0.4)
            )
            if item == LOUD:
                break
    table = pl.DataFrame(rows, ["user", "time", "item", "reward"], orient="row").with_columns(p=pl.lit(0.5))
    roles = {"propensity": "p"} if propensity else {}
    return tl.read_interactions(table, user="user", item="item", time="time", reward="reward", session_gap=5.0, **roles)


def selected(log, discount=1.0):
    """The weight that is chosen where likelihood prefers the loud item, and Q the tame one."""

    def find(history, *_):
        both = np.tile([LOUD, KIND], (len(history.items), 1)).astype(np.int32)
        numbers = np.tile([0.0, -0.3], (len(history.items), 1)), np.tile([0.0, 1.0], (len(history.items), 1))
        return FoundItems(items=both, likelihood=numbers[0], rating=numbers[1], first=np.ones(both.shape, bool))

    algorithm = SimpleNamespace(reach=2, discount=discount, q_weight=None, policy_metrics=lambda _: {"q_updates": 1.0})
    policy = SimpleNamespace(algorithm=algorithm, params=None, ranker=lambda: SimpleNamespace(items=2, find=find))
    return QWeightSelection(log.split(share=0.9).test).measure(policy)[0]


def test_rewards_to_the_end_stop_where_the_session_does():
    table = pl.DataFrame(
        {"u": [1, 1, 1, 2], "i": ["a", "b", "a", "b"], "t": [0.0, 1.0, 90.0, 5.0], "r": [1.0, 2.0, 4.0, 8.0]}
    )
    log = tl.read_interactions(table, user="u", item="i", time="t", reward="r", session_gap=10.0)
    assert log.rewards_to_end(0.5).tolist() == [2.0, 2.0, 4.0, 8.0]


def test_the_mean_of_rewards_if_shown_is_that_of_the_item():
    """Tame earns 0.4 and 1 after it in a first step, and every second step earns 1."""
    log = visits()
    cases = next_events(log, np.flatnonzero(log.position == 0))
    loud, tame = (np.full(len(cases), item) for item in (LOUD, KIND))
    first, then = rewards_if_shown(log, cases, [loud, tame], 1.0)
    gain = then - first
    assert abs(gain.mean() - 0.4) < 4 * gain.std() / np.sqrt(len(gain))
    again = rewards_if_shown(log, cases, [loud, np.where(cases.user < LEAST_USERS - 1, KIND, LOUD)], 1.0)
    assert (again[1] == again[0]).all(), "too few users have another item"


@pytest.mark.parametrize(("propensity", "chosen"), [(True, True), (False, False)])
def test_a_reward_that_comes_later_counts_where_propensities_are_known(propensity, chosen):
    assert (selected(visits(propensity=propensity)) > 0) == chosen


def test_a_later_reward_that_is_discounted_away_does_not_count():
    assert selected(visits(), discount=0.0) == 0.0
