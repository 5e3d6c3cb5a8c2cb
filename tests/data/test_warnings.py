"""Every warning and note by a log of its own; the log is read all the same."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.data.visits import mapping, visits, with_next
from tidelog.data.columns import Columns
from tidelog.data.log import Log
from tidelog.data.raw import CHECKS
from tidelog.data.read import read_log, validate

ROWS = 24
EPISODE = np.repeat(np.arange(12), 2)
RNG = np.random.default_rng(1)
ENDS = np.arange(ROWS) % 2 == 1
CLEAN: dict[str, Any] = {
    "observation": RNG.normal(size=(ROWS, 2)).astype(np.float32), "action": np.arange(ROWS) % 3, "actions": 3,
    "reward": RNG.normal(size=ROWS).astype(np.float32), "episode": EPISODE, "terminated": ENDS,
}  # fmt: skip
CONTINUOUS = {"action": RNG.normal(size=(ROWS, 2)).astype(np.float32), "actions": None}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("both flags set", {"truncated": ENDS}),
    ("unordered rows", {"episode": EPISODE[::-1], "step": np.arange(ROWS)[::-1], "terminated": ~ENDS}),
    ("unordered rows", {"episode": np.tile(np.arange(12), 2), "terminated": np.arange(ROWS) >= 12}),
    ("no end flag", {"terminated": None}),
    ("no bootstrap target", {"terminated": None, "truncated": ENDS}),
    ("terminations ignored", {"terminations": "ignore"}),
    ("no reward", {"reward": None}),
    ("constant reward", {"reward": np.ones(ROWS, np.float32)}),
    ("unknown rewards", {"reward": np.where(np.arange(ROWS) == 3, np.nan, CLEAN["reward"]),
                         "missing_reward": "unknown"}),
    ("one action only", {"action": np.ones(ROWS, int)}),
    ("constant observation column", {"observation": np.ones((ROWS, 1), np.float32)}),
    ("extreme scale", {"observation": 1e6 * CLEAN["observation"]}),
    ("few episodes", {"episode": np.repeat(np.arange(2), 12), "terminated": None}),
    ("gap in steps", {"episode": np.repeat(np.arange(8), 3), "step": np.array([0, 1, 2] * 7 + [0, 1, 5]),
                      "terminated": np.arange(ROWS) % 3 == 2}),
    ("equal episode returns", {"reward": ENDS.astype(np.float32)}),
    ("duplicated observation columns", {"observation": CLEAN["observation"][:, [0, 1, 0]]}),
    ("extreme scale", {"observation": 1e-6 * CLEAN["observation"]}),
    ("outcome among observations", {"observation": np.stack([CLEAN["reward"], CLEAN["observation"][:, 0]], axis=1)}),
    ("suspicious leak", {"observation": np.roll(CLEAN["reward"], 1)}),
    ("suspicious leak", {"observation": CLEAN["action"].astype(np.float32)}),
    ("unbalanced actions", {"actions": 4}),
    ("unbalanced actions", {"action": np.stack([np.arange(ROWS) % 3, np.arange(ROWS) % 2], axis=1), "actions": [3, 3]}),
    ("gap in time", {"time": np.cumsum(np.where(np.arange(ROWS) == 7, 100.0, 1.0))}),
    ("gap in time", {"time": (np.arange(ROWS) + 5_000 * (np.arange(ROWS) > 6)).astype("datetime64[s]")}),
    ("time runs backwards", {"step": np.arange(ROWS), "time": np.where(np.arange(ROWS) == 7, 2, np.arange(ROWS))}),
    ("duplicated rows", {name: value[np.arange(ROWS) // 2 % 6 * 2 + np.arange(ROWS) % 2]
                         if isinstance(value, np.ndarray) and name != "episode" else value
                         for name, value in CLEAN.items()}),
    ("ends without episodes", {"episode": None}),
    ("possible cluster column", {"time": np.arange(ROWS) // 4 * np.timedelta64(1, "D") + np.datetime64("2024-01-01T09"),
                                 "step": np.arange(ROWS), "reward": (np.arange(ROWS) // 4 * 3).astype(np.float32)}),
    ("many actions", {"action": np.asarray([f"{row / 7:.3f} mg" for row in range(ROWS)]), "actions": None}),
    ("actions inferred", {"actions": None}),
    ("bounds inferred", CONTINUOUS),
]  # fmt: skip


def said(log: Log) -> set[str]:
    return {problem.check for problem in log.report.problems}


@pytest.mark.parametrize(("check", "change"), CASES)
def test_each_remark_is_made_and_the_log_is_read(check: str, change: dict[str, Any]) -> None:
    log = Log.from_arrays(**{**CLEAN, **change})
    assert check in said(log), log.report.text()
    assert log.steps == ROWS


def test_a_clean_log_calls_for_no_remark() -> None:
    log = Log.from_arrays(**CLEAN)
    assert not said(log), log.report.text()


def test_a_rare_action_is_named_by_its_word() -> None:
    words = np.array(["give", "wait"])[(np.arange(500) % 2) | (np.arange(500) > 3)]
    rng = np.random.default_rng(0)
    log = Log.from_arrays(observation=rng.normal(size=500), action=words, reward=rng.normal(size=500), terminated=True)
    problem = next(one for one in log.report.warnings if one.check == "unbalanced actions")
    assert problem.found == "1 of 2 actions in very few rows: give"


def test_gaps_are_named_by_row_and_length() -> None:
    time = np.cumsum(np.where(np.arange(ROWS) == 7, 3600, 1)).astype("datetime64[s]")
    problem = next(one for one in Log.from_arrays(**CLEAN, time=time).report.warnings if one.check == "gap in time")
    assert (problem.rows, problem.found) == ((8,), "steps of up to 1:00:00")


def test_equal_rewards_by_chance_in_a_few_rows_are_no_leak() -> None:
    log = Log.from_arrays(observation=np.arange(9.0), action=[0, 1, 0] * 3, reward=np.arange(9.0), terminated=True)
    assert "suspicious leak" not in said(log)


def test_blank_lines_are_passed_over_and_said(tmp_path: Any) -> None:
    lines = visits().write_csv().split("\n")
    path = tmp_path / "blank.csv"
    path.write_text("\r\n".join([*lines[:3], "", *lines[3:], ""]))
    log = read_log(path, mapping())
    assert said(log) == {"blank lines", "no bootstrap target"}
    assert log.fingerprint() == read_log(visits(), mapping()).fingerprint()


def test_a_column_named_like_ends_without_a_role_is_said() -> None:
    """`timeouts` and `dones` are not passed over in a table either; in a log of single decisions they say nothing."""
    ended = visits().with_columns(timeouts=pl.lit(0), Done=pl.lit(0))
    roles = mapping(terminated=None, truncated=None)
    problems = [one for one in read_log(ended, roles).report.warnings if one.check == "possible end column"]
    assert [one.column for one in problems][-2:] == ["Done", "timeouts"]
    assert problems[-1].fix.startswith('truncated = "timeouts" in the mapping')
    assert "possible end column" not in said(read_log(ended, mapping(truncated="timeouts")))
    single = mapping(terminated=True, truncated=None, episode=None, step=None, time=None)
    assert "possible end column" not in said(read_log(ended, single))
    began = ended.with_columns(is_first=pl.Series([1, 0] * (len(ended) // 2) + [0] * (len(ended) % 2)))
    problem = next(one for one in read_log(began, single).report.warnings if one.check == "possible end column")
    assert problem.column == "is_first"
    assert "number the episodes in a column" in problem.fix


def test_many_words(tmp_path: Any) -> None:
    frame = pl.DataFrame({"o": [f"w{row}" for row in range(300)], "a": [0, 1] * 150, "r": range(300)})
    log = read_log(frame, {"observation": "o", "action": "a", "reward": "r", "terminated": True, "actions": 2})
    assert said(log) == {"many categories"}


def test_rows_without_a_bootstrap_target_are_counted_once_per_truncated_episode() -> None:
    problem = next(one for one in read_log(visits(), mapping()).report.warnings if one.check == "no bootstrap target")
    assert problem.count == 6
    assert problem.rows == (8, 13, 21, 26, 34, 39)
    assert not read_log(
        with_next(visits()), mapping(next_observation=["next_age", "next_sofa", "next_ward"])
    ).report.warnings


@pytest.mark.parametrize(
    ("rewarded", "blind"), [(ENDS, True), (np.arange(ROWS) % 2 == 0, False), (ENDS & False, False)]
)
def test_rewards_that_value_learning_cannot_see_are_said(rewarded: Any, blind: bool) -> None:
    """An outcome on the last row, whose end is named as a truncation: IQL would learn from zeros."""
    log = Log.from_arrays(**{**CLEAN, "reward": rewarded.astype(np.float32), "terminated": None, "truncated": ENDS})
    problem = next(one for one in log.report.warnings if one.check == "no bootstrap target")
    assert ("every reward other than 0 is in one of them, so value learning sees none" in problem.found) == blind
    assert problem.fix.startswith("if nothing followed, name that flag as terminated=") == blind


def test_every_remark_has_a_log() -> None:
    elsewhere = {"blank lines", "many categories", "converted", "filled", "several files", "episode in several files"}
    elsewhere |= {"doubtful propensities", "rounded propensities"}  # `test_declared.py`
    elsewhere |= {"possible end column", "rows left out", "incomplete episodes"}  # of a table
    elsewhere |= {"empty rewards", "late rewards", "late rewards unread"}  # `test_missing_rewards.py`
    elsewhere |= {"rare labels", "rewards rounded in 32 bits"}  # `test_unseen_labels.py`, `test_rounded_rewards.py`
    elsewhere |= {
        "rounded identifiers",
        "numbers as text",
    }  # `test_stored_as_checked.py`, `test_misread_text.py`
    assert elsewhere | {check for check, _ in CASES} == {name for name, one in CHECKS.items() if one.level != "error"}


def test_one_action_is_named_by_its_label_and_one_thing_is_singular():
    frame = pl.DataFrame({"x": [0.5, 1.5], "drug": ["pill"] * 2, "benefit": [1.0, 2.0], "who": ["p"] * 2})
    columns = Columns(observation="x", action="drug", reward="benefit", episode="who")
    found = {one.check: one.found for one in validate(frame, columns).problems}
    assert found["one action only"] == "every action is 'pill'"
    assert found["actions inferred"] == "1 action, inferred from the log"
    assert found["few episodes"] == "1 episode"
