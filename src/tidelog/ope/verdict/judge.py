"""The verdict: a policy is better than the logger, worse, not shown to differ, or the log cannot decide.

`judge` reads from top to bottom: the checks of its arguments; the evidence about each policy (`comparison`); the look
at these episodes with the width of all intervals (`look`); then for each policy the decision (`decide`), its risk, and
its sentences (`verdict_text`). docs/judging.md describes the parts in order.

Several policies are judged together on the same episodes; one policy is the smallest case. The evidence of all policies
is in memory at the same time.

Letter: `E` episodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from tidelog.data.declare import is_declaration, with_declaration
from tidelog.data.log import Log
from tidelog.data.sources.files import source_text
from tidelog.errors import ConfigError, SpaceError
from tidelog.memory import shortage
from tidelog.ope.assumptions.independence import with_detected_clusters
from tidelog.ope.estimators.estimate import ESTIMATORS, IMPOSSIBLE, model_of
from tidelog.ope.estimators.intervals import Confidence, interval
from tidelog.ope.estimators.ratios import means
from tidelog.ope.estimators.risk import ALPHA, Risk, check_risk, risk_of, tail_sentence
from tidelog.ope.estimators.support import Estimates, Support
from tidelog.ope.evidence.episodes import check_kind, check_log, check_seed
from tidelog.ope.evidence.evidence import Evidence
from tidelog.ope.evidence.first_steps import check_first_steps, cut_log, cut_propensities
from tidelog.ope.evidence.propensities import with_file_read
from tidelog.ope.evidence.propensity_file import FilePropensities
from tidelog.ope.evidence.target import DRAWS, as_policy, check_fit
from tidelog.ope.verdict import verdict_text
from tidelog.ope.verdict.checks import leak_sentence, leaks_of, overlap_finding
from tidelog.ope.verdict.comparison import Comparison, Progress, Settings, comparisons_of, contrasts_of
from tidelog.ope.verdict.decide import IF_RANDOMISED, METHOD, NOTHING, Outcome, decide, decide_if_randomised
from tidelog.ope.verdict.ledger import Ledger
from tidelog.ope.verdict.limits import Limits
from tidelog.ope.verdict.look import LookResult, look_at
from tidelog.ope.verdict.recommendation import Contrast
from tidelog.ope.verdict.results import CAVEAT, Verdict, Verdicts, combine_verdicts, named_policies
from tidelog.ope.verdict.shorter_question import with_shorter_question
from tidelog.ope.verdict.verdict_text import caveats
from tidelog.policies.policy import Policy
from tidelog.policies.statistics import Interval
from tidelog.runtime.rule import Rule
from tidelog.runtime.way_of_acting import first_decisions, replaces
from tidelog.threads import one_thread
from tidelog.training.runs.progress import Screen
from tidelog.training.runs.record import this_machine
from tidelog.types import Continuous, Discrete

UNSUPPORTED = "the verdict is unsupported: a log that cannot show the mean cannot show the worst episodes either"


_OF_POLICY, _OF_LOG = 4, 40  # numbers of 8 bytes: arrays of a policy by action, arrays of the log by step
OTHER_DATA = "other data"


@overload
def judge(
    policy: Sequence[Any] | Mapping[str, Any],
    log: Log,
    sample: bool | None = None,
    propensities: Any = None,
    seed: int = 0,
    *,
    discount: float = 1.0,
    limits: Limits | None = None,
    first_steps: int | None = None,
    bandwidth: float | None = None,
    model: str = "auto",
    level: float | None = None,
    cvar: float = ALPHA,
    bad_outcome: float | None = None,
    learnt_from: Literal["other data"] | None = None,
    ledger: Ledger | str | Path | Literal[False] | None = None,
    context: Mapping[str, Any] | None = None,
    progress: Progress | bool | None = None,
) -> Verdicts: ...


@overload
def judge(
    policy: Any,
    log: Log,
    sample: bool | None = None,
    propensities: Any = None,
    seed: int = 0,
    *,
    discount: float = 1.0,
    limits: Limits | None = None,
    first_steps: int | None = None,
    bandwidth: float | None = None,
    model: str = "auto",
    level: float | None = None,
    cvar: float = ALPHA,
    bad_outcome: float | None = None,
    learnt_from: Literal["other data"] | None = None,
    ledger: Ledger | str | Path | Literal[False] | None = None,
    context: Mapping[str, Any] | None = None,
    progress: Progress | bool | None = None,
) -> Verdict: ...


@one_thread("blas")  # the last bits of sums by several threads depend on their number
def judge(
    policy: Any,
    log: Log,
    sample: bool | None = None,
    propensities: Any = None,
    seed: int = 0,
    *,
    discount: float = 1.0,
    limits: Limits | None = None,
    first_steps: int | None = None,
    bandwidth: float | None = None,
    model: str = "auto",
    level: float | None = None,
    cvar: float = ALPHA,
    bad_outcome: float | None = None,
    learnt_from: Literal["other data"] | None = None,
    ledger: Ledger | str | Path | Literal[False] | None = None,
    context: Mapping[str, Any] | None = None,
    progress: Progress | bool | None = None,
) -> Verdict | Verdicts:
    """Judge whether a policy is better than the logger, on episodes that the policy never saw.

    This declares the way of acting: from now on a tidelog policy acts as it was judged, and carries the verdict, unless
    it carries an earlier one that this one does not replace (`tidelog.runtime.way_of_acting.replaces`). A question that
    the log cannot answer gives "unsupported" with reasons. Raises SpecError if policy and log do not fit, SpaceError if
    memory does not suffice, ConfigError for numbers out of range, CheckpointError for a damaged ledger.

    - `policy`: a tidelog policy, judged by its most likely actions or with `sample` by sampled actions (None: as it was
      declared, else by its most likely actions; `policy.with_acting("sample")` declares it); a rule of
      `tl.simple_rules`; any object with `probabilities(observation, mask)` [B, A], judged by
      these; or a fitted scikit-learn estimator, judged by `predict` or with `sample` by `predict_proba`. A list of
      policies, or a mapping from names to policies, gives `Verdicts` with simultaneous intervals, and recommends a
      learnt policy instead of a simple rule where the log shows that it beats the rule.
    - `propensities`: None uses the log's own or estimates missing ones; "estimated" always estimates; or numbers [N],
      or the path of a table of them, by episode and step (docs/judging.md). A probability of every action, a mapping
      from each action to its own, "shares", or {"shares_by": ["village"]} declares them as `Columns` does. "trees"
      (extra `trees`) or a classifier of scikit-learn estimates them by it, "best" by trees where these predict other
      episodes better.
    - `first_steps`: judge the return of that many first decisions of an episode, another quantity than the whole
      return.
    - `bandwidth`: a share of half of each action's range; adds noise to deterministic continuous actions.
    - `cvar`, `bad_outcome`: `verdict.risk` has the mean of this share of worst episodes, and the probability of a
      return as low as this.
    - `ledger`: the file that counts looks at these episodes, None for the default files, False for none; later looks
      use a stricter level.
    - `learnt_from`: "other data" states that the policy never learnt from these episodes if no record shows it.
    - `context`: stored with the verdict.
    - `progress`: a function of the current part and its share, False for silence, None for a line on a terminal, a bar
      in a notebook and lines elsewhere.

    Example:
        >>> train, held_out = tl.collect("treatment", episodes=2_000, seed=0).split(0.5, seed=0)
        >>> policy = tl.fit(tl.BC(hidden=(16,)), train, steps=20).policy()
        >>> verdict = tl.judge(policy, held_out, sample=True, model="tabular")
        >>> verdict.decision
        'no difference shown'
    """
    check_kind(log)
    check_seed(seed)
    check_risk(cvar, bad_outcome)
    if bandwidth is not None and not isinstance(log.spec.action, Continuous):
        raise ConfigError(f"bandwidth = {bandwidth!r}: expected continuous actions. fix: remove bandwidth")
    if learnt_from not in (None, OTHER_DATA):
        raise ConfigError(
            f"learnt_from = {learnt_from!r}: expected None or '{OTHER_DATA}'. fix: leave it out if unknown"
        )
    limits = limits or Limits()
    limits = limits if level is None else replace(limits, level=level)
    several = named_policies(policy)
    name = str((context or {}).get("name", "policy"))
    policies = {one: as_policy(each, log.spec) for one, each in (several or {name: policy}).items()}
    check_log(log, discount)
    check_first_steps(log, first_steps)
    for known in policies.values():
        check_fit(known, log)
    _check_memory(log, len(policies))
    kind = model_of(model, needed=True)
    declaration = propensities if is_declaration(propensities) else None
    judged_log, propensities = with_declaration(log, propensities)
    propensities = with_file_read(propensities, log)
    if first_steps is not None:
        propensities = cut_propensities(propensities, log, first_steps)
    settings = Settings(
        sample, propensities, seed, float(discount), limits, bandwidth, kind, cvar, bad_outcome, first_steps
    )
    if declaration is not None and judged_log.declared is not None:
        settings = settings._replace(declared=f"{judged_log.declared.text} ({declaration!r})")
    counting = _ledger(ledger, log)
    fingerprint = log.fingerprint() if counting is None else counting.fingerprint
    source = log.report.source if log.origin is None else source_text(log.origin)
    facts = {"fingerprint": fingerprint, "source": source, "steps": log.steps, "episodes": len(log.episode_ids)}
    whole, dependence = with_detected_clusters(judged_log)
    log = whole if first_steps is None else cut_log(whole, first_steps)
    factors = float(discount) ** np.asarray(log.step, np.float64)
    returns = np.add.reduceat(factors * np.asarray(log.reward, np.float64), log.starts[:-1])
    with Screen("judging", progress if isinstance(progress, bool) else None if progress is None else False) as screen:
        tell = progress if callable(progress) else screen.tell
        comparisons = comparisons_of(policies, log, settings, returns, tell, whole)
    pairs = contrasts_of(comparisons)
    looked = look_at(comparisons, settings, counting, pairs)
    verdicts = []
    for one, widening in zip(comparisons, looked.widenings.tolist(), strict=True):
        entries = _context(one, facts, settings) | looked.context | dict(context or {})
        entries |= {"overlap_unknown": one.reuse.learnt_from is None and learnt_from is None, "dependence": dependence}
        entries |= {} if several is None else {"name": one.name}
        verdicts.append(_verdict(one, log, settings, looked, widening, returns, entries))
    for judged, verdict in zip(policies.values(), verdicts, strict=True):
        if isinstance(judged, Policy | Rule) and replaces(verdict.summary, judged.verdict):
            judged.declare(verdict.acting, verdict.summary)
    if counting is not None and looked.look is not None:
        names = [one.name for one in comparisons]
        decisions = {name: verdict.decision for name, verdict in zip(names, verdicts, strict=True)}
        counting.record_decisions(looked.look, decisions, dict(zip(names, looked.together, strict=True)))
    if several is None:
        return verdicts[0]
    contrasts = _contrasts(pairs, comparisons, verdicts, settings, looked.of_contrasts)
    margin = limits.margin * float(returns.std())
    return combine_verdicts(tuple(policies), verdicts, 1.0 - looked.error, contrasts, margin)


def _contrasts(
    pairs: Sequence[tuple[int, int]],
    comparisons: Sequence[Comparison],
    verdicts: Sequence[Verdict],
    settings: Settings,
    widening: float,
) -> tuple[Contrast, ...]:
    """Learnt policies against simple rules, where the log supports both."""
    supported = [(one, rule) for one, rule in pairs if "unsupported" not in {verdicts[one].decision,
                                                                             verdicts[rule].decision}]  # fmt: skip
    cases = {place: comparisons[place].case(settings, widening) for pair in supported for place in pair}
    return tuple(
        Contrast(comparisons[one].name, comparisons[rule].name, cases[one].against(cases[rule]))
        for one, rule in supported
    )


def _ledger(ledger: Ledger | str | Path | bool | None, log: Log) -> Ledger | None:
    if ledger is False:
        return None
    if not isinstance(ledger, Ledger):
        ledger = Ledger.of(log, ledger)  # type: ignore[arg-type]  # True is refused there
    elif ledger.fingerprint != log.fingerprint():
        raise ConfigError("ledger = the ledger of another log: expected one of the judged log. fix: use Ledger.of(log)")
    ledger.check()  # before minutes of fitting
    return ledger


def _context(one: Comparison, facts: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Context of a verdict: its subject and settings."""
    entries: dict[str, Any] = {
        "policy": one.facts,
        "log": dict(facts),
        "seed": settings.seed,
        "sample": one.sample,
        "discount": settings.discount,
        "bandwidth": settings.bandwidth,
        "overlap": one.reuse.to_json(),
        "limits": asdict(settings.limits),
        "versions": this_machine(),
    }
    if settings.first_steps is not None:
        entries["first_steps"] = settings.first_steps
    if isinstance(settings.propensities, FilePropensities):
        entries["propensities_file"] = {"file": settings.propensities.file, "unused_rows": settings.propensities.unused}
    gathered = one.gathered
    if gathered is None:
        return entries
    entries |= {"notes": list(gathered.notes), "smoothing": gathered.smoothing, "bandwidth": gathered.bandwidth}
    known = "estimated" if gathered.policy.estimated else "recorded" if gathered.declared is None else "declared"
    entries |= {"propensities": known, "model": gathered.model}
    entries |= {} if gathered.declared is None else {"declared": gathered.declared}
    entries |= {} if gathered.balance is None else {"balance": gathered.balance.to_json()}
    entries |= {"history": [test._asdict() for test in gathered.history]}
    entries |= {"drift": [test._asdict() for test in gathered.drift]}
    fit = gathered.propensities_fit
    entries |= {} if fit is None else {"propensities_fit": fit._asdict()}
    entries |= {} if gathered.classifier is None else {"propensities_classifier": gathered.classifier}
    by = None if gathered.declared is not None else gathered.propensities_by
    return entries | {"propensities_by": by}


def _check_memory(log: Log, policies: int) -> None:
    """Raise SpaceError if what judging computes for every stored observation does not fit into free memory."""
    space = log.spec.action
    wide = space.n if isinstance(space, Discrete) else DRAWS * space.size if isinstance(space, Continuous) else 1
    stored = len(next(iter(log.observation.values())))
    numbers = policies * _OF_POLICY * stored * wide + _OF_LOG * log.steps
    columns = sum(column.nbytes for column in log.columns().values())
    problem = shortage(8 * numbers + columns)
    if problem is not None:
        raise SpaceError(
            f"judging {policies} policies on {log.steps:,} steps: {problem}; nothing was recorded. fix: judge fewer "
            "policies at a time, judge fewer episodes (log.split), or free memory"
        )


def _verdict(
    one: Comparison,
    log: Log,
    settings: Settings,
    looked: LookResult,
    widening: float,
    returns: NDArray[np.float64],
    context: Mapping[str, Any],
) -> Verdict:
    limits, level = settings.limits, settings.limits.level if one.gathered is None else 1.0 - looked.error
    unit = log.reward_unit
    risk: Risk | None = None
    risk_reason: str | None = UNSUPPORTED
    assumed: tuple[str, ...] = ()
    if one.gathered is None:
        findings = [*overlap_finding(one.reuse.learnt_from, limits), *one.refused]
        outcome, deciding = _without_numbers(returns, findings, log, limits, settings.seed), "none"
    else:
        case = one.case(settings, widening)._replace(leaks=leaks_of(log))
        case, outcome = decide_if_randomised(case, decide(case))
        deciding = case.deciding
        if outcome.decision == IF_RANDOMISED:
            context = {**context, "propensities": "shares"}
        assumed = caveats(case, outcome)
        outcome = outcome._replace(findings=with_shorter_question(outcome.findings, case))
        risk, risk_reason = verdict_risk(
            case.policy,
            outcome.decision,
            visits=ESTIMATORS[deciding].uses_occupancy,
            alpha=settings.alpha,
            bad_outcome=settings.bad_outcome,
            limits=limits,
            seed=settings.seed,
        )
        risk = None if risk is None else replace(risk, reward_unit=unit)
    names = [f"'{row.name}'" for row in outcome.estimates if row.note.startswith(IMPOSSIBLE)]
    impossible = [f"the estimate of {', '.join(names)} is {IMPOSSIBLE}: do not use it"] if names else []
    looser = [f"limits are looser than the defaults: {', '.join(limits.looser())}"] if limits.looser() else []
    lengths = np.diff(log.starts)
    concentrated = {"largest_weight", "effective_sample_size"} & {finding.rule for finding in outcome.findings}
    by_products = concentrated and not ESTIMATORS[deciding].uses_occupancy
    named = verdict_text.dominating(log.episode_ids, lengths, outcome.weights) if by_products else []
    read = settings.propensities
    of_file = [verdict_text.propensities_from(read)] if isinstance(read, FilePropensities) else []
    leaks = leak_sentence(leaks_of(log))
    if leaks and not any(leaks in one.sentence for one in outcome.findings):
        of_file = [f"{leaks}: a policy does not know them in time, and then this verdict is void", *of_file]
    notes = (*context.get("notes", ()), *of_file, *context["dependence"], *named, *impossible, *looked.notes, *looser)
    unknown = [CAVEAT] if context["overlap_unknown"] else []
    loose = [f"limits looser than the defaults: {len(limits.looser())}"] if looser else []
    first = settings.first_steps
    part = [] if first is None else [f"of an episode, only the {first_decisions(first)} counted"]
    context = {**context, "conditions": [*part, *unknown, *looked.conditions, *loose]}
    facts = verdict_text.VerdictFacts(
        episodes=len(log.episode_ids),
        steps=log.steps,
        level=level,
        difference=outcome.difference,
        logger=outcome.logger,
        estimated_by=context.get("propensities_by"),
        classifier=context.get("propensities_classifier"),
        propensities_fit=None if one.gathered is None else one.gathered.propensities_fit,
        notes=notes,
        overlap_known=not context["overlap_unknown"],
        caveats=assumed,
        tail=tail_sentence(outcome.decision, risk),
        unit=unit,
        first_steps=first,
        left_out=context["log"]["steps"] - log.steps,
        declared=context.get("declared"),
        balance=None if one.gathered is None else one.gathered.balance,
    )
    cut = int(np.asarray(log.truncated)[log.starts[1:] - 1].sum())
    return Verdict(
        decision=outcome.decision,
        reasons=(*verdict_text.reasons(outcome.decision, outcome.findings, facts), *of_file, *looked.reasons),
        paragraph=verdict_text.paragraph(outcome.decision, outcome.findings, facts),
        estimand=verdict_text.estimand(
            lengths, cut, context["discount"], context["sample"], context["bandwidth"], settings.first_steps
        ),
        deciding=deciding,
        difference=outcome.difference,
        logger=outcome.logger,
        difference_from_bc=outcome.from_bc,
        estimates=outcome.estimates,
        support=outcome.support,
        bound=outcome.bound,
        risk=risk,
        risk_reason=None if risk is not None else risk_reason,
        level=level,
        episodes=facts.episodes,
        weights=outcome.weights,
        context=dict(context),
        reward_unit=unit,
    )


def verdict_risk(
    evidence: Evidence,
    decision: str,
    *,
    visits: bool,
    alpha: float,
    bad_outcome: float | None,
    limits: Limits,
    seed: int,
) -> tuple[Risk | None, str | None]:
    """The risk for a verdict, or None and the reason; `visits`: occupancy ratios decided."""
    if decision == "unsupported":
        return None, UNSUPPORTED
    if visits:
        reason = (
            f"episodes have up to {evidence.horizon:,} decisions; the distribution of returns needs products of ratios "
            f"over whole episodes, which carry no information beyond {limits.horizon} decisions"
        )
        return None, reason
    confidence = Confidence(limits.level, limits.replicates, seed)
    risk = risk_of(
        evidence,
        alpha=alpha,
        bad_outcome=bad_outcome,
        clusters=evidence.clusters,
        confidence=confidence,
        groups=limits.groups,
    )
    return risk, None


def _without_numbers(returns: Any, findings: list[Any], log: Log, limits: Limits, seed: int) -> Outcome:
    """Outcome without estimates: only the logger's own mean."""
    nothing = float("nan")
    horizon, count = int(np.diff(log.starts).max()), len(returns)
    support = Support(count, nothing, nothing, nothing, nothing, nothing, nothing, None, horizon)
    logger = Interval(float(returns.mean()), nothing, nothing)
    if count > 1:
        grouped = means(returns).grouped(limits.groups)
        logger = interval(grouped, METHOD, Confidence(limits.level, limits.replicates, seed))
    return Outcome("unsupported", findings, NOTHING, logger, None, Estimates([]), support, np.zeros(0))
