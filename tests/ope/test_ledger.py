"""Looks are counted: whoever judges, wherever, and however often the same look is repeated."""

import fcntl
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.ope.noise import noise, random_policies
from tidelog import BC, ConfigError, Ledger, Log, fit, judge
from tidelog.errors import CheckpointError
from tidelog.ope import decide
from tidelog.ope.decide import Limits
from tidelog.ope.intervals import adaptive_deviate, normal_deviate, spent_error
from tidelog.ope.ledger import FILE, state_folder

QUICK = Limits(replicates=1000)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "looks.jsonl"


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_look_that_showed_no_number_costs_nothing(file):
    """A policy that learnt from the episodes is refused before anything is estimated: nothing was seen."""
    log = noise()
    clone = fit(BC(hidden=(8,)), log, 2, progress=False).policy()
    refused = judge(clone, log, limits=QUICK, ledger=file)
    assert refused.decision == "unsupported"
    assert len(refused.estimates) == 0
    found = judge(random_policies(1)[0], log, limits=QUICK, ledger=file)
    assert found.looks == 0
    assert found.level == 0.95
    assert len(lines_of(file)) >= 2, "it is recorded, though"


def test_each_new_policy_is_another_look_at_a_stricter_level(file):
    log = noise()
    found = [judge(policy, log, limits=QUICK, ledger=file) for policy in random_policies(4)]
    assert [one.looks for one in found] == [0, 1, 2, 3]
    assert [one.level for one in found] == pytest.approx([0.95, 0.975, 1 - 0.05 / 6, 1 - 0.05 / 12])
    plain = [judge(policy, log, limits=QUICK, ledger=False) for policy in random_policies(4)]
    assert found[0].difference == plain[0].difference
    wider = [longer_arm(one) / longer_arm(two) for one, two in zip(found, plain, strict=True)]
    assert np.multiply(wider, 1.959964) == pytest.approx([1.959964, 2.799319, 3.515084, 4.001], rel=0.06)
    said = (
        "these episodes were judged 3 times before, with 3 policies: the interval is 2 times as long as at a first "
        "look, because it holds for 99.58% instead of 95% and for any policy that the earlier results led to"
    )
    assert said[1:] in found[3].paragraph
    assert found[3].reasons[-1] == f"{said} (`tidelog judge --looks` lists them)"
    assert "judged" not in " ".join(found[0].reasons)
    looks = Ledger.of(log, file).looks
    assert [look.number for look in looks] == [1, 2, 3, 4]
    assert [look.decisions["policy"] for look in looks] == [one.decision for one in found]
    assert looks[0].policies[0]["algorithm"] is None
    assert looks[0].settings["seed"] == 0


def longer_arm(verdict):
    estimate, low, high = verdict.difference
    return max(estimate - low, high - estimate)


def test_the_same_policy_with_the_same_settings_is_the_same_look(file):
    log, (one, two) = noise(), random_policies(2)
    first = judge(one, log, limits=QUICK, ledger=file)
    assert judge(two, log, limits=QUICK, ledger=file).looks == 1
    again = judge(random_policies(2)[0], log, limits=QUICK, ledger=file)
    assert again.to_json() == first.to_json(), "its number stays what it was"
    looser = judge(one, log, limits=Limits(replicates=1000, pareto_k=9.0), ledger=file)
    assert looser.looks == 0, "limits move no estimate"
    assert judge(one, log, limits=QUICK, seed=1, ledger=file).looks == 2, "another seed is another try"
    last = judge(one, log, limits=QUICK, model="none", ledger=file)
    assert last.looks == 3
    assert "judged 3 times before, with 2 policies (3 results)" in last.reasons[-1]
    assert len([line for line in lines_of(file) if line["line"] == "look"]) == 4
    assert len([line for line in lines_of(file) if line["line"] == "episodes"]) == 1


def test_other_episodes_are_not_counted(file):
    judge(random_policies(1)[0], noise(seed=1), limits=QUICK, ledger=file)
    found = judge(random_policies(1)[0], noise(seed=2), limits=QUICK, ledger=file)
    assert (found.looks, found.level) == (0, 0.95)


def test_episodes_that_were_part_of_another_set_are_counted(file):
    log, policies = noise(400), random_policies(3)
    judge(policies[0], log.take_episodes(range(300)), limits=QUICK, ledger=file)
    half = judge(policies[1], log.take_episodes(range(150, 400)), limits=QUICK, ledger=file)
    assert half.looks == 1
    assert half.context["looks"]["elsewhere"] == pytest.approx(0.6)
    assert "60.0% of these episodes were judged before as part of another set" in half.paragraph
    assert "judging a growing log again and again" in half.paragraph
    grown = judge(policies[0], log, limits=QUICK, ledger=file)
    assert grown.looks == 2, "the same policy on more episodes is another look"
    assert grown.context["looks"]["elsewhere"] == pytest.approx(0.75)
    few = log.take_episodes([0, *range(1, 400, 2)])
    assert [look.share for look in Ledger.of(few, file).looks] == pytest.approx([151 / 201, 125 / 201, 1.0])


@pytest.mark.full
def test_the_overlap_of_large_sets_is_estimated(file):
    """3,000 episodes are more than a sketch holds; those that it cannot speak about are not counted as new."""
    log, (one, two) = noise(4000), random_policies(2)
    judge(one, log.take_episodes(range(3000)), limits=QUICK, ledger=file)
    found = judge(two, log.take_episodes(range(1000, 4000)), limits=QUICK, ledger=file)
    assert found.looks == 1
    # a right sketch fails for 8 in 10 million logs
    assert found.context["looks"]["elsewhere"] == pytest.approx(2 / 3, abs=0.06)


def test_policies_judged_at_once_are_one_look(file):
    log, policies = noise(), random_policies(5)
    assert judge(policies, log, limits=QUICK, ledger=file)[0].looks == 0
    assert judge(policies[::-1], log, limits=QUICK, ledger=file)[0].looks == 0, "in any order"
    (look,) = Ledger.of(log, file).looks
    assert [one["name"] for one in look.policies] == [f"policy {at}" for at in range(5)]
    assert len(look.decisions) == 5


def test_a_policy_of_an_earlier_table_keeps_its_interval(file):
    """Its interval was made for any choice from the table; another policy pays for all of them."""
    log, policies = noise(), random_policies(5)
    table = judge(policies[:4], log, limits=QUICK, ledger=file)
    for at in (2, 0):
        alone = judge(policies[at], log, limits=QUICK, ledger=file)
        assert alone.looks == 0
        assert alone.difference == table[at].difference
        assert "4 policies were judged together" in alone.paragraph
    pair = judge(policies[1:3], log, limits=QUICK, ledger=file)
    assert [one.difference for one in pair] == [one.difference for one in table.verdicts[1:3]]
    (look,) = Ledger.of(log, file).looks
    assert len(look.decisions) == 4
    assert judge(policies[0], log, limits=QUICK, seed=1, ledger=file).looks == 1, "other settings are another look"
    new = judge(policies[4], log, limits=QUICK, ledger=file)
    plain = judge(policies[4], log, limits=QUICK, ledger=False)
    expected = adaptive_deviate(spent_error(0.95, 3), 5) / normal_deviate(0.05)
    assert longer_arm(new) / longer_arm(plain) == pytest.approx(expected, rel=0.06)


def test_an_assumption_that_the_first_verdict_asked_for_is_stated_in_the_same_look(file):
    """Else who does what the verdict advises would have an interval of twice the length for it."""
    random = np.random.default_rng(0)
    arm = random.integers(0, 2, 2000)
    rows = {"observation": {"x": np.arange(2000) % 3}, "action": arm, "terminated": True, "actions": 2}
    log = Log.from_arrays(reward=random.normal(size=2000) + 0.3 * arm, **rows)
    first = judge(Always(1), log, limits=QUICK, ledger=file)
    assert first.decision == "better if randomised"
    stated = Log.from_arrays(reward=log.reward, propensity="shares", **rows)
    for again in (
        judge(Always(1), log, propensities="shares", limits=QUICK, ledger=file),
        judge(Always(1), stated, limits=QUICK, ledger=file),
    ):
        assert (again.decision, again.looks, again.difference) == ("better", 0, first.difference)
    assert judge(Always(1), log, propensities=0.5, limits=QUICK, ledger=file).looks == 1, "no verdict asked for these"
    assert judge(Always(0), stated, limits=QUICK, ledger=file).looks == 2
    late = judge(Always(0), log, limits=QUICK, ledger=file)
    assert late.looks == 3, "what assumes less is another question"
    unknown = Log.from_arrays(
        reward=np.where(random.random(2000) < 0.1, np.nan, log.reward), missing_reward="unknown", propensity=0.5, **rows
    )
    file.unlink()
    assert judge(Always(1), unknown, limits=QUICK, ledger=file).looks == 0
    at_random = replace(unknown, missing_reward="at random")
    assert judge(Always(1), at_random, limits=QUICK, ledger=file).looks == 0
    assert [look.number for look in Ledger.of(at_random, file).looks] == [1]


@pytest.mark.parametrize(("chances", "effect", "first", "looks"), [
    ("recorded", 0.3, "better", 1), (None, 0.0, "no difference shown", 1), (None, -0.3, "worse", 1),
    (None, 0.3, "better if randomised", 0),
])  # fmt: skip
def test_shares_that_no_verdict_asked_for_are_another_look(chances, effect, first, looks, file):
    random = np.random.default_rng(0)
    arm = random.integers(0, 2, 2000)
    log = Log.from_arrays(
        observation={"x": np.arange(2000) % 3}, action=arm, terminated=True, actions=2,
        reward=random.normal(size=2000) + effect * arm, propensity=None if chances is None else np.full(2000, 0.5),
    )  # fmt: skip
    assert judge(Always(1), log, limits=QUICK, ledger=file).decision == first
    assert judge(Always(1), log, propensities="shares", limits=QUICK, ledger=file).looks == looks


class Always:
    """One action for everybody."""

    def __init__(self, action):
        self.action = action

    def probabilities(self, observation, mask):
        return np.tile(np.eye(2)[self.action], (len(observation["x"]), 1))


def test_a_log_without_a_place_uses_the_users_state_folder(tmp_path, monkeypatch):
    log = noise()
    judge(random_policies(1)[0], log, limits=QUICK)
    assert state_folder() == Path(os.environ["TIDELOG_STATE"])
    assert lines_of(state_folder() / FILE)[0]["fingerprint"] == log.fingerprint()
    monkeypatch.delenv("TIDELOG_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert state_folder() == tmp_path / "xdg" / "tidelog"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert state_folder() == tmp_path / "home" / ".local" / "state" / "tidelog"
    monkeypatch.setenv("TIDELOG_STATE", "off")
    assert state_folder() is None
    found = judge(random_policies(1)[0], log, limits=QUICK)
    assert "could not be recorded in any ledger" in found.paragraph
    assert not (tmp_path / "home").exists()


def test_looks_travel_with_a_saved_log_and_with_a_run(tmp_path, monkeypatch):
    noise().save(tmp_path / "log")
    log, (one, two, three) = Log.load(tmp_path / "log"), random_policies(3)
    judge(one, log, limits=QUICK)
    judge(two, log, limits=QUICK, ledger=Ledger.of(log, runs=[tmp_path / "run"]))
    assert len(lines_of(tmp_path / "log" / FILE)) == len(lines_of(state_folder() / FILE)) == 5
    assert len(lines_of(tmp_path / "run" / FILE)) == 3, "from then on"
    assert Log.load(tmp_path / "log").fingerprint() == log.fingerprint()
    monkeypatch.setenv("TIDELOG_STATE", str(tmp_path / "another machine"))
    assert judge(three, Log.load(tmp_path / "log"), limits=QUICK).looks == 2
    taken = noise()
    assert judge(three, taken, limits=QUICK, ledger=Ledger.of(taken, runs=[tmp_path / "run"])).looks == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_that_cannot_be_written_is_still_read(tmp_path):
    noise().save(tmp_path / "log")
    log, (one, two) = Log.load(tmp_path / "log"), random_policies(2)
    judge(one, log, limits=QUICK)
    (tmp_path / "log" / FILE).chmod(0o400)
    (tmp_path / "log").chmod(0o500)
    assert judge(two, log, limits=QUICK).looks == 1
    assert len(Ledger.of(log).looks) == 2


def test_a_place_where_no_file_can_be_is_passed_over(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TIDELOG_STATE", str(tmp_path / "file" / "state"))
    found = judge(random_policies(1)[0], noise(), limits=QUICK)
    assert found.context["looks"]["recorded"] is False
    assert "could not be recorded in any ledger" in found.paragraph
    told = []
    with pytest.raises(ConfigError, match=r"cannot be written\. fix: use another file in ledger="):
        judge(
            random_policies(1)[0],
            noise(),
            limits=QUICK,
            ledger=tmp_path / "file" / "looks.jsonl",
            progress=lambda what, share: told.append(what),
        )
    assert not told, "refused before anything is fitted"


@pytest.mark.parametrize("damage", [
    b"[]\n", b'{"line": "look"}\n', b'{"line": "else"}\n', b"\xff\n",
    b'{"line": "decisions", "key": "x", "decisions": {}}\n',
    b'{"line": "episodes", "fingerprint": "x", "sketch": {}}\n',
])  # fmt: skip
@pytest.mark.sample(every=3)
def test_a_damaged_line_is_refused_by_its_number(damage, file):
    log = noise()
    judge(random_policies(1)[0], log, limits=QUICK, ledger=file)
    whole = file.read_bytes()
    file.write_bytes(whole + damage)
    message = r"looks\.jsonl, line 4: not a line of a ledger.*fix: remove that line"
    told = []
    with pytest.raises(CheckpointError, match=message):
        judge(random_policies(2)[1], log, limits=QUICK, ledger=file, progress=lambda what, share: told.append(what))
    assert not told, "refused before anything is fitted"
    with pytest.raises(CheckpointError, match=message):
        Ledger.of(log, file).looks  # noqa: B018
    assert file.read_bytes() == whole + damage
    file.write_bytes(whole)
    assert judge(random_policies(2)[1], log, limits=QUICK, ledger=file).looks == 1


def test_an_incomplete_last_line_is_removed(file):
    """Its process was killed before it showed the look."""
    log = noise()
    judge(random_policies(1)[0], log, limits=QUICK, ledger=file)
    whole = file.read_bytes()
    file.write_bytes(whole + whole[: len(whole) // 3])
    assert len(Ledger.of(log, file).looks) == 1
    assert judge(random_policies(2)[1], log, limits=QUICK, ledger=file).looks == 1
    assert file.read_bytes().startswith(whole)
    assert len(Ledger.of(log, file).looks) == 2


def test_ledgers_that_are_none_are_refused(file):
    log = noise()
    with pytest.raises(ConfigError, match="ledger = True: expected a file"):
        judge(random_policies(1)[0], log, ledger=True)
    with pytest.raises(ConfigError, match="the ledger of another log"):
        judge(random_policies(1)[0], log, ledger=Ledger.of(noise(seed=5), file))
    found = judge(random_policies(1)[0], log, limits=QUICK, ledger=False)
    assert "judged before is unknown (ledger=False)" in found.paragraph
    assert not file.exists()


TAKING = """
import sys
from tests.ope.noise import noise
from tidelog import Ledger
ledger = Ledger.of(noise(50), sys.argv[1])
for place in range(25):
    name = f"{sys.argv[2]}-{place}"
    taken = ledger.record_look([{"name": name, "algorithm": None, "identity": name}], {})
    ledger.record_decisions(taken, {name: "worse"})
"""


@pytest.mark.full
def test_processes_that_judge_at_once_get_different_numbers(file):
    root = Path(__file__).resolve().parents[2]
    running = [subprocess.Popen([sys.executable, "-c", TAKING, str(file), str(one)], cwd=root) for one in range(3)]
    assert [one.wait() for one in running] == [0, 0, 0]
    looks = Ledger.of(noise(50), file).looks
    assert [look.number for look in looks] == list(range(1, 76))
    assert all(look.decisions for look in looks)
    assert len({look.key for look in looks}) == 75
    assert {look.policies[0]["name"][0] for look in looks} == {"0", "1", "2"}


def test_a_judge_that_waits_for_another_says_so(file):
    log, (policy, *_) = noise(), random_policies(2)
    judge(policy, log, sample=True, ledger=file, progress=False)
    with file.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        threading.Timer(2.0, fcntl.flock, (held, fcntl.LOCK_UN)).start()
        with pytest.warns(UserWarning, match=f"another judge uses the ledger {file}: waiting for it to end"):
            judge(policy, log, sample=True, ledger=file, progress=False)


def test_a_verdict_says_what_was_not_counted_and_which_limits_are_looser(file):
    log, (policy,) = noise(), random_policies(1)
    alone = judge(policy, log, limits=QUICK, ledger=file)
    assert f"ooks that are not in {file} are unknown and do not widen the interval" in alone.paragraph
    assert "earlier verdicts were counted in looks.jsonl alone" in alone.summary["caveat"]
    assert "earlier verdicts on these episodes were not counted" in judge(policy, log, ledger=False).summary["caveat"]
    loose = judge(policy, log, limits=Limits(replicates=1000, pareto_k=9.0, effective_episodes=5), ledger=file)
    told = "imits are looser than the defaults: effective_episodes 5 (default 50), pareto_k 9 (default 1)"
    assert told in loose.paragraph
    assert "limits looser than the defaults: 2" in loose.summary["caveat"]
    strict = judge(policy, log, limits=Limits(replicates=1000, pareto_k=0.5, level=0.99), ledger=file)
    assert "looser" not in strict.paragraph


@pytest.fixture
def arms():
    """A log of two arms that looks randomised, of which the second is better, and both policies of one arm."""
    random = np.random.default_rng(0)
    arm = random.integers(0, 2, 2000)
    log = Log.from_arrays(
        observation={"x": np.arange(2000) % 3}, action=arm, terminated=True, actions=2,
        reward=random.normal(size=2000) + 0.3 * arm,
    )  # fmt: skip
    return log, {"first": Always(0), "second": Always(1)}


def test_what_was_worse_has_no_second_chance_by_an_assumption(arms, file):
    log, policies = arms
    said = judge(policies, log, limits=QUICK, ledger=file)
    assert [one.decision for one in said] == ["worse", "better if randomised"]
    assert judge(policies["second"], log, propensities="shares", limits=QUICK, ledger=file).looks == 0
    assert judge(policies["first"], log, propensities="shares", limits=QUICK, ledger=file).looks == 1


def test_under_an_assumption_an_interval_is_as_wide_as_both_answers_ask(arms, file, monkeypatch):
    log, policies = arms
    first = judge(policies, log, limits=QUICK, ledger=file)
    usual = decide.critical_values
    monkeypatch.setattr(decide, "critical_values", lambda *about: 2.0 * usual(*about))
    again = judge({"second": policies["second"]}, log, propensities="shares", limits=QUICK, ledger=file)["second"]
    assert longer_arm(again) > 1.5 * longer_arm(first["second"])
