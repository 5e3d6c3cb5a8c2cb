"""The largest part of a policy that the log can judge: a ladder from the present practice towards the policy.

Where the weights of a whole policy have no support, those of a part of it often have. A part decides like the policy in
some decisions and leaves the others to the present practice, whose weight is 1. *By support*, where an episode is one
decision: in decisions where a model of the training episodes shows the policy's actions, from strict to loose, as in
SPIBB (Laroche, Trichelair, Tachet des Combes 2019). *By share*, where an episode is a sequence: in each decision with a
probability; weights of small probabilities stay even over long episodes. With one decision a share would only shrink
the difference and could not change its sign, so that it is no ladder there.

The steps, their order and the first one are fixed on training episodes, before a judged outcome is read: the first step
has the largest predicted difference over its standard error among those with support. The ladder is climbed while each
step is better. In such a fixed sequence (Maurer, Hothorn, Lehmacher 1995) all steps together err as often as the first
one alone. That one has the place of the whole policy in the look, which spends nothing there: without support it is
not called better whatever was earned. A ladder is climbed only for that reason, which no reward has a part in.

Letters: `N` steps of the log, `A` actions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import numpy as np

from tidelog.algorithms.part import PartParams, PolicyPart, part_spec
from tidelog.data.log import Log
from tidelog.data.statistics import Scaler, Sketch
from tidelog.errors import LogError, SpecError
from tidelog.networks.layers import from_host
from tidelog.ope.assumptions import excess_unshown
from tidelog.ope.decide import Assessment, JudgeQuestion, decide, upper_limit
from tidelog.ope.estimators import standard_error
from tidelog.ope.evidence import Evidence, Floats, check_log
from tidelog.ope.policy_evidence import evidence_of
from tidelog.ope.propensities import cloned, cut_log, is_by_classifier
from tidelog.ope.verdict import LadderStep
from tidelog.policies.policy import Policy
from tidelog.types import Discrete

MARGIN = 1.001  # on ratios, so that no row of the training episodes lies on a level
PARTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # by support: shares of the training decisions
MOST = 50_000  # training steps that are read
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7)  # by share: probabilities in each decision


@dataclass(frozen=True, eq=False)
class Ladder:
    """The parts of a policy in rising order, and the first one that is asked about."""

    by: Literal["support", "share"]
    levels: tuple[float, ...]  # by support: largest ratios of probabilities; by share: probabilities
    first: int
    practice: Policy | None  # by support: the model of the present practice that ratios are taken to

    def parts(self, a: Assessment, log: Log) -> list[Assessment]:
        """The assessment of each part on these episodes."""
        ratio = None if self.practice is None else largest_ratios(a.evidence, self.practice, log)
        return [part_of(a, followed(level, ratio, len(a.evidence.reward))) for level in self.levels]


def check_train(train: Any, log: Log, most: float) -> Log:
    """The training episodes; SpecError unless they are other episodes of the same kind.

    `most` is the largest share of the judged episodes that they may have.
    """
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


def followed(level: float, ratio: Floats | None, steps: int) -> Floats:
    """The probability that a decision is the policy's, [N], at a level of the ladder; `ratio` is None by share."""
    return np.full(steps, level) if ratio is None else (ratio <= level).astype(np.float64)


def part_of(a: Assessment, follows: Floats) -> Assessment:
    """The assessment of a part of the policy; products of ratios decide, however long episodes are."""
    evidence = a.evidence.part_of(follows)
    limits = replace(a.limits, horizon=max(a.limits.horizon, evidence.horizon))
    basis = replace(a.basis, policy=evidence, cloning=None, if_randomised=None, without_support=False)
    return replace(a, limits=limits, policy_evidence=basis)


def largest_ratios(evidence: Evidence, practice: Policy, log: Log) -> Floats:
    """The largest ratio of an action's probability under the policy to that under the practice, [N]."""
    here = np.asarray(log.position)
    mask = None if log.action_mask is None else np.asarray(log.action_mask)[here]
    chances = practice.probabilities({name: np.asarray(leaf)[here] for name, leaf in log.observation.items()}, mask)
    return np.asarray((np.asarray(evidence.target_all) / np.maximum(chances, 1e-12)).max(axis=1))


def lacks_support(a: Assessment) -> bool:
    """Whether the whole policy has no support, by what no reward has a part in."""
    if a.policy_evidence is None or (a.reuse.learnt_from is not None and a.reuse.learnt_from.exceeds(a.limits.overlap)):
        return False
    if not a.able or a.broken_support:
        return True
    return upper_limit(excess_unshown(a.evidence), a.evidence.units) > a.limits.unshown_share


def set_ladder(a: Assessment, question: JudgeQuestion) -> None:
    """Give a policy whose whole has no support its ladder and the part that is asked about first, or say why not."""
    single, train = a.evidence.horizon == 1, question.train
    if a.is_rule:
        a.no_ladder = "a simple rule is judged as a whole"
    elif a.evidence.model is None:
        a.no_ladder = "this log has no model of values"
    elif not isinstance(question.log.spec.action, Discrete) and single:
        a.no_ladder = "parts of single decisions need discrete actions"
    elif callable(train):
        try:
            train = check_train(train(), question.log, a.limits.overlap)
        except (LogError, SpecError) as error:
            a.no_ladder = error.problem
    if a.no_ladder or not isinstance(train, Log):
        return
    own, first_steps = question.propensities, question.first_steps
    train = some_episodes(train if first_steps is None else cut_log(train, first_steps), question.seed)
    known = own if isinstance(own, str) or is_by_classifier(own) else None  # arrays are of the judged log
    learnt = evidence_of(
        a.policy, train, sample=a.sample, discount=question.discount, propensities=known, model=question.model,
        seed=question.seed, bandwidth=question.bandwidth, cloning=False, tests=False,
    )  # fmt: skip
    before = Assessment(a.limits, a.seed, a.name, a.policy, a.sample, policy_evidence=learnt)
    practice, levels = None, SHARES
    if single:
        practice = cloned(train, question.seed)[0]
        ratio = largest_ratios(learnt.policy, practice, train)
        levels = tuple((MARGIN * np.unique(np.quantile(ratio, PARTS))).tolist())
    ladder = Ladder("support" if single else "share", levels, 0, practice)
    parts = ladder.parts(a, question.log)
    pairs = zip(ladder.parts(before, train), parts, strict=True)
    predicted = [promise(one) if other.has_support else -np.inf for one, other in pairs]
    first = int(np.argmax(predicted))
    if not np.isfinite(predicted[first]):
        a.no_ladder = "no part of it has support either"
        return
    a.ladder, a.first_part = replace(ladder, first=first), parts[first]


def some_episodes(log: Log, seed: int) -> Log:
    """At most about `MOST` steps of a log, in whole episodes that are drawn evenly."""
    if log.steps <= MOST:
        return log
    count = max(int(MOST * len(log.episode_ids) / log.steps), 1)
    drawn = np.random.default_rng([seed, 11]).choice(len(log.episode_ids), count, replace=False)
    return log.take_episodes(np.sort(drawn))


def promise(part: Assessment) -> float:
    """The predicted difference of a part over its standard error, on training episodes."""
    ratios = part.deciding_ratios
    error = standard_error(ratios.contributions)
    return float(ratios.estimate / error) if error > 0.0 else -np.inf


def climb(a: Assessment, question: JudgeQuestion) -> tuple[LadderStep, ...]:
    """The steps that were asked about, from the first one up to the first that is not better."""
    if a.ladder is None:
        return ()
    steps = []
    for level, part in list(zip(a.ladder.levels, a.ladder.parts(a, question.log), strict=True))[a.ladder.first :]:
        decide(part)
        share = float(np.asarray(part.evidence.follows).mean())
        steps.append(LadderStep(a.ladder.by, level, share, part.decision, part.difference))
        if part.decision != "better":
            break
    return tuple(steps)


def safe_policy(a: Assessment, steps: tuple[LadderStep, ...]) -> Policy | None:
    """The policy that acts as the largest better step says; None without one, or for a policy that is not tidelog's."""
    held = [one for one in steps if one.decision == "better"]
    if not held or not isinstance(a.policy, Policy) or not isinstance(space := a.policy.spec.action, Discrete):
        return None
    policy, practice, step = a.policy, a.ladder.practice, held[-1]
    by_support = practice is not None
    part = PolicyPart(
        policy.algorithm,
        practice.algorithm if by_support else None,
        largest_ratio=step.level if by_support else 0.0,
        share=1.0 if by_support else step.level,
        sampled=a.sample,
        actions=space.n,
    )
    scale, shift = rescaling(policy.scaler, practice.scaler) if by_support else ({}, {})
    params = PartParams(policy.params, practice.params if by_support else None, scale, shift)
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
