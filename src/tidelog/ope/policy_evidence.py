"""Gather the evidence about a policy on a log: the common function of every judgement.

The estimand is always the discounted return up to the recorded end of an episode: a truncation is an end. Models of the
logger and of the values are cross-fitted over the same folds: an episode's numbers come from models that never saw it.
One-step logs need no special case: their values are regressions of the reward.

The model is a table (`tabular`) if the log has discrete actions and few different observations, each visited often;
otherwise networks (`neural`); `none` if values are not needed, or not possible (several simultaneous choices).

Letters: `N` steps, `E` episodes, `F` folds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tidelog._machine import release_memory
from tidelog.data.checks import BALANCED, MOST_BALANCED, Balance
from tidelog.data.columns import SHARES
from tidelog.data.log import Log, States, declare, is_tabular, log_balance, number_observations, recorded_fit
from tidelog.errors import ConfigError, SpecError, nearest
from tidelog.ope.assumptions import LOGGER, Dependence, history_dependence, relative_time, time_dependence
from tidelog.ope.evidence import (
    Evidence,
    Floats,
    Ordinals,
    Target,
    centred_rewards,
    check_log,
    clusters_of,
    episode_folds,
    out_of_fold,
)
from tidelog.ope.networks import feature_ratios, network_values
from tidelog.ope.policies import target_of
from tidelog.ope.propensities import (
    FilePropensities,
    Propensities,
    declared_propensities,
    estimates_by_classifier,
    propensities_of,
    shrunk,
    with_time,
)
from tidelog.ope.tabular import Values, tabular_ratios, tabular_values
from tidelog.policies.policy import Policy
from tidelog.types import Continuous, Discrete, MultiDiscrete

Model = Literal["tabular", "neural", "none"]
Progress = Callable[[str, float], None]  # name of the finished part, and the finished share of the work
MODELS = ("tabular", "neural", "none")
SUSPECTED = 0.05  # p-value of a drift below which models of the logger read the time
TABLE_FOLDS, NETWORK_FOLDS = 5, 2  # fitting a table is fast, fitting a network is slow


@dataclass(frozen=True, eq=False)
class PolicyEvidence:
    """Evidence about the policy, and about behaviour cloning on the same folds, propensities and models."""

    policy: Evidence
    cloning: Evidence | None  # None if the logger could not be modelled, or was not requested
    logger: LoggerModel
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


OneStepValues: TypeAlias = dict[int, "list[Values | None]"]  # by the number of candidates


def evidence_of(
    policy: Policy,
    log: Log,
    *,
    progress: Progress | None = None,
    one_step: OneStepValues | None = None,
    **settings: Any,
) -> PolicyEvidence:
    """Gather evidence about a policy on a log that it never saw, and about behaviour cloning for comparison.

    Settings and errors are those of `prepare_evidence`. `one_step` holds the networks' values of another policy on this
    log, and gets them: in episodes of one step they depend on the log alone.
    """
    tell = progress or (lambda what, share: None)
    prepared = prepare_evidence(policy, log, progress=progress, **settings)
    shared = {} if one_step is None or not prepared.regresses else one_step
    values = shared.get(len(prepared.candidates)) or _values(prepared, tell)
    shared[len(prepared.candidates)] = values
    found = evidence_from(prepared, values, _ratios(prepared))
    release_memory()
    tell("models", 1.0)
    return found


@dataclass(frozen=True, eq=False)
class Prepared:
    """What is known about a policy and its logger before values and occupancy ratios are fitted."""

    policy: Policy
    log: Log  # without weights
    weighted: bool  # whether it had some
    sample: bool
    discount: float
    seed: int
    target: Target
    plan: ModelChoice  # without a model where `without_support`
    logger: LoggerModel
    candidates: list[list[Target]]  # whose values are fitted, a target for each fold: the policy and its clones first
    judged: int  # the number of candidates with ratios too; one after them is the policy without its kernel
    without_support: bool

    @property
    def model(self) -> Model:
        """The model that is fitted, as in `PolicyEvidence`."""
        return self.plan.model

    @property
    def is_fitted(self) -> bool:
        """Whether there is anything to fit."""
        return self.model != "none"

    @property
    def regresses(self) -> bool:
        """Whether networks regress the reward of single decisions: their values depend on no policy."""
        one_step = len(self.log.starts) == self.log.steps + 1
        return self.model == "neural" and one_step and isinstance(self.log.spec.action, Discrete)

    def fits_ratios(self, targets: Sequence[Target]) -> bool:
        """Whether occupancy ratios of a candidate are fitted; not with one-step episodes or without a density.

        With one-step episodes, target and logger see the same observations: only the ratio of the actions remains.
        """
        several = len(self.log.starts) != self.log.steps + 1
        return self.is_fitted and several and any(one.logged.any() for one in targets)


def prepare_evidence(
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
    lacks_support: Callable[[Evidence], bool] | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """Model the logger and ask the policy, for `evidence_from`.

    `sample` judges the sampled policy, else the deterministic one; `propensities` is None (recorded if there are any),
    "logged", "estimated", numbers [N] or a `LoggerModel`; `model` is "tabular", "neural", "none" or None (chosen by the
    log); `folds` None means 5 for tables and 2 for networks; `bandwidth` is that of the kernel around deterministic
    continuous actions; `tests` tests the assumptions on history and time. Networks of values are not fitted where
    `lacks_support` says so of the evidence without them. Raises SpecError if policy and log do not fit, ConfigError for
    settings out of range.
    """
    check_log(log, discount)
    weighted, log = log.weight is not None, replace(log, weight=None)
    target = target_of(policy, log, sample=sample, bandwidth=bandwidth, seed=seed)
    plan = choose_model(log, model, folds, seed)
    tell = progress or (lambda what, share: None)
    tell("policy", 0.1)
    shared = isinstance(propensities, LoggerModel)
    logger = propensities if shared else logger_model(log, plan, propensities, seed, tests=tests)
    known: Propensities = logger.propensities
    release_memory()
    tell("propensities", 0.4)
    count = int(plan.folds.max()) + 1
    candidates = [[target] * count]
    if cloning and known.clones:
        candidates.append([c.target(log, sample=sample, bandwidth=bandwidth, seed=seed) for c in known.clones])
    judged, without_support = len(candidates), False
    if lacks_support is not None and plan.model == "neural":
        without_support = lacks_support(_evidence(log, plan, candidates[0], known, None, None, discount))
        plan = replace(plan, model="none") if without_support else plan
    if target.bandwidth is not None and not without_support:
        candidates.append([target_of(policy, log)] * count)
    return Prepared(
        policy, log, weighted, sample, discount, seed, target, plan, logger, candidates, judged, without_support
    )


def evidence_from(
    prepared: Prepared, values: Sequence[Values | None], ratios: Sequence[Floats | None]
) -> PolicyEvidence:
    """The evidence with these values of all candidates, and occupancy ratios [N] of the judged ones."""
    log, plan, known = prepared.log, prepared.plan, prepared.logger.propensities
    if prepared.regresses:
        pairs = zip(prepared.candidates, values, strict=True)
        values = [None if one is None else _of_target(one, log, plan, targets) for targets, one in pairs]
    triples = zip(prepared.candidates, values, ratios, strict=False)
    evidence = [_evidence(log, plan, targets, known, one, two, prepared.discount) for targets, one, two in triples]
    shares = [1.0]
    if plan.model == "neural":
        evidence, shares = map(list, zip(*map(shrunk, evidence), strict=True))
    smoothing = None
    if len(values) > prepared.judged and values[0] is not None and values[-1] is not None:
        first = np.asarray(log.starts[:-1])
        smoothing = float(np.mean(values[0].target[first] - values[-1].target[first]))
    cloned = evidence[1] if len(evidence) > 1 else None
    return PolicyEvidence(
        evidence[0],
        cloned,
        prepared.logger,
        plan.folds,
        plan.model,
        prepared.target.bandwidth,
        smoothing,
        shares[0],
        prepared.without_support,
        None if prepared.logger.shares is None else with_propensities(evidence[0], log, plan, prepared.logger.shares),
    )


def with_propensities(evidence: Evidence, log: Log, plan: ModelChoice, known: Propensities) -> Evidence:
    """The evidence with declared propensities in place of estimated ones; without occupancy ratios."""
    shown = [one.supported for one in known.clones if one.supported is not None]
    return replace(
        evidence,
        behaviour=known.logged,
        behaviour_all=known.all_actions,
        supported=out_of_fold(log, plan.folds, shown, log.position),
        estimated=False,
        occupancy=None,
    )


class LoggerModel(NamedTuple):
    """Model of the logger, independent of the judged policy; computed once for several policies."""

    propensities: Propensities
    history: tuple[Dependence, ...]
    drift: tuple[Dependence, ...]
    balance: Balance | None = None  # whether observations predict the actions beyond their propensities, or shares
    shares: Propensities | None = None  # of a log without propensities that looks randomised


def logger_model(log: Log, plan: ModelChoice, source: Any, seed: int, *, tests: bool = True) -> LoggerModel:
    """Propensities and tests of assumptions; one test says whether the log as a whole fits its propensities."""
    model = _logger_model(log, plan, source, seed, tests=tests)
    known = model.propensities
    if not tests or not isinstance(log.spec.action, Discrete):
        return model
    if not known.estimated:
        return model._replace(balance=recorded_fit(log, known.logged) if known.declared is None else log_balance(log))
    balance = log_balance(replace(log, declared=None, stratum=None))
    model = model._replace(balance=balance)
    drawn = balance is not None and balance.p_value >= BALANCED and log.spec.action.n <= MOST_BALANCED
    return (
        model
        if not drawn or log.propensity is not None
        else model._replace(shares=declared_propensities(declare(log, SHARES), plan.folds))
    )


def _logger_model(log: Log, plan: ModelChoice, source: Any, seed: int, *, tests: bool) -> LoggerModel:
    """Propensities and tests of independence; models read the time if the logger changed with it."""
    history = tuple(history_dependence(log, plan.folds, plan.states, seed=seed) if tests else ())
    drift = tuple(time_dependence(log, plan.folds, plan.states, seed=seed) if tests else ())
    if isinstance(source, FilePropensities) and source.estimated:  # their model may have read what ours would miss
        history, drift = (tuple(one for one in part if one.outcome != LOGGER) for part in (history, drift))
    when = relative_time(log)
    changed = any(one.outcome == LOGGER and one.p_value < SUSPECTED for one in drift)
    by_classifier, asked = estimates_by_classifier(source), isinstance(source, str) and source == "estimated"
    estimated = log.propensity is None if source is None else by_classifier or asked
    if when is None or not changed or not estimated or not isinstance(log.spec.action, Discrete | Continuous):
        return LoggerModel(propensities_of(log, plan.folds, source, states=plan.states, seed=seed), history, drift)

    def left(states: States) -> list[Dependence]:
        return [one for one in time_dependence(log, plan.folds, states, seed=seed) if one.outcome == LOGGER]

    table = None if by_classifier else plan.states
    shown, states = with_time(log, table, plan.folds, when, lambda states: not any(one.fails for one in left(states)))
    others = [one for one in drift if one.outcome != LOGGER]
    others += [] if states is None else left(states)
    known = propensities_of(shown, plan.folds, source, states=states, seed=seed)
    return LoggerModel(known, history, tuple(others))


def choose_model(log: Log, model: str | None, folds: int | None, seed: int) -> ModelChoice:
    """Choose the model and the folds for a log."""
    if model is not None and model not in MODELS:
        raise ConfigError(f"model = {model!r}: {nearest(str(model), MODELS)}")
    discrete = isinstance(log.spec.action, Discrete)
    if model == "tabular" and not discrete:
        raise SpecError(
            "model = 'tabular'", f"discrete actions, found {type(log.spec.action).__name__}", "use model='neural'"
        )
    if model == "neural" and isinstance(log.spec.action, MultiDiscrete):
        raise SpecError("model = 'neural' does not support several simultaneous choices", fix="use model='none'")
    states = number_observations(log) if discrete and model != "neural" else None
    tabular = states is not None and (model == "tabular" or is_tabular(log, states))
    chosen: Model = "tabular" if tabular else "neural" if not isinstance(log.spec.action, MultiDiscrete) else "none"
    count = (TABLE_FOLDS if tabular else NETWORK_FOLDS) if folds is None else folds
    if folds is None:
        count = min(count, max(2, int(log.clusters.max(initial=0)) + 1))
    return ModelChoice(
        "none" if model == "none" else chosen, states if tabular else None, episode_folds(log, count, seed)
    )


def _values(prepared: Prepared, tell: Progress) -> list[Values | None]:
    """Cross-fitted values of each candidate; None without a model."""
    if not prepared.is_fitted:
        return [None] * len(prepared.candidates)
    plan, discount = prepared.plan, prepared.discount
    log, known = centred_rewards(prepared.log, discount)
    if plan.states is not None:
        values = [tabular_values(log, plan.states, plan.folds, targets, discount) for targets in prepared.candidates]
    else:
        values = network_values(
            log,
            plan.folds,
            prepared.candidates,
            discount,
            prepared.seed,
            lambda share: tell("values", 0.4 + 0.6 * share),
        )
    return [with_known(one, known) for one in values]


def _of_target(values: Values, log: Log, plan: ModelChoice, targets: Sequence[Target]) -> Values:
    """Values of actions, and their mean under a target, one for each fold."""
    chances = [one.probabilities for one in targets if one.probabilities is not None]
    if values.all_actions is None or not chances:
        return values
    mean = (out_of_fold(log, plan.folds, chances, log.position) * values.all_actions).sum(1)
    return Values(values.logged, mean, values.all_actions)


def with_known(values: Values, known: Floats) -> Values:
    """Values of a model, and what is known about them without it: [N], or [1] for all steps."""
    by_action = None if values.all_actions is None else values.all_actions + np.reshape(known, (-1, 1))
    return Values(values.logged + known, values.target + known, by_action)


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
    return Evidence(
        starts=np.asarray(log.starts, np.int64),
        reward=np.asarray(log.reward, np.float64),
        target=out_of_fold(log, plan.folds, [one.logged for one in targets]),
        behaviour=known.logged,
        discount=float(discount),
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


def _ratios(prepared: Prepared) -> list[Floats | None]:
    """Occupancy ratios of each judged candidate."""
    log, plan, discount, found = prepared.log, prepared.plan, prepared.discount, list[Floats | None]()
    behaviour = prepared.logger.propensities.logged
    for targets in prepared.candidates[: prepared.judged]:
        if not prepared.fits_ratios(targets):
            found.append(unfitted_ratios(prepared, targets))
        elif plan.states is not None:
            found.append(tabular_ratios(log, plan.states, plan.folds, targets, behaviour, discount))
        else:
            found.append(feature_ratios(log, plan.folds, targets, behaviour, discount, prepared.seed))
    return found


def unfitted_ratios(prepared: Prepared, targets: Sequence[Target]) -> Floats | None:
    """Occupancy ratios of one-step episodes; None without a model, or if the target has no density."""
    if not prepared.is_fitted or not any(one.logged.any() for one in targets):
        return None
    logged = out_of_fold(prepared.log, prepared.plan.folds, [one.logged for one in targets])
    return np.asarray(logged / prepared.logger.propensities.logged)
