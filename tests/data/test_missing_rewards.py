"""Missing and late rewards: what a mapping says of them, which rows are read, and that every count is reported."""

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tidelog.data.columns import Columns
from tidelog.data.read import validate
from tidelog.data.statistics import describe
from tidelog.errors import ConfigError, LogError

ROWS = 200
ROLES = {"observation": ["age"], "action": "mail", "reward": "paid", "terminated": True}


def shop(**columns):
    """A mail or none to customers; the reward of every fifth row is empty; a decision an hour from 1 January on."""
    hours = np.arange(ROWS).astype("timedelta64[h]")
    table = {
        "age": np.arange(ROWS) % 7 + 0.5,
        "mail": np.where(np.arange(ROWS) % 2 == 0, "send", "none"),
        "paid": [None if row % 5 == 4 else float(row % 3) for row in range(ROWS)],
        "sent": (np.datetime64("2026-01-01", "us") + hours),
    }
    return pl.DataFrame(table | columns)


def read(table=None, **more):
    return tl.read_log(shop() if table is None else table, Columns(**ROLES, **more))


def problem(report, check):
    return next((one for one in report.problems if one.check == check), None)


def test_empty_reward_is_an_error_that_names_the_ways_to_read_it():
    report = validate(shop(), Columns(**ROLES))
    found = problem(report, "missing value")
    assert found.level == "error"
    assert found.count == 40
    assert "missing_reward = 0" in found.fix
    assert '"unknown"' in found.fix
    assert "reward_horizon" in found.fix


def test_a_number_is_the_reward_of_what_never_came_and_is_counted():
    log = read(missing_reward=-2)
    assert log.reward[4] == -2.0
    assert (log.reward[[0, 1, 2, 3]] == [0, 1, 2, 0]).all()
    assert log.reward_known is None
    assert log.missing_reward is None
    assert problem(log.report, "empty rewards").found == "40 rows of 200 without a reward, which counts as -2"
    assert read(reward_values={"": -2}).fingerprint() == log.fingerprint()


def test_unknown_rewards_stay_rows_without_a_number():
    log = read(missing_reward="unknown")
    assert len(log) == ROWS
    assert log.missing_reward == "unknown"
    assert np.array_equal(np.flatnonzero(~log.reward_known), np.arange(4, ROWS, 5))
    assert np.isnan(log.reward[~log.reward_known]).all()
    assert np.isfinite(log.reward[log.reward_known]).all()
    known = log.with_known_rewards()
    assert known.steps == 160
    assert known.reward_known is None
    assert np.isfinite(known.reward).all()
    assert log.facts()["unknown rewards"] == "40"
    assert "nan" not in log.facts()["mean reward of a step"]
    assert describe(log).rewards["mean"] == pytest.approx(known.reward.mean(dtype=np.float64))
    full = shop(paid=np.ones(ROWS))
    assert read(full, missing_reward="unknown").reward_known is None


def test_warning_says_after_which_actions_rewards_are_unknown_and_what_predicts_it():
    rows = np.arange(ROWS)
    paid = [None if row % 2 == 0 and row % 4 == 0 else 1.0 * (row % 3) for row in rows]
    found = problem(read(shop(paid=paid), missing_reward="unknown").report, "unknown rewards")
    assert found.level == "warning"
    assert found.count == 50
    assert "50 of 200 rewards are unknown (25.0%): 50.0% after 'send', 0.0% after 'none'" in found.found
    assert "the action predicts which ones (p < 0.001)" in found.found
    assert "must hold whatever they are" in found.expected
    generator = np.random.default_rng(0)
    paid = [None if one else 1.0 * (row % 3) for row, one in zip(rows, generator.random(ROWS) < 0.2, strict=True)]
    found = problem(read(shop(paid=paid), missing_reward="at random").report, "unknown rewards")
    assert "no recorded column predicts which ones" in found.found
    assert "missing at random" in found.expected


def test_every_reward_unknown_is_an_error():
    report = validate(shop(paid=pl.Series([None] * ROWS, dtype=pl.Float64)), Columns(**ROLES, missing_reward="unknown"))
    assert problem(report, "missing value").count == ROWS


# Late rewards.


def test_export_time_is_the_end_of_the_log():
    log = read(time="sent", reward_horizon="2d", export_time="2026-01-10T07:00:00", missing_reward=0)
    assert len(log) == ROWS - 24
    assert len(read(time="sent", reward_horizon="2d", export_time="2026-03-01", missing_reward=0)) == ROWS


def test_horizon_of_numbers_is_in_the_unit_of_the_times():
    table = shop(sent=np.arange(ROWS) * 10)
    assert len(read(table, time="sent", reward_horizon=100, missing_reward=0)) == ROWS - 10
    report = validate(table, Columns(**ROLES, time="sent", reward_horizon="2d", missing_reward=0))
    assert "numbers without a unit" in problem(report, "bad mapping").found


def test_episode_with_a_young_decision_is_left_out_as_a_whole():
    roles = {"episode": "who", "time": "sent", "missing_reward": 0, "reward_horizon": "2d"}
    log = read(shop(who=np.arange(ROWS) // 10), **roles)
    assert len(log) == 150
    assert (np.diff(log.starts) == 10).all()
    found = problem(log.report, "late rewards").found
    assert found.startswith(
        "50 rows of 200 left out: of episodes that began when the first one with a decision younger"
    )


def test_short_episodes_do_not_stand_in_for_long_ones_that_began_with_them():
    who = np.where(np.isin(np.arange(ROWS), [100, 160]), 999, np.arange(ROWS) // 2)  # 999 lasts from hour 100 to 160
    log = read(shop(who=who), episode="who", time="sent", missing_reward=0, reward_horizon="2d")
    assert set(log.episode_ids.tolist()) == set(range(50))


def test_log_says_that_the_newest_rewards_are_empty_more_often():
    rows = np.arange(ROWS)
    late = shop(paid=[None if row % 5 == 4 or row > 180 else 1.0 * (row % 3) for row in rows])
    found = problem(read(late, time="sent", missing_reward=0).report, "late rewards unread")
    assert found.level == "warning"
    assert "may still come" in found.found
    assert "reward_horizon" in found.fix
    assert problem(read(time="sent", missing_reward=0).report, "late rewards unread") is None
    with_horizon = read(late, time="sent", missing_reward=0, reward_horizon="1d")
    assert problem(with_horizon.report, "late rewards unread") is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"missing_reward": "none"}, "a finite number"),
        ({"missing_reward": True}, "a finite number"),
        ({"missing_reward": float("nan")}, "a finite number"),
        ({"missing_reward": 0, "reward_values": {"": 0.0}}, "both say"),
        ({"reward_horizon": "30d"}, "without reward and time"),
        ({"reward_horizon": "30 d", "time": "sent"}, 'such as "30d"'),
        ({"reward_horizon": "d", "time": "sent"}, 'such as "30d"'),
        ({"reward_horizon": "-3d", "time": "sent"}, 'such as "30d"'),
        ({"reward_horizon": "nand", "time": "sent"}, 'such as "30d"'),
        ({"reward_horizon": "", "time": "sent"}, 'such as "30d"'),
        ({"reward_horizon": -3, "time": "sent"}, 'such as "30d"'),
        ({"export_time": "2026-01-01", "time": "sent"}, "without reward_horizon"),
        ({"export_time": "", "reward_horizon": "1d", "time": "sent"}, "a time as in the log"),
    ],
)
def test_wrong_rules_are_refused(more, words):
    with pytest.raises(ConfigError, match=words):
        Columns(**ROLES, **more)
    with pytest.raises(ConfigError, match="without reward"):
        Columns(observation=["age"], action="mail", reward=None, missing_reward=0)


@pytest.mark.parametrize(
    ("export", "words"),
    [("2026-01-02", "before the newest time"), ("soon", "export_time = 'soon'"), (5, "export_time = 5")],
)
def test_export_time_that_does_not_fit_is_refused(export, words):
    columns = Columns(**ROLES, time="sent", reward_horizon="1d", export_time=export, missing_reward=0)
    assert words in problem(validate(shop(), columns), "bad mapping").found


def test_horizon_longer_than_any_calendar_is_refused_in_words():
    with pytest.raises(LogError, match="every row is younger"):
        read(missing_reward=0.0, time="sent", reward_horizon="1e12d")


def test_horizon_longer_than_the_log_is_refused():
    columns = Columns(**ROLES, time="sent", reward_horizon="52w", missing_reward=0)
    assert "every row is younger" in problem(validate(shop(), columns), "bad mapping").found


# Saved, joined and divided.


def test_joined_logs_keep_unknown_rewards_and_the_weaker_statement():
    whole, unknown, random = (read(missing_reward=stated) for stated in (0, "unknown", "at random"))
    joined = tl.Log.concat([whole, random])
    assert joined.missing_reward == "at random"
    assert int((~joined.reward_known).sum()) == 40
    assert joined.reward_known[:ROWS].all()
    assert tl.Log.concat([unknown, random]).missing_reward == "unknown"
    assert tl.Log.concat([whole, whole]).reward_known is None


def test_nan_of_a_frame_is_empty_where_the_mapping_says_what_that_is():
    frame = shop().with_columns(pl.col("paid").fill_null(float("nan")))
    assert np.array_equal(read(frame, missing_reward="unknown").reward_known, np.arange(ROWS) % 5 != 4)
    assert read(frame, missing_reward=0).reward[4] == 0.0
    with pytest.raises(LogError, match="NaN"):
        read(frame)


def test_arrays_with_nan_rewards():
    rewards = np.array([1.0, np.nan, 0.0, np.nan])
    arrays = {"observation": np.zeros((4, 1), np.float32), "action": np.array([0, 1, 0, 1]), "terminated": True}
    with pytest.raises(LogError, match="NaN"):
        tl.Log.from_arrays(**arrays, reward=rewards)
    assert tl.Log.from_arrays(**arrays, reward=rewards, missing_reward=0).reward.tolist() == [1, 0, 0, 0]
    unknown = tl.Log.from_arrays(**arrays, reward=rewards, missing_reward="unknown")
    assert unknown.reward_known.tolist() == [True, False, True, False]


# Training.


def test_training_on_rewards_leaves_unknown_ones_out_and_the_judge_gets_them():
    log = read(missing_reward="unknown")
    run = tl.fit(tl.IQL(hidden=(8,)), log, steps=3, held_out=0.5)
    left_to_judge = np.isin(log.episode_ids, run.record.held_out)
    assert left_to_judge.sum() == 100
    assert not log.has_return[left_to_judge].all()
    assert all(np.isfinite(one).all() for one in run.metrics[-1].values() if isinstance(one, float | np.ndarray))
    known = tl.fit(tl.IQL(hidden=(8,)), log.with_known_rewards(), steps=3, held_out=0.0)
    left = tl.fit(tl.IQL(hidden=(8,)), log, steps=3, held_out=0.0)
    assert known.record.sketches["learnt_from"] == left.record.sketches["learnt_from"]
    cloned = tl.fit(tl.BC(hidden=(8,)), log, steps=3, held_out=0.0)
    assert cloned.record.sketches["learnt_from"] != left.record.sketches["learnt_from"]
