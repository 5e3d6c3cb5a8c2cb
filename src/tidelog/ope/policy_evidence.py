"""Gather the evidence about a policy on a log, and estimate its value: the common functions of every judgement.

The estimand is always the discounted return up to the recorded end of an episode: a truncation is an end. Models of the
behaviour policy and of the values are cross-fitted over the same folds: an episode's numbers come from models that
never saw it. One-step logs need no special case: their values are regressions of the reward.

The model is a table (`tabular`) if the log has discrete actions and few different observations, each visited often;
otherwise networks (`neural`); `none` if values are not needed, or not possible (several simultaneous choices).

Letters: `N` steps, `E` episodes, `F` folds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tidelog._machine import one_thread, release_memory
from tidelog._text import three_digits
from tidelog.data.checks import BALANCED, MOST_BALANCED
from tidelog.data.columns import SHARES
from tidelog.data.dependence import Balance
from tidelog.data.log import (
    Log,
    States,
    declare,
    is_tabular,
    log_balance,
    number_observations,
    recorded_fit,
    with_declaration,
)
from tidelog.errors import ConfigError, SpecError, nearest
from tidelog.ope.assumptions import BEHAVIOR, Dependence, history_dependence, relative_time, time_dependence
from tidelog.ope.estimators import (
    ESTIMATORS,
    MODEL_ALONE,
    Estimate,
    Estimates,
    Supports,
    is_listed,
    is_possible,
    obstacle_of,
    possible_returns,
)
from tidelog.ope.evidence import (
    LARGEST_SEED,
    Evidence,
    Floats,
    Ordinals,
    Target,
    Values,
    centred_rewards,
    check_kind,
    check_log,
    clusters_of,
    episode_folds,
    out_of_fold,
)
from tidelog.ope.intervals import MOST_GROUPS, Confidence, bca
from tidelog.ope.missing_rewards import with_stand_ins
from tidelog.ope.networks import feature_ratios, network_values
from tidelog.ope.policies import as_policy, is_sampled, target_of
from tidelog.ope.propensities import (
    FilePropensities,
    Propensities,
    declared_propensities,
    is_by_classifier,
    propensities_of,
    shrunk,
    with_file_read,
    with_time,
)
from tidelog.ope.tabular import tabular_ratios, tabular_values
from tidelog.policies.policy import Policy
from tidelog.types import Continuous, Discrete, check_seed

Model = Literal["tabular", "neural", "none"]
Progress = Callable[[str, float], None]  # name of the finished part, and the finished share of the work
MODELS = ("tabular", "neural", "none")
SUSPECTED = 0.05  # p-value of a drift below which models of the behaviour policy read the time
TABLE_FOLDS, NETWORK_FOLDS = 5, 2  # fitting a table is fast, fitting a network is slow


@dataclass(frozen=True, eq=False)
class PolicyEvidence:
    """Evidence about the policy, and about behaviour cloning on the same folds, propensities and models."""

    policy: Evidence
    cloning: Evidence | None  # None if the behaviour policy could not be modelled, or was not requested
    behavior_policy: BehaviorModel
    folds: Ordinals  # [E]: fold of each episode
    model: Model
    bandwidth: float | None = None  # of the kernel around deterministic continuous actions, if used
    smoothing: float | None = None  # value of the smoothed policy minus that of the policy, by the model
    value_share: float = 1.0  # share of the networks' values that is used, as `shrunk` chose it
    without_support: bool = False  # whether weights alone show that the log cannot judge it: no value was modelled
    if_randomised: Evidence | None = None  # if a log without propensities looks randomised: with shares as propensities


@dataclass(frozen=True)
class ModelChoice:
    """Choices made before any model is fitted."""

    model: Model
    states: States | None  # of the table, if one is used
    folds: Ordinals


OneStepValues: TypeAlias = dict[int, "list[Values]"]  # by the number of candidates


def evidence_of(
    policy: Policy,
    log: Log,
    *,
    sample: bool = False,
    discount: float = 1.0,
    propensities: Any = None,
    model: str | None = None,
    seed: int = 0,
    folds: int | None = None,
    bandwidth: float | None = None,
    cloning: bool = True,
    tests: bool = True,
    clones: bool = True,
    lacks_support: Callable[[Evidence], bool] | None = None,
    one_step: OneStepValues | None = None,
    progress: Progress | None = None,
) -> PolicyEvidence:
    """Gather evidence about a policy on a log that it never saw, and about behaviour cloning for comparison.

    `sample` judges the sampled policy, else the deterministic one; `propensities` is None (recorded if there are any),
    "logged", "estimated", numbers [N] or a `BehaviorModel`; `model` is "tabular", "neural", "none" or None (chosen by
    the log); `folds` None means 5 for tables and 2 for networks; `bandwidth` is that of the kernel around deterministic
    continuous actions; `tests` tests the assumptions on history and time; without `clones` nothing is learnt where
    propensities are known. Networks of values are not fitted where
    `lacks_support` says so of the evidence without them. `one_step` holds the networks' values of another policy on
    this log, and gets them: in episodes of one step they depend on the log alone. Raises SpecError if policy and log do
    not fit, ConfigError for settings out of range.
    """
    check_log(log, discount)
    log, tell = replace(log, weight=None), progress or (lambda what, share: None)
    target = target_of(policy, log, sample=sample, bandwidth=bandwidth, seed=seed)
    plan = choose_model(log, model, folds, seed)
    tell("policy", 0.1)
    behavior_policy = propensities
    if not isinstance(propensities, BehaviorModel):
        behavior_policy = behavior_model(log, plan, propensities, seed, tests=tests, clones=clones)
    known: Propensities = behavior_policy.propensities
    release_memory()
    tell("propensities", 0.4)
    # The policy and its clones have values and ratios, the policy without its kernel only values; a target a fold.
    count = int(plan.folds.max()) + 1
    candidates = [[target] * count]
    if cloning and known.clones:
        candidates.append([c.target(log, sample=sample, bandwidth=bandwidth, seed=seed) for c in known.clones])
    judged, without_support = candidates[:], False
    if lacks_support is not None and plan.model == "neural":
        without_support = lacks_support(_evidence(log, plan, [target] * count, known, None, None, discount))
        plan = replace(plan, model="none") if without_support else plan
    if target.bandwidth is not None and not without_support:
        candidates.append([target_of(policy, log)] * count)
    single = len(log.starts) == log.steps + 1
    values: list[Values | None] = [None] * len(candidates)
    if plan.model == "neural" and single and isinstance(log.spec.action, Discrete):  # regressions of the reward
        shared = {} if one_step is None else one_step
        fitted = shared.get(len(candidates)) or _values(log, plan, candidates, discount, seed, tell)
        shared[len(candidates)] = fitted
        values = [_of_target(one, log, plan, own) for own, one in zip(candidates, fitted, strict=True)]
    elif plan.model != "none":
        values = [*_values(log, plan, candidates, discount, seed, tell)]
    ratios = [_ratios(log, plan, targets, known.logged, discount, seed, single=single) for targets in judged]
    triples = zip(judged, values, ratios, strict=False)
    evidence = [_evidence(log, plan, targets, known, one, two, discount) for targets, one, two in triples]
    share = 1.0
    if plan.model == "neural":
        (evidence[0], share), *others = map(shrunk, evidence)
        evidence[1:] = [one for one, _ in others]
    smoothing = None
    if len(values) > len(judged) and values[0] is not None and values[-1] is not None:
        first = np.asarray(log.starts[:-1])
        smoothing = float(np.mean(values[0].target[first] - values[-1].target[first]))
    drawn, shares = None, behavior_policy.shares  # declared propensities in place of estimated ones
    if shares is not None:
        shown = [one.supported for one in shares.clones if one.supported is not None]
        drawn = replace(
            evidence[0],
            behaviour=shares.logged,
            behaviour_all=shares.all_actions,
            supported=out_of_fold(log, plan.folds, shown, log.position),
            estimated=False,
            occupancy=None,
        )
    release_memory()
    tell("models", 1.0)
    return PolicyEvidence(
        evidence[0],
        evidence[1] if len(evidence) > 1 else None,
        behavior_policy,
        plan.folds,
        plan.model,
        target.bandwidth,
        smoothing,
        share,
        without_support,
        drawn,
    )


class BehaviorModel(NamedTuple):
    """Model of the behaviour policy, independent of the judged policy; computed once for several policies."""

    propensities: Propensities
    history: tuple[Dependence, ...]
    drift: tuple[Dependence, ...]
    balance: Balance | None = None  # whether observations predict the actions beyond their propensities, or shares
    shares: Propensities | None = None  # of a log without propensities that looks randomised


def behavior_model(
    log: Log, plan: ModelChoice, source: Any, seed: int, *, tests: bool = True, clones: bool = True
) -> BehaviorModel:
    """Propensities, and tests of what they assume; models read the time if the behaviour policy changed with it."""
    history = tuple(history_dependence(log, plan.folds, plan.states, seed=seed) if tests else ())
    drift = tuple(time_dependence(log, plan.folds, plan.states, seed=seed) if tests else ())
    if isinstance(source, FilePropensities) and source.estimated:  # their model may have read what ours would miss
        history, drift = (tuple(one for one in part if one.outcome != BEHAVIOR) for part in (history, drift))
    when, by_classifier = relative_time(log), is_by_classifier(source)
    changed = any(one.outcome == BEHAVIOR and one.p_value < SUSPECTED for one in drift)
    asked = isinstance(source, str) and source == "estimated"
    estimated = log.propensity is None if source is None else by_classifier or asked
    if when is not None and changed and estimated and isinstance(log.spec.action, Discrete | Continuous):

        def left(states: States) -> list[Dependence]:
            return [one for one in time_dependence(log, plan.folds, states, seed=seed) if one.outcome == BEHAVIOR]

        table = None if by_classifier else plan.states
        shown, states = with_time(log, table, plan.folds, when, lambda one: not any(test.fails for test in left(one)))
        drift = (*(one for one in drift if one.outcome != BEHAVIOR), *(() if states is None else left(states)))
        known = propensities_of(shown, plan.folds, source, states=states, seed=seed)
    else:
        known = propensities_of(log, plan.folds, source, states=plan.states, seed=seed, clones=clones)
    balance, shares = None, None
    if tests and isinstance(log.spec.action, Discrete):
        if not known.estimated:
            balance = recorded_fit(log, known.logged) if known.declared is None else log_balance(log)
        else:
            balance = log_balance(replace(log, declared=None, stratum=None))
            drawn = balance is not None and balance.p_value >= BALANCED and log.spec.action.n <= MOST_BALANCED
            if drawn and log.propensity is None:
                shares = declared_propensities(declare(log, SHARES), plan.folds)
    return BehaviorModel(known, history, drift, balance, shares)


def choose_model(log: Log, model: str | None, folds: int | None, seed: int) -> ModelChoice:
    """Choose the model and the folds for a log."""
    if model is not None and model not in MODELS:
        raise ConfigError(f"model = {model!r}: {nearest(str(model), MODELS)}")
    discrete = isinstance(log.spec.action, Discrete)
    if model == "tabular" and not discrete:
        raise SpecError(
            "model = 'tabular'", f"discrete actions, found {type(log.spec.action).__name__}", "use model='neural'"
        )
    states = number_observations(log) if discrete and model != "neural" else None
    tabular = states is not None and (model == "tabular" or is_tabular(log, states))
    chosen: Model = "none" if model == "none" else "tabular" if tabular else "neural"
    count = (TABLE_FOLDS if tabular else NETWORK_FOLDS) if folds is None else folds
    if folds is None:
        count = min(count, max(2, int(log.clusters.max(initial=0)) + 1))
    return ModelChoice(chosen, states if tabular else None, episode_folds(log, count, seed))


def _values(
    log: Log, plan: ModelChoice, candidates: list[list[Target]], discount: float, seed: int, tell: Progress
) -> list[Values]:
    """Cross-fitted values of each candidate; what is known of them without a model is added to the model's."""
    log, known = centred_rewards(log, discount)
    if plan.states is not None:
        values = [tabular_values(log, plan.states, plan.folds, targets, discount) for targets in candidates]
    else:
        values = network_values(
            log, plan.folds, candidates, discount, seed, lambda share: tell("values", 0.4 + 0.6 * share)
        )
    column = np.reshape(known, (-1, 1))
    return [
        Values(one.logged + known, one.target + known, None if one.all_actions is None else one.all_actions + column)
        for one in values
    ]


def _of_target(values: Values, log: Log, plan: ModelChoice, targets: Sequence[Target]) -> Values:
    """Values of actions, and their mean under a target, one for each fold."""
    chances = [one.probabilities for one in targets if one.probabilities is not None]
    if values.all_actions is None or not chances:
        return values
    mean = (out_of_fold(log, plan.folds, chances, log.position) * values.all_actions).sum(1)
    return Values(values.logged, mean, values.all_actions)


def _evidence(
    log: Log,
    plan: ModelChoice,
    targets: list[Target],
    known: Propensities,
    values: Values | None,
    ratios: Floats | None,
    discount: float,
) -> Evidence:
    chances = [one.probabilities for one in targets if one.probabilities is not None]
    everything = out_of_fold(log, plan.folds, chances, log.position) if chances else None
    shown = [clone.supports(target, log.spec.action) for clone, target in zip(known.clones, targets, strict=False)]
    supported = out_of_fold(log, plan.folds, shown, log.position) if shown else None
    evidence = Evidence(
        starts=np.asarray(log.starts, np.int64),
        reward=np.asarray(log.reward, np.float64),
        target=out_of_fold(log, plan.folds, [one.logged for one in targets]),
        behaviour=known.logged,
        discount=float(discount),
        elapsed=None if discount == 1.0 else log.spacing,
        model=None if values is None else values.logged,
        model_target=None if values is None else values.target,
        target_all=everything,
        behaviour_all=known.all_actions,
        model_all=None if values is None else values.all_actions,
        estimated=known.estimated,
        occupancy=ratios,
        action=np.asarray(log.action, np.int64) if isinstance(log.spec.action, Discrete) else None,
        supported=supported if known.shown is None or supported is None else supported | known.shown,
        clusters=clusters_of(log),
    )
    follows = targets[0].follows
    return evidence if follows is None else evidence.part_of(follows[np.asarray(log.position)])


def _ratios(
    log: Log, plan: ModelChoice, targets: list[Target], behaviour: Floats, discount: float, seed: int, *, single: bool
) -> Floats | None:
    """Occupancy ratios of a candidate; None without a model or a density.

    With `single` steps, target and behaviour policy see the same observations: only the ratio of the actions remains.
    """
    if plan.model == "none" or not any(one.logged.any() for one in targets):
        return None
    if single:
        return np.asarray(out_of_fold(log, plan.folds, [one.logged for one in targets]) / behaviour)
    if plan.states is not None:
        return tabular_ratios(log, plan.states, plan.folds, targets, behaviour, discount)
    return feature_ratios(log, plan.folds, targets, behaviour, discount, seed)


# Estimates of a policy's value: one row for each estimator, with its interval and support.

IMPOSSIBLE = "outside the range that an episode can earn"


@one_thread("blas")  # as tidelog.judge
def estimate(
    policy: Any,
    log: Log,
    names: Sequence[str] | str | None = None,
    sample: bool | None = None,
    propensities: Any = None,
    seed: int = 0,
    *,
    discount: float = 1.0,
    bandwidth: float | None = None,
    model: str = "auto",
    level: float = 0.95,
    replicates: int = 1000,
    progress: Callable[[str, float], None] | None = None,
) -> Estimates:
    """Estimate a policy's value, one row per estimator with interval and support; `names` None: all that apply.

    `policy` is a tidelog policy, any object with `probabilities(observation, mask)`, or a fitted scikit-learn
    estimator; `sample` None evaluates a policy in its declared way of acting, else by its most likely actions. Raises
    ConfigError for an unknown name, SpecError if policy and log do not fit or a named estimator cannot be computed on
    this log. Unknown rewards count as missing at random.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> policy = tl.fit(tl.BC(hidden=(16,)), log, steps=20).policy()
        >>> found = tl.estimate(policy, log, ["wis", "dr"], sample=True, model="tabular")
        >>> [row.name for row in found]
        ['wis', 'dr']
        >>> found["wis"].low < found["wis"].estimate < found["wis"].high
        True
    """
    chosen = [names] if isinstance(names, str) else None if names is None else list(dict.fromkeys(names))
    for name in chosen or ():
        if name not in ESTIMATORS:
            raise ConfigError(f"unknown estimator '{name}': {nearest(str(name), ESTIMATORS)}")
    if chosen == []:
        raise ConfigError("no estimator was named", f"one or more of {', '.join(ESTIMATORS)}")
    check_seed(seed, LARGEST_SEED)
    confidence = Confidence(level, replicates, seed)
    check_kind(log)
    needed = {part for name in chosen or ESTIMATORS for part in ESTIMATORS[name].needs}
    known = as_policy(policy, log.spec)
    log, propensities = with_declaration(log, propensities)
    log, _ = with_stand_ins(log, seed)
    evidence = evidence_of(
        known,
        log,
        sample=is_sampled(known, sample),
        discount=discount,
        propensities=with_file_read(propensities, log),
        model=model_of(model, "model" in needed),
        seed=seed,
        bandwidth=bandwidth,
        cloning=False,
        tests=False,
        clones=bool(needed) or names is None,
        progress=progress,
    ).policy
    return table(evidence, chosen, confidence)


def table(
    evidence: Evidence,
    names: Sequence[str] | None,
    confidence: Confidence | None = None,
    groups: int = MOST_GROUPS,
    supports: Supports | None = None,
) -> Estimates:
    """Estimates on this evidence; SpecError if a named estimator cannot be computed."""
    for name in names or ():
        obstacle = obstacle_of(name, evidence)
        if obstacle:
            raise SpecError(f"'{name}' {obstacle}")
    listed = names or [name for name in ESTIMATORS if is_listed(name, evidence)]
    supports, confidence = supports or Supports(evidence), confidence or Confidence()
    return Estimates([_row(name, evidence, supports, confidence, groups) for name in listed])


def _row(name: str, evidence: Evidence, supports: Supports, confidence: Confidence, groups: int) -> Estimate:
    """One estimator's estimate on this evidence."""
    ratios = ESTIMATORS[name].ratios(evidence)
    resampled = ratios.clustered(evidence.clusters).grouped(groups)
    ends, support = bca(resampled, confidence), supports.of(name)
    how, note = f"bca, {confidence.replicates:,} replicates", ""
    if name in MODEL_ALONE:
        how, note = f"{how}, of the model's values alone", "its interval does not hold the model's own error"
    note = note if np.isfinite(ends.estimate) else "no weight is left at some step"
    if not is_possible(ends.estimate, evidence):
        low, high = map(three_digits, possible_returns(evidence))
        note = f"{IMPOSSIBLE} ({low} to {high})"
    return Estimate(name, *ends, how, confidence.level, support, evidence.estimated, ratios.contributions, note)


def model_of(asked: str, needed: bool) -> str | None:
    """The `model` argument of `evidence_of`: "auto" is None (chosen by the log), or "none" if no model is needed."""
    return asked if asked != "auto" else None if needed else "none"
