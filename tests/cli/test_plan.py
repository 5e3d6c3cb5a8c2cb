"""`tidelog plan`: what it refuses, with exit code 2, and what it writes."""

import json

import pytest

PLAN = ["plan", "run", "--simulations", 20, "--explore", 0.2, "--model", "tabular", "--quiet"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--effect", -1], "effect = -1.0"),
        (["--probability", 1.5], "probability = 1.5"),
        (["--episodes", 2], "episodes = 2"),
        (["--sample", "--mode"], "--sample and --mode"),
        (["--data", "visits.csv", "--columns", "columns.toml", "--propensity", 0.5, "--randomised"], "--randomised"),
    ],
    ids=lambda one: " ".join(map(str, one)) if isinstance(one, list) else "",
)
def test_bad_numbers_and_flags_end_with_code_2_and_a_fix(words, named, here, run, tidelog):
    done = tidelog("plan", run, *PLAN[2:], *words)
    assert (done.code, done.out) == (2, "")
    assert named in done.err
    assert "fix:" in done.err


def test_the_plan_is_written_once(here, run, tidelog):
    words = ["plan", run, *PLAN[2:], "--out", "plan.json"]
    done = tidelog(*words)
    assert (done.code, done.err) == (0, "")
    content = json.loads((here / "plan.json").read_text())
    assert done.out.strip() == content["sentences"][1]
    again = tidelog(*words)
    assert (again.code, "exists" in again.err) == (2, True)
