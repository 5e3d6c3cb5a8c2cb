"""For whom a policy is better: differences by groups of an observation, for all groups at once."""

from dataclasses import replace

import numpy as np
import pytest

import tidelog as tl
from tests.ope.cases import QUICK, Always, assessed
from tidelog.ope.decide import Limits, LookResult, decide
from tidelog.ope.evidence import Evidence
from tidelog.ope.groups import EpisodeGroups, episode_groups, group_differences
from tidelog.ope.verdict import groups_sentences, read_verdict, write

GAINS = {"old": -0.8, "young": 1.2}  # of the second action
EFFECT = {name: 0.4 * gain for name, gain in GAINS.items()}  # the policy takes it at 0.9, in the log it is even
SECOND = Always(0.1, 0.9)


def two_groups(count=1_200, seed=0, gains=GAINS, **changes):
    """A log of single decisions whose second action is good for one group and bad for the other."""
    generator = np.random.default_rng(seed)
    names = np.array(list(gains))[generator.integers(len(gains), size=count)]
    action = generator.integers(2, size=count)
    gain = np.array([gains[name] for name in names])
    known = {
        "observation": {"who": names, "age": np.arange(count) % 4 * 10.0},
        "action": action, "reward": gain * action + generator.normal(0.0, 0.5, count), "terminated": True,
        "episode": np.arange(count), "propensity": np.full(count, 0.5), "actions": 2,
    }  # fmt: skip
    return tl.Log.from_arrays(**{**known, **changes})


def judged(log, policy=SECOND, **options):
    settings = {"sample": True, "model": "tabular", "ledger": False, "limits": QUICK, "learnt_from": "other data"}
    return tl.judge(policy, log, progress=False, **{**settings, **options})


@pytest.fixture(scope="module")
def verdict():
    return judged(two_groups(), by="who")


def test_a_policy_that_is_better_on_average_and_worse_for_one_group(verdict):
    groups = {one.name: one for one in verdict.groups}
    assert verdict.decision == "better"
    assert {name: one.decision for name, one in groups.items()} == {"old": "worse", "young": "better"}
    for name, one in groups.items():
        assert one.difference.low < EFFECT[name] < one.difference.high
        assert one.effective_sample_size < one.episodes
    assert sum(one.episodes for one in groups.values()) == verdict.episodes
    loss = f"better on average, and worse for 'who' old: {groups['old'].difference.estimate:+.3g}"
    assert loss in verdict.paragraph
    assert loss in verdict.summary["caveat"]
    assert "The intervals of all groups by 'who' hold at once, with 95% confidence." in verdict.paragraph


def test_the_file_holds_the_groups(verdict, tmp_path):
    write(verdict, tmp_path / "verdict.json")
    again = read_verdict(tmp_path / "verdict.json").verdict
    assert (again.groups, again.by) == (verdict.groups, "who")
    assert again.groups_sentences == verdict.groups_sentences


def test_a_group_changes_no_number_of_the_whole(verdict):
    """And a call without groups gives the same verdict as before there were any."""
    plain, by_group = (one.to_json() for one in (judged(two_groups()), verdict))
    for name in ("groups", "outcome", "paragraph"):
        del plain[name], by_group[name]
    for one in (plain, by_group):
        one["context"] = {name: value for name, value in one["context"].items() if name not in ("by", "conditions")}
    assert plain == by_group


def test_a_worse_group_is_said_where_no_difference_is_shown_and_a_better_one_too():
    equal = judged(two_groups(gains={"old": -0.8, "young": 0.8}), by="who")
    assert equal.decision == "no difference shown"
    assert {one.name: one.decision for one in equal.groups} == {"old": "worse", "young": "better"}
    assert "No difference is shown on average, and the policy is worse for 'who' old: -" in equal.paragraph
    assert "; better for 'who' young: +" in equal.paragraph


def test_another_column_is_another_look_and_the_same_one_is_not(tmp_path):
    log, ledger = two_groups(200), tmp_path / "looks.jsonl"
    looks = [judged(log, ledger=ledger, by=by).looks for by in (None, "who", "who", "age")]
    assert looks == [0, 1, 1, 2]


def test_groups_are_the_values_of_words_and_of_few_numbers_and_parts_between_quartiles_of_many():
    age = np.random.default_rng(1).permutation(400).astype(np.float32)
    log = two_groups(400, observation={"who": np.array(["old", "young"] * 200), "age": age})
    assert episode_groups(log, "who").labels == ("old", "young")
    parts = episode_groups(log, "age")
    assert parts.labels == ("below 99.75", "99.75 to 199.5", "199.5 to 299.2", "299.2 or more")
    assert np.bincount(parts.of).tolist() == [100] * 4
    few = episode_groups(two_groups(400, observation=np.arange(400.0) % 3), "observation")
    assert few.labels == ("0", "1", "2")
    assert np.array_equal(few.of, np.arange(400) % 3)


def test_episodes_belong_to_the_group_of_their_first_decision():
    shown = np.array([[0.0], [1.0], [1.0], [1.0]])
    log = tl.Log.from_arrays(
        observation=shown, action=np.array([0, 1, 0, 1]), reward=np.arange(4.0), terminated=[False, True, False, True],
        episode=np.array([0, 0, 1, 1]),
    )  # fmt: skip
    groups = episode_groups(log, "observation")
    assert groups.of.tolist() == [0, 1]
    assert groups.note == "'observation' changes within 50.0% of episodes: the first decision determines the group"


@pytest.mark.parametrize(("by", "said"), [
    ("whoo", "fix: did you mean 'who'?"),
    ("many", r"'many' makes 20 groups: expected 2 to 10. fix: name a column of fewer values"),
    ("one", r"'one' makes 1 group: expected 2 to 10. fix: name a column that differs"),
])  # fmt: skip
def test_a_column_that_makes_no_groups_is_refused(by, said):
    many = np.array([f"w{number}" for number in range(20)])[np.arange(200) % 20]
    shown = {"who": np.array(["a", "b"] * 100), "many": many, "one": np.array(["x"] * 200)}
    with pytest.raises(tl.ConfigError, match=said):
        judged(two_groups(200, observation=shown), by=by)


# By evidence alone: which groups have a number, and how wide intervals are.


def evidence(effects, each=150, seed=0, target=0.8, noise=1.0):
    """One decision an episode; the target takes the second action, which earns `effects` of the group more."""
    generator = np.random.default_rng(seed)
    count = each * len(effects)
    of, action = np.arange(count) % len(effects), generator.integers(2, size=count)
    gain = np.asarray(effects)[of]
    chances = np.stack([1.0 - np.broadcast_to(target, count), np.broadcast_to(target, count)], axis=1)
    made = Evidence(
        starts=np.arange(count + 1), reward=gain * action + generator.normal(0.0, noise, count),
        target=chances[np.arange(count), action], behaviour=np.full(count, 0.5), model=gain * action,
        model_target=gain * chances[:, 1], target_all=chances, behaviour_all=np.full((count, 2), 0.5),
        model_all=gain[:, None] * [0.0, 1.0], action=action, supported=np.ones((count, 2), bool),
    )  # fmt: skip
    return made, EpisodeGroups("who", tuple(map(str, range(len(effects)))), of, 0.0)


def first_look(error=0.05, policies=1):
    ones = np.ones(policies)
    return LookResult(("policy",) * policies, None, None, error, 0.95, ones, ones)


def grouped(made, groups, limits=QUICK, **more):
    a = decide(assessed(made, limits=limits, **more))
    (found,) = group_differences([a], groups, first_look())
    return found


def test_a_group_without_support_has_no_number_and_does_not_widen_the_others():
    of, limits = np.arange(450) % 3, replace(QUICK, effective_episodes=90.0)
    made, groups = evidence((0.9, 0.9, 0.9), target=np.where(of == 2, 0.999, 0.8), noise=0.3)
    three = grouped(made, groups, limits)
    assert [one.decision for one in three] == ["better", "better", "unsupported"]
    assert not np.isfinite(three[2].difference.estimate)
    assert three[2].episodes == 150
    two = made.of_rows(of < 2, np.ones(300, int)), EpisodeGroups("who", ("0", "1"), of[of < 2], 0.0)
    for one, other in zip(three, grouped(*two, limits), strict=False):
        length = one.difference.high - one.difference.low
        assert length == pytest.approx(other.difference.high - other.difference.low, rel=0.03)
    assert groups_sentences("better", three, "who", None, 0.95)[0] == "The log cannot tell for 'who' 2."


def test_better_takes_every_rule_of_a_verdict_and_worse_an_interval_below_0_alone():
    """A model that knows of no effect makes 'dm' contradict both."""
    made, groups = evidence((0.5, -0.5), noise=0.3)
    blind = replace(made, model=np.zeros(300), model_target=np.zeros(300), model_all=np.zeros((300, 2)))
    assert [one.decision for one in grouped(made, groups)] == ["better", "worse"]
    gain, loss = grouped(blind, groups)
    assert (gain.decision, loss.decision) == ("no difference shown", "worse")
    assert gain.difference.low > 0
    assert loss.difference.high < 0


def test_intervals_of_more_groups_are_wider():
    made, groups = evidence((0.5,) * 4)
    four = grouped(made, groups)
    alone = decide(assessed(made.of_rows(groups.of == 0, np.ones(150, int))))
    assert four[0].difference.estimate == alone.interval.estimate
    wider = (four[0].difference.high - four[0].difference.low) / (alone.interval.high - alone.interval.low)
    assert 1.2 < wider < 1.35  # 2.49 / 1.96 = 1.27 for 4 independent ones


def test_clusters_may_have_episodes_in_several_groups():
    made, groups = evidence((0.5, -0.5), noise=0.3)
    clustered = replace(made, clusters=np.arange(300) // 3)
    assert [one.decision for one in grouped(clustered, groups)] == ["better", "worse"]


def test_a_whole_that_an_assumption_makes_unsupported_has_no_groups():
    made, groups = evidence((0.5, 0.5))
    wrong = replace(made, behaviour=made.behaviour * 1.3)  # wrong propensities: the mean weight is not 1
    assert [one.decision for one in grouped(wrong, groups)] == ["unsupported"] * 2
    few = grouped(made, groups, Limits(replicates=1000, effective_episodes=200.0))
    assert [one.decision for one in few] == ["unsupported"] * 2, "each group is judged by the same limits"


def test_looks_before_widen_the_groups_too(tmp_path):
    log = two_groups(600)
    first, second = (judged(log, ledger=tmp_path / "looks.jsonl", by=by) for by in ("who", "age"))
    again = judged(log, ledger=tmp_path / "others.jsonl", by="age")
    assert second.level > first.level
    for one, other in zip(second.groups, again.groups, strict=True):
        assert one.difference.low < other.difference.low


def test_several_policies_share_the_level_of_their_groups():
    log = two_groups(600)
    alone, both = judged(log, by="who"), judged(log, {"one": SECOND, "two": Always(0.8, 0.2)}, by="who")
    for one, other in zip(both["one"].groups, alone.groups, strict=True):
        assert one.difference.estimate == other.difference.estimate
        assert one.difference.low < other.difference.low


@pytest.mark.slow
def test_all_intervals_cover_at_once_as_often_as_their_level_says():
    """In logs of 4 groups, all of which have numbers in 250; each alone covers more often than all at once."""
    effects, whole, each = (-0.6, -0.2, 0.2, 0.6), [], []
    for seed in range(400):
        found = grouped(*evidence(effects, seed=seed))
        if any(one.decision == "unsupported" for one in found):  # a mean weight that is not 1 by chance
            continue
        truths = [0.3 * effect for effect in effects]
        each.append([one.difference.low < t < one.difference.high for one, t in zip(found, truths, strict=True)])
        whole.append(all(each[-1]))
    assert len(whole) > 250
    assert 0.915 < np.mean(whole) < 0.985
    assert np.mean(each) > 0.975
