"""What other packages read of a log, and how their answers are counted."""

import json

import numpy as np
import pytest

from benchmarks import judge_peers
from benchmarks.adversarial_worlds import Cell
from benchmarks.judge_peers import Problem, columns, counted, problems, summary, treated
from benchmarks.peer_scripts import peer_judges

CELL = Cell("unsupported quarter", "five steps", 110)


def test_columns_are_plain_arrays_of_the_log():
    drawn = CELL.draw(0)
    found = columns(drawn)
    assert {values.dtype.kind for values in found.values()} <= {"i", "f"}
    assert found["context"].shape == (550, 4)
    assert (found["context"].sum(1) == 1).all()
    seen = np.asarray(drawn.log.transitions.observation["context"])[:, 0]
    assert (found["context"].argmax(1) == seen).all()
    assert (found["target"] == drawn.policies[0].chances[seen]).all()
    assert found["propensity"] == pytest.approx(0.5)
    assert (np.bincount(found["episode"]) == 5).all()
    assert "propensity" not in columns(Cell("drift", "both", 400).draw(0))


@pytest.mark.full
def test_every_problem_has_a_name_that_can_be_a_files_and_a_truth():
    found = list(problems())
    assert len({problem.name for problem in found}) == len(found) > 50
    assert not any(" " in problem.name or "/" in problem.name for problem in found)
    assert treated("the logger itself", 0).truth == 0.0
    assert treated("a fifth optimal", 0).truth == pytest.approx(0.0362, abs=1e-4)


def test_an_interval_decides_against_the_behaviors_mean():
    assert peer_judges.by_interval(1.1, 1.3, 1.0)["decision"] == "better"
    assert peer_judges.by_interval(0.1, 0.3, 1.0)["decision"] == "worse"
    assert peer_judges.by_interval(0.9, 1.3, 1.0)["decision"] == "no difference shown"


def test_a_model_makes_the_policy_in_proportion_to_one_over_its_prediction():
    chances = np.array([[0.1, 0.9], [0.5, 0.5]])
    features = np.array([[1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0]])
    assert 1.0 / peer_judges._Asked(chances).predict(features) == pytest.approx([0.1, 0.9, 0.5])


def row(name, decision, **more):
    return {"log": name, "version": "1", "decision": decision, "seconds": 1.0, **more}


def test_errors_are_counted_where_they_can_be_made():
    truth = {"null": 0.0, "good": 1.0}
    rows = [
        row("null__000", "better"), row("null__001", "unsupported"), row("null__002", "worse"),
        row("good__000", "better"), row("good__001", "worse"), row("good__002", "unreadable", why="too long"),
    ]  # fmt: skip
    found = summary(rows, truth)
    assert (found["answered"]["count"], found["answered"]["of"]) == (4, 6)
    assert (found["better_though_not"]["count"], found["better_though_not"]["of"]) == (1, 3)
    assert (found["better_though_not_of_answered"]["count"], found["better_though_not_of_answered"]["of"]) == (1, 2)
    assert (found["worse_though_not"]["count"], found["worse_though_not"]["of"]) == (2, 6)
    assert (found["better_and_is"]["count"], found["better_and_is"]["of"]) == (1, 3)
    assert found["no_answers"] == {"unsupported": 1, "unreadable": 1, "error": 0}


def test_advice_is_a_judge_of_its_own(tmp_path):
    chosen = [Problem("null", True, CELL), Problem("bad", False, CELL)]
    rows = [
        row("null__000", "better", advised="unsupported"), row("bad__000", "unreadable", why="too long"),
        row("null__009", "better", advised="better"),
    ]  # fmt: skip
    out = tmp_path / "peer.jsonl"
    out.write_text("".join(json.dumps(one) + "\n" for one in rows))
    found = counted("peer", out, chosen, 1, {"null": 0.0, "bad": 0.0})
    assert list(found) == ["peer", "peer, its advice"]
    assert found["peer"]["problems"] == {"null": {"better": 1}, "bad": {"unreadable": 1}}
    assert found["peer, its advice"]["possible"]["answered"]["count"] == 0
    assert found["peer"]["possible"]["better_though_not"]["share"] == 1.0
    assert found["peer"]["why_not"] == ["too long"]


def test_an_environment_that_cannot_be_made_says_why(tmp_path, monkeypatch):
    monkeypatch.setitem(judge_peers.NEEDS, "obp", (("no-such-package ==0",), ()))
    monkeypatch.setattr(judge_peers.venv, "create", lambda *a, **k: None)

    class Failed:
        returncode, stderr = 1, "noise\nERROR: No matching distribution found"

    monkeypatch.setattr(judge_peers.subprocess, "run", lambda *a, **k: Failed)
    assert judge_peers.environment("obp", tmp_path) == (None, "ERROR: No matching distribution found")
