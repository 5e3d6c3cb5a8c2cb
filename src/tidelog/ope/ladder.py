"""The largest part of a policy that the log can judge: a ladder from the present practice towards the policy.

Where the weights of a whole policy have no support, those of a part of it often have. A part decides like the policy in
some decisions and leaves the others to the present practice, whose weight is 1. *By support*, where an episode is one
decision: in decisions where a model of the training episodes shows the policy's actions, from strict to loose, as in
SPIBB (Laroche, Trichelair, Tachet des Combes 2019). *By share*, where an episode is a sequence: in each decision with a
probability; weights of small probabilities stay even over long episodes. *By both*: with a probability where that model
shows the policy's actions. With one decision a share would only shrink the difference and could not change its sign, so
that it is no ladder there.

A part of a policy risks in its own decisions what the whole risks: limits on what the log does not show are those of
its own decisions, and not of a share that grows smaller with the part.

The model is of the training episodes; the steps, their order and the first one read no reward, but in sequences the
states that followed. The first step has the largest predicted difference over its standard error (`promise`) among
those with support that enough episodes carry. The ladder is climbed while each step is better: in such a fixed sequence
(Maurer, Hothorn, Lehmacher 1995) all steps together err as often as the first one alone. That one has the place of the
whole policy in the look. The whole spends nothing there: without support it is not called better whatever was earned,
and no reward has a part in that.

Letters: `N` steps of the log, `A` actions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Literal

import jax
import numpy as np

from tidelog.algorithms.part import PartParams, PolicyPart, part_spec
from tidelog.data.log import Log
from tidelog.data.statistics import Scaler, Sketch
from tidelog.errors import SpecError, TidelogError
from tidelog.networks.layers import from_host
from tidelog.ope.assumptions import excess_unshown
from tidelog.ope.decide import Assessment, JudgeQuestion, Limits, decide
from tidelog.ope.estimators import effective_number, episode_weights
from tidelog.ope.evidence import Evidence, Floats, check_log
from tidelog.ope.propensities import cloned
from tidelog.ope.verdict import LadderStep
from tidelog.policies.policy import Policy
from tidelog.policies.rollout import action_orders
from tidelog.types import Discrete

MARGIN = 1.001  # on ratios, so that no judged decision lies on a level
PARTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # by support: shares of the judged decisions
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7)  # by share: probabilities in each decision
MOST_RATIO = 10.0  # times the number of actions: larger ratios are of actions that are hardly in the log
RATIOS = (0.25, 0.5, 1.0, 2.0, 5.0, MOST_RATIO)  # by both: largest ratios, times the number of actions
UNSHOWN = 0.01  # most decisions an episode, beyond the practice's, that the log may not show of a part
CHANGED = 0.05  # smallest probability with which a decision of a part is another one than the practice's
ALIKE = 0.9  # share of the largest promise
CARRIERS = 30.0  # smallest effective number of episodes that the first step weighs otherwise than the practice
MOST = 50_000  # training steps that the model of the practice reads


@dataclass(frozen=True, eq=False)
class Ladder:
    """The parts of a policy in rising order, and the first one that is asked about."""

    by: Literal["support", "share", "both"]
    levels: tuple[float, ...]  # by support: largest ratios of probabilities; else: probabilities
    practice: Policy | None = None  # the model of the present practice that ratios are taken to
    ratio: Floats | None = None  # [N]: the largest ratio of each judged decision
    largest_ratio: float = np.inf  # by both: of the decisions that a part may change
    first: int = 0

    def parts(self, a: Assessment) -> list[Assessment]:
        """The assessment of each part."""
        ratio = np.zeros(len(a.evidence.reward)) if self.ratio is None else self.ratio
        if self.by == "support":
            return [part_of(a, (ratio <= level).astype(np.float64)) for level in self.levels]
        return [part_of(a, level * (ratio <= self.largest_ratio).astype(np.float64)) for level in self.levels]


def check_train(train: Any, log: Log, most: float) -> Log:
    """The training episodes; SpecError unless they are of the same kind, and `most` of the judged ones are others."""
    if not isinstance(train, Log):
        raise SpecError(f"train = {type(train).__name__}", "a log", "train, held_out = log.split(0.5)")
    check_log(train, 1.0)
    if (train.spec.observation, train.spec.action) != (log.spec.observation, log.spec.action):
        raise SpecError("train: other observations or actions than the judged log has", fix="split one log")
    overlap = Sketch.of(train).overlap(log)
    if overlap.exceeds(most):
        raise SpecError(
            f"train: {overlap.share:.0%} of the judged episodes", "other episodes", "train, held_out = log.split(0.5)"
        )
    return train


def part_of(a: Assessment, follows: Floats) -> Assessment:
    """The assessment of a part of the policy."""
    evidence = a.evidence.part_of(follows)
    limits = limits_of_parts(a.limits, evidence)
    basis = replace(a.basis, policy=evidence, cloning=None, if_randomised=None, without_support=False)
    return replace(a, limits=limits, policy_evidence=basis)


def limits_of_parts(limits: Limits, evidence: Evidence) -> Limits:
    """The limits of a part: products of ratios decide, because its visits are not those of the whole."""
    return replace(limits, horizon=max(limits.horizon, evidence.horizon))


def set_ladder(a: Assessment, question: JudgeQuestion, practice: Callable[[], tuple[Policy | None, str]]) -> None:
    """Give a policy whose whole has no support its ladder and the part that is asked about first, or say why not."""
    a.no_ladder = obstacle(a, question)
    if a.no_ladder:
        return
    is_sequence, space, missing = a.evidence.horizon > 1, question.log.spec.action, ""
    ladders = [Ladder("share", SHARES)] if is_sequence else []
    if isinstance(space, Discrete) and question.train is None:
        missing = "parts where the log shows its actions need the episodes that it learnt from (train=)"
    elif isinstance(space, Discrete):
        model, missing = practice()
        if model is not None and not (missing := other_inputs(a.policy, model)):
            ratio = largest_ratios(a, question.log, model)
            if is_sequence:
                most = [space.n * one for one in RATIOS]
                ladders += [Ladder("both", (*SHARES, 1.0), model, ratio, one) for one in most if (ratio <= one).any()]
            else:
                rising = MARGIN * np.unique(np.quantile(ratio, PARTS))
                ladders = [Ladder("support", tuple(rising[rising <= MOST_RATIO * space.n].tolist()), model, ratio)]
    if not choose(a, ladders):
        nothing = "no part of it has support that enough episodes carry" if ladders else ""
        a.no_ladder = "; ".join(filter(None, (nothing, missing)))


def choose(a: Assessment, ladders: list[Ladder]) -> bool:
    """Give a policy the ladder whose first part promises most, and that part; False if no part has support.

    In sequences the first part is the largest one that promises nearly as much: small shares all promise the same.
    """
    best, unshown = -np.inf, min(a.limits.unshown_share, UNSHOWN)
    for ladder in ladders:
        parts = list(takewhile(lambda one: exposure(one) <= unshown, ladder.parts(a)))
        predicted = [promise(one) if one.has_support and carriers(one) >= CARRIERS else -np.inf for one in parts]
        enough = max(predicted, default=-np.inf) * (1.0 if ladder.by == "support" else ALIKE)
        first = max((step for step, one in enumerate(predicted) if one >= enough), default=0)
        if parts and predicted[first] > best:
            best = predicted[first]
            a.ladder, a.first_part = replace(ladder, levels=ladder.levels[: len(parts)], first=first), parts[first]
    return bool(np.isfinite(best))


def training_practice(question: JudgeQuestion) -> tuple[Policy | None, str]:
    """A model of the practice in the training episodes, or why there is none."""
    judged = question.log if question.missing is None else question.whole  # with its own rewards
    try:
        train = question.train() if callable(question.train) else question.train
        train = some_episodes(check_train(train, judged, question.limits.overlap), question.seed)
    except (TidelogError, ImportError) as error:  # gone, of another kind, too large, or of a package that is not here
        return None, error.problem if isinstance(error, TidelogError) else str(error)
    return cloned(train, question.seed)[0], ""


def other_inputs(policy: Any, practice: Policy) -> str:
    """Why a policy cannot be a part beside this model of the practice, which is asked about the same arrays, or ""."""
    if isinstance(policy, Policy) and (  # others are never saved as a part
        policy.spec.observation != practice.spec.observation
        or action_orders(policy.spec, practice.spec, "the training log")[0] is not None
    ):
        return "it learnt from actions or observations in another order than those of the judged episodes"
    return ""


def largest_ratios(a: Assessment, log: Log, practice: Policy) -> Floats:
    """The largest ratio of each judged decision's probabilities to those of the practice, [N]."""
    here = np.asarray(log.position)
    mask = None if log.action_mask is None else np.asarray(log.action_mask)[here]
    chances = practice.probabilities({name: np.asarray(leaf)[here] for name, leaf in log.observation.items()}, mask)
    return np.asarray((np.asarray(a.evidence.target_all) / np.maximum(chances, 1e-12)).max(axis=1))


def obstacle(a: Assessment, question: JudgeQuestion) -> str:
    """Why no part of a policy can be judged; empty if one may be."""
    if a.is_rule:
        return "a simple rule is judged as a whole"
    if a.evidence.follows is not None:
        return "it is a part already"
    if a.evidence.model is None:
        return "this log has no model of values"
    if a.evidence.horizon > 1:
        return ""
    if not isinstance(question.log.spec.action, Discrete):
        return "parts of single decisions need discrete actions"
    return "" if question.train is not None else "that needs the episodes that it learnt from (train=)"


def some_episodes(log: Log, seed: int) -> Log:
    """At most about `MOST` steps of a log, in whole episodes that are drawn evenly."""
    if log.steps <= MOST:
        return log
    count = max(int(MOST * len(log.episode_ids) / log.steps), 1)
    drawn = np.random.default_rng([seed, 11]).choice(len(log.episode_ids), count, replace=False)
    return log.take_episodes(np.sort(drawn))


def promise(part: Assessment) -> float:
    """How many decisions a part changes, over the standard deviation of its weights.

    The predicted difference over its standard error, if every changed decision gains as much as any other. What the
    policy earned in the episodes that it learnt from, whose luck it followed, predicts no better. -inf for a part that
    decides as the practice does, up to the error of what is known of it.
    """
    evidence = part.evidence
    changed = np.asarray(evidence.follows)
    if evidence.target_all is not None and evidence.behaviour_all is not None:
        changed = 1.0 - np.minimum(evidence.target_all, evidence.behaviour_all).sum(axis=1)
    deviation, share = float(episode_weights(evidence).std()), float(changed.mean())
    if part.same or share < CHANGED * evidence.policy_share or deviation == 0.0:
        return -np.inf
    return share / deviation


def exposure(part: Assessment) -> float:
    """How many more decisions an episode than the practice's the log does not show, were all its decisions the part's.

    A small probability of a deed that was never logged makes weights even, and what it may cost small beside a limit,
    but not beside what the part gains. An episode holds what the whole's mean weight would lack.
    """
    share = part.evidence.policy_share
    return excess_unshown(part.evidence) * float(part.evidence.lengths.mean()) / share if share > 0.0 else 0.0


def carriers(part: Assessment) -> float:
    """The effective number of episodes, or clusters, that a part weighs otherwise than the practice.

    A part that only stops what the behaviour policy hardly ever did rests on a handful of episodes.
    """
    evidence = part.evidence
    off = episode_weights(evidence) - 1.0
    return effective_number(off if evidence.clusters is None else np.bincount(evidence.clusters, weights=off))


def climb(a: Assessment) -> tuple[LadderStep, ...]:
    """The steps that were asked about, from the first one up to the first that is not better."""
    if a.ladder is None:
        return ()
    steps = []
    ratio = a.ladder.largest_ratio if a.ladder.by == "both" else None
    for level, part in list(zip(a.ladder.levels, a.ladder.parts(a), strict=True))[a.ladder.first :]:
        decide(part)
        share = part.evidence.policy_share
        steps.append(LadderStep(a.ladder.by, level, share, part.decision, part.difference, ratio))
        if part.decision != "better":
            break
    return tuple(steps)


def safe_policy(a: Assessment, step: LadderStep) -> Policy | None:
    """The policy that acts as a step of its ladder says; None for a policy that is not tidelog's."""
    if not isinstance(a.policy, Policy) or not isinstance(space := a.policy.spec.action, Discrete):
        return None
    policy, practice = a.policy, a.ladder.practice
    part = PolicyPart(
        policy.algorithm,
        None if practice is None else practice.algorithm,
        largest_ratio=step.level if step.by == "support" else step.largest_ratio or 0.0,  # by share no ratio is asked
        share=1.0 if step.by == "support" else step.level,
        sampled=a.sample,
        actions=space.n,
    )
    scale, shift = ({}, {}) if practice is None else rescaling(policy.scaler, practice.scaler)
    params = PartParams(policy.params, None if practice is None else practice.params, scale, shift)
    origin = {**policy.origin, "part": step._asdict()}
    return Policy(part, part_spec(policy.spec), policy.scaler, params, origin)


def rescaling(own: Scaler, other: Scaler) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Factors and summands of leaves [size] that turn observations scaled by one scaler into those of another."""
    scale, shift = {}, {}
    for name in {*own.mean, *other.mean}:
        mean, std = (one.get(name, empty) for one, empty in ((own.mean, 0.0), (own.std, 1.0)))
        their_mean, their_std = (one.get(name, empty) for one, empty in ((other.mean, 0.0), (other.std, 1.0)))
        scale[name] = from_host(np.asarray(std / their_std, np.float32))
        shift[name] = from_host(np.asarray((mean - their_mean) / their_std, np.float32))
    return scale, shift
