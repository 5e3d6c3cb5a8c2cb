"""What other packages read of a log, and how their answers are counted."""

import json

import numpy as np
import pytest

from benchmarks.adversarial_worlds import Cell
from benchmarks.judge_peers import Problem, columns, counted, summary
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
