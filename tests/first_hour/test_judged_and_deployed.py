"""The policy that was judged is the one that acts: from `tidelog judge` to a table, an artefact and an answer."""

import json
import shutil

import numpy as np
import polars as pl
import pytest

from tests.serving.test_app import asked
from tidelog import collect, load_policy, rollout, runtime
from tidelog.policies.policy import remember
from tidelog.runtime.artefact import SavedPolicy
from tidelog.runtime.way_of_acting import ActingWarning, replaces

QUICK = ["--replicates", 1000, "--model", "tabular"]


@pytest.fixture
def judged(here, run, tidelog):
    """A run of one's own whose first member was judged by sampled actions."""
    shutil.copytree(run, here / "run")
    done = tidelog("judge", "run", "--data", "visits.csv", "--columns", "columns.toml", "--sample", *QUICK)
    assert done.code == 0, done.err
    assert "from now on, this policy samples its actions, as it was judged (--mode takes its most likely" in done.said
    return here / "run"


def test_act_samples_as_it_was_judged_and_prints_the_verdict(judged, tidelog):
    words = ["act", judged, "--data", "visits.csv", "--seed", 3, "--out"]
    done = tidelog(*words, "one.csv")
    assert done.code == 0, done.err
    assert done.out.startswith(
        "Do not use it yet: the log cannot show how good it is if it samples its actions. Verdict of"
    )
    assert done.out.splitlines()[1] == "the policy samples its actions"
    assert tidelog(*words, "two.csv").code == 0
    one, two = pl.read_csv("one.csv"), pl.read_csv("two.csv")
    assert one.equals(two), "the same seed"
    likely = load_run_policy(judged).with_acting("mode")
    assert (likely(one) != one["action"].to_numpy()).any()
    assert one["policy_propensity"].is_between(0.0, 1.0).all()


def load_run_policy(folder):
    from tidelog.training.run import policy_of_run

    return policy_of_run(folder)


def test_the_other_way_is_possible_with_a_note_and_without_the_verdict(judged, tidelog):
    done = tidelog("act", judged, "--data", "visits.csv", "--mode", "--out", "one.csv")
    assert done.code == 0
    note = "note: a verdict on this policy holds where it samples its actions, which --mode changes\n"
    assert done.err == note
    assert "no verdict" in done.out
    refused = tidelog("act", judged, "--data", "visits.csv", "--mode", "--seed", 3, "--out", "two.csv")
    assert refused.code == 2
    assert "fix: drop --seed" in refused.err
    both = tidelog("act", judged, "--data", "visits.csv", "--mode", "--sample", "--out", "two.csv")
    assert both.code == 2
    assert "expected one of them" in both.err


def test_the_artefact_carries_the_way_and_the_verdict(judged, tidelog):
    done = tidelog("export", judged, "--to", "zip", "--out", "policy.zip", "--no-onnx")
    assert done.code == 0, done.err
    assert "the policy samples its actions" in done.out
    files = sorted((judged / "verdicts").glob("*.json"))
    verdict = json.loads(files[0].read_text())
    for policy in (load_policy("policy.zip"), runtime.load("policy.zip")):
        assert policy.acting == "sample"
        assert policy.verdict["decision"] == verdict["decision"]
        assert policy.verdict["date"] == verdict["context"]["date"]
        assert policy.verdict["advice"] == verdict["advice"]
    other = tidelog("export", judged, "--mode", "--to", "zip", "--out", "mode.zip", "--no-onnx")
    assert "note: a verdict on this policy holds where it samples" in other.err
    assert SavedPolicy("mode.zip").manifest["acting"] == "mode"
    assert SavedPolicy("mode.zip").manifest["verdict"] is None


def test_a_server_answers_in_the_declared_way(judged, tidelog):
    assert tidelog("export", judged, "--to", "zip", "--out", "policy.zip", "--no-onnx").code == 0
    policy = runtime.load("policy.zip")
    row = pl.read_csv("visits.csv").select("severity", "strain", "toxicity", "hour", "kidneys").row(0, named=True)

    def ask(policy, *bodies):
        found = asked(policy, *(("POST", "/act", {"json": body}) for body in bodies), ("GET", "/policy", {}))
        return [one.json() for one in found]

    body = {"observations": [row] * 500}
    one, two, described = ask(policy, body, body)
    assert one["actions"] != two["actions"]
    assert len(one["propensities"]) == 500
    assert described["acting"] == "sample"
    assert described["verdict"] == policy.verdict
    plain, seeded, _ = ask(policy.with_acting("mode"), {"observation": row}, {"observation": row, "seed": 1})
    assert "warning" not in plain
    assert "propensity" not in plain
    assert seeded["warning"].startswith("the policy was declared to be one that always takes its most likely action")


def answers_of(policy, row, folder, tidelog):
    """The codes of 400 answers to one row, from each place where a policy acts, without a word on how it acts."""
    many, names = pl.DataFrame([row] * 400), policy.spec.action.names
    policy.save(folder / "policy")
    policy.save(folder / "policy.zip")
    many.write_csv("many.csv")
    assert tidelog("act", "policy", "--data", "many.csv", "--out", "acted.csv").code == 0
    found = {
        "policy(...)": policy(many),
        "load_policy": load_policy("policy")(many),
        "runtime": runtime.load("policy.zip")(many),
        "tidelog act": np.asarray([names.index(one) for one in pl.read_csv("acted.csv")["action"]]),
        "collect": (played := collect("treatment", policy, episodes=400, seed=1)).action,
    }
    assert played.propensity.min() < 0.9 if policy.acting == "sample" else (played.propensity == 1.0).all()
    (answer,) = asked(runtime.load("policy.zip"), ("POST", "/act", {"json": {"observations": [row] * 400}}))
    found["HTTP"] = np.asarray(answer.json()["codes"])
    return {place: getattr(one, "codes", one) for place, one in found.items()}


@pytest.mark.full
@pytest.mark.parametrize("way", ["sample", "mode"])
def test_every_place_acts_in_the_declared_way_and_another_way_warns(way, here, run, tidelog):
    policy = load_run_policy(run).with_acting(way)
    row = pl.read_csv("visits.csv").select("severity", "strain", "toxicity", "hour", "kidneys").row(0, named=True)
    likely = policy.act(row)[0]
    for place, codes in answers_of(policy, row, here, tidelog).items():
        if place == "collect":
            continue  # of many observations; its propensities say how it acted
        assert len(codes) == 400, place
        if way == "mode":
            assert (codes == likely).all(), place
        else:
            assert len(set(codes.tolist())) > 1, place
    returns = [rollout(policy, "treatment", 30, seed=1, sample=one) for one in (None, way == "sample")]
    np.testing.assert_array_equal(*returns)
    for known in (policy, load_policy("policy"), runtime.load("policy.zip")):
        other = known.mode if way == "sample" else known.sample
        with pytest.warns(ActingWarning, match="a verdict on it does not hold"):
            other(row)
    with pytest.warns(ActingWarning):
        assert (rollout(policy, "treatment", 30, seed=1, sample=way == "mode") != returns[0]).any()


def verdict(decision, acting):
    numbers = dict.fromkeys(("difference", "low", "high"), 0.1) | {"level": 0.95, "episodes": 60}
    texts = {"date": "2026-01-31", "caveat": "", "advice": "Use it."}
    return {"decision": decision, "acting": acting, **texts, **numbers}


@pytest.mark.parametrize(
    ("new", "replaced"),
    [
        (("better", "sample"), True),
        (("worse", "sample"), True),
        (("unsupported", "sample"), False),
        (("better", "mode"), True),
        (("no difference shown", "mode"), True),
        (("worse", "mode"), False),
        (("unsupported", "mode"), False),
    ],
)
def test_what_replaces_a_verdict_on_sampled_actions_that_shows_no_difference(new, replaced):
    assert replaces(verdict(*new), verdict("no difference shown", "sample")) is replaced
    assert replaces(verdict(*new), None)
    assert replaces(verdict(*new), verdict("unsupported", "sample"))


def test_an_unsupported_verdict_leaves_the_way_of_acting_of_a_supported_one(judged, tidelog):
    policy = load_run_policy(judged)
    policy.declare("sample", verdict("better", "sample"))
    remember(judged, policy)
    words = ["judge", judged, "--data", "visits.csv", "--columns", "columns.toml", "--mode", *QUICK]
    done = tidelog(*words)
    assert done.out.split("\n")[1] == "member-0: UNSUPPORTED"
    assert "member-0 keeps its earlier verdict, better of 2026-01-31, and still samples its actions" in done.said
    assert "from now on" not in done.said
    assert load_run_policy(judged).acting == "sample"
    assert load_run_policy(judged).verdict["decision"] == "better"
    assert list((judged / "verdicts").glob("*-deterministic-*.json")), "kept beside the other"
