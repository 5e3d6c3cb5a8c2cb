"""Tests of assumptions find what was built in, and no more; episodes that belong together are found and counted."""

import tracemalloc
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from tests.ope.cases import QUICK, Always, outcome, rules, said, treated
from tests.ope.cases import episodes as chain
from tests.ope.made import random_log
from tidelog import Limits, Log, judge, read_log
from tidelog.data.dependence import find_near_copies
from tidelog.data.log import number_observations
from tidelog.envs.treatment import clinician
from tidelog.ope import assumptions
from tidelog.ope.assumptions import (
    BEHAVIOR,
    ENDS,
    LEVEL,
    NEXT,
    REWARDS,
    Dependence,
    failing,
    history_dependence,
    relative_time,
    time_dependence,
    unusual_action_count,
    with_detected_clusters,
)
from tidelog.ope.estimators import Ratios, logged_return, standard_error, support_of, weighted_dr
from tidelog.ope.evidence import clusters_of, episode_folds, without
from tidelog.ope.propensities import clone_by_counts, with_time


def sends(episodes=150, steps=30, seed=0, effect=1.0, seen=False):
    """A send pays less, by `effect`, for every ten sends before it; with `seen` the count is observed."""
    generator = np.random.default_rng(seed)
    action = (generator.random((episodes, steps)) < 0.3).astype(int)
    before = action.cumsum(1) - action
    reward = action * (1.0 - 0.1 * effect * before) + generator.normal(0, 0.2, action.shape)
    context = before if seen else generator.integers(0, 2, action.shape)
    return Log.from_arrays(
        observation=context.ravel(), action=action.ravel(), reward=reward.ravel(), actions=2,
        episode=np.repeat(np.arange(episodes), steps), terminated=np.tile(np.arange(steps) == steps - 1, episodes),
    )  # fmt: skip


def drifting(rows=1500, seed=0, behavior_policy=0.0, reward=0.0):
    generator = np.random.default_rng(seed)
    when = np.sort(generator.random(rows))
    context = generator.integers(0, 3, rows)
    chance = 0.5 + behavior_policy * (when - 0.5)
    action = (generator.random(rows) < chance).astype(int)
    return Log.from_arrays(
        observation=context, action=action, actions=2, time=when,
        reward=generator.normal(0, 1, rows) + reward * (when - 0.5),
    )  # fmt: skip


def asked(log, question, folds=5):
    states = number_observations(log)
    found = question(log, episode_folds(log, folds, 0), states)
    return {one.outcome: one for one in found}


def test_an_effect_of_past_actions_is_found_and_named():
    found = asked(sends(), history_dependence)[REWARDS]
    assert found.fails  # 1 of 438 other seeds fails, here and below
    assert any(cause in found.cause for cause in ("same action was taken before", "past rewards", "number of the step"))
    assert found.correlation < 0
    assert "partial correlation -0." in found.sentence


def test_what_is_observed_is_no_history():
    # at a level of 0.0025 each: a right test fails for 1 in 200 seeds
    assert not asked(sends(seen=True), history_dependence)[REWARDS].fails
    assert not asked(sends(effect=0.0), history_dependence)[REWARDS].fails


@pytest.mark.full
def test_the_level_holds_where_nothing_is_added():
    """Four questions on 12 logs of a Markov state: at a level of 0.0025 each, two failures have odds of 1 in 170."""
    found = [asked(treated(clinician(), 600, seed=seed), history_dependence).values() for seed in range(12)]
    assert LEVEL == 0.0025
    assert sum(one.fails for answers in found for one in answers) <= 1  # 0 of 40 other seeds fail, here and below
    p_values = np.array([one.p_value for answers in found for one in answers])
    assert 0.25 < np.mean(p_values < 0.5) < 0.75


@pytest.mark.parametrize("seed", [24, 29])
def test_what_rounding_leaves_of_a_clock_is_no_effect(seed):
    """The hour moves by 8 at each decision: where no episode ends in between, its residual is rounding alone."""
    # 1 of 252 other logs fails, at a level of 0.0025
    assert not asked(treated(clinician(), 600, seed=seed), history_dependence)[NEXT].fails


@pytest.mark.parametrize(("episodes", "seed", "outcome"), [(600, 4, ENDS), (600, 35, ENDS), (2500, 3, BEHAVIOR)])
def test_two_rare_things_that_met_in_no_row_are_not_related(episodes, seed, outcome):
    """Rows where both would have happened are missing by chance: the products that are there spread too little."""
    # 0 of 250 other logs of 600 fail, at a level of 0.0025
    assert not asked(treated(clinician(), episodes, seed=seed), history_dependence)[outcome].fails


@pytest.mark.full
def test_functions_stand_in_for_a_table():
    log = sends()
    found = {one.outcome: one for one in history_dependence(log, episode_folds(log, 2, 0), None)}
    # 0 of 40 other seeds fail; at a level of 0.0025 the behaviour policy alone must for 1 in 400
    assert found[REWARDS].fails
    assert not found[BEHAVIOR].fails


def numbered_states(seed, episodes=300, steps=12, size=60):
    """A chain of numbered states that often stay, each with a score that follows from its number."""
    generator = np.random.default_rng(seed)
    chance, score = generator.choice([0.1, 0.9], size), generator.normal(size=size)
    states = [generator.integers(0, size, episodes)]
    while len(states) < steps:
        stays = generator.random(episodes) < 0.5
        states.append(np.where(stays, states[-1], generator.integers(0, size, episodes)))
    state = np.stack(states, 1).ravel()
    action = (generator.random(len(state)) < chance[state]).astype(int)
    return Log.from_arrays(
        observation={"numeric": score[state][:, None].astype(np.float32), "categorical": state[:, None]},
        action=action, actions=2, reward=(score[state] * action).astype(np.float32),
        episode=np.repeat(np.arange(episodes), steps), terminated=np.tile(np.arange(steps) == steps - 1, episodes),
    )  # fmt: skip


def test_many_labels_are_told_apart():
    """A projection of 60 labels mixes states, so that past actions would predict the behaviour policy's."""
    log = numbered_states(seed=6)
    found = history_dependence(log, episode_folds(log, 2, 0), None)
    assert len(found) == 3
    assert not any(one.fails for one in found)  # 1 of 150 tests of 50 other seeds fails


@pytest.mark.full
def test_a_cause_in_the_observation_has_the_name_of_its_column():
    generator = np.random.default_rng(0)
    lab = generator.normal(size=(200, 5))
    frame = pl.DataFrame({
        "stay": np.repeat(np.arange(200), 5), "lab": lab.ravel(), "ward": generator.choice(["A", "B"], 1_000),
        "given": generator.choice(["no", "yes"], 1_000),
        "score": (np.roll(lab, 1, axis=1) + generator.normal(0, 0.1, lab.shape)).ravel(),
    })  # fmt: skip
    log = read_log(frame, {"episode": "stay", "observation": ["lab", "ward"], "action": "given", "reward": "score",
                           "terminated": True})  # fmt: skip
    found = {one.outcome: one for one in history_dependence(log, episode_folds(log, 2, 0), None)}
    assert found[REWARDS].fails
    assert found[REWARDS].cause == "'lab' of the decision before"


def test_drift_of_behavior_and_rewards():
    moved, still = asked(drifting(behavior_policy=0.8, reward=2.0), time_dependence), asked(drifting(), time_dependence)
    assert moved[BEHAVIOR].fails  # 0 of 138 other seeds fail, and the next
    assert moved[REWARDS].fails
    # at a level of 0.0025 each: a right test fails for 1 in 200 seeds
    assert not still[BEHAVIOR].fails
    assert not still[REWARDS].fails


def test_a_table_in_time_follows_the_behavior():
    log = drifting(behavior_policy=0.8)
    folds, when = episode_folds(log, 5, 0), relative_time(log)

    def suffices(states):
        return not {one.outcome: one for one in time_dependence(log, folds, states)}[BEHAVIOR].fails

    _, states = with_time(log, number_observations(log), folds, when, suffices)
    assert states.size > number_observations(log).size
    assert suffices(states)
    plain = number_observations(drifting())
    _, still = with_time(drifting(), plain, folds, relative_time(drifting()), lambda states: True)
    chances = [
        clone_by_counts(drifting(), table, without(folds, 0)).probabilities[drifting().position]
        for table in (plain, still)
    ]
    # 0 of 30 other seeds fail, with up to 0.026: bins without drift are shrunk to what all of them show
    assert np.abs(chances[0] - chances[1]).mean() < 0.05


def test_no_time_and_no_history_no_question():
    log = drifting()
    assert time_dependence(replace(log, time=None), episode_folds(log, 5, 0), number_observations(log)) == []
    assert history_dependence(log, episode_folds(log, 5, 0), number_observations(log)) == []


@pytest.mark.parametrize(
    ("where", "estimated", "horizon", "rule"),
    [
        ("history", False, 2, "markov"),  # visits decide
        ("history", False, 50, None),  # products decide: no state is needed
        ("behavior_policy", True, 50, "behavior_history"),
        ("behavior_policy", False, 50, None),
        ("drift", True, 50, "drift"),
        ("drift", False, 50, None),
    ],
)
def test_what_fails_refuses_what_rests_on_it(where, estimated, horizon, rule):
    one = Dependence(REWARDS if where == "history" else BEHAVIOR, "the last action 1", 1e-6, 0.1, 0.3, fails=True)
    told = {"drift": [one]} if where == "drift" else {"history": [one]}
    found = outcome(chain(2.0, estimated=estimated), replace(QUICK, horizon=horizon), **told)
    assert (rule in rules(found)) if rule else not {"markov", "behavior_history", "drift"} & set(rules(found))
    if rule:
        assert "the last action 1 still predicts" in said(found)[-1].sentence or len(found.findings) > 1


def test_failing_sorts_by_strength_and_keeps_to_the_question():
    weak, strong = (Dependence(REWARDS, name, 1e-6, share, 0.1, fails=True) for name, share in (("a", 0.1), ("b", 0.2)))
    other = Dependence(BEHAVIOR, "c", 1e-6, 0.9, 0.1, fails=True)
    assert failing([weak, strong, other], (REWARDS,)) == [strong, weak]


def test_a_policy_beyond_the_logged_frequency_of_an_action():
    evidence = chain(0.5, length=3)
    assert not unusual_action_count(evidence).outside
    always = np.repeat(evidence.action.reshape(-1, 3).sum(1) <= 1, 3)
    rare = replace(evidence, occupancy=np.where(evidence.action == 1, 6.0, 0.1) * np.where(always, 1.0, 1.0))
    assert unusual_action_count(rare).beyond
    assert unusual_action_count(rare).action in (0, 1)


def people(users=40, events=25, correlation=0.5, seed=0, **more):
    generator = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), events)
    reward = np.sqrt(correlation) * generator.normal(size=users)[user]
    reward = reward + np.sqrt(1 - correlation) * generator.normal(size=len(user))
    return user, Log.from_arrays(
        observation=generator.integers(0, 3, len(user)), action=generator.integers(0, 2, len(user)), actions=2,
        reward=reward, **{name: values(user) if callable(values) else values for name, values in more.items()},
    )  # fmt: skip


def test_rows_of_clusters_are_sums():
    ratios = Ratios(np.array([[1.0], [2], [4]]), np.ones((3, 1)))
    together = ratios.clustered(np.array([0, 1, 0]))
    assert together.numerators.ravel().tolist() == [5, 2]
    assert together.denominators.ravel().tolist() == [2, 1]
    assert together.estimate == ratios.estimate
    assert (together.episodes, len(together)) == (3, 2)
    assert ratios.clustered(None) is ratios


def test_large_logs_add_up_clusters_block_by_block(monkeypatch):
    evidence = random_log([3, 1, 2, 4] * 20)
    clusters = np.arange(80) % 7
    object.__setattr__(evidence, "clusters", clusters)
    whole = weighted_dr(evidence).minus(logged_return(evidence)).clustered(clusters)
    monkeypatch.setattr("tidelog.ope.estimators.CELLS", 50)
    monkeypatch.setattr("tidelog.ope.estimators.BLOCK", 40)
    parts = weighted_dr(evidence).minus(logged_return(evidence))
    assert len(parts) == 7
    assert parts.contributions == pytest.approx(whole.contributions)


def test_the_error_of_a_mean_over_clusters():
    """Five copies of every value: the error is that of a fifth of the rows."""
    values = np.random.default_rng(0).normal(size=200)
    copies, clusters = np.tile(values, 5), np.tile(np.arange(200), 5)
    assert standard_error(copies, clusters) == pytest.approx(standard_error(values))
    assert standard_error(copies) < 0.5 * standard_error(values)  # of any values: 0.447


def test_effective_sizes_count_clusters():
    evidence = random_log([1] * 100)
    alone = support_of(evidence)
    object.__setattr__(evidence, "clusters", np.arange(100) // 10)
    found = support_of(evidence)
    assert (alone.episodes, found.episodes) == (100, 10)
    assert found.effective_sample_size <= 10
    assert found.largest_weight >= alone.largest_weight


@pytest.mark.parametrize("name", ["user_id", "customer"])
def test_a_person_that_no_role_names_is_a_cluster(name):
    user, log = people(extra={name: np.repeat(np.arange(40), 25)})
    found = with_detected_clusters(log)
    assert np.array_equal(clusters_of(found.log), user)
    assert f"same '{name}'" in found.notes[0]
    assert "fix:" in found.notes[0]


def test_too_few_clusters_are_pointed_out():
    _, log = people(users=12, events=80, extra={"store_id": np.repeat(np.arange(12), 80)})
    found = with_detected_clusters(log)
    assert clusters_of(found.log) is None
    assert "'store_id' may identify dependent episodes" in found.notes[0]


def test_independent_rows_stay_alone():
    _, log = people(correlation=0.0)
    found = with_detected_clusters(log)
    assert found.log is log  # no column is asked
    assert found.notes == ()
    _, named = people(cluster=lambda user: user)
    assert with_detected_clusters(named).log is named


def exported(copies, apart, steps=1, seed=0, units=300):
    """Episodes that were exported several times, with numbers that differ a little; nothing has an effect."""
    random = np.random.default_rng(seed)
    context, action = random.integers(0, 5, (units, steps)), random.integers(0, 2, (units, steps))
    reward = random.standard_normal((units, steps))
    rows = [np.repeat(values, copies, axis=0).reshape(-1) for values in (context, action, reward)]
    noise = apart * random.standard_normal(len(rows[2]))
    return np.repeat(np.arange(units), copies), Log.from_arrays(
        observation=rows[0],
        action=rows[1],
        actions=2,
        reward=rows[2] + noise,
        episode=np.repeat(np.arange(units * copies), steps),
        terminated=np.arange(units * copies * steps) % steps == steps - 1,
        propensity=np.full(units * copies * steps, 0.5),
        time=np.cumsum(random.random(units * copies * steps)),
    )


@pytest.mark.parametrize(("copies", "apart", "steps"), [(4, 1e-3, 1), (2, 1e-4, 1), (10, 1e-3, 1), (4, 1e-3, 5)])
def test_near_copies_are_one_cluster(copies, apart, steps):
    unit, log = exported(copies, apart, steps)
    found = with_detected_clusters(log)
    assert "nearly equal to one another" in found.notes[0]
    clusters = clusters_of(found.log)
    together = clusters[copies - 1 :: copies] == clusters[::copies]
    assert together.mean() > 0.9  # an edge of both grids may divide a few
    assert len(np.unique(clusters)) > 0.75 * len(np.unique(unit))


def test_near_copies_of_a_large_log_are_no_chain():
    unit, log = exported(4, 1e-4, units=8000)
    sizes = np.bincount(clusters_of(with_detected_clusters(log).log))
    assert sizes.max() <= 40
    assert len(sizes) > 0.5 * len(np.unique(unit))


def test_near_copies_make_no_policy_better():
    wrong = 0
    for seed in range(8):
        _, log = exported(4, 1e-3, seed=seed)
        verdict = judge(Always(0.0, 1.0), log, seed=seed, ledger=False, learnt_from="other data", progress=False)
        wrong += verdict.decision in ("better", "worse")
    assert wrong <= 1  # 2 in 8 without the clusters


@pytest.mark.parametrize(
    "reward",
    [
        lambda random, x, a: random.standard_normal(len(x)),
        lambda random, x, a: np.exp(3 * random.standard_normal(len(x))),
        lambda random, x, a: random.random(len(x)) < 0.1,
        lambda random, x, a: x + a + 1e-3 * random.standard_normal(len(x)),  # told by the context and the action
        lambda random, x, a: random.poisson(20, len(x)) + 1e-3 * random.standard_normal(len(x)),  # of few levels
        lambda random, x, a: random.standard_normal(len(x)).round(2),
    ],
)
def test_independent_rows_of_any_distribution_are_no_near_copies(reward):
    for seed in range(10):
        random = np.random.default_rng(seed)
        x, a = random.integers(0, 5, 1200), random.integers(0, 2, 1200)
        log = Log.from_arrays(observation=x, action=a, actions=2, reward=reward(random, x, a).astype(float))
        assert find_near_copies(log) is None


def test_copies_are_one_cluster():
    generator = np.random.default_rng(0)
    reward = np.tile(generator.normal(size=100), 5)
    context, action = np.tile(generator.integers(0, 3, 100), 5), np.tile(generator.integers(0, 2, 100), 5)
    log = Log.from_arrays(observation=context, action=action, actions=2, reward=reward)
    found = with_detected_clusters(log)
    assert np.array_equal(clusters_of(found.log)[:100], clusters_of(found.log)[100:200])
    assert "exact copies" in found.notes[0]


def test_worst_episodes_are_resampled_by_cluster():
    """The distribution of returns in a verdict has wider bands where events of one person belong together."""
    recorded = {"propensity": lambda user: np.full(len(user), 0.5)}
    logs = people(**recorded)[1], people(**recorded, cluster=lambda user: user)[1]
    limits = Limits(replicates=1000, effective_episodes=25.0)  # there are few people
    risks = [judge(Always(0.5, 0.5), log, limits=limits, ledger=False).risk for log in logs]
    alone, together = (risk.cvar.policy.high - risk.cvar.policy.low for risk in risks)
    # 1 of 138 other seeds fails: there a verdict has no distribution
    assert together > 1.2 * alone


def test_a_ridge_regression_in_blocks_is_one_on_all_rows(monkeypatch):
    monkeypatch.setattr(assumptions, "BLOCK", 7)
    generator = np.random.default_rng(4)
    seen, actions = generator.normal(size=(60, 5)), np.eye(2)[generator.integers(2, size=60)]
    rows, fold = generator.permutation(60)[:50], np.arange(50) % 3
    values = generator.normal(size=(50, 2))
    found = assumptions._Conditions(seen, np.arange(60), actions).of(rows).residuals(values, fold)
    x = np.concatenate([seen * one[:, None] for one in actions.T], axis=1)[rows]
    for one in range(3):
        others = x[fold != one]
        penalty = assumptions.RIDGE * np.square(others).sum() / 10 * np.eye(10)
        weights = np.linalg.solve(others.T @ others + penalty, others.T @ values[fold != one])
        np.testing.assert_allclose(found[fold == one], values[fold == one] - x[fold == one] @ weights, rtol=1e-9)
    assert np.isnan(assumptions._Conditions(seen, rows).residuals(values, np.zeros(50, np.int64))).all()


def test_features_of_all_rows_are_never_in_memory_together(monkeypatch):
    monkeypatch.setattr(assumptions, "BLOCK", 100)
    generator, rows = np.random.default_rng(5), 4_000
    seen, actions = generator.normal(size=(rows, 150)), np.eye(4)[generator.integers(4, size=rows)]
    given = assumptions._Conditions(seen, np.arange(rows), actions)
    values, fold = generator.normal(size=(rows, 3)), np.arange(rows) % 2
    tracemalloc.start()
    given.of(np.arange(0, rows, 2)).residuals(values[::2], np.arange(rows // 2) % 2)
    given.residuals(values, fold)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16e6  # the features take 19 MB, those of one block 0.5
