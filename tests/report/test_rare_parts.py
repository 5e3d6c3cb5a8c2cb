"""Parts of a report that few runs have, each from stand-ins of runs and logs."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.data.clicks import interactions
from tidelog import Log
from tidelog.data.raw import Problem
from tidelog.errors import CheckpointError, LogError
from tidelog.ope.verdict import CandidateTable, Row
from tidelog.policies.statistics import Interval
from tidelog.report import lists
from tidelog.report import runs as saved
from tidelog.report.data_page import _first_rows, _places
from tidelog.report.runs import LogSource, plain
from tidelog.report.verdict import JudgedCandidates, answer_section


def failing(*args, **options):
    raise CheckpointError("its file is damaged. fix: restore it")


def test_rows_of_several_files_are_named_with_their_files():
    problem = Problem("error", "missing value", "x", (3, 1), 2, "", "", "", (), ("a.csv", "b.csv"))
    assert list(_places(problem)) == [("2 rows", problem.places)]
    assert "a.csv" in problem.places


class Run(SimpleNamespace):
    __hash__ = object.__hash__


def run_of(path, best_metric=None, held_out=0.0, seeds=(0, 1), steps=40, **more):
    options = SimpleNamespace(best_metric=best_metric, held_out=held_out, seeds=seeds, steps=steps, patience=None)
    record = SimpleNamespace(options=options, resume_command=lambda path: f"tidelog resume {path}")
    return Run(name="shop", path=path, record=record, unit="updates", done=20, checkpoints=[20], **more)


def test_lists_without_a_held_out_period_have_no_quality(tmp_path):
    line = SimpleNamespace(run=run_of(tmp_path))
    text = lists._one_log(LogSource(interactions(), ""), [line], lambda doing, share: None)
    assert "A run held out no period, so the quality of its lists is unknown. fix: train with held_out." in text
    assert lists._between(Interval(float("nan"), 0.0, 1.0)) == "none"


def test_lists_of_policies_that_cannot_be_loaded_are_notes(tmp_path, monkeypatch):
    monkeypatch.setattr(lists, "policy_of_run", failing)
    monkeypatch.setattr(lists, "member_policy", failing)
    notes = []
    line = SimpleNamespace(run=run_of(tmp_path, best_metric="held_out/ndcg"), name="shop", members=[0, 1])
    assert list(lists._learnt([line], notes)) == []
    assert notes == [
        "shop: its best policy cannot be loaded. its file is damaged. fix: restore it",
        "shop, seed 0: its policy cannot be loaded. its file is damaged. fix: restore it",
        "shop, seed 1: its policy cannot be loaded. its file is damaged. fix: restore it",
    ]


def test_a_setting_of_ones_own_and_a_log_that_cannot_be_reopened(tmp_path, monkeypatch):
    assert plain({"own": "critic"}) == "critic (your own)"

    def damaged(origin):
        raise LogError("column 3 is missing. fix: restore it")

    monkeypatch.setattr(saved, "reopen_any", damaged)
    record = SimpleNamespace(data=SimpleNamespace(origin={"source": "pendulum/small-v0"}), environment=None)
    found = saved._reopened(record)
    assert found.log is None
    assert found.reason == "The run's log cannot be reopened: column 3 is missing. fix: restore it"


@pytest.mark.parametrize(
    ("best", "exhausted", "words"),
    [
        (None, False, ["complete checkpoints at 20.", "Continue with:", "tidelog resume"]),
        (1, True, ["Best held_out/loss: 0.25, member 1.", "It stopped early, because its reports no longer improved."]),
    ],
)
def test_what_is_left_of_a_run_is_said(best, exhausted, words, tmp_path, monkeypatch):
    selection = SimpleNamespace(best_member=lambda: best, best={1: 0.25}, exhausted=exhausted)
    monkeypatch.setattr(saved, "Selection", lambda options, memory: selection)
    monkeypatch.setattr(saved, "Checkpoints", lambda *args: SimpleNamespace(memory=dict))
    text = saved._state(run_of(tmp_path, best_metric="held_out/loss"))
    assert "shop: last report at update 20 of 40" in text
    assert all(one in text for one in words)


def test_a_damaged_checkpoint_is_said_of_its_run(tmp_path, monkeypatch):
    monkeypatch.setattr(saved, "Checkpoints", lambda *args: SimpleNamespace(memory=failing))
    text = saved._state(run_of(tmp_path))
    assert "The last one cannot be read: its file is damaged. fix: restore it" in text


@pytest.mark.parametrize("named", [True, False])
def test_features_that_are_no_numbers_have_no_table_of_numbers(named):
    seen = {"x": np.zeros((4, 1))} if named else {"x": np.zeros((4, 1), int)}
    options = {} if named else {"categorical": ["x"]}
    log = Log.from_arrays(observation=seen, action=[0, 1] * 2, reward=np.zeros(4), terminated=True, **options)
    text = saved._numbers(log, "")
    assert ("numeric features" in text) == named
    assert "The log in numbers" in text


def test_pictures_are_in_no_cell_of_the_first_rows():
    log = Log.from_arrays(
        observation={"photo": np.zeros((4, 8, 8, 3), np.uint8), "x": np.full((4, 2), 0.75)},
        action=[0, 1] * 2, reward=np.zeros(4), terminated=True,
    )  # fmt: skip
    text = _first_rows(log)
    assert text.count("0.75") == 8
    assert "photo" not in text


def test_of_many_candidates_the_picture_has_the_highest_and_the_table_all():
    rows = [Row(f"member-{i:02}", "better", Interval(0.1 + i, float(i), 0.2 + i)) for i in range(1, 12)]
    rows += [Row("lost", "unsupported", Interval(np.nan, np.nan, np.nan)), Row("bold", "worse", Interval(-2.0, -3, -1))]
    page = answer_section(JudgedCandidates(CandidateTable(tuple(rows)), {}))
    picture, list_of_all = page.split("<table")
    assert [f"member-{i:02}" in picture for i in range(1, 12)] == [i >= 4 for i in range(1, 12)]
    assert "5 more are in the table" in picture
    assert "lost" not in picture
    assert all(row.name in list_of_all for row in rows)
    few = answer_section(JudgedCandidates(CandidateTable(tuple(rows[:7] + rows[-1:])), {})).split("<table")[0]
    assert ("bold" in few, "in the table" in few) == (True, False)
