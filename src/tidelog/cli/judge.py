"""`tidelog judge RUN | POLICY ... [--data LOG]`: decide whether to trust policies before anyone uses them.

`tidelog plan` asks the same questions about logs of other sizes.
"""

from __future__ import annotations

import json
import math
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import tyro

from tidelog._files import write_json
from tidelog._machine import limit_arenas
from tidelog._text import in_unit, with_ends
from tidelog.cli.flags import (
    Column,
    DeclaredFlags,
    File,
    OutputFlags,
    Repeated,
    RunOrPolicy,
    SinkName,
    check_targets,
    declared_value,
    json_only,
    output_of,
    parse,
    present,
    print_details,
    print_line,
    table,
)
from tidelog.cli.policies import chosen_way, log_for_runs, open_policy, refuse_lists
from tidelog.data.log import Log, is_declaration
from tidelog.data.raw import several_as_text
from tidelog.errors import ConfigError, LogError, SpecError
from tidelog.ope.decide import PROBABILITY, Limits
from tidelog.ope.judge import judge
from tidelog.ope.ledger import Ledger
from tidelog.ope.plan import EXPLORED, SIMULATIONS, plan
from tidelog.ope.policies import imitation_of
from tidelog.ope.risk import ALPHA, tail_refusal
from tidelog.ope.rules import WORDS, has_rules, rules_of_run
from tidelog.ope.verdict import (
    IF_RANDOMISED,
    Verdict,
    Verdicts,
    held_out_part,
    percent,
    safe_path,
    store_verdict,
    training_part,
    write,
)
from tidelog.policies.policy import Policy, has_density, has_probabilities, remember
from tidelog.report.page import report_of
from tidelog.runtime.rule import Rule
from tidelog.runtime.way_of_acting import DOES, KEEPS, RANK, Acting, replaces
from tidelog.sinks import Tracker, open_sink
from tidelog.sweeps.job import PLAN
from tidelog.sweeps.sweep import Sweep
from tidelog.training.record import Record
from tidelog.training.run import member_policy, policy_of_run, publish
from tidelog.types import Discrete

WAYS: dict[Acting, str] = {"mode": "likeliest actions", "sample": "sampled actions"}
NEGATIVE = 3  # the exit code of a gate that stays closed


@dataclass(kw_only=True)
class QuestionFlags(DeclaredFlags):
    """What is asked of a log about policies: of which episodes, by which models, under which limits."""

    data: Repeated = ()
    """the log, a table with --columns or a saved log (several: repeat the flag); default: the held-out episodes of the
    run"""
    columns: File | None = None
    """for tables: the mapping file; default: the columns of the run's log"""
    sample: bool = False
    """judge the policy by actions sampled from its distribution"""
    mode: bool = False
    """judge it by its most likely actions; default: its declared way of acting"""
    seed: int = 0
    """random seed of folds, models and resampling"""
    member: int | None = None
    """for a run folder: the member, counted from 0 as in `tidelog evaluate`"""
    propensities: Annotated[str, "logged|estimated|trees|best|FILE"] | None = None
    """require the log's propensities, or always estimate them: by the default model, by boosted trees (extra `trees`),
    or by the one that predicts other episodes better; or read them from a table with the columns `episode`, `step` and
    `propensity` or `estimated_propensity`; default: those of the log if it has any"""
    bandwidth: float | None = None
    """smooth deterministic continuous actions with noise of this share of half of each action's range"""
    discount: float = 1.0
    """discount of the estimated return"""
    first_steps: int | None = None
    """judge the return of this many first decisions of an episode, where long episodes cannot be weighed; the gate of
    `tidelog judge` then stays closed"""
    model: Literal["auto", "tabular", "neural"] = "auto"
    """the value model: a table if there are few observations, else networks"""
    out: File | None = None
    """also write the result to this JSON file"""
    overwrite: bool = False
    """replace this file if it exists"""
    limits: Limits = field(default_factory=Limits)
    """the support that a verdict needs"""

    def asked(self) -> dict[str, Any]:
        """These flags as arguments of `tl.judge` and `tl.plan`."""
        way, declared = chosen_way(self.sample, self.mode), declared_value(self.propensity, self.randomised)
        same = ("seed", "bandwidth", "discount", "first_steps", "model", "limits")
        return {
            "sample": None if way is None else way == "sample",
            "propensities": self.propensities if declared is None else declared,
            **{name: getattr(self, name) for name in same},
        }


@dataclass(kw_only=True)
class Judge(QuestionFlags):
    """Decide: better than the logged decisions, worse, no difference, or unsupported."""

    common: ClassVar[tuple[str, ...]] = (
        "policies", "data", "columns", "propensity", "sample", "mode", "first_steps", "gate", "cvar", "out",
        "overwrite", "json", "quiet", "details", "ledger", "looks",
    )  # fmt: skip

    policies: tyro.conf.Positional[tuple[RunOrPolicy, ...]]
    """run folders (their best policy if there is one, else their first member), saved policies, or the folder of a
    sweep for all its complete trials; several are judged at once on the same episodes, with simultaneous intervals"""
    sample: bool = False
    """judge the policy by actions sampled from its distribution, and let it act so from now on"""
    mode: bool = False
    """judge it by its most likely actions, and let it act so; default for runs with discrete actions: both ways, and
    the simple rules of the training episodes, at once; else its declared way, else what has a density"""
    all_members: bool = False
    """for run folders: judge all members at once"""
    by: Column | None = None
    """also show for whom: the difference by groups of this column of the observation, at the first decision of each
    episode; naming another column later is another look"""
    cvar: float | None = None
    """the share of worst episodes whose mean return is reported (default 0.1); with --gate, the tail is required too"""
    bad_outcome: float | None = None
    """a return at or below which an episode is bad: its probability is reported"""
    learnt_from: Literal["other data"] | None = None
    """state that the policy never learnt from these episodes, if its training data was not recorded"""
    gate: bool = False
    """exit with code 3 unless every verdict is `better`, and it is known, or stated, that the policy did not learn from
    these episodes"""
    json: bool = False
    """print the verdict, or the table of several, as JSON; everything else goes to standard error"""
    quiet: bool = False
    """print the decision only, without progress"""
    details: bool = False
    """also print the verdict on each of several policies, and the numbers of an unsupported one"""
    ledger: Annotated[str, "FILE|off"] | None = None
    """the file that counts looks at these episodes, or `off`; default: in the run, log and user folders"""
    looks: bool = False
    """show earlier looks at these episodes, without a new judgement"""
    sink: tuple[SinkName, ...] = ()
    """for run folders: also show the verdict and the report page in a tracker, such as mlflow or mlflow:URI"""


class _NamedPolicy(NamedTuple):
    """A policy with the names of its verdict for display and storage."""

    name: str  # among all judged policies
    short: str  # in its run's folder
    run: Path | None  # None for a saved policy
    policy: Policy | Rule  # in the way of acting that is judged, if several are
    declared: Policy | Rule  # in the way of acting that it has until the verdict

    @property
    def who(self) -> tuple[Path | None, str]:
        """The run and the member, of which several ways of acting may be judged."""
        return self.run, self.short


class _Source(NamedTuple):
    """A run folder, or a saved policy."""

    path: Path
    record: Record | None
    name: str  # among several


def run(words: list[str]) -> int:
    """Judge policies, print the verdicts and save them."""
    options = parsed(words)
    code, result, _ = judge_and_show(options)
    if options.json and result is not None:
        print_line(json.dumps(result.to_json(), indent=1))
    return code


def parsed(words: list[str]) -> Judge:
    """Return the flags of `tidelog judge`."""
    return parse(Judge, words, "judge")


def judge_and_show(options: Judge) -> tuple[int, Verdict | Verdicts | None, str | None]:
    """Judge policies, print the verdicts, without JSON, and save them.

    Return the exit code, the verdicts (none for `--looks`), and how commands name the policy that they say to use.
    """
    limit_arenas()
    sources = _sources(options.policies, options, options.all_members)
    saved = [source.path for source in sources if source.record is None]
    if saved and options.sink:
        raise ConfigError(f"{saved[0]} is a saved policy: --sink shows runs", fix="name its run folder, or drop --sink")
    with output_of(options.quiet, options.json):
        log, which = _log(options, sources)
    ledger = None
    if options.ledger != "off":
        ledger = Ledger.of(log, options.ledger, [source.path for source in sources if source.record is not None])
    if options.looks:
        _show_looks(ledger, which)
        return 0, None, None
    named_policies = [
        one for source in sources for one in _named_policies(options, source, len(sources) > 1, options.all_members)
    ]
    if log.reward is None:
        found = "; ".join(f"{one.name} {imitation_of(one.policy, log).sentence}" for one in named_policies)
        raise SpecError(
            "the log has no rewards, so no policy can be judged better or worse than its decisions",
            f"one reward column. All that can be said: on {which}, {found}",
            "name the reward in the mapping, and train again",
        )
    if not (options.sample or options.mode):
        named_policies = _all_ways(options, sources, named_policies, log)
    check_targets(options.out, overwrite=options.overwrite)
    sinks = {one.run: [open_sink(word, one.run) for word in options.sink] for one in named_policies if one.run}
    with json_only(options.json):
        result = _judge_policies(options, sources, named_policies, log, ledger)
        verdicts = [  # each with the command that deploys its policy, for the report
            replace(verdict, context={**verdict.context, "deploy": _export_command(one)})
            for verdict, one in zip([result] if isinstance(result, Verdict) else result, named_policies, strict=True)
        ]
        result = verdicts[0] if isinstance(result, Verdict) else replace(result, verdicts=tuple(verdicts))
        files = [_keep(verdict, one) for one, verdict in zip(named_policies, verdicts, strict=True)]
        recommended = None if isinstance(result, Verdict) else result.recommended
        _declare(named_policies, verdicts, recommended)
        if options.out is not None:
            write(result, Path(options.out))
        if options.quiet:
            for one, verdict in zip(named_policies, verdicts, strict=True):
                print_line(f"{one.name}: {verdict.decision.upper()}")
        else:
            _show_result(options, result, named_policies, files, which)
        if options.out is not None:
            print_line(f"verdict: {options.out}")
        for folder in sinks if options.sink else ():
            _publish(folder, sinks[folder], named_policies, verdicts)
        code = NEGATIVE if _blocked(options, named_policies, verdicts) else 0
    return code, result, _words_to_use(result, named_policies, files)


def _words_to_use(
    result: Verdict | Verdicts, named_policies: list[_NamedPolicy], files: list[Path | None]
) -> str | None:
    """How commands name the policy that the verdicts say to use; None if they say to keep what one has."""
    chosen: str | None
    part: str | None
    if isinstance(result, Verdict):
        name = named_policies[0].name
        chosen, part = name if result.decision == "better" else None, name
        on_condition = name if result.decision == IF_RANDOMISED else None
    else:
        chosen, part, row = result.recommended, result.safest, result.answer.row
        on_condition = row.name if row is not None and row.decision == IF_RANDOMISED else None
    verdicts = [result] if isinstance(result, Verdict) else list(result)
    for one, verdict, file in zip(named_policies, verdicts, files, strict=True):
        if chosen is None and one.name == part and verdict.safe_policy is not None and file is not None:
            return shlex.quote(str(safe_path(file)))
    return next((_words_of(one) for one in named_policies if one.name == (chosen or on_condition)), None)


def _all_ways(
    options: Judge, sources: list[_Source], named_policies: list[_NamedPolicy], log: Log
) -> list[_NamedPolicy]:
    """Everything that could be deployed: each policy of a run in every way of acting, and the runs' simple rules.

    A saved policy keeps its declared way. Continuous actions are sampled if nobody declared a way, because the most
    likely ones have no density.
    """
    several = len(named_policies) > 1
    candidates: list[_NamedPolicy] = []
    for one in named_policies:
        if one.run is None:
            candidates.append(one)
        elif has_probabilities(one.policy):
            for way, does in WAYS.items():
                label = one.name.removesuffix(": policy")  # of a run with one member
                name = f"{label}: {does}" if several else does
                candidates.append(one._replace(name=name, policy=one.policy.with_acting(way)))
        elif isinstance(one.policy.spec.action, Discrete):
            candidates.append(one._replace(policy=one.policy.with_acting("mode")))
        else:
            density = options.bandwidth is None and has_density(one.policy, log.spec)
            way = one.policy.acting or ("sample" if density else "mode")
            candidates.append(one._replace(policy=one.policy.with_acting(way)))
    return [*candidates, *_rules(sources)]


def _rules(sources: Sequence[_Source]) -> Iterator[_NamedPolicy]:
    """The simple rules of the runs, once for all runs that learnt from the same episodes."""
    parts: dict[str, _Source] = {}
    for source in sources:
        if source.record is not None and has_rules(source.record.spec) and not source.record.is_finetuned:
            part = source.record.sketches.get("learnt_from", str(source.path))
            parts.setdefault(json.dumps(part, sort_keys=True), source)
    for path, record, name in parts.values():
        if record is None:
            continue
        try:
            rules = rules_of_run(path, record)
        except (ConfigError, LogError) as error:
            print_line(f"note: no simple rules stand beside {path}: {error.problem}")
            continue
        for rule in rules.values():
            shown = f"{name}: {rule.name}" if len(parts) > 1 else rule.name
            yield _NamedPolicy(shown, rule.name.replace(" ", "-"), path, rule.with_acting("mode"), rule)


def _keep(verdict: Verdict, one: _NamedPolicy) -> Path | None:
    """Save the verdict in the policy's run folder, and return its file."""
    if one.run is None:
        return None
    how = "" if verdict.is_rule else "-sampled" if verdict.acting == "sample" else "-deterministic"
    return store_verdict(verdict, one.run, f"{one.short}{how}")


def _declare(named_policies: list[_NamedPolicy], verdicts: list[Verdict], recommended: str | None) -> None:
    """Declare for each policy of a run the judged way of acting, of several the best one, in the run's folder."""
    for pairs in _by_policy(named_policies, verdicts):
        one, verdict = _best_way(pairs, recommended)
        if one.run is None:
            continue
        if replaces(verdict.summary, one.declared.verdict):
            one.declared.declare(verdict.acting, verdict.summary)
        remember(one.run, one.declared)


def _by_policy(named_policies: list[_NamedPolicy], verdicts: list[Verdict]) -> list[list[tuple[_NamedPolicy, Verdict]]]:
    """The verdicts on all ways of acting of each policy."""
    groups: dict[Any, list[tuple[_NamedPolicy, Verdict]]] = {}
    for one, verdict in zip(named_policies, verdicts, strict=True):
        groups.setdefault(one.who if one.run is not None else one.name, []).append((one, verdict))
    return list(groups.values())


def _best_way(pairs: list[tuple[_NamedPolicy, Verdict]], recommended: str | None) -> tuple[_NamedPolicy, Verdict]:
    """The recommended way of acting of a policy, else the one with the best decision and the highest lower end."""
    low = [one.difference.low if math.isfinite(one.difference.low) else -math.inf for _, one in pairs]
    order = [(named.name == recommended, RANK.index(one.decision)) for named, one in pairs]
    return pairs[max(range(len(pairs)), key=lambda position: (*order[position], low[position]))]


def _publish(folder: Path, sinks: list[Tracker], named_policies: list[_NamedPolicy], verdicts: list[Verdict]) -> None:
    """Show the verdicts on a run's policies, and its report page, in trackers."""
    pairs = zip(named_policies, verdicts, strict=True)
    here = [(one, verdict) for one, verdict in pairs if one.run == folder]
    shorts = [one.short for one, _ in here]
    own: dict[str, Verdict] = {
        one.short if shorts.count(one.short) == 1 else f"{one.short} {verdict.acting}": verdict for one, verdict in here
    }
    with tempfile.TemporaryDirectory() as temporary:
        publish(folder, own, sinks, report_of([folder], Path(temporary) / "report.html"))


def _blocked(options: Judge, named_policies: list[_NamedPolicy], verdicts: list[Verdict]) -> bool:
    """Whether a gate stays closed; print the reasons."""
    lines = []
    for pairs in _by_policy(named_policies, verdicts) if options.gate else ():
        one, verdict = _best_way(pairs, None)
        tail = None if options.cvar is None else tail_refusal(verdict.risk, verdict.risk_reason)
        if not verdict.is_rule:  # what a run deploys without --rule
            lines += [f"- {one.name}: {why}" for why in (*verdict.blocks_gate, *filter(None, [tail]))]
    if lines:
        print_line("the gate stays closed:\n" + "\n".join(lines))
    return bool(lines)


def _sources(names: Sequence[str], options: QuestionFlags, all_members: bool = False) -> list[_Source]:
    """The run folders and saved policies that are named, of a sweep the folders of all its complete trials.

    ConfigError where there is none, or for flags that do not fit them.
    """
    sources = []
    for name in names:
        folders = [(name, name)]  # each with its name among several policies
        if (Path(name) / PLAN).is_file():  # none of its trials is judged without the others
            sweep = Sweep(name)
            complete = {trial: str(sweep.run_folder(trial)) for trial in sweep.complete()}
            if not complete:
                again = f"tidelog resume {shlex.quote(name)}"
                raise ConfigError(f"{name} has no complete trial to judge", fix=f"continue it with `{again}`")
            folders = [(run, f"trial {trial}" if len(names) == 1 else run) for trial, run in complete.items()]
        for folder, short in folders:
            path = Path(folder)
            if not path.exists():
                raise ConfigError(f"{folder} does not exist", "a run folder or a saved policy")
            record = Record.read(path) if (path / "run.json").exists() else None
            if record is not None:
                refuse_lists(path, record, "judge")
            sources.append(_Source(path, record, short))
    if not sources:
        raise ConfigError("there is no policy to judge", fix="name a run folder or a saved policy")
    if len({source.path.resolve() for source in sources}) < len(sources):
        raise ConfigError("a policy appears twice", fix="name each run folder or saved policy once")
    declared = declared_value(options.propensity, options.randomised)
    if declared is not None and options.propensities is not None:
        raise ConfigError("--propensities and a declaration are both set", fix="set only one of them")
    if declared is not None and not is_declaration(declared):
        raise ConfigError(
            f"--propensity {options.propensity}: a column of the judged log is named in its mapping",
            fix="name it there, or declare how decisions were drawn, such as --propensity 0.5",
        )
    if options.columns is not None and not options.data:
        raise ConfigError("--columns is set without --data: it describes a table", fix="name the table with --data")
    saved = [source.path for source in sources if source.record is None]
    if saved and (options.member is not None or all_members):
        raise ConfigError(f"{saved[0]} is a saved policy, which has no members", fix="drop --member and --all-members")
    if saved and not options.data:
        raise ConfigError(f"{saved[0]} is a saved policy, which has no held-out episodes", fix="name a log with --data")
    if options.member is not None and all_members:
        raise ConfigError("--member and --all-members are both set", fix="set only one of them")
    return sources


def _log(options: QuestionFlags, sources: list[_Source]) -> tuple[Log, str]:
    """The episodes to judge on: the runs' held-out episodes if the log is theirs, else the whole log."""
    records = [source.record for source in sources if source.record is not None]
    log = log_for_runs(options.data, options.columns, records) if options.data else None
    parts: dict[str, tuple[Log, str]] = {}
    for path, record, _ in sources:
        if record is None or (log is not None and log.fingerprint() != record.data.fingerprint):
            continue
        part = held_out_part(path, record, log)
        parts[part[0].fingerprint()] = part
    if len(parts) > 1:
        raise ConfigError(
            "these runs held out different episodes, but policies are judged at once on the same episodes",
            fix="name a log that none of them learnt from with --data, or judge one run after another",
        )
    if parts or log is None:  # without a log every policy is one of a run, and its run held out a part
        return next(iter(parts.values()))
    return log, f"all {len(log.episode_ids):,} episodes of the log"


def _named_policies(
    options: QuestionFlags, source: _Source, several: bool, all_members: bool = False
) -> Iterator[_NamedPolicy]:
    folder, record, shown = source
    if record is None:
        saved = open_policy(str(folder))
        yield _NamedPolicy(str(folder) if several else folder.name, folder.name, None, saved, saved)
        return
    before = f"{shown}: " if several else ""
    count = len(record.configs) * len(record.options.seeds)
    if options.member is None and not all_members and record.options.best_metric is not None:
        best = policy_of_run(folder)
        yield _NamedPolicy(f"{before}best", "best", folder, best, best)
        return
    members = range(count) if all_members else [options.member or 0]
    for member in members:
        if not 0 <= member < count:
            raise ConfigError(f"--member {member}: {folder} has {count} member(s), counted from 0")
        name = f"member-{member}" if count > 1 else "policy"
        policy = member_policy(folder, record, member)
        yield _NamedPolicy(f"{before}{name}", name, folder, policy, policy)


def _judge_policies(
    options: Judge, sources: list[_Source], named_policies: list[_NamedPolicy], log: Log, ledger: Ledger | None
) -> Verdict | Verdicts:
    context: dict[str, Any] = {
        "source": several_as_text(options.data) if options.data else None,
        "date": datetime.now(UTC).isoformat(),
    }
    several: Any = {one.name: one.policy for one in named_policies}
    if len(named_policies) == 1:
        context["name"] = named_policies[0].name
        several = named_policies[0].policy
    learnt = next((source.record for source in sources if source.record is not None), None)
    result: Verdict | Verdicts = judge(
        several,
        log,
        **options.asked(),
        cvar=ALPHA if options.cvar is None else options.cvar,
        bad_outcome=options.bad_outcome,
        learnt_from=options.learnt_from,
        train=None if learnt is None or learnt.is_finetuned else partial(training_part, learnt),
        ledger=False if ledger is None else ledger,
        context=context,
        progress=False if options.quiet else None,
        by=options.by,
    )
    return result


def _show_looks(ledger: Ledger | None, which: str) -> None:
    """Print earlier looks at the episodes, one per line."""
    looks = () if ledger is None else ledger.looks
    print_line(f"{sum(look.number > 0 for look in looks):,} look(s) at {which}")
    rows = []
    for look in looks:
        decisions = list(look.decisions.values())
        text = ", ".join(f"{decisions.count(one)} {one}" if len(decisions) > 1 else one for one in sorted({*decisions}))
        first = look.policies[0]
        one = f"{first.get('algorithm') or ''} {first['name']}".strip()
        names = one if len(look.policies) == 1 else f"{len(look.policies):,} policies at once"
        sampled = look.settings.get("sample")
        way = ("sampled" if sampled else "most likely") if isinstance(sampled, bool) else "several"
        when = look.time.replace("T", " ")[:16]
        rows.append([str(look.number or "none"), when, names, way, text or "unknown", f"{look.share:.0%}"])
    if rows:
        table("looks", ["look", "UTC", "policy", "actions", "decision", "episodes"], rows)


def _show_result(
    options: Judge, result: Verdict | Verdicts, named_policies: list[_NamedPolicy], files: list[Path | None], which: str
) -> None:
    """Print one verdict, or the table of several with one recommendation; then where they are saved."""
    if isinstance(result, Verdict):
        _show(result, named_policies[0].name, which, options.details, options.bad_outcome)
    else:
        _show_table(result, which, options.details)
        for name, verdict in result.items() if options.details else ():
            print_line("")
            _show(verdict, name, which, True, options.bad_outcome)
    verdicts = [result] if isinstance(result, Verdict) else list(result)
    for verdict, file in zip(verdicts, files, strict=True):
        if verdict.safe_policy is not None and file is not None:
            print_line(f"the policy that acts so: {safe_path(file)}, for tidelog act, serve and export")
    saved = [file for file in files if file is not None]
    if saved:
        folders = ", ".join(sorted({str(file.parent) for file in saved}))
        if len(saved) == 1 or options.details:
            print_line(f"verdict: {saved[0]}" if len(saved) == 1 else f"{len(saved):,} verdicts: {folders}")
        recommended = result.recommended if isinstance(result, Verdicts) else None
        pairs = [_best_way(pairs, recommended) for pairs in _by_policy(named_policies, verdicts)]
        pairs = [(one, verdict) for one, verdict in pairs if one.run is not None and not verdict.is_rule]
        for one, verdict in pairs:
            if one.declared.verdict != verdict.summary:
                carried: Any = one.declared.verdict
                print_line(
                    f"{one.name} keeps its earlier verdict, {carried['decision']} of {carried['date'][:10]}, and still "
                    f"{DOES[carried['acting']]}: {KEEPS[verdict.acting == carried['acting']]}"
                )
        ways = sorted(
            {DOES[one.declared.acting or "mode"] for one, said in pairs if one.declared.verdict == said.summary}
        )
        who = "this" if len(pairs) == 1 else "each" if len(ways) == 1 else "each other"
        other = " (--mode takes its most likely action again)" if ways == [DOES["sample"]] else ""
        if ways:
            print_line(f"from now on, {who} policy {' or '.join(ways)}, as it was judged{other}")
        if isinstance(result, Verdicts) and result.recommended is not None:
            chosen = next(one for one in named_policies if one.name == result.recommended)
            print_line(f"next: {_export_command(chosen)}")


def _words_of(one: _NamedPolicy) -> str:
    """How commands name a policy; they take a run's first member otherwise."""
    source = shlex.quote(str(one.run or one.name))
    if isinstance(one.policy, Rule):
        return f"{source} --rule {next(word for word, known in WORDS.items() if known == one.policy.name)}"
    member = one.short.partition("member-")[2]
    return f"{source} --member {member}" if member else source


def _export_command(one: _NamedPolicy) -> str:
    """The command that saves a policy."""
    return f"tidelog export {_words_of(one)}{'' if isinstance(one.policy, Rule) else ' --to zip'}"


def _show_table(verdicts: Verdicts, which: str, details: bool) -> None:
    """Print the answer, the table, and a line each on the rules, the episodes, and on what is missing."""
    answer = verdicts.answer
    number = f"{answer.number}, {percent(verdicts.level)} interval" if answer.number else ""
    lines = verdicts.part_advice or (answer.headline, number, answer.why)
    for line in lines:
        if line:
            print_line(line)
    print_line("")
    rows = [[row.name, *row.cells, row.decision] for row in verdicts.rows]
    unit = in_unit(verdicts[0].reward_unit, "in ")
    title = f"{len(rows):,} policies judged at once: differences from the behaviour policy{unit}"
    head = ["policy", "difference", f"{percent(verdicts.level)} interval", "effective share", "verdict"]
    table(title, head, rows)
    for name, verdict in verdicts.items():
        if verdict.rule is not None and (details or name != verdicts.recommended):  # the advice has that one
            print_line(f"{name}: {verdict.rule}")
    print_line(
        f"judged on {which}. Effective share: the part of these episodes that speaks for a policy. --details prints "
        "each verdict with its reasons and assumptions"
    )
    for name, verdict in verdicts.items():
        if not details and verdicts.recommended in (None, name):
            _show_groups(verdict, f"{name}: ")
    shared = set.intersection(*(set(one.reasons) for one in verdicts))
    conditions = verdicts[0].context.get("conditions", ())
    notes = [*filter(None, [verdicts[0].context.get("earlier_looks")]), *conditions]
    if notes:  # what makes the intervals wider, or the answer less sure
        print_line(f"note: {'; '.join(notes)}")
    if verdicts.recommended is None and not verdicts.part_advice and not details:
        # why, and what to do: of one policy, as the others say the same
        most = max(verdicts.rows, key=lambda row: np.nan_to_num(row.effective_sample_size, nan=-1.0))
        name = (answer.row or most).name
        one = verdicts[name]
        own = [reason for reason in one.reasons if reason not in shared]
        most_shown = ", of which the log shows most" if answer.row is None else ""
        print_line(f"{name}{most_shown}: {own[0] if own else one.decision}")
        if one.next_step:
            print_line(one.next_step)


def _show_groups(verdict: Verdict, before: str = "") -> None:
    """Print the table of groups, if there are any."""
    if not verdict.groups:
        return
    rows = [
        [
            one.name,
            f"{one.episodes:,}",
            with_ends(one.difference, sign=True),
            "cannot tell" if one.decision == "unsupported" else one.decision,
        ]
        for one in verdict.groups
    ]
    unit = in_unit(verdict.reward_unit, "in ")
    title = f"{before}differences from the behaviour policy by '{verdict.by}'{unit}, simultaneous"
    table(title, [verdict.by, "episodes", f"difference, {percent(verdict.level)} interval", "verdict"], rows)


def _show(verdict: Verdict, name: str, which: str, details: bool, bad_outcome: float | None) -> None:
    print_line(f"{verdict.advice}\n{name}: {verdict.decision.upper()}\n")
    print_line(verdict.outcome)
    for reason in verdict.reasons:
        print_line(f"- {reason}")
    if verdict.next_step:
        print_line(verdict.next_step)
    print_line(f"\njudged on {which}; {verdict.estimand}")
    guess = verdict.decision == "unsupported"
    if len(verdict.estimates) and guess and not details:
        print_line("what the estimators say about this policy is a guess outside the log; --details prints it")
    elif len(verdict.estimates):
        interval = f"{percent(verdict.estimates[0].level)} interval"
        head = ["estimator", "estimate", interval, "effective episodes", "largest weight", "note"]
        unit = in_unit(verdict.reward_unit, "in ")
        title = (
            f"guesses outside the log{unit}: do not use them"
            if guess
            else f"estimates{unit}; {verdict.deciding} decides"
        )
        table(title, head, verdict.estimates.rows())
    _show_groups(verdict)
    print_line(f"the behaviour policy's own mean: {with_ends(verdict.behavior_policy, verdict.reward_unit)}")
    for sentence in verdict.risk.sentences if verdict.risk else ():
        print_line(f"- {sentence}")
    if verdict.risk is None and not guess:
        print_line(f"no distribution of returns: {verdict.risk_reason}")
    if verdict.risk is None and bad_outcome is not None:
        print_line(f"--bad-outcome {bad_outcome:g}: no probability is reported, because {verdict.risk_reason}")


# `tidelog plan RUN | POLICY [--data LOG]`: how many episodes, or which exploration, would show an effect.


@dataclass
class PlanFlags(OutputFlags, QuestionFlags):
    """Plan how many new episodes, or which exploration, show that a policy is better."""

    policy: tyro.conf.Positional[RunOrPolicy]
    """a run folder (its best policy if there is one, else its first member), or a saved policy"""
    effect: float | None = None
    """the gain per episode to plan for; default: the estimated one if it is one, else 0.2 standard deviations of the
    logged returns"""
    probability: float = PROBABILITY
    """of the verdict `better`, if the policy has that effect"""
    episodes: int | None = None
    """say how likely so many episodes show it, and which share of exploration is enough"""
    explore: tuple[float, ...] = EXPLORED
    """shares of decisions drawn evenly over the actions that are planned beside the present logging"""
    simulations: int = SIMULATIONS
    """simulated logs of each logging: more make the plan more exact"""


def run_plan(words: list[str]) -> int:
    """Plan, and print the plan as sentences."""
    return present(parse(PlanFlags, words, "plan"), _plan)


def _plan(options: PlanFlags) -> dict[str, Any]:
    limit_arenas()
    sources = _sources((options.policy,), options)
    if len(sources) != 1:
        raise ConfigError(f"{len(sources)} policies", "one run folder or saved policy", "name one of them")
    log, which = _log(options, sources)
    (named,) = _named_policies(options, sources[0], several=False)
    check_targets(options.out, overwrite=options.overwrite)
    result = plan(
        named.policy,
        log,
        options.effect,
        options.probability,
        episodes=options.episodes,
        explore=options.explore,
        simulations=options.simulations,
        progress=False if options.quiet else None,
        **options.asked(),
    )
    content = result.to_json()
    head, first, *rest = result.sentences
    print_details(head)
    print_line(first)
    print_details(*rest, f"planned from {which}")
    if options.out is not None:
        write_json(Path(options.out), content)
        print_details(f"plan: {options.out}")
    return content
