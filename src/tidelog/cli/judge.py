"""`tidelog judge RUN | POLICY [--log LOG]`: whether to believe in a policy before anyone uses it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import tyro

from tidelog.acting.policy import Policy
from tidelog.cli.act import open_policy
from tidelog.cli.options import parse
from tidelog.cli.tables import say, table
from tidelog.data import Log
from tidelog.data.origin import read_any
from tidelog.errors import ConfigError
from tidelog.judging.kept import held_out_part, judged_before, keep, write
from tidelog.judging.limits import Limits
from tidelog.judging.results import Verdict
from tidelog.judging.risk import ALPHA, tail_refusal
from tidelog.judging.verdict import judge
from tidelog.training.acting import member_policy, policy_of_run
from tidelog.training.progress import Screen
from tidelog.training.record import Record

NEGATIVE = 3  # the exit code of a gate that does not open


@dataclass
class Judge:
    """Say whether a policy is better than whoever made the log: better, worse, no difference shown, or unsupported."""

    policy: tyro.conf.Positional[str]
    """a run folder (its best policy if one was kept, else its first member), or a saved policy"""
    log: str | None = None
    """what to judge on, named as in `tidelog evaluate`; default: the episodes that the run held out"""
    columns: str | None = None
    """for tables: the mapping file"""
    sample: bool = False
    """judge the policy as it draws its actions instead of taking the most likely one"""
    seed: int = 0
    """what folds, models and resampling depend on"""
    member: int | None = None
    """of a run: which member, counted as in `tidelog evaluate`"""
    all_members: bool = False
    """of a run: judge every member"""
    propensities: Literal["logged", "estimated"] | None = None
    """insist on the log's own propensities, or estimate them in any case; default: its own where it has any"""
    bandwidth: float | None = None
    """blur the deterministic actions of continuous policies by a noise of this share of half of each action's range"""
    discount: float = 1.0
    """of what is estimated"""
    model: Literal["auto", "tabular", "neural"] = "auto"
    """what rates actions: a table where observations are few, else networks"""
    cvar: float | None = None
    """the share of worst episodes whose mean return is told (default 0.1); with --gate, asks for the tail too"""
    bad_outcome: float | None = None
    """a return at or below which an episode is bad: its probability is told"""
    cvar_tolerance: float = 0.0
    """with --gate and --cvar: by how much the worst episodes' estimated mean return may fall behind the logger's"""
    gate: bool = False
    """exit with code 3 unless every verdict is `better` (and, with --cvar, no tail is worse)"""
    out: str | None = None
    """also write the verdict to this JSON file"""
    limits: Limits = field(default_factory=Limits)
    """how much support a verdict needs"""


class _Asked(NamedTuple):
    """A policy with the name under which its verdict is kept."""

    name: str
    policy: Policy


def run(words: list[str]) -> int:
    """Judge, say it, keep it."""
    options = parse(Judge, words, "judge")
    folder = Path(options.policy)
    record = Record.read(folder) if (folder / "run.json").exists() else None
    _check(options, record)
    log, which = _log(options, folder, record)
    closed = []
    for asked in _asked(options, folder, record):
        verdict = _judged(options, asked, log, folder if record else None)
        refused = _refused(options, verdict)
        closed += [] if refused is None else [f"the gate stays closed for {asked.name}: {refused}"]
        _show(verdict, asked.name, which)
        _keep(options, verdict, asked.name, folder if record else None)
    for sentence in closed:
        say(sentence)
    return NEGATIVE if closed else 0


def _refused(options: Judge, verdict: Verdict) -> str | None:
    """Why the gate stays closed, if there is one and it does."""
    if not options.gate:
        return None
    if verdict.decision != "better":
        return f"the verdict is '{verdict.decision}'; expected 'better'"
    if options.cvar is None:
        return None
    return tail_refusal(verdict.risk, verdict.risk_reason, options.cvar_tolerance)


def _check(options: Judge, record: Record | None) -> None:
    if not Path(options.policy).exists():
        raise ConfigError(f"{options.policy} does not exist: give a run folder or a saved policy")
    if options.columns is not None and options.log is None:
        raise ConfigError("--columns says what is in a table: name the table with --log")
    if record is None and (options.member is not None or options.all_members):
        raise ConfigError(f"{options.policy} is a saved policy, which has no members: leave --member away")
    if record is None and options.log is None:
        raise ConfigError(f"{options.policy} is a saved policy: name the log to judge it on with --log")
    if not 0.0 <= options.cvar_tolerance < float("inf"):
        raise ConfigError(f"--cvar-tolerance {options.cvar_tolerance}: expected a finite return of at least 0")
    if options.cvar_tolerance and not (options.gate and options.cvar is not None):
        raise ConfigError("--cvar-tolerance needs --gate and --cvar; fix: add them, or drop it")
    if options.member is not None and options.all_members:
        raise ConfigError("say either --member or --all-members")
    if options.out is not None and (options.all_members or Path(options.out).exists()):
        more = "--out is for one verdict" if options.all_members else f"{options.out} exists: choose another file"
        raise ConfigError(f"{more}, nothing was written")


def _log(options: Judge, folder: Path, record: Record | None) -> tuple[Log, str]:
    given = None if options.log is None else read_any(options.log, options.columns)
    if record is not None:
        return held_out_part(folder, record, given)
    if given is None:
        raise ConfigError("name the log to judge on with --log")
    return given, f"all {len(given.episode_ids):,} episodes of the log"


def _asked(options: Judge, folder: Path, record: Record | None) -> Iterator[_Asked]:
    if record is None:
        yield _Asked(folder.name, open_policy(options.policy))
        return
    count = len(record.configs) * len(record.settings.seeds)
    if options.member is None and not options.all_members and record.settings.best is not None:
        yield _Asked("best", policy_of_run(folder))
        return
    members = range(count) if options.all_members else [options.member or 0]
    for member in members:
        if not 0 <= member < count:
            raise ConfigError(f"--member {member}: {folder} has {count} member(s), counted from 0")
        yield _Asked(f"member-{member}", member_policy(folder, record, member))


def _judged(options: Judge, asked: _Asked, log: Log, folder: Path | None) -> Verdict:
    context: dict[str, Any] = {"name": asked.name, "source": options.log}
    if folder is not None:
        context["judged_before"] = judged_before(folder, log)
    with Screen("judging") as screen:
        return judge(
            asked.policy,
            log,
            options.sample,
            options.propensities,
            options.seed,
            discount=options.discount,
            limits=options.limits,
            bandwidth=options.bandwidth,
            model=options.model,
            cvar=ALPHA if options.cvar is None else options.cvar,
            bad_outcome=options.bad_outcome,
            context=context,
            progress=screen.tell,
        )


def _show(verdict: Verdict, name: str, which: str) -> None:
    say(f"{name}: {verdict.decision.upper()}\n")
    say(f"{verdict.paragraph}\n")
    say(f"judged on {which}; {verdict.estimand}")
    for reason in verdict.reasons:
        say(f"- {reason}")
    if len(verdict.estimates):
        head = [
            "estimator",
            "estimate",
            f"{verdict.level:.0%} interval",
            "effective episodes",
            "largest weight",
            "note",
        ]
        table(f"estimates; {verdict.deciding} decides", head, verdict.estimates.rows())
        logger = verdict.logger
        say(f"the logger's own mean: {logger.estimate:.4g} ({logger.low:.4g} to {logger.high:.4g})")
    for sentence in verdict.risk.sentences if verdict.risk else [f"no distribution of returns: {verdict.risk_reason}"]:
        say(f"- {sentence}")


def _keep(options: Judge, verdict: Verdict, name: str, folder: Path | None) -> None:
    if folder is not None:
        how = "sampled" if options.sample else "deterministic"
        say(f"verdict: {keep(verdict, folder, f'{name}-{how}')}")
    if options.out is not None:
        write(verdict, Path(options.out))
        say(f"verdict: {options.out}")
