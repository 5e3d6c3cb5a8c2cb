"""Single refusals and rare branches of judging, each without a policy that learns."""

import errno
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.ope.cases import assessed, bandit, episodes
from tidelog import ConfigError, Log, SpecError, judge
from tidelog.errors import CheckpointError
from tidelog.ope import assumptions, decide, ledger, policies, text, verdict
from tidelog.ope.assumptions import relative_time, with_detected_clusters
from tidelog.ope.decide import Assessment, Limits
from tidelog.ope.estimators import Ratios, cluster_sums, means
from tidelog.ope.evidence import Evidence
from tidelog.ope.ledger import _File, _open, _opened, state_folder
from tidelog.ope.policies import ExternalPolicy, target_of
from tidelog.ope.risk import Sample
from tidelog.schema import to_plain
from tidelog.types import Continuous, MultiDiscrete, Spec

TWO = Ratios(np.ones((2, 1)), np.ones((2, 1)))


def log_of(action, **columns):
    rows = len(action)
    return Log.from_arrays(observation=np.arange(rows)[:, None] / 7.0, action=action, **columns)


DISCRETE = log_of([0, 1, 0, 1], reward=[0.0, 1.0, 0.5, 0.0], actions=2)
PUSHES = log_of(np.asarray([[0.1], [0.2], [-0.3]], np.float32), reward=[0.0, 1.0, 0.5], bounds=(-1.0, 1.0))
REFUSED = Assessment(Limits())
BOTH = log_of([[0, 1], [1, 0]], reward=[0.0, 1.0], actions=[2, 2])


def evidence(**changes):
    """Two episodes of three steps in all, with some columns changed."""
    columns = {"starts": np.asarray([0, 1, 3]), "reward": np.ones(3), "target": np.ones(3), "behaviour": np.ones(3)}
    return Evidence(**columns | changes)


def policy_of(action, **methods):
    return SimpleNamespace(spec=Spec(dict(DISCRETE.spec.observation), action), **methods)


SPEC_ERRORS = {
    "starts that fall": (
        lambda: evidence(starts=np.asarray([0, 2, 1, 3])),
        "invalid starts: expected numbers rising from 0 to 3",
    ),
    "starts that end early": (lambda: evidence(starts=np.asarray([0, 2])), "invalid starts: expected numbers rising"),
    "rows": (lambda: evidence(action=np.zeros(2, int)), "action has 2 rows: expected 3"),
    "clusters": (lambda: evidence(clusters=np.zeros(3, int)), "clusters has 3 rows: expected 2"),
    "a chance below 0": (lambda: evidence(target=-np.ones(3)), "expected target >= 0 and behaviour > 0 in every step"),
    "a chance of 0": (lambda: evidence(behaviour=np.zeros(3)), "expected target >= 0 and behaviour > 0 in every step"),
    "a shape": (lambda: evidence(model=np.ones(2)), "model has shape (2,): expected (3,)"),
    "NaN": (lambda: evidence(reward=np.asarray([1.0, np.nan, 0])), "reward contains nan: expected finite numbers"),
    "clusters of others": (
        lambda: cluster_sums(np.ones((3, 1)), np.zeros(2, int)),
        "found 2 clusters: expected one per episode (3)",
    ),
    "other groups": (
        lambda: replace(TWO, episodes=6).minus(replace(means(np.ones(3)), episodes=6)),
        "found 2 and 3 groups: expected the same grouping in both estimates",
    ),
    "several choices": (
        lambda: target_of(policy_of(BOTH.spec.action), BOTH, sample=True),
        "the policy makes several simultaneous choices and has no probabilities for them. fix: judge a policy with",
    ),
    "other names": (
        lambda: policies._translated(
            policy_of(Continuous((-1.0,), (1.0,), ("b",))),
            replace(PUSHES, spec=replace(PUSHES.spec, action=Continuous((-1.0,), (1.0,), ("a",)))),
        ),
        "this log's actions are ('a',), the policy's are ('b',). fix: judge it on a log with the same actions, in the",
    ),
    "other choices": (
        lambda: policies._translated(policy_of(MultiDiscrete((2, 3))), BOTH),
        "this log's actions are MultiDiscrete(sizes=(2, 2)",
    ),
    "an external policy": (
        lambda: ExternalPolicy(None, PUSHES.spec),
        "an external policy supports only discrete actions; this log has Continuous actions",
    ),
}
CONFIG_ERRORS = {
    "no groups": (lambda: TWO.grouped(0), "groups = 0: expected at least 1. fix: use 10000"),
    "one group": (
        lambda: Sample.of(bandit(), groups=1),
        "groups = 1: expected at least 2 groups to resample. fix: remo",
    ),
    "data": (
        lambda: judge(None, DISCRETE, learnt_from="this"),
        "learnt_from = 'this': expected None or 'other data'. fix: leave it out if unknown",
    ),
    "an option": (
        lambda: judge(None, DISCRETE, lvel=0.9),
        "judge has no option 'lvel': did you mean 'level'? fix: help(tidelog.judge) describes all of them",
    ),
    "no evidence": (
        lambda: Assessment(Limits(), name="bc").evidence,
        "no evidence was gathered for bc",
    ),
}
TABLE = [(SpecError, *one) for one in SPEC_ERRORS.items()] + [(ConfigError, *one) for one in CONFIG_ERRORS.items()]


@pytest.mark.parametrize(("error", "name", "case"), TABLE, ids=[one[1] for one in TABLE])
def test_what_does_not_fit_is_refused(error, name, case, monkeypatch):
    monkeypatch.setattr(policies, "replay_log_probability", lambda *args: None)
    with pytest.raises(error, match=re.escape(case[1])):
        case[0]()


# Rare branches.


def test_one_cluster_has_an_endless_variance():
    one = bandit(count=2, action=np.asarray([0, 1]))
    sample = Sample.of(replace(one, clusters=np.zeros(2, int)))
    assert np.isinf(sample.variance(1.0, 0.0)).all()


def test_times_that_are_equal_or_missing_order_nothing():
    assert relative_time(replace(DISCRETE, time=np.ones(4))) is None
    assert relative_time(replace(DISCRETE, time=np.asarray([0.0, 1.0, np.nan, 2.0]))) is None
    np.testing.assert_allclose(relative_time(replace(DISCRETE, time=np.asarray([4.0, 1.0, 1.0, 9.0]))), [0.5, 0, 0, 1])


def test_copies_of_whole_episodes_and_days_are_clusters(monkeypatch):
    rewards = [0.0, 1.0, 0.5, 0.0, 1.0, 0.5, 2.0]
    log = Log.from_arrays(
        observation=np.zeros(7, int),
        action=[0, 1, 0, 0, 1, 0, 1],
        actions=2,
        reward=rewards,
        episode=[0, 0, 1, 2, 2, 3, 4],
    )
    assert assumptions._copies(log).tolist() == [0, 1, 0, 1, 2]
    copied = replace(log, report=SimpleNamespace(warnings=[SimpleNamespace(check=assumptions.COPIES)]))
    assert with_detected_clusters(copied).log.clusters.tolist() == [0, 1, 0, 1, 2]
    left = with_detected_clusters(copied.take_episodes(np.array([0, 1, 4])))  # none of them is a copy of another one
    assert (left.log.cluster, left.notes) == (None, ())
    day = SimpleNamespace(name="time", values=99, p_value=1e-9, correlation=0.4, fix="name it as cluster=")
    monkeypatch.setattr(assumptions, "cluster_candidates", lambda log: [day])
    times = np.asarray(["2026-01-01T05", "2026-01-01T06", "2026-01-02T01", "2026-01-01T23"], "datetime64[us]")
    found = with_detected_clusters(replace(DISCRETE, time=times))
    assert found.log.clusters.tolist() == [0, 0, 1, 0]
    assert "same 'time' are counted as one cluster" in found.notes[0]


def test_one_advice_for_clipped_actions_without_a_density(monkeypatch):
    """Noise alone leaves the bounds, and wider bounds leave the missing density."""
    action = np.linspace(-2.0, 2.0, 60, dtype=np.float32).clip(-1.0, 1.0)[:, None]
    log = Log.from_arrays(
        observation=np.zeros((60, 1), np.float32),
        action=action,
        reward=action[:, 0],
        terminated=True,
        bounds=(-1.0, 1.0),
    )
    monkeypatch.setattr(decide, "has_density", lambda policy, log: False)
    asked = {"bandwidth": None, "propensities": None}

    def advised(**sample):
        found = decide.broken(decide.preconditions_of(None, log, action[:, 0], **sample, **asked))
        return [text.words(one, REFUSED).advice for one in found]

    density, cut = advised(sample=False)
    assert density == ()
    assert cut == (
        "record each action before clipping, with wider bounds, and then judge it with small noise added to its "
        "actions (bandwidth=0.2, --bandwidth 0.2)",
        "or round the actions to a few levels and judge them as discrete actions",
    )
    monkeypatch.setattr(decide, "has_density", lambda policy, log: True)
    (_, both) = advised(sample=False)
    assert "and then judge the policy with sampled actions" in both[0]
    assert len(both) == 2
    (only,) = advised(sample=True)
    assert only[0] == "record each action before clipping, with wider bounds"


def test_an_estimate_just_beyond_the_log_shows_more_digits():
    said = text.words(decide.RuleFinding("range", estimate=1.00001, low=0.0, high=1.0), REFUSED)
    assert "the estimated mean return of the policy, 1.00001, is above the highest return" in said.sentence


@pytest.fixture
def wrong(monkeypatch):
    def failing(*args):
        raise OSError(errno.ENOLCK, "No locks available")

    return lambda owner, name: monkeypatch.setattr(owner, name, failing)


def test_a_ledger_without_locks_is_read_but_not_written(tmp_path, wrong):
    path = tmp_path / "looks.jsonl"
    path.write_text("")
    wrong(ledger.fcntl, "flock")
    with _opened([path], write=True) as (file,):
        assert file.handle is not None
        assert not file.writable
        assert file.append([{"a": 1}]) is False
    assert path.read_text() == ""


def test_a_ledger_that_the_disk_refuses_is_an_error(tmp_path, wrong):
    path = tmp_path / "looks.jsonl"
    path.write_text('{"a": 1}\n{"cut')
    handle = os.open(path, os.O_RDWR | os.O_APPEND)
    assert _File(path, handle, True).append([{"b": 2}])
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"a": 1}, {"b": 2}]
    wrong(ledger._files.DISK, "append")
    with pytest.raises(CheckpointError, match=r"looks\.jsonl cannot be written: No locks available"):
        _File(path, handle, True).append([{"c": 3}])
    os.close(handle)


def test_ledgers_that_are_missing_or_cannot_be_opened(tmp_path, wrong):
    assert _open(tmp_path / "none" / "looks.jsonl", False) == (None, False)
    wrong(ledger.os, "open")
    with pytest.raises(
        CheckpointError, match=r"cannot be read: .*No locks.*\. fix: correct its permissions, or use ano"
    ):
        _open(tmp_path / "looks.jsonl", False)


def test_without_a_home_folder_there_is_no_state(monkeypatch):
    for name in ("TIDELOG_STATE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert state_folder() == Path.home() / ".local" / "state" / "tidelog"

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert state_folder() is None


def test_results_are_plain_numbers():
    assert to_plain({1: np.int64(3), "b": (np.float32(0.5), float("inf"))}) == {"1": 3, "b": [0.5, None]}


def test_another_log_is_judged_whole():
    record = SimpleNamespace(data=SimpleNamespace(fingerprint="another"))
    assert verdict.held_out_part(Path("run"), record, DISCRETE) == (DISCRETE, "all 4 episodes of the log")


def test_what_no_episode_shows_is_said_of_all_decisions_and_unusual_habits_too():
    none, some = assessed(episodes(supported=None)), assessed(episodes())
    for one in (none, some):
        one.decision, one.unshown, one.bound = "better", 0.4, 1.0
    (sentence,) = text._unshown(none)
    assert sentence.startswith("none of the policy's decisions is known to be in the log, and the answer assumes")
    assert "does not show 40.0% of the policy's decisions" in text._unshown(some)[0]
    rare = np.where(episodes().action == 1, 6.0, 0.1)
    sentences = text._markov(assessed(episodes(occupancy=rare), Limits(horizon=2)))
    assert re.match(
        r"the policy takes action 1 about 9 times per episode, logged episodes 0 to 3 times: the effect of this is "
        "assumed, not observed",
        sentences[1],
    )


def test_one_episode_that_was_cut_off_is_one():
    lengths = np.asarray([2, 3])
    assert "; 1 episode was cut off" in text.estimand(lengths, 1, 1.0, False, None)
    assert "; 2 episodes were cut off" in text.estimand(lengths, 2, 1.0, False, None)
