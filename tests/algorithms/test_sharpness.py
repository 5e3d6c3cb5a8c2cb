"""How sharp a policy is: the ladder by hand, worlds with a known best policy, and what the choice may not depend on."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import tidelog as tl
from tests.shared import shared
from tidelog.auto import settings, sharpness
from tidelog.auto.sharpness import CrossFit, Rung, best_rung, rungs
from tidelog.cli import main
from tidelog.ope import propensities
from tidelog.sweeps.sweep import Driver

close = np.testing.assert_allclose
ACTIONS = 3


@cache
def bandit(kind: str, rows: int = 3_000, seed: int = 0) -> tuple[tl.Log, np.ndarray]:
    """A log of single decisions that a behaviour policy chose uniformly, and the mean reward of each action [N, A]."""
    rng = np.random.default_rng(seed)
    seen = rng.standard_normal((rows, 4)).astype(np.float32)
    slopes = {"noise": 0.0, "strong": 1.0}[kind]
    mean = slopes * seen @ rng.standard_normal((4, ACTIONS))
    action = rng.integers(0, ACTIONS, rows)
    reward = mean[np.arange(rows), action] + rng.standard_normal(rows)
    log = tl.Log.from_arrays(
        observation=seen, action=action, reward=reward, terminated=True, propensity=np.full(rows, 1 / ACTIONS)
    )
    return log, mean


@cache
def walk(episodes: int = 600, steps: int = 10) -> tl.Log:
    """Episodes of ten decisions: each earns 1 where the action is the side that is shown, which is random."""
    rng = np.random.default_rng(1)
    side, action = (rng.integers(0, 2, (episodes, steps)) for _ in range(2))
    reward = (side == action) + 0.5 * rng.standard_normal(side.shape)
    last = np.tile(np.arange(steps) == steps - 1, episodes)
    return tl.Log.from_arrays(
        observation=side.reshape(-1, 1).astype(np.float32), action=action.ravel(), reward=reward.ravel(),
        episode=np.repeat(np.arange(episodes), steps), terminated=last, propensity=np.full(side.size, 0.5),
    )  # fmt: skip


@pytest.fixture
def quick_clones(monkeypatch):
    """A third of the updates of clones: which rung is best does not hang on their last digits."""
    monkeypatch.setattr(propensities, "FEWEST", propensities.FEWEST // 3)


def trained(log: tl.Log, cls: type = tl.IQL) -> tuple[settings.Suggestion, tl.Run]:
    found = tl.suggest(cls, log, held_out=0.2)
    return found, tl.fit(found.algorithm, log, found.steps, held_out=0.2, progress=False)


def far(policy: tl.Policy, log: tl.Log, behavior_policy: float) -> float:
    """The mean total variation distance from a uniform behaviour policy."""
    return float(0.5 * np.abs(policy.probabilities(log.transitions.observation) - behavior_policy).sum(axis=1).mean())


def test_noise_leaves_the_policy_close_to_the_behavior(quick_clones, capsys):
    log, _ = bandit("noise")
    found = tl.suggest(tl.IQL, log, held_out=0.2)
    assert found.algorithm.temperature == sharpness.TEMPERATURES[0]
    assert "no gain is shown" in found.settings["temperature"].reason
    run = tl.fit(found.algorithm, log, found.steps, held_out=0.2, progress=None)
    assert far(run.policy(), log, 1 / ACTIONS) < 0.15
    said = capsys.readouterr().err
    assert "note: this policy is close to the behaviour policy" in said
    assert run.metrics[-1]["effective_share"] > 0.9


def test_a_strong_effect_makes_a_sharp_policy(quick_clones, capsys):
    log, mean = bandit("strong")
    found, run = trained(log)
    assert found.algorithm.temperature >= 3.0
    assert "gains most over the behaviour policy" in found.settings["temperature"].reason
    policy = run.policy().probabilities(log.transitions.observation)
    gained = ((policy * mean).sum(1) - mean.mean(1)).mean()
    assert gained > 0.75 * (mean.max(1) - mean.mean(1)).mean()  # sampled
    assert "close to the behaviour policy" not in capsys.readouterr().err


@pytest.mark.slow
def test_sequences_are_as_sharp_as_their_episodes_speak_for():
    log = walk()
    found, run = trained(log)
    reason = found.settings["temperature"].reason
    assert "gains most over the behaviour policy" in reason
    shown = np.asarray([[0.0], [1.0]], np.float32)
    right = np.diag(run.policy().probabilities({"observation": shown}))
    assert right.min() > 0.55  # towards the right side in both
    assert right.max() < 0.95  # a greedy policy of ten decisions agrees with 1 episode in 1,024


@pytest.mark.full
def test_discrete_bcq_has_its_threshold_by_the_same_evidence():
    log, mean = bandit("strong")
    found, run = trained(log, tl.DiscreteBCQ)
    assert "threshold" in found.settings
    policy = run.policy().mode(log.transitions.observation)
    assert mean[np.arange(len(policy)), policy].mean() > 0.7 * mean.max(1).mean()


@pytest.mark.full
def test_continuous_actions_have_a_population_where_propensities_are_recorded():
    rng = np.random.default_rng(0)
    rows = 2_000
    seen = rng.uniform(-1, 1, (rows, 1)).astype(np.float32)
    dose = rng.uniform(-1, 1, (rows, 1)).astype(np.float32)
    reward = -np.square(dose - seen)[:, 0] + 0.1 * rng.standard_normal(rows)
    arrays = {"observation": seen, "action": dose, "reward": reward, "terminated": True, "bounds": ([-1.0], [1.0])}
    log = tl.Log.from_arrays(**arrays, propensity=np.full(rows, 0.5))
    found = tl.suggest(tl.IQL, log, held_out=0.2)
    assert found.algorithm.temperature in sharpness.TRAINED_TEMPERATURES
    assert "gains most over the behaviour policy" in found.settings["temperature"].reason
    unknown = tl.suggest(tl.IQL, tl.Log.from_arrays(**arrays), held_out=0.2)
    assert unknown.algorithm.temperature == 3.0
    assert "actions are continuous, and no propensities are recorded" in unknown.settings["temperature"].reason


@pytest.mark.full
@pytest.mark.parametrize(("factor", "constant"), [pytest.param(4.0, 0.0, marks=pytest.mark.slow), (48.0, 485.0)])
def test_the_unit_of_rewards_has_no_part_in_what_is_suggested(factor, constant, monkeypatch):
    monkeypatch.setattr(sharpness, "MOST_UPDATES_OF_ONE_STEP", 200)
    log, _ = bandit("strong", 600)
    arrays = {"observation": log.transitions.observation["observation"], "action": log.action, "terminated": True,
              "propensity": log.propensity}  # fmt: skip
    one, two = (
        tl.Log.from_arrays(**arrays, reward=reward)
        for reward in (np.asarray(log.reward, float), constant + factor * np.asarray(log.reward, float))
    )
    first, second = (tl.suggest(tl.IQL, part, held_out=0.2) for part in (one, two))
    assert first.algorithm == second.algorithm
    assert first.steps == second.steps
    raw, scaled = (tl.suggest(tl.IQL, part, held_out=0.2, reward_scaling="none").algorithm for part in (one, two))
    assert scaled.temperature * factor == pytest.approx(raw.temperature, rel=0.02)  # in 1 / reward


# The ladder and the choice, by hand.

FIT = CrossFit(
    starts=np.arange(5), reward=np.asarray([1.0, 0.0, 2.0, 0.0]), action=np.asarray([0, 1, 0, 1]),
    propensity=np.full(4, 0.5), clone=np.tile([0.75, 0.25, 0.0], (4, 1)),
    q=np.tile([2.0, 4.0, 9.0], (4, 1)), advantage=np.tile([-1.0, 1.0, 6.0], (4, 1)), clusters=None, unit=5.0,
)  # fmt: skip


def test_a_rung_multiplies_the_clone_by_the_capped_weight_of_advantages():
    close(FIT.tempered(0.0, 100.0), FIT.clone)
    low, high = 0.75 * math.exp(-1.0), 0.25 * math.exp(1.0)
    close(FIT.tempered(1.0, 100.0)[0], [low / (low + high), high / (low + high), 0.0])
    close(FIT.tempered(1.0, 2.0)[0], [low / (low + 0.5), 0.5 / (low + 0.5), 0.0])  # 0.25 * 2
    close(FIT.tempered(1000.0, math.inf)[0], [0.0, 1.0, 0.0])
    close(FIT.supported(0.5)[0], [1.0, 0.0, 0.0])
    close(FIT.supported(0.3)[0], [0.0, 1.0, 0.0])
    close(FIT.supported(0.0)[0], [0.0, 1.0, 0.0])  # what the clone never does is not supported


def test_a_gain_is_doubly_robust_and_beside_the_clone():
    (rung,) = rungs(FIT, [1000.0], lambda value: FIT.tempered(value, math.inf))
    # always action 1: Q 4, residuals -4, -4 of weight 2, self-normalised: 4 - 4 = 0
    # clone: 0.75 * 2 + 0.25 * 4 = 2.5; weights 1.5, 0.5, 1.5, 0.5; residuals -1, -4, 0, -4: -5.5 / 4
    assert rung.gain == pytest.approx(0.0 - (2.5 - 5.5 / 4))
    assert rung.effective == pytest.approx(0.5)


def test_the_best_lower_limit_wins_where_enough_episodes_speak_for_it():
    few, weak, good, wide = (
        Rung(30.0, 9.0, 0.1, 0.01), Rung(1.0, 0.2, 0.1, 0.9), Rung(3.0, 0.9, 0.2, 0.6), Rung(10.0, 1.0, 2.0, 0.3)
    )  # fmt: skip
    assert best_rung([weak, good, wide, few], 1_000, 1_000) is good
    assert best_rung([weak, good, wide, few], 10_000, 10_000) is few
    assert best_rung([weak, good], 1_000, 60) is weak  # of 60 held-out episodes the judge would have 36
    assert best_rung([few], 1_000, 1_000) is None
    lost = weak._replace(gain=0.01)
    assert best_rung([lost, wide], 1_000, 1_000) is lost
    assert "close to the behaviour policy" in lost.reason(5.0)
    assert "+4.5 an episode, standard error 1" in good.reason(5.0)


def test_a_gain_counts_as_often_as_the_judge_can_show_it():
    sharp, mild = Rung(10.0, 1.0, 0.5, 0.9), Rung(1.0, 0.7, 0.1, 0.9)
    assert sharp.lowest > mild.lowest
    # as many held-out episodes: 0.75 Phi((0.75 - 1.96 * 0.5) / 0.7071) = 0.75 * 0.3725 and 0.65 Phi(3.21)
    assert sharp.expected(1.0) == pytest.approx(0.75 * 0.3725, rel=1e-3)
    assert mild.expected(1.0) == pytest.approx(0.65, rel=1e-3)
    assert best_rung([mild, sharp], 1_000, 1_000) is mild
    # a hundred times as many: 0.75 Phi((0.75 - 1.96 * 0.05) / 0.50249) = 0.75 * 0.9028
    assert sharp.expected(0.01) == pytest.approx(0.75 * 0.9028, rel=1e-3)
    assert best_rung([mild, sharp], 1_000, 100_000) is sharp
    assert Rung(1.0, 0.5, 0.0, 0.9).expected(1.0) == 0.5  # a gain without an error is shown


def test_without_an_estimate_the_default_stays_and_says_why():
    log = walk()
    long = settings.facts_of(log, 0.2, 0)._replace(longest=51, by_role={"inverse temperature": 3.0})
    assert settings.temperature(long) == (
        3.0, "the default; no estimate chooses it: episodes have up to 51 decisions, at most 50 can be weighed"
    )  # fmt: skip
    short = log.take_episodes(np.arange(60))
    setting = tl.suggest(tl.IQL, short).settings["temperature"]
    assert setting.value == 3.0
    assert "60 training episodes, at least 100 are needed" in setting.reason
    assert settings.temperature(settings.facts_of(replace(log, reward=None), 0.2, 0)) is None


def test_large_logs_are_evaluated_on_random_episodes(monkeypatch):
    log = walk()
    monkeypatch.setattr(sharpness, "MOST_DECISIONS", 205)
    part = sharpness.some_episodes(log, np.arange(100, 600))
    assert len(part.episode_ids) == 20
    assert set(part.episode_ids.tolist()) <= set(range(100, 600))
    assert sharpness.some_episodes(log, np.arange(5)).steps == 50


# The cases from which the rule must learn.


@pytest.mark.slow
def test_a_policy_that_is_sampled_gains_most_of_what_its_likeliest_actions_gain():
    log = tl.read_log(shared("cases/learn/uplift.csv"), shared("cases/learn/uplift.toml"))
    _, run = trained(log)
    policy, action = run.policy().probabilities(log.transitions.observation), np.asarray(log.action)
    reward, rows = np.asarray(log.reward, float), np.arange(len(action))

    def gain(probabilities):
        weights = probabilities[rows, action] * 3  # uniform thirds
        return (weights * reward).sum() / weights.sum() - reward.mean()

    assert gain(policy) > 0.6 * gain(np.eye(3)[policy.argmax(1)]) > 0.02


def test_a_temperature_of_ones_own_is_not_searched(tmp_path, capsys, monkeypatch):
    log, _ = bandit("strong", 600)
    log.save(tmp_path / "log")
    monkeypatch.setattr(sharpness, "cross_fit", None)  # a search would call it
    monkeypatch.setattr(Driver, "run", lambda *_: None)  # the settings are known before trials are trained
    source = ["--data", str(tmp_path / "log")]
    few = ["--steps", "3", "--no-judge"]
    assert main(["train", "iql", *source, "--out", str(tmp_path / "run"), *few, "--temperature", "7"]) == 0
    assert tl.load_run(tmp_path / "run").members[0].algorithm.temperature == 7.0
    grid = ["--grid", "temperature=1,2", "--steps", "3", "--out", str(tmp_path / "sweep")]
    assert main(["sweep", "iql", *source, *grid]) == 0
    assert "\n  temperature" not in capsys.readouterr().out
