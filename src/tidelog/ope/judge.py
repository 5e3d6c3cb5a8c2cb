"""The verdict: a policy is better than the behaviour policy, worse, not shown to differ, or the log cannot decide.

`judge` reads from top to bottom: the question (`question_of`), the evidence about each policy (`gather`: the behaviour
policy's probabilities, the policy's, values), the look at these episodes (`look_at`), the decision (`decide`), and the
verdict with its words (`verdict_of`). docs/judging-appendix.md describes the parts in order.

Several policies are judged together on the same episodes; one policy is the smallest case. The evidence of all policies
is in memory at the same time.

Letter: `E` episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np

from tidelog._machine import one_thread, shortage, this_machine
from tidelog.data.log import Log, with_declaration
from tidelog.data.raw import source_text
from tidelog.errors import ConfigError, MemoryLimitError, unknown_name
from tidelog.ope.assumptions import with_detected_clusters
from tidelog.ope.decide import (
    LATE,
    LEAK,
    NOTHING,
    Assessment,
    JudgeQuestion,
    Limits,
    LookResult,
    Reuse,
    advise_first_steps,
    broken,
    decide_if_randomised,
    has_no_support,
    learnt_from_them,
    look_at,
    plan_of,
    preconditions_of,
)
from tidelog.ope.estimators import Estimates, Support, episode_weights, means
from tidelog.ope.evidence import LARGEST_SEED, check_kind, check_log, check_risk
from tidelog.ope.groups import episode_groups, group_differences
from tidelog.ope.intervals import Confidence, bca
from tidelog.ope.ladder import check_train, climb, limits_of_parts, safe_policy, set_ladder, training_practice
from tidelog.ope.ledger import Ledger, undeclared_fingerprint
from tidelog.ope.missing_rewards import MissingRewards, with_stand_ins
from tidelog.ope.policies import DRAWS, as_policy, check_fit, is_sampled
from tidelog.ope.policy_evidence import (
    BehaviorModel,
    OneStepValues,
    behavior_model,
    choose_model,
    evidence_of,
    model_of,
)
from tidelog.ope.propensities import FilePropensities, check_first_steps, cut_log, cut_propensities, with_file_read
from tidelog.ope.risk import ALPHA, risk_of
from tidelog.ope.text import conditions, earlier_looks, estimand, evidence_notes, no_risk, with_words
from tidelog.ope.verdict import (
    IF_RANDOMISED,
    Contrast,
    GroupDifference,
    Verdict,
    Verdicts,
    combine_verdicts,
    named_policies,
    part_summary,
)
from tidelog.policies.policy import Policy, has_density
from tidelog.policies.statistics import Interval
from tidelog.runtime.rule import Rule
from tidelog.runtime.way_of_acting import replaces
from tidelog.training.metrics import Progress
from tidelog.types import Continuous, Discrete, check_seed, has_densities

TrainingProgress = Callable[[str, float], None]
OTHER_DATA = "other data"
_OF_POLICY, _OF_LOG = 4, 40  # numbers of 8 bytes: arrays of a policy by action, arrays of the log by step


class JudgeOptions(TypedDict, total=False):
    """Options of `judge` by name; its docstring describes them."""

    discount: float  # 1.0: of the estimated return
    limits: Limits | None
    level: float | None  # in place of that of `limits`
    first_steps: int | None
    bandwidth: float | None
    model: str  # "auto"
    cvar: float  # 0.1
    bad_outcome: float | None
    learnt_from: Literal["other data"] | None
    train: Log | Callable[[], Log] | None
    ledger: Ledger | str | Path | Literal[False] | None
    context: Mapping[str, Any] | None
    progress: TrainingProgress | bool | None
    by: str | None


@overload
def judge(
    policy: Sequence[Any] | Mapping[str, Any],
    log: Log,
    sample: bool | None = None,
    propensities: Any = None,
    seed: int = 0,
    **options: Unpack[JudgeOptions],
) -> Verdicts: ...


@overload
def judge(
    policy: Any,
    log: Log,
    sample: bool | None = None,
    propensities: Any = None,
    seed: int = 0,
    **options: Unpack[JudgeOptions],
) -> Verdict: ...


@one_thread("blas")  # the last bits of sums by several threads depend on their number
def judge(
    policy: Any,
    log: Log,
    sample: bool | None = None,
    propensities: Any = None,
    seed: int = 0,
    **options: Unpack[JudgeOptions],
) -> Verdict | Verdicts:
    """Judge whether a policy is better than the behaviour policy, on episodes that the policy never saw.

    This declares the way of acting: from now on a tidelog policy acts as it was judged, and carries the verdict, unless
    it carries an earlier one that this one does not replace (`tidelog.runtime.way_of_acting.replaces`). A question that
    the log cannot answer gives "unsupported" with reasons. Raises SpecError if policy and log do not fit,
    MemoryLimitError if memory does not suffice, ConfigError for numbers out of range, CheckpointError for a damaged
    ledger.

    - `policy`: a tidelog policy, judged by its most likely actions or with `sample` by sampled actions (None: as it was
      declared, else by its most likely actions; `policy.with_acting("sample")` declares it); a rule of
      `tl.simple_rules`; any object with `probabilities(observation, mask)` [B, A], judged by
      these; or a fitted scikit-learn estimator, judged by `predict` or with `sample` by `predict_proba`. A list of
      policies, or a mapping from names to policies, gives `Verdicts` with simultaneous intervals, and recommends a
      learnt policy instead of a simple rule where the log shows that it beats the rule.
    - `propensities`: None uses the log's own or estimates missing ones; "estimated" always estimates; or numbers [N],
      or the path of a table of them, by episode and step (docs/judging-appendix.md). A probability of every action, a
      mapping from each action to its own, "shares", or {"shares_by": ["village"]} declares them as `Columns` does.
      "trees" (extra `trees`) or a classifier of scikit-learn estimates them by it, "best" by trees where these predict
      other episodes better.
    - `discount` (1.0) of the returns, `model` of action values ("auto": by the log; "tabular", "neural", "none").
    - `limits`: the support that a verdict needs (`Limits()`); `level` replaces its level of the intervals.
    - `first_steps`: judge the return of that many first decisions of an episode, another quantity than the whole
      return.
    - `bandwidth`: a share of half of each action's range; adds noise to deterministic continuous actions.
    - `cvar`, `bad_outcome`: `verdict.risk` has the mean of this share (0.1) of worst episodes, and the probability of a
      return as low as this.
    - `train`: the episodes that the policy learnt from, or a function that returns them. If the whole policy has no
      support, they fix a ladder of its parts; `verdict.safe` is the largest one that is better, and
      `verdict.safe_policy` acts so.
    - `by`: a column of the observation; `verdict.groups` has the difference for each of its values (numbers of more
      than 10 values: between their quartiles) at the first decision of an episode, simultaneous over the groups.
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
    names = JudgeOptions.__annotations__
    for name in options:
        if name not in names:
            raise unknown_name("judge", "option", name, names, "help(tidelog.judge) describes all of them")
    question = question_of(policy, log, sample, propensities, seed, **options)
    assessments = gather(question)
    weighed = [one for one in assessments if one.policy_evidence is not None]
    pairs = [(one, rule) for one in weighed if not one.is_rule for rule in weighed if rule.is_rule]
    look = look_at(assessments, question, pairs)
    decided = [decide_if_randomised(one) for one in assessments]
    no_groups: list[tuple[GroupDifference, ...]] = [()] * len(decided)
    by_group = no_groups if question.groups is None else group_differences(decided, question.groups, look)
    verdicts = [verdict_of(one, question, look, groups) for one, groups in zip(decided, by_group, strict=True)]
    for one, verdict in zip(assessments, verdicts, strict=True):
        if isinstance(one.policy, Policy | Rule) and replaces(verdict.summary, one.policy.verdict):
            one.policy.declare(verdict.acting, verdict.summary)
    look.record([verdict.decision for verdict in verdicts])
    if not question.named:
        return verdicts[0]
    supported = {one.name for one in decided if one.decision != "unsupported"}
    contrasts = tuple(
        Contrast(one.name, rule.name, one.against(rule, look.of_contrasts))
        for one, rule in pairs
        if {one.name, rule.name} <= supported
    )
    margin = question.limits.margin * float(question.returns.std())
    return combine_verdicts(tuple(question.policies), verdicts, 1.0 - look.error, contrasts, margin)


def question_of(
    policy: Any,
    log: Log,
    sample: bool | None = None,
    propensities: Any = None,
    seed: int = 0,
    *,
    discount: float = 1.0,
    limits: Limits | None = None,
    level: float | None = None,
    first_steps: int | None = None,
    bandwidth: float | None = None,
    model: str = "auto",
    cvar: float = ALPHA,
    bad_outcome: float | None = None,
    learnt_from: Literal["other data"] | None = None,
    train: Log | Callable[[], Log] | None = None,
    ledger: Ledger | str | Path | bool | None = None,
    context: Mapping[str, Any] | None = None,
    progress: TrainingProgress | bool | None = None,
    by: str | None = None,
) -> JudgeQuestion:
    """Check the arguments of `judge`, and prepare the log and its propensities once for all policies.

    Raises SpecError if policy and log do not fit, MemoryLimitError if memory does not suffice.
    """
    check_kind(log)
    check_seed(seed, LARGEST_SEED)
    check_risk(cvar, bad_outcome)
    if bandwidth is not None and not isinstance(log.spec.action, Continuous):
        raise ConfigError(f"bandwidth = {bandwidth!r}", "continuous actions", "remove bandwidth")
    if learnt_from not in (None, OTHER_DATA):
        raise ConfigError(f"learnt_from = {learnt_from!r}", f"None or '{OTHER_DATA}'", "leave it out if unknown")
    limits = limits or Limits()
    limits = limits if level is None else replace(limits, level=level)
    several = named_policies(policy)
    named = several or {str((context or {}).get("name", "policy")): policy}
    policies = {name: as_policy(one, log.spec) for name, one in named.items()}
    check_log(log, discount)
    check_first_steps(log, first_steps)
    for one in policies.values():
        check_fit(one, log)
    # what judging computes for every stored observation has to fit into free memory
    space, columns = log.spec.action, sum(column.nbytes for column in log.columns().values())
    wide = space.n if isinstance(space, Discrete) else DRAWS * log.action.shape[1]
    stored = len(next(iter(log.observation.values())))
    problem = shortage(8 * (len(policies) * _OF_POLICY * stored * wide + _OF_LOG * log.steps) + columns)
    if problem is not None:
        raise MemoryLimitError(
            f"judging {len(policies)} policies on {log.steps:,} steps: {problem}; nothing was recorded",
            fix="judge fewer policies at a time, judge fewer episodes (log.split), or free memory",
        )
    source = log.report.source if log.origin is None else source_text(log.origin)
    about = {"source": source, "steps": log.steps, "episodes": len(log.episode_ids)}
    judged_log, known = with_declaration(log, propensities)
    known = with_file_read(known, log)
    looks: Ledger | None = None
    if isinstance(ledger, Ledger):
        looks = ledger
        if ledger.fingerprint != undeclared_fingerprint(log):
            raise ConfigError("ledger = the ledger of another log", "one of the judged log", "use Ledger.of(log)")
    elif ledger is not False:
        looks = Ledger.of(log, ledger)  # type: ignore[arg-type]  # True is refused there
    if looks is not None:
        looks.check()  # before minutes of fitting
    unknown = judged_log.reward_known is not None
    filled = replace(judged_log, reward=np.nan_to_num(np.asarray(judged_log.reward))) if unknown else judged_log
    whole, dependence = with_detected_clusters(filled)
    whole = replace(whole, reward=judged_log.reward) if unknown else whole
    decisions = whole if first_steps is None else cut_log(whole, first_steps)
    decisions, missing = with_stand_ins(decisions, seed) if unknown else (decisions, None)
    return JudgeQuestion(
        policies=policies,
        named=several is not None,
        log=decisions,
        whole=whole,
        sample=sample,
        propensities=known if first_steps is None else cut_propensities(known, log, first_steps),
        seed=seed,
        discount=float(discount),
        bandwidth=bandwidth,
        model=model_of(model, needed=True),
        cvar=cvar,
        bad_outcome=bad_outcome,
        first_steps=first_steps,
        train=train if train is None or callable(train) else check_train(train, log, limits.overlap),
        limits=limits,
        other_data=learnt_from is not None,
        ledger=looks,
        about={"fingerprint": log.fingerprint(), **about},
        dependence=dependence,
        missing=missing,
        context=dict(context or {}),
        progress=progress,
        groups=None if by is None else episode_groups(log, by),
    )


def gather(question: JudgeQuestion) -> list[Assessment]:
    """Evidence about each policy, or the findings because of which there is none.

    Several policies share folds, propensities and, with tabular values, behaviour cloning: these do not depend on the
    policy.
    """
    log, limits, several = question.log, question.limits, len(question.policies) > 1
    assessments: list[Assessment] = []
    shared: BehaviorModel | None = None
    one_step: OneStepValues = {}
    clones: dict[bool, Assessment] = {}  # the first policy with a clone that others share, by whether it is sampled
    practice = cache(partial(training_practice, question))  # trained where a ladder asks for it
    quiet = question.progress if isinstance(question.progress, bool) else None if question.progress is None else False
    with Progress("judging", quiet) as screen:
        tell = question.progress if callable(question.progress) else screen.update
        for position, (name, policy) in enumerate(question.policies.items()):
            a = asked_about(name, policy, question, limits.effective_episodes)
            assessments.append(a)
            a.reuse = Reuse.of(policy, question.whole)
            a.preconditions = learnt_from_them(a) + a.preconditions
            a.findings = broken(a.preconditions)
            if a.findings:  # nothing that is fitted could change this
                continue
            if shared is None and several:
                unweighted = replace(log, weight=None)  # as in `evidence_of`, with the same folds
                choice = choose_model(unweighted, question.model, None, question.seed)
                shared = behavior_model(unweighted, choice, question.propensities, question.seed)

            def part(what: str, share: float, name: str = name, position: int = position) -> None:
                tell(f"{name}: {what}" if several else what, (position + share) / len(question.policies))

            a.can_sample = has_density(policy, log.spec) if a.densities else getattr(policy, "can_sample", True)
            gather_evidence(
                a,
                question,
                propensities=question.propensities if shared is None else shared,
                cloning=a.sample not in clones,
                lacks_support=None if question.train else lambda evidence: has_no_support(evidence, limits),
                progress=part,
                one_step=one_step,
            )
            if not (a.basis.model == "neural" or a.basis.without_support):  # a network values both; else there is none
                first = clones.setdefault(a.sample, a)
                a.policy_evidence = replace(a.basis, cloning=first.basis.cloning)
            if a.lacks_support:
                set_ladder(a, question, practice)
    return assessments


def asked_about(name: str, policy: Any, question: JudgeQuestion, effective: float) -> Assessment:
    """The assessment of a policy with its preconditions; `effective` is the limit on the effective sample size."""
    log, sample = question.log, is_sampled(policy, question.sample)
    a = Assessment(question.limits, question.seed, name, policy, sample, densities=has_densities(log.spec.action))
    warnings, a.missing = log.report.warnings, question.missing
    a.leaks = tuple(one.column for one in warnings if one.check == LEAK and one.column is not None)
    a.late = next((one.found for one in warnings if one.check == LATE), "")
    a.preconditions = preconditions_of(
        policy,
        log,
        question.returns,
        sample=sample,
        bandwidth=question.bandwidth,
        propensities=question.propensities,
        effective=effective,
    )
    a.findings = broken(a.preconditions)
    return a


def gather_evidence(a: Assessment, question: JudgeQuestion, **options: Any) -> None:
    """Give an assessment its evidence, with unknown rewards and the limits of a part; `options` of `evidence_of`."""
    found = evidence_of(
        a.policy,
        question.log,
        sample=a.sample,
        discount=question.discount,
        model=question.model,
        seed=question.seed,
        bandwidth=question.bandwidth,
        **options,
    )
    if question.missing is not None:
        other = None if found.if_randomised is None else question.missing.of(found.if_randomised)
        found = replace(found, policy=question.missing.of(found.policy), if_randomised=other)
    a.policy_evidence = found
    if a.evidence.follows is not None:
        a.limits = limits_of_parts(a.limits, a.evidence)


def verdict_of(
    a: Assessment, question: JudgeQuestion, look: LookResult, groups: tuple[GroupDifference, ...] = ()
) -> Verdict:
    """The verdict on one policy, with its risk and its words."""
    log, gathered = question.log, a.policy_evidence
    nothing, count, lengths = float("nan"), len(question.returns), np.diff(log.starts)
    unknown = a.reuse.learnt_from is None and not question.other_data
    context = {
        **_context(a, question),
        **look.context,
        "earlier_looks": earlier_looks(look),
        **question.context,
        "overlap_unknown": unknown,
        "dependence": question.dependence,
        **({"name": a.name} if question.named else {}),
        **({"propensities": "shares"} if a.decision == IF_RANDOMISED else {}),
        **({} if a.missing is None else {"missing_rewards": _missing(a, a.missing)}),
        "conditions": conditions(a, question, look, unknown, groups),
    }
    if question.groups is not None:
        context["by"] = question.groups.column
    behavior_policy = Interval(float(question.returns.mean()), nothing, nothing)
    if gathered is None and count > 1:
        grouped = means(question.returns).grouped(a.limits.groups)
        behavior_policy = bca(grouped, Confidence(a.limits.level, a.limits.replicates, a.seed))
    none = Support(count, nothing, nothing, nothing, nothing, nothing, nothing, None, int(lengths.max()))
    risk, risk_reason = None, no_risk(a)
    if risk_reason is None:
        risk = risk_of(
            a.evidence,
            alpha=question.cvar,
            bad_outcome=question.bad_outcome,
            confidence=a.confidence,
            groups=a.limits.groups,
            lowest=a.limits.lowest_return,
        )
        risk = replace(risk, reward_unit=log.reward_unit)
    cut = int(np.asarray(log.truncated)[log.starts[1:] - 1].sum())
    verdict = Verdict(
        decision=a.decision,
        reasons=(),
        outcome="",
        next_step="",
        paragraph="",
        estimand=estimand(
            lengths, cut, question.discount, a.sample, context["bandwidth"], question.first_steps, log.discount_unit
        ),
        deciding="none" if gathered is None else a.deciding,
        difference=NOTHING if gathered is None else a.difference,
        behavior_policy=behavior_policy if gathered is None else a.behavior_policy,
        difference_from_bc=None if gathered is None else a.from_cloning,
        estimates=Estimates([]) if gathered is None else a.estimates,
        support=none if gathered is None else a.support,
        bound=None if gathered is None else a.bound,
        risk=risk,
        risk_reason=risk_reason,
        level=a.limits.level if gathered is None else 1.0 - look.error,
        episodes=len(log.episode_ids),
        weights=np.zeros(0) if gathered is None else episode_weights(a.evidence),
        context=context,
        reward_unit=log.reward_unit,
        ladder=() if a.ladder is None else climb(a),
        checks=a.checks,
        groups=groups,
        plan=plan_of(a, question.returns),
    )
    if gathered is not None:
        advise_first_steps(a)
    safe = None if verdict.safe is None else safe_policy(a, verdict.safe)
    verdict = with_words(replace(verdict, safe_policy=safe), a, question, look)
    if safe is not None:
        summary = part_summary(verdict)
        safe.declare(summary["acting"], summary)
    return verdict


def _missing(a: Assessment, missing: MissingRewards) -> dict[str, Any]:
    """Unknown rewards in a verdict's context, and the difference whatever they are."""
    known = {"share": float(np.isnan(missing.reward).mean()), "at_random": missing.at_random}
    bound = None if a.policy_evidence is None else a.missing_bound
    return {**known, "bound": None if bound is None else list(bound)}


def _context(a: Assessment, question: JudgeQuestion) -> dict[str, Any]:
    """Context of a verdict: its subject and settings."""
    entries: dict[str, Any] = {
        "policy": a.facts,
        "log": dict(question.about),
        "seed": question.seed,
        "sample": a.sample,
        "discount": question.discount,
        "bandwidth": question.bandwidth,
        "overlap": a.reuse.to_json(),
        "limits": asdict(question.limits),
        "versions": this_machine(),
    }
    if question.first_steps is not None:
        entries["first_steps"] = question.first_steps
    if question.log.discount_unit is not None:
        entries["discount_unit"] = question.log.discount_unit
    if isinstance(question.propensities, FilePropensities):
        entries["propensities_file"] = {"file": question.propensities.file, "unused_rows": question.propensities.unused}
    if a.policy_evidence is None:
        return entries
    found, behavior_policy = a.policy_evidence, a.policy_evidence.behavior_policy
    known = behavior_policy.propensities
    kind = "declared" if known.declared is not None else "estimated" if known.estimated else "recorded"
    entries |= {
        "notes": list(evidence_notes(found, a.policy, question.log, a.sample)),
        "smoothing": found.smoothing,
        "bandwidth": found.bandwidth,
        "propensities": kind,
        "model": found.model,
        "history": [test._asdict() for test in behavior_policy.history],
        "drift": [test._asdict() for test in behavior_policy.drift],
        "propensities_by": None if known.declared is not None else known.by,
    }
    entries |= {} if known.declared is None else {"declared": known.declared}
    entries |= {} if behavior_policy.balance is None else {"balance": behavior_policy.balance.to_json()}
    entries |= {} if known.fit is None else {"propensities_fit": known.fit._asdict()}
    return entries | ({} if known.classifier is None else {"propensities_classifier": known.classifier})
