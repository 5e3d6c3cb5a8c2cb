"""The verdict: a policy is better than the logger, worse, not shown to differ, or the log cannot decide.

`judge` reads from top to bottom: the checks of its arguments; the evidence about each policy (`comparison`); the look
at these episodes with the width of all intervals (`look`); then for each policy the decision (`decide`), its risk, and
its sentences. docs/judging-appendix.md describes the parts in order.

Several policies are judged together on the same episodes; one policy is the smallest case. The evidence of all policies
is in memory at the same time.

Letter: `E` episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from tidelog._machine import shortage
from tidelog.algorithms.names import algorithm_name
from tidelog.data.log import Log, is_declaration, with_declaration
from tidelog.data.raw import source_text
from tidelog.errors import ConfigError, SpaceError
from tidelog.ope.assumptions import with_detected_clusters
from tidelog.ope.decide import (
    IF_RANDOMISED,
    METHOD,
    NOT_CLOSER,
    NOTHING,
    Assessment,
    Case,
    Reason,
    Reuse,
    VerdictFacts,
    caveats,
    closer_advice,
    decide,
    decide_if_randomised,
    dominating,
    estimand,
    has_no_support,
    leak_sentence,
    leaks_of,
    overlap_finding,
    paragraph,
    propensities_from,
    reasons,
    reuse_of,
    support_findings,
    violated_preconditions,
    with_shorter_question,
)
from tidelog.ope.estimate import ESTIMATORS, IMPOSSIBLE, Supports, model_of
from tidelog.ope.estimators import Estimates, Support, means
from tidelog.ope.evidence import Evidence, Floats, check_kind, check_log, check_seed
from tidelog.ope.intervals import Confidence, adaptive_deviate, critical_values, interval, normal_deviate, spent_error
from tidelog.ope.ledger import Ledger, RecordedLook, hashed, policy_identity
from tidelog.ope.policies import DRAWS, EstimatorPolicy, ExternalPolicy, as_policy, check_fit, is_sampled
from tidelog.ope.policy_evidence import (
    LoggerModel,
    OneStepValues,
    PolicyEvidence,
    choose_model,
    evidence_of,
    logger_model,
)
from tidelog.ope.propensities import (
    FilePropensities,
    check_first_steps,
    cut_log,
    cut_propensities,
    is_classifier,
    with_file_read,
)
from tidelog.ope.recommendation import Contrast
from tidelog.ope.risk import ALPHA, Risk, check_risk, risk_of, tail_sentence
from tidelog.ope.verdict import CAVEAT, Limits, Verdict, Verdicts, combine_verdicts, named_policies, percent
from tidelog.policies.policy import Policy, has_density
from tidelog.policies.statistics import Interval
from tidelog.runtime.rule import Rule
from tidelog.runtime.way_of_acting import first_decisions, replaces
from tidelog.threads import one_thread
from tidelog.training.metrics import Screen
from tidelog.training.record import this_machine
from tidelog.types import Continuous, Discrete

# One policy against the logger before the decision: the violated preconditions, or the evidence.
#
# Several policies share folds, propensities and, with tabular values, behaviour cloning: these do not depend on the
# policy. Letter: `E` episodes.

Progress = Callable[[str, float], None]
RULE_KIND = "rule"  # in the facts of a simple rule


class Settings(NamedTuple):
    """Settings of a judgement."""

    sample: bool | None  # None: each policy in its declared way of acting
    propensities: Any
    seed: int
    discount: float
    limits: Limits
    bandwidth: float | None
    model: str | None
    alpha: float = ALPHA  # share of worst episodes whose mean return is reported
    bad_outcome: float | None = None  # a return at or below this is bad
    first_steps: int | None = None  # number of judged decisions of an episode; None: all
    declared: str | None = None  # propensities that the call declared, in place of those of the log


@dataclass(frozen=True, eq=False)
class Comparison:
    """One policy against the logger, before the decision."""

    name: str
    policy: Any
    sample: bool  # whether the sampled policy is judged
    reuse: Reuse
    refused: tuple[Reason, ...]  # violated preconditions, because of which no evidence was gathered
    gathered: PolicyEvidence | None
    densities: bool  # whether actions are continuous
    can_sample: bool = True  # whether judging it by sampled actions could be an answer

    @property
    def facts(self) -> dict[str, Any]:
        """Description of the policy."""
        if isinstance(self.policy, ExternalPolicy | EstimatorPolicy):
            return {"algorithm": None, "kind": self.policy.kind}
        origin = {name: value for name, value in self.policy.origin.items() if name not in ("learnt_from", "held_out")}
        if isinstance(self.policy, Rule):
            return {"algorithm": None, "kind": RULE_KIND, "rule": self.policy.sentence, **origin}
        return {"algorithm": algorithm_name(self.policy.algorithm), **origin}

    @property
    def is_rule(self) -> bool:
        """Whether the policy is a simple rule."""
        return isinstance(self.policy, Rule)

    def case(self, settings: Settings, widening: float = 1.0) -> Case:
        """Input of the decision; ConfigError if no evidence was gathered."""
        if self.gathered is None:
            raise ConfigError(f"no evidence was gathered for {self.name}")
        case = Case(
            self.gathered.policy,
            self.gathered.cloning,
            self.reuse,
            settings.limits,
            settings.seed,
            deterministic=self.can_sample and not self.sample,
            densities=self.densities,
            history=self.gathered.history,
            drift=self.gathered.drift,
            widening=widening,
            without_support=self.gathered.without_support,
            declared=self.gathered.declared is not None,
            balance=self.gathered.balance,
            if_randomised=self.gathered.if_randomised,
        )
        clone = case.cloning
        copied = clone is None or not support_findings(Supports(clone).of(case.deciding), settings.limits)
        return case._replace(closer=closer_advice(self.policy) if copied else NOT_CLOSER)


def comparisons_of(
    policies: Mapping[str, Any],
    log: Log,
    settings: Settings,
    returns: Floats,
    progress: Progress | None = None,
    whole: Log | None = None,
) -> list[Comparison]:
    """Evidence about each policy, or the reasons for its absence; `returns` [E] are the logger's.

    `whole` has the whole episodes, by which it is known what a policy learnt from, if `log` has their first steps.
    """
    comparisons: list[Comparison] = []
    shared: LoggerModel | None = None
    values: OneStepValues = {}
    cloned: set[bool] = set()  # by whether the clone is sampled
    propensities, densities = settings.propensities, isinstance(log.spec.action, Continuous)
    for position, (name, policy) in enumerate(policies.items()):
        sample = is_sampled(policy, settings.sample)
        reuse = reuse_of(policy, log if whole is None else whole)
        refused = violated_preconditions(
            policy,
            log,
            returns,
            sample=sample,
            bandwidth=settings.bandwidth,
            propensities=propensities,
            effective=settings.limits.effective_episodes,
        )
        if refused or overlap_finding(reuse.learnt_from, settings.limits):  # nothing that is fitted could change this
            comparisons.append(Comparison(name, policy, sample, reuse, tuple(refused), None, densities))
            continue
        if shared is None and len(policies) > 1:
            unweighted = replace(log, weight=None)  # as in `evidence_of`, with the same folds
            choice = choose_model(unweighted, settings.model, None, settings.seed)
            shared = logger_model(unweighted, choice, propensities, settings.seed)
        how: dict[str, Any] = {
            "sample": sample,
            "discount": settings.discount,
            "propensities": propensities if shared is None else shared,
            "model": settings.model,
            "seed": settings.seed,
            "bandwidth": settings.bandwidth,
            "cloning": sample not in cloned,
            "lacks_support": lambda weighed: has_no_support(weighed, settings.limits),
        }
        part = _part_of(progress, name, position, len(policies))
        evidence = evidence_of(policy, log, **how, progress=part, one_step=values)
        if not _has_own_clone(evidence):
            cloned.add(sample)
        can_sample = has_density(policy, log.spec) if densities else getattr(policy, "can_sample", True)
        comparisons.append(Comparison(name, policy, sample, reuse, (), evidence, densities, can_sample))
    return _with_clones(comparisons)


def contrasts_of(comparisons: Sequence[Comparison]) -> list[tuple[int, int]]:
    """Pairs of a learnt policy and a simple rule, by their positions, of which there is evidence."""
    known = [place for place, one in enumerate(comparisons) if one.gathered is not None]
    rules = [place for place in known if comparisons[place].is_rule]
    return [(place, rule) for place in known if not comparisons[place].is_rule for rule in rules]


def _has_own_clone(evidence: PolicyEvidence) -> bool:
    """Whether a policy does not share its clone: a network values both, and without support there is none."""
    return evidence.model == "neural" or evidence.without_support


def _with_clones(comparisons: list[Comparison]) -> list[Comparison]:
    """Each comparison with a clone: its own, or that of the first policy that acts in the same way."""
    clones: dict[bool, Evidence | None] = {}
    completed = []
    for one in comparisons:
        if one.gathered is not None and not _has_own_clone(one.gathered):
            clone = clones.setdefault(one.sample, one.gathered.cloning)
            one = replace(one, gathered=replace(one.gathered, cloning=clone))
        completed.append(one)
    return completed


def _part_of(progress: Progress | None, name: str, position: int, count: int) -> Progress | None:
    if progress is None or count == 1:
        return progress
    return lambda what, share: progress(f"{name}: {what}", (position + share) / count)


# The look of a verdict at its episodes: its number among all looks, and the width of the intervals for it.
#
# Letter: `P` policies of the look.


class LookResult(NamedTuple):
    """The look at the episodes, for one verdict or a table of verdicts."""

    look: RecordedLook | None  # None if looks are not counted
    error: float  # two-sided, of all policies together
    level: float  # requested level
    widenings: Floats  # [P]: length of the arms of each deciding interval, relative to that level
    together: list[float]  # [P]: the part of it that is due to the other policies of the look
    own_file: Path | None = None  # the one ledger that was named
    of_contrasts: float = 1.0  # length of the arms of the intervals between two policies, relative to that level

    @property
    def context(self) -> dict[str, Any]:
        """Entries for the verdicts' context."""
        before = 0 if self.look is None else self.look.before
        facts = {"policies": self.policies, "level": 1.0 - self.error, "counted": self.look is not None}
        if self.look is not None:
            facts |= {"number": self.look.number, "elsewhere": self.look.elsewhere, "recorded": self.look.recorded}
            facts |= {"policies_before": self.look.policies_before}
        return {"judged_before": before, "looks": {"before": before, **facts}}

    @property
    def policies(self) -> int:
        """Number of policies of the look."""
        return len(self.widenings) if self.look is None else self.look.policies

    @property
    def conditions(self) -> list[str]:
        """What the reader of a short form of the verdict has to know about the count of looks."""
        if self.look is None:
            return ["earlier verdicts on these episodes were not counted"]
        return [] if self.own_file is None else [f"earlier verdicts were counted in {self.own_file.name} alone"]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the interval is wider than that of one policy at the first look."""
        sentences = []
        if self.look is not None and self.look.number > 1:
            times = "once" if self.look.before == 1 else f"{self.look.before:,} times"
            different, results = self.look.different_before, self.look.policies_before
            policies = "one policy" if different == 1 else f"{different:,} policies"
            policies += f" ({results:,} results)" if results > different else ""
            sentences.append(
                f"these episodes were judged {times} before, with {policies}: the interval is "
                f"{self.widenings.max():.2g} times as long as at a first look, because it holds for "
                f"{percent(1.0 - self.error)} instead of {percent(self.level)} and for any policy that the earlier "
                "results led to (`tidelog judge --looks` lists them)"
            )
        if self.policies > 1:
            sentences.append(
                f"{self.policies:,} policies were judged together: the intervals of all differences hold "
                f"simultaneously with {percent(1.0 - self.error)} confidence"
            )
        return tuple(sentences)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the reader of the verdict."""
        if self.look is None:
            return (*self.reasons, "the number of times these episodes were judged before is unknown (ledger=False)")
        sentences = [*self.reasons]
        if self.own_file is not None:
            sentences.append(f"looks that are not in {self.own_file} are unknown and do not widen the interval")
        if self.look.elsewhere:
            sentences.append(
                f"{self.look.elsewhere:.1%} of these episodes were judged before as part of another set; the wider "
                "interval does not cover judging a growing log again and again until the verdict is favourable"
            )
        if not self.look.recorded:
            sentences.append("this look could not be recorded in any ledger: later verdicts will not count it")
        return tuple(sentences)


def look_at(
    found: Sequence[Comparison],
    settings: Settings,
    ledger: Ledger | None,
    contrasts: Sequence[tuple[int, int]] = (),
) -> LookResult:
    """Count the look, and compute the width of intervals for earlier looks, other policies and their contrasts.

    `contrasts` are pairs of policies, by position, whose differences hold simultaneously with those from the logger.
    Policies whose weights have no support get no decision, whatever they earned: the others' intervals do not grow by
    them.
    """
    look, limits = None, settings.limits
    counted = any(one.gathered is not None for one in found)
    if ledger is not None:
        policies = []
        for one in found:
            facts = one.facts
            identity = hashed(facts)[:32] if one.gathered is None else policy_identity(one.gathered.policy)
            policies.append({"name": one.name, "algorithm": facts["algorithm"], "identity": identity})
        ways = {one.sample for one in found}
        sampled = ways.pop() if len(ways) == 1 else [one.sample for one in found]
        look = ledger.record_look(policies, {"sample": sampled, **_look_settings(settings)}, counted=counted)
    error = spent_error(limits.level, 1 if look is None else look.number)
    cases = [None if one.gathered is None else one.case(settings) for one in found]
    differences = [None if case is None or not case.able else case.deciding_ratios for case in cases]
    count = (len(found) if look is None else look.policies) + len(contrasts)
    before = 0 if look is None else look.policies_before
    usual = normal_deviate(error)
    least = adaptive_deviate(error / count, before) if before else usual
    if look is not None and look.together is not None:
        together = np.asarray(look.together)
        of_contrasts = max(float(together.max()), least / usual)
    else:
        pairs = [(cases[one], cases[other]) for one, other in contrasts]
        between = [None if one is None or other is None else one.ratios_against(other) for one, other in pairs]
        confidence = Confidence(limits.level, limits.replicates, settings.seed)
        ready = [case is not None and case.has_support for case in cases]
        ready += [ready[one] and ready[other] for one, other in contrasts]
        together, every = np.flatnonzero(ready), [*differences, *between]
        reach = np.full(len(every), normal_deviate(error / len(every)))
        if len(together):
            reach[together] = critical_values([every[at] for at in together], confidence, error)
        reach = np.maximum(reach, least if contrasts else usual)
        together = reach[: len(found)] / usual
        of_contrasts = float(reach[len(found) :].max(initial=least)) / usual
    widenings = np.maximum(together * usual, least) / normal_deviate(1.0 - limits.level)
    own_file = None if ledger is None or ledger.optional else ledger.files[0]
    of_contrasts = max(of_contrasts * usual / normal_deviate(1.0 - limits.level), 1.0)
    return LookResult(look, error, limits.level, np.maximum(widenings, 1.0), together.tolist(), own_file, of_contrasts)


def _look_settings(settings: Settings) -> dict[str, Any]:
    """Settings that distinguish looks: those that change the estimate, not the limits."""
    propensities, first = settings.propensities, settings.first_steps
    if settings.declared is not None:
        propensities = f"declared {hashed(settings.declared)[:32]}"
    elif is_classifier(propensities):
        propensities = f"classifier {hashed(repr(propensities))[:32]}"
    elif isinstance(propensities, FilePropensities):
        estimated = "estimated " if propensities.estimated else ""
        propensities = f"{estimated}{hashed(propensities.values.tolist())[:32]}"
    elif not (propensities is None or isinstance(propensities, str)):
        propensities = hashed(np.asarray(propensities).tolist())[:32]
    return {
        "propensities": propensities,
        "seed": settings.seed,
        "discount": settings.discount,
        "bandwidth": settings.bandwidth,
        "model": settings.model,
        "horizon": settings.limits.horizon,
        **({} if first is None else {"first_steps": first}),  # absent as in ledgers of before
    }


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
      or the path of a table of them, by episode and step (docs/judging-appendix.md). A probability of every action, a
      mapping from each action to its own, "shares", or {"shares_by": ["village"]} declares them as `Columns` does.
      "trees" (extra `trees`) or a classifier of scikit-learn estimates them by it, "best" by trees where these predict
      other episodes better.
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
        raise ConfigError(f"bandwidth = {bandwidth!r}", "continuous actions", "remove bandwidth")
    if learnt_from not in (None, OTHER_DATA):
        raise ConfigError(f"learnt_from = {learnt_from!r}", f"None or '{OTHER_DATA}'", "leave it out if unknown")
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
        raise ConfigError("ledger = the ledger of another log", "one of the judged log", "use Ledger.of(log)")
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
            f"judging {policies} policies on {log.steps:,} steps: {problem}; nothing was recorded",
            fix="judge fewer policies at a time, judge fewer episodes (log.split), or free memory",
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
    named = dominating(log.episode_ids, lengths, outcome.weights) if by_products else []
    read = settings.propensities
    of_file = [propensities_from(read)] if isinstance(read, FilePropensities) else []
    leaks = leak_sentence(leaks_of(log))
    if leaks and not any(leaks in one.sentence for one in outcome.findings):
        of_file = [f"{leaks}: a policy does not know them in time, and then this verdict is void", *of_file]
    notes = (*context.get("notes", ()), *of_file, *context["dependence"], *named, *impossible, *looked.notes, *looser)
    unknown = [CAVEAT] if context["overlap_unknown"] else []
    loose = [f"limits looser than the defaults: {len(limits.looser())}"] if looser else []
    first = settings.first_steps
    part = [] if first is None else [f"of an episode, only the {first_decisions(first)} counted"]
    context = {**context, "conditions": [*part, *unknown, *looked.conditions, *loose]}
    facts = VerdictFacts(
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
        reasons=(*reasons(outcome.decision, outcome.findings, facts), *of_file, *looked.reasons),
        paragraph=paragraph(outcome.decision, outcome.findings, facts),
        estimand=estimand(
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


def _without_numbers(returns: Any, findings: list[Any], log: Log, limits: Limits, seed: int) -> Assessment:
    """Outcome without estimates: only the logger's own mean."""
    nothing = float("nan")
    horizon, count = int(np.diff(log.starts).max()), len(returns)
    support = Support(count, nothing, nothing, nothing, nothing, nothing, nothing, None, horizon)
    logger = Interval(float(returns.mean()), nothing, nothing)
    if count > 1:
        grouped = means(returns).grouped(limits.groups)
        logger = interval(grouped, METHOD, Confidence(limits.level, limits.replicates, seed))
    return Assessment("unsupported", findings, NOTHING, logger, None, Estimates([]), support, np.zeros(0))
