"""How many episodes, or which exploration, until an effect of a given size is *better* with a given probability.

A plan simulates logs of the planned size and lets the judge's own rules and intervals decide (`decide`): support, heavy
tails, estimated propensities and every other rule count. Simulated logs resample whole episodes (or clusters) of the
pilot log. Rewards of single decisions with two values are drawn from a cross-fitted model of them, whose log-odds are
tilted towards the policy until its true difference is the effect; else the pilot's rewards are kept, and intervals move
by the difference of the effect from the pilot's own. The mean weight, which is 1 in truth, is made 1 by reweighting: a
larger log would otherwise show an error of the pilot as one of its propensities.

With exploration the actions of single decisions are drawn anew, from a logging with known probabilities: a share of
decisions drawn evenly, or a designed logging. The doubly robust difference of a policy p from a practice b, whose
outcomes have the deviation s, has the variance `sum_a (p_a - b_a)^2 s_a^2 / m_a` that a logging m can change. Alone it
would be smallest for `m_a ~ |p_a - b_a| s_a`, Neyman's (1934) allocation; as Hahn, Hirano and Karlan (2011) for two
treatments, and Wan, Kveton and Song (2022) for two policies. But the judge compares with the logged decisions, and that
logging takes the better actions itself: little would be left to show. The designed logging leaves a random share t of
the decisions to the policy, `m = (1 - t) b + t p`: the judged difference is `1 - t` times the effect, and t makes its
error the smallest part of it. Where policy and practice never agree, t is Neyman's share. Weights are at most `1 / t`,
as in a defensive mixture (Hesterberg 1995). States after an explored decision are not in the log: no exploration of
sequences is planned.

Letters: `N` steps, `E` episodes, `U` units (clusters, or episodes), `A` actions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.random import Generator
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit, ndtr, ndtri

from tidelog._machine import one_thread
from tidelog._text import amount, facts_table
from tidelog.data.log import Log
from tidelog.data.log_columns import ranges
from tidelog.errors import ConfigError
from tidelog.ope.decide import (
    NOTHING,
    PROBABILITY,
    Assessment,
    JudgeQuestion,
    Limits,
    RuleFinding,
    decide,
    episodes_to_show,
    explored,
    planned_effect,
)
from tidelog.ope.estimators import (
    RARE,
    episode_weights,
    quotients,
    required_part,
    terminations,
)
from tidelog.ope.evidence import Evidence, Floats, Ordinals
from tidelog.ope.intervals import normal_deviate
from tidelog.ope.judge import asked_about, gather_evidence, question_of
from tidelog.ope.policies import as_policy
from tidelog.ope.policy_evidence import evidence_of
from tidelog.ope.text import SEQUENCE, round_up, words
from tidelog.schema import to_plain
from tidelog.training.metrics import Progress

EXPLORED = (0.1, 0.3)  # shares of decisions drawn evenly that are planned
BOUNDS = (0.1, 0.9)  # of the share of decisions that a designed logging leaves to the policy
SIMULATIONS = 200  # simulated logs of each logging
REPLICATES, GROUPS = 1000, 1000  # of the bootstrap in a simulated log
MOST = 300_000  # steps of a simulated log
FARTHEST = 64.0  # times the episodes of the closed form
ROUNDS, STEP = 14, 4.0  # of the search; largest factor between two rounds
STUCK = 5  # rounds, each with twice as many episodes, after which a rule that numbers do not change is final
CLOSE, NEAR = (0.7, 1.4), 2.5  # ratio of two numbers of episodes that are about the same; largest one of a curve
TILTS = 100  # steps of Newton's method
UNKNOWN_OUTCOMES = 0.01  # share of the policy's decisions that the log does not show, above which a note says so
TOO_LARGE = "these rewards, of two values, allow no effect of that size"

Kind = Literal["present", "share", "designed"]


class PlannedLogging(NamedTuple):
    """What one way of logging needs until the effect is *better*."""

    logging: Kind
    share: float | None = None  # of decisions drawn evenly over the actions; if designed, of those left to the policy
    episodes: int | None = None  # new episodes, judged once; None: no number is enough
    low: int | None = None  # 95% interval of that number, by the simulation's error
    high: int | None = None
    probability: float = 0.0  # of *better* on that many
    probability_low: float = 0.0  # its 95% interval
    probability_high: float = 1.0
    cost: float = 0.0  # by how much less this logging earns an episode than the present one
    obstacle: str = ""  # why no number is enough

    def sentence(self, unit: str | None) -> str:
        """What this logging needs, without a full stop."""
        share = f"{self.share or 0.0:.0%}"
        name = {
            "present": "the present logging",
            "share": f"a share of {share} of decisions drawn evenly over the actions",
            "designed": f"the designed logging, where a random {share} of decisions are the policy's",
        }[self.logging]
        if self.episodes is None:
            return f"{name}: {self.obstacle}"
        ends = f"{self.probability_low:.0%} to {self.probability_high:.0%}"
        chance = f"better with probability {self.probability:.0%}, {ends}"
        text = f"{name}: about {round_up(self.episodes):,} episodes ({chance})"
        if self.logging == "present":
            return text
        less = "less" if self.cost >= 0.0 else "more"
        return f"{text}; it earns {amount(abs(self.cost), unit)} {less} an episode than the present one"


@dataclass(frozen=True, eq=False, repr=False)
class LoggingPlan:
    """How many new episodes show an effect, by each way of logging them; printed as sentences."""

    effect: float  # mean return of the policy minus that of the present practice
    probability: float  # of *better* that is asked for
    loggings: tuple[PlannedLogging, ...]  # the present one first
    pilot_episodes: int
    episodes: int | None = None  # the number that was asked about; None: the number is planned
    notes: tuple[str, ...] = ()
    reward_unit: str | None = None

    @property
    def sentences(self) -> tuple[str, ...]:
        """The plan, one sentence each."""
        effect, chance = amount(self.effect, self.reward_unit, sign=True), f"{self.probability:.0%}"
        asked = f"an effect of {effect} per episode to be better with probability {chance}"
        head = f"What it takes for {asked}, judged once on new episodes"
        if self.episodes is not None:
            head = f"How likely {self.episodes:,} new episodes, judged once, show an effect of {effect} per episode"
        said = [head, *(one.sentence(self.reward_unit) for one in self.loggings), *self.notes]
        return tuple(f"{one[:1].upper()}{one[1:]}." for one in said)

    def __repr__(self) -> str:
        return "\n".join(self.sentences)

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        return facts_table("Plan", {str(number): one for number, one in enumerate(self.sentences, 1)})

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        content: dict[str, Any] = to_plain(self)
        return content | {"sentences": list(self.sentences)}


@one_thread("blas")  # as tidelog.judge
def plan(
    policy: Any,
    log: Log,
    effect: float | None = None,
    probability: float = PROBABILITY,
    sample: bool | None = None,
    propensities: Any = None,
    seed: int = 0,
    *,
    episodes: int | None = None,
    explore: float | Sequence[float] = EXPLORED,
    simulations: int = SIMULATIONS,
    discount: float = 1.0,
    limits: Limits | None = None,
    first_steps: int | None = None,
    bandwidth: float | None = None,
    model: str = "auto",
    progress: Callable[[str, float], None] | bool | None = None,
) -> LoggingPlan:
    """Plan how many new episodes, or which exploration, show that a policy is better, from a pilot log.

    The plan is for one verdict on new episodes, at its first look, and is itself no look. Raises ConfigError for
    numbers out of range, SpecError if policy and log do not fit.

    - `effect`: the gain per episode over the logged decisions that is planned for; None: the pilot's estimate if it is
      one, else 0.2 standard deviations of the logged returns.
    - `probability` with which `tl.judge` then says *better*.
    - `episodes`: say how likely so many show it, and find the smallest of the shares `explore` that is enough.
    - `explore`: shares of decisions drawn evenly over the actions, beside a designed logging; for single decisions.
    - `simulations`: simulated logs of each logging.

    The other arguments are those of `tl.judge`.

    Example:
        >>> log = tl.Log.from_arrays(observation={"x": np.zeros(400)}, action=np.arange(400) % 2, terminated=True,
        ...     reward=np.random.default_rng(0).normal(size=400), propensity=np.full(400, 0.5), actions=2)
        >>> always = tl.simple_rules(log)["best single action"]
        >>> found = tl.plan(always, log, effect=0.1, simulations=40, progress=False)
        >>> 700 < found.loggings[0].episodes < 1_000
        True
    """
    explore = (explore,) if isinstance(explore, int | float) else explore
    _check(effect, probability, episodes, explore, simulations)
    question = question_of(
        policy, log, sample, propensities, seed, discount=discount, limits=limits, first_steps=first_steps,
        bandwidth=bandwidth, model=model, learnt_from="other data", ledger=False, progress=progress,
    )  # fmt: skip
    if len(question.policies) != 1:
        raise ConfigError(f"{len(question.policies)} policies", "one policy", "plan for each of them alone")
    quiet = progress if isinstance(progress, bool) else None if progress is None else False
    with Progress("planning", quiet) as screen:
        tell = progress if callable(progress) else screen.update
        pilot = pilot_of(question, tell)
        interval = NOTHING if pilot.policy_evidence is None else pilot.interval
        gain = planned_effect(interval, question.returns) if effect is None else float(effect)
        return _planned(pilot, question, gain, probability, episodes, tuple(explore), simulations, tell)


def _check(effect: Any, probability: Any, episodes: Any, explore: Any, simulations: Any) -> None:
    if effect is not None and not (isinstance(effect, int | float) and math.isfinite(effect) and effect > 0.0):
        raise ConfigError(f"effect = {effect!r}", "a gain above 0, in the unit of the reward", "use effect=0.05")
    if not (isinstance(probability, int | float) and 0.5 <= probability <= 0.99):
        raise ConfigError(f"probability = {probability!r}", "0.5 to 0.99", "use probability=0.8")
    whole = isinstance(episodes, int | np.integer) and not isinstance(episodes, bool)
    if episodes is not None and not (whole and 10 <= episodes <= MOST):
        raise ConfigError(f"episodes = {episodes!r}", f"a whole number from 10 to {MOST:,}", "use episodes=5000")
    for share in explore:
        if not (isinstance(share, int | float) and 0.0 < share <= 1.0):
            raise ConfigError(f"explore = {share!r}", "shares of decisions above 0, at most 1", "use explore=(0.1,)")
    if not (isinstance(simulations, int) and 20 <= simulations <= 100_000):
        raise ConfigError(f"simulations = {simulations!r}", "20 to 100,000", f"use simulations={SIMULATIONS}")


def pilot_of(question: JudgeQuestion, tell: Callable[[str, float], None]) -> Assessment:
    """The evidence of the pilot log about the one policy; findings without evidence where nothing can be estimated."""
    ((name, policy),) = question.policies.items()
    a = asked_about(name, policy, question, 10.0)  # the pilot may be too small for a verdict
    if not a.findings:
        gather_evidence(
            a,
            question,
            propensities=question.propensities,
            cloning=False,
            progress=lambda part, share: tell(part, share / 4.0),
        )
    return a


def _planned(
    pilot: Assessment,
    question: JudgeQuestion,
    effect: float,
    probability: float,
    episodes: int | None,
    explore: tuple[float, ...],
    simulations: int,
    tell: Callable[[str, float], None],
) -> LoggingPlan:
    """The plan of every way of logging."""
    about = partial(
        LoggingPlan, effect, probability, pilot_episodes=len(question.returns), episodes=episodes,
        reward_unit=question.log.reward_unit,
    )  # fmt: skip
    reason = "" if effect > 0.0 else "every episode earned the same, so that no effect has a size"
    if pilot.policy_evidence is None:
        reason = "; ".join(words(one, pilot).sentence for one in pilot.findings)
    elif not pilot.able:
        reason = "this log has no model of values that the deciding estimator reads"
    elif pilot.same:
        reason = "the policy decides as the logged decisions, so that no episodes show a difference"
    if reason:
        return about((PlannedLogging("present", obstacle=reason),))
    evidence, notes = pilot.evidence, list[str]()
    loggings: list[tuple[Kind, float | None, Floats | None]] = [("present", None, None)]
    practice, target = explored(evidence, 0.0), evidence.target_all
    if evidence.horizon > 1:
        notes.append(SEQUENCE)
    elif pilot.missing is not None:
        notes.append("exploration is planned only where all rewards are known")
    elif evidence.follows is not None:
        notes.append("exploration is planned for whole policies, not for parts of them")
    elif practice is None or target is None or evidence.model_all is None:
        notes.append("exploration is planned for discrete actions with a model of values, which this log has not")
    else:
        loggings += [("share", even, explored(evidence, even)) for even in sorted(explore)]
        values = calibrated_values(evidence)
        variance = np.broadcast_to(np.square(_residuals(evidence, values)[1]), target.shape)
        part = designed_share(target, practice, variance, values)
        loggings.append(("designed", part, (1.0 - part) * practice + part * target))
        mass = pilot.unshown
        if mass > UNKNOWN_OUTCOMES:
            notes.append(
                f"what {mass:.0%} of the policy's decisions earn is not in this log: with exploration the plan takes a "
                "model's guess"
            )
    found: list[PlannedLogging] = []
    for position, (name, share, chances) in enumerate(loggings):
        generator = np.random.default_rng([question.seed, 17, position])

        def tell_part(done: float, position: int = position) -> None:
            tell("simulated logs", 0.25 + 0.75 * (position + done) / len(loggings))

        world, logging = simulated(pilot, question.log, effect, chances), PlannedLogging(name, share)
        if world is None:
            found.append(logging._replace(obstacle=TOO_LARGE))
            continue
        tried = Tried(logging._replace(cost=world.cost), world, generator, tell_part, simulations)
        enough = any(one.logging == "share" and one.probability >= probability for one in found)
        if episodes is None:
            found.append(tried.search(probability))
        elif not (name == "share" and enough):  # else the smallest share that is enough stands already
            found.append(tried.result(episodes, probability))
    return about(tuple(found), notes=tuple(notes))


# Logging.


def designed_share(target: Floats, practice: Floats, variance: Floats, values: Floats) -> float:
    """The share of decisions left to a policy [N, A], beside the practice, that needs the fewest episodes."""

    def needed(share: float) -> float:
        logging = (1.0 - share) * practice + share * target
        return judged_variance(target, logging, variance, values) / (1.0 - share) ** 2

    return float(minimize_scalar(needed, bounds=BOUNDS, method="bounded").x)


def judged_variance(target: Floats, logging: Floats, variance: Floats, values: Floats) -> float:
    """Mean square of `(w - 1) (r - q) + v - q`, an episode's part of what the judge compares with 0; all are [N, A]."""
    ratio = np.divide(target, logging, out=np.zeros_like(target), where=logging > 0.0)
    advantage = (target * values).sum(axis=1, keepdims=True) - values
    squares = np.square(ratio - 1.0) * variance + np.square(advantage)
    return float((logging * squares).sum(axis=1).mean())


def calibrated_values(evidence: Evidence) -> Floats:
    """The model's values of all actions, [N, A], with less of what is chance in them.

    The practice's mean value at each step and the advantages of actions are multiplied by the slopes, from 0 to 1, of
    the logged rewards on them.
    """
    practice, values = explored(evidence, 0.0), required_part(evidence, "model_all")
    mean = (np.asarray(practice) * values).sum(axis=1, keepdims=True)
    advantages = values - mean
    logged = np.take_along_axis(advantages, required_part(evidence, "action").astype(np.int64)[:, None], axis=1)[:, 0]
    inputs = np.stack([mean[:, 0] - mean.mean(), logged], axis=1)
    squares = inputs.T @ inputs + 1e-12 * np.eye(2)
    slopes = np.clip(np.linalg.solve(squares, inputs.T @ (evidence.reward - evidence.reward.mean())), 0.0, 1.0)
    return np.asarray(evidence.reward.mean() + slopes[0] * (mean - mean.mean()) + slopes[1] * advantages)


def _residuals(evidence: Evidence, values: Floats) -> tuple[Floats, Floats]:
    """Rewards minus values [N, A], centred, [N]; and their deviation by action, [A], near the pooled one if rare."""
    actions = required_part(evidence, "action").astype(np.int64)
    residual = evidence.reward - np.take_along_axis(values, actions[:, None], axis=1)[:, 0]
    residual = residual - residual.mean()
    rows, sums = (np.bincount(actions, one, values.shape[1]) for one in (None, np.square(residual)))
    pooled = 10.0 * np.square(residual).mean()
    return residual, np.asarray(np.sqrt((sums + pooled) / (rows + 10.0)) + 1e-12)


# Simulated logs.


class Decisions(NamedTuple):
    """How actions and rewards of single decisions are drawn at the pilot's observations."""

    logging: Floats  # [N, A]: probabilities of actions
    values: Floats  # [N, A]: mean rewards under which the policy has the effect
    residual: Floats | None  # [N]: of the pilot's rewards; None: rewards have two values
    scale: Floats  # [A]: deviation of residuals by action
    present: bool  # whether this is the present logging


@dataclass(frozen=True, eq=False)
class SimulatedLogs:
    """Logs of any number of episodes, as one way of logging makes them where the policy has the effect."""

    pilot: Assessment
    log: Log
    chance: Floats  # [U]: with which a unit of the pilot is drawn
    start: float  # number of episodes by the closed form
    shift: float = 0.0  # of intervals, where the pilot's rewards are kept
    decisions: Decisions | None = None  # None: whole episodes are kept
    cost: float = 0.0  # by how much less the logging earns an episode than the present one

    @cached_property
    def _units(self) -> tuple[Ordinals, Ordinals, Ordinals]:
        """Episodes in the order of their units, the first place of each unit, and its size."""
        units = self.pilot.evidence.unit_of
        sizes = np.bincount(units)
        return np.argsort(units, kind="stable"), np.cumsum(sizes) - sizes, sizes

    def draw(self, episodes: int, generator: Generator) -> Evidence:
        """The evidence of a simulated log of about so many episodes."""
        evidence = self.pilot.evidence
        order, first, sizes = self._units
        units = generator.choice(len(sizes), max(round(episodes * len(sizes) / evidence.episodes), 2), p=self.chance)
        chosen = order[ranges(first[units], first[units] + sizes[units])]
        clusters = None if evidence.clusters is None else np.repeat(np.arange(len(units)), sizes[units])
        if self.decisions is not None:
            return self._with_new_decisions(self.decisions, chosen, clusters, generator)
        rows = ranges(evidence.starts[chosen], evidence.starts[chosen + 1])
        return evidence.of_rows(rows, evidence.lengths[chosen], clusters=clusters)

    def _with_new_decisions(
        self, how: Decisions, rows: Ordinals, clusters: Ordinals | None, generator: Generator
    ) -> Evidence:
        """Observations of these episodes of one step, with new actions and rewards.

        A table of values and of propensities is fitted anew, as the judge would; networks are those of the pilot.
        """
        pilot, place, chances = self.pilot.evidence, np.arange(len(rows)), how.logging[rows]
        drawn = generator.random((len(rows), 1)) * chances.sum(axis=1, keepdims=True)
        action = (chances.cumsum(axis=1) > drawn).argmax(axis=1)
        reward = how.values[rows, action]
        if how.residual is None:
            low, high = pilot.reward.min(), pilot.reward.max()
            reward = np.where(generator.random(len(rows)) * (high - low) < reward - low, high, low)
        else:
            old = required_part(pilot, "action").astype(np.int64)[rows]
            reward = reward + how.residual[rows] * how.scale[action] / how.scale[old]
        target_all, estimated = required_part(pilot, "target_all")[rows], pilot.estimated and how.present
        if self.pilot.basis.model == "tabular":
            log = self.log.take_episodes(rows)
            known = None if estimated else chances[place, action].astype(np.float32)
            log = replace(
                log, action=action.astype(log.action.dtype), reward=reward.astype(np.float32), propensity=known,
                declared=None, stratum=None, cluster=None if clusters is None else clusters.astype(np.int32),
            )  # fmt: skip
            judged = SimpleNamespace(probabilities=lambda observation, mask: target_all)
            return evidence_of(
                as_policy(judged, log.spec), log, sample=True, discount=pilot.discount,
                model="tabular", seed=self.pilot.seed, cloning=False, tests=False,
            ).policy  # fmt: skip
        target, behaviour = target_all[place, action], chances[place, action]
        shown = chances * (chances > 0.0).sum(axis=1, keepdims=True) >= RARE
        values = (required_part(pilot, "model_all") + how.values - calibrated_values(pilot))[rows]
        return replace(
            pilot, starts=np.arange(len(rows) + 1), reward=reward, action=action, target=target, behaviour=behaviour,
            target_all=target_all, behaviour_all=chances, model_all=values, model=values[place, action],
            model_target=(target_all * values).sum(axis=1), occupancy=target / behaviour, estimated=estimated,
            elapsed=None,
            supported=shown if pilot.supported is None else shown | pilot.supported[rows], clusters=clusters,
        )  # fmt: skip

    def decided(self, episodes: int, generator: Generator) -> Assessment:
        """The judge's decision about a simulated log."""
        pilot, basis = self.pilot, self.pilot.basis
        behavior = basis.behavior_policy
        if self.decisions is not None and not self.decisions.present and behavior.balance is not None:
            behavior = behavior._replace(balance=behavior.balance._replace(p_value=1.0))  # is carried out as designed
        found = replace(
            basis, policy=self.draw(episodes, generator), behavior_policy=behavior, if_randomised=None, cloning=None
        )
        limits = replace(pilot.limits, replicates=REPLICATES, groups=min(GROUPS, pilot.limits.groups))
        return decide(replace(pilot, limits=limits, policy_evidence=found, late="", shift=self.shift))


def simulated(pilot: Assessment, log: Log, effect: float, logging: Floats | None) -> SimulatedLogs | None:
    """Logs of a logging (None: the present one), with this effect over the present one; None where rewards allow none.

    Whole episodes are kept where decisions cannot be drawn anew: in sequences, without a model of values, of a part of
    a policy, where rewards are unknown, and where recorded propensities are not those of a model of the practice.
    """
    evidence, practice, level = pilot.evidence, explored(pilot.evidence, 0.0), pilot.limits.level
    fits = practice is not None and evidence.action is not None and (evidence.estimated or np.allclose(
        np.take_along_axis(practice, evidence.action[:, None].astype(np.int64), axis=1)[:, 0], evidence.behaviour,
        rtol=1e-3,
    ))  # fmt: skip
    target = evidence.target_all
    kept = pilot.missing is not None or evidence.follows is not None or (logging is None and not fits)
    if practice is None or target is None or evidence.model_all is None or kept:
        chance = _unit_chances(pilot)
        ratios = pilot.minus().clustered(evidence.clusters)
        now = ratios.estimate
        if len(ratios) == len(chance):  # else rows are groups of units
            now = float(quotients(chance @ ratios.numerators, chance @ ratios.denominators).sum())
        return SimulatedLogs(pilot, log, chance, episodes_to_show(pilot, effect, PROBABILITY), effect - now)
    present, logging = logging is None, practice if logging is None else logging
    values, direction, two = calibrated_values(evidence), target - practice, len(np.unique(evidence.reward)) == 2
    residual, scale = _residuals(evidence, values)
    if two:
        tilted = _tilted(evidence, values, effect, practice)
        if tilted is None:
            return None
        values, low, high = tilted, evidence.reward.min(), evidence.reward.max()
        variance = (values - low) * (high - values)
    else:
        gap = float((direction * values).sum(axis=1).mean())
        values = values + (effect - gap) / float(np.square(direction).sum(axis=1).mean()) * direction
        variance = np.broadcast_to(np.square(scale), values.shape)
    cost = float(((practice - logging) * values).sum(axis=1).mean())
    squares, gap, start = judged_variance(target, logging, variance, values), effect + cost, math.inf
    if gap > 0.0:  # the sample size of a mean with this variance
        start = float(((normal_deviate(1.0 - level) + ndtri(PROBABILITY)) / gap) ** 2 * (squares - gap**2))
    how = Decisions(logging, values, None if two else residual, scale, present)
    return SimulatedLogs(pilot, log, np.full(evidence.units, 1.0 / evidence.units), start, 0.0, how, cost)


def _unit_chances(pilot: Assessment) -> Floats:
    """Chances [U] of drawing the pilot's units, under which the mean weight is 1; even where the log contradicts it."""
    evidence = pilot.evidence
    even = np.full(evidence.units, 1.0 / evidence.units)
    if any(finding.rule == "mean_weight" for finding in pilot.broken_support):
        return even
    weights = terminations(evidence) if pilot.visits else episode_weights(evidence)  # both have the mean 1
    off = weights - 1.0
    if evidence.clusters is not None:
        off = np.asarray(np.bincount(evidence.clusters, weights=off), np.float64)
    squares = float(np.square(off - off.mean()).sum())
    if not squares > 0.0 or not math.isfinite(squares):
        return even
    tilted = np.maximum(1.0 - off.sum() / squares * (off - off.mean()), 0.05)
    return np.asarray(tilted / tilted.sum())


def _tilted(evidence: Evidence, values: Floats, effect: float, practice: Floats) -> Floats | None:
    """Mean rewards [N, A] of two possible ones, under which the policy has the effect; None if there are none.

    Log-odds move by a constant and by a multiple of the policy's probability minus the practice's, so that the
    practice's mean stays and the difference is the effect.
    """
    target, low, high = required_part(evidence, "target_all"), evidence.reward.min(), evidence.reward.max()
    mean = (evidence.reward.mean() - low) / (high - low)
    base = logit(np.clip((values - low) / (high - low), 0.02 * mean, 1.0 - 0.02 * (1.0 - mean)))
    goal, direction, moved = np.array([mean, mean + effect / (high - low)]), target - practice, np.zeros(2)
    for _ in range(TILTS):
        now = expit(base + moved[0] + moved[1] * direction)
        off = np.array([(one * now).sum(axis=1).mean() for one in (practice, target)]) - goal
        if np.abs(off).max() < 1e-9:
            return np.asarray(low + (high - low) * now)
        slope = now * (1.0 - now)
        by = (slope, slope * direction)
        jacobian = np.array([[(one * part).sum(axis=1).mean() for part in by] for one in (practice, target)])
        if not abs(float(np.linalg.det(jacobian))) > 1e-18:
            return None
        step = np.linalg.solve(jacobian, off)
        moved = moved - step * min(1.0, 1.0 / float(np.abs(step).max()))
    return None


# The search: a smooth power curve through the shares of *better* at a few sizes.


@dataclass(eq=False)
class Tried:
    """Simulated logs of a way of logging so far, by their number of episodes, and what they say that it needs."""

    logging: PlannedLogging
    world: SimulatedLogs
    generator: Generator
    tell: Callable[[float], None]
    simulations: int
    counts: dict[int, list[int]] = field(default_factory=dict)  # episodes -> [better, all]
    rules: dict[int, Counter[str]] = field(default_factory=dict)  # episodes -> rules that kept logs from it
    finding: dict[str, tuple[Assessment, RuleFinding]] = field(default_factory=dict)
    done: int = 0

    def at(self, episodes: int, count: int) -> float:
        """Simulate so many logs of a size; the share of *better* there."""
        own, rules = self.counts.setdefault(episodes, [0, 0]), self.rules.setdefault(episodes, Counter())
        for _ in range(count):
            found = self.world.decided(episodes, self.generator)
            own[0] += found.decision == "better"
            own[1] += 1
            for finding in found.findings[:1]:
                rules[finding.rule] += 1
                self.finding[finding.rule] = found, finding
            self.done += 1
            self.tell(min(self.done / self.simulations, 1.0))
        return own[0] / own[1]

    def curve(self, around: float, probability: float) -> PowerCurve:
        """The curve through what was tried near a number of episodes, whose root is 1."""
        some = {size: one for size, one in self.counts.items() if 1.0 / NEAR <= size / around <= NEAR}
        better, every = np.array(list(some.values()), np.float64).T
        roots = np.sqrt(np.array(list(some), np.float64) / around)
        deviate = normal_deviate(1.0 - self.world.pilot.limits.level)
        return PowerCurve.of(roots, better, every, deviate, probability)

    def reason(self, episodes: int) -> str:
        """Why no number is enough, and what would change it."""
        common = self.rules[episodes].most_common(1)
        if not common:
            return f"even {episodes:,} episodes are too few"
        said = words(self.finding[common[0][0]][1], self.finding[common[0][0]][0])
        advice = f". What changes it: {said.advice[0]}" if said.advice else ""
        return f"no number of episodes is enough. Of {episodes:,}: {said.sentence}{advice}"

    def result(self, episodes: int, probability: float) -> PlannedLogging:
        """How likely a fixed number of episodes shows the effect."""
        self.at(episodes, self.simulations)
        better, every = self.counts[episodes]
        middle, spread = (better + 2.0) / (every + 4.0), 1.96 / math.sqrt(every + 4.0)  # Agresti and Coull (1998)
        half = spread * math.sqrt(middle * (1.0 - middle))
        low, high = max(middle - half, 0.0), min(middle + half, 1.0)
        obstacle = "" if better / every >= probability or not self.rules[episodes] else self.reason(episodes)
        found = self.logging._replace(episodes=episodes, probability=better / every, obstacle=obstacle)
        return found._replace(probability_low=low, probability_high=high)

    def search(self, probability: float) -> PlannedLogging:
        """The number of episodes with which the effect is better with this probability, by rounds of simulations."""
        evidence, start = self.world.pilot.evidence, max(self.world.start, 20.0)
        most = MOST * evidence.episodes / len(evidence.reward)
        if not start <= most:
            more = f"more than {most:,.0f} episodes are needed"
            itself = "it earns more than the policy, and the judge compares with the logged decisions"
            return self.logging._replace(obstacle=more if math.isfinite(start) else itself)
        farthest, episodes = min(FARTHEST * start, most), start
        near, stuck = 0, 0  # rounds at about the number that the curve asks for; those stopped by a rule
        for _ in range(ROUNDS):
            size = round(episodes)
            reached = self.at(size, max(self.simulations // (3 if near else 8), 10))
            wanted = episodes * self.curve(episodes, probability).root(probability) ** 2
            if reached < probability - 0.25 and self.rules[size].total() > (1.0 - probability) * self.counts[size][1]:
                wanted = max(wanted, 2.0 * episodes)  # a rule and not chance decides
                stuck += not math.isfinite(self.finding[self.rules[size].most_common(1)[0][0]][1].check.times)
            if stuck == STUCK or (wanted > farthest and episodes >= farthest / 2.0):
                break
            near += CLOSE[0] < wanted / episodes < CLOSE[1]
            if near == 4:
                break
            asked = float(np.clip(wanted, max(episodes / STEP, 20.0), min(STEP * episodes, farthest)))
            about = [better / every for size, (better, every) in self.counts.items() if 0.8 < size / asked < 1.25]
            is_steep = bool(about) and abs(float(np.mean(about)) - probability) > 0.15
            episodes = math.sqrt(asked * episodes) if is_steep else asked  # then look between
        shares = {size: better / every for size, (better, every) in self.counts.items()}
        if near < 4 and shares[max(shares)] < probability - 0.1:
            return self.logging._replace(obstacle=self.reason(max(shares)))
        curve = self.curve(episodes, probability)
        root = curve.root(probability)
        error = curve.error(root)
        height, off = float(ndtri(probability)), 1.96 * error / curve.slope
        low, middle, high = (math.ceil(episodes * max(one, 0.05) ** 2) for one in (root - off, root, root + off))
        found = self.logging._replace(episodes=middle, low=low, high=high, probability=probability)
        least, most = float(ndtr(height - 1.96 * error)), float(ndtr(height + 1.96 * error))
        return found._replace(probability_low=least, probability_high=most)


class PowerCurve(NamedTuple):
    """`Phi(level + slope (u - 1))`, the probability of *better* at `u`, the root of the episodes over a number of them.

    Where a limit on support is reached the curve is much steeper than by chance alone.
    """

    level: float
    slope: float
    covariance: Floats  # [2, 2]

    @classmethod
    def of(cls, roots: Floats, better: Floats, every: Floats, deviate: float, probability: float) -> PowerCurve:
        """The most likely curve, with a weak prior around that of the closed form."""
        height = float(ndtri(probability))
        prior, weight = np.array([height, deviate + height]), np.diag([1.0 / 2.0**2, 1.0 / 6.0**2])
        inputs, found, information = np.stack([np.ones(len(roots)), roots - 1.0], axis=1), prior.copy(), weight
        for _ in range(50):  # Fisher scoring
            at = np.clip(inputs @ found, -6.0, 6.0)
            chance, density = ndtr(at), np.exp(-(at**2) / 2.0) / math.sqrt(2.0 * math.pi)
            spread = chance * (1.0 - chance)
            information = (inputs.T * (every * density**2 / spread)) @ inputs + weight
            pull = inputs.T @ (density * (better - every * chance) / spread) - weight @ (found - prior)
            step = np.linalg.solve(information, pull)
            found = found + step / max(1.0, float(np.abs(step).max()))
            if np.abs(step).max() < 1e-6:
                break
        return cls(float(found[0]), max(float(found[1]), prior[1] / 2.0), np.linalg.inv(information))

    def root(self, probability: float) -> float:
        """Where the curve has a probability."""
        return max(1.0 + (float(ndtri(probability)) - self.level) / self.slope, 0.05)

    def error(self, root: float) -> float:
        """Standard error of the curve's height there, before Phi."""
        at = np.array([1.0, root - 1.0])
        return float(np.sqrt(at @ self.covariance @ at))
