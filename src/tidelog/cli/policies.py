"""The policy that a command line names, a run folder or a saved policy, and the way in which it acts.

Imports of JAX and of readers are inside the functions: a saved policy acts with NumPy, and starts in a fraction of the
time.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import tyro

from tidelog.cli.flags import Repeated, print_details, print_notes, source_of
from tidelog.errors import ConfigError
from tidelog.hub import local
from tidelog.runtime.artefact import SavedPolicy
from tidelog.runtime.load import load_saved
from tidelog.runtime.rule import Rule, is_rule_file, load_rule
from tidelog.runtime.way_of_acting import DOES, Acting, BasePolicy, P, in_way, verdict_line
from tidelog.types import Catalogue

if TYPE_CHECKING:
    from tidelog.data.columns import Columns
    from tidelog.data.log import Log
    from tidelog.policies.policy import Policy
    from tidelog.recommend.evaluate import RuleLists
    from tidelog.runtime.policy import NumpyPolicy
    from tidelog.runtime.recommender import Recommender
    from tidelog.training.record import Record


WORDS = ("constant", "tree")  # of simple rules
SimpleRule: TypeAlias = Annotated[Literal["constant", "tree"], tyro.conf.arg(metavar="tree|constant")]


def columns_of_run(origin: Mapping[str, Any], source: str | Sequence[str]) -> Columns | None:
    """Return the mapping with which a run read its log, for another table; None where it needed none.

    Its form of text is that of the run's file only if the endings are the same.
    """
    from tidelog.data.columns import USUAL_FORM, Columns
    from tidelog.data.formats import TABLES, ending_of

    if not origin.get("columns"):
        return None
    columns = Columns.from_mapping(origin["columns"])
    before, now = (one if isinstance(one, str) else one[0] for one in (origin["source"], source))
    same = ending_of(before, TABLES) == ending_of(now, TABLES)
    return columns if same else replace(columns, **USUAL_FORM._asdict())


def log_for_runs(data: Repeated, columns: str | None, records: Sequence[Record]) -> Log:
    """Read the log of `--data`: a table by `--columns`, or without it by the one mapping of the runs' own logs.

    What their mapping declares about propensities holds for their own rows alone: others are read without it.
    """
    from tidelog.data.read import is_table, read_log

    source = source_of(data, "--data")
    mappings = [columns_of_run(record.data.origin or {}, source) for record in records]
    own = mappings[0] if mappings and columns is None and is_table(source) else None
    if own is None or any(one != own for one in mappings):
        return read_log(source, columns)
    print_details("--data is read with the columns of the run's log; --columns FILE names others")
    log = read_log(source, own)
    if own.declared is None or any(record.data.fingerprint == log.fingerprint() for record in records):
        return log
    print_notes([
        "other rows than the run's: the propensities that its mapping declares are not taken over. fix: where they "
        "hold here too, declare them in a mapping (--columns)"
    ])  # fmt: skip
    return read_log(source, replace(own, propensity=None))


def open_policy(path: str, member: int | None = None) -> Policy:
    """Load the policy of a saved folder, of a run's member or of the Hub, for JAX; ConfigError for other paths.

    The file of a simple rule gives the rule, which has the calls of a policy.
    """
    from tidelog.policies.policy import load_policy

    path = local(path)
    loaded: Any = _of_run(path, member) or load_policy(path)
    policy: Policy = loaded
    return policy


def open_for_use(path: str, member: int | None = None) -> Policy | NumpyPolicy | Recommender | Rule:
    """Load the policy of a run's member, or a saved one in the NumPy runtime; ConfigError for other paths.

    A custom module that only JAX can run is loaded for JAX.
    """
    path = local(path)
    of_run = _of_run(path, member)
    if of_run is not None:
        return of_run
    if is_rule_file(path):
        return load_rule(path)
    saved = SavedPolicy(path)
    return open_policy(path) if saved.manifest["recipe"] is None else load_saved(saved)


def with_rule(words: Sequence[str], others: bool = False) -> list[str]:
    """Expand `--rule` alone to `--rule tree`; `others`: the command knows other rules too."""
    expanded = list(words)
    for position, word in reversed(list(enumerate(words))):
        following = words[position + 1 : position + 2]
        alone = not following or following[0].startswith("-") or not (others or following[0] in WORDS)
        if word == "--rule" and alone:
            expanded.insert(position + 1, "tree")
    return expanded


def open_simple_rule(path: str, word: str) -> Rule:
    """Return the simple rule of a run, `constant` or `tree`; ConfigError for other words, and paths without a run."""
    from tidelog.ope.rules import rule_of_run

    folder = Path(path)
    if not (folder / "run.json").exists():
        found = f"--rule {word}: {folder} is not a run folder, and simple rules are of a run"
        raise ConfigError(found, fix="name the run folder, or the JSON file of a rule without --rule")
    return rule_of_run(folder, word)


def open_rule(path: str, rule: str) -> RuleLists:
    """Return lists by a counting rule over the whole log of a run; ConfigError if the run has no interactions."""
    from tidelog.recommend.evaluate import RuleLists
    from tidelog.recommend.interactions import Interactions
    from tidelog.recommend.read import reopen_any
    from tidelog.training.record import Record

    folder = Path(path)
    if not (folder / "run.json").exists():
        found = f"--rule {rule}: {folder} is not a run folder, and a rule counts the events of a run's log"
        raise ConfigError(found, fix="name the run folder")
    origin = Record.read(folder).data.origin
    log = None if origin is None else reopen_any(origin)
    if not isinstance(log, Interactions):
        why = "was in memory only" if origin is None else "is no interactions"
        raise ConfigError(f"--rule {rule}: the log of {folder} {why}", fix="name a run that learnt from interactions")
    return RuleLists(log, rule)


def _of_run(path: str, member: int | None) -> Policy | None:
    """Return the policy of a run folder, None for a path to a saved policy; ConfigError where there is nothing."""
    folder = Path(path)
    if (folder / "run.json").exists():
        from tidelog.training.run import policy_of_run

        return policy_of_run(folder, member)
    if not folder.exists():
        raise ConfigError(f"{folder} does not exist", "a run folder or a saved policy")
    if member is not None:
        raise ConfigError(f"{folder} is a saved policy, which has no members", fix="drop --member")
    return None


def refuse_lists(folder: Path, record: Record, command: str) -> None:
    """Raise ConfigError if the policies of a run rank items: a command needs actions."""
    if isinstance(record.spec.action, Catalogue):
        quoted = shlex.quote(str(folder))
        raise ConfigError(
            f"{folder} ranks items of a catalogue, `tidelog {command}` needs a policy that chooses one action",
            fix=(f"`tidelog report {quoted}` compares its lists with baselines; `tidelog act {quoted}` writes lists"),
        )


# The flags --sample and --mode, and what a command says about the way in which a policy acts.


def chosen_way(sample: bool, mode: bool) -> Acting | None:
    """The way of acting of the flags --sample and --mode; None, the policy's declared way, without either."""
    if sample and mode:
        raise ConfigError("--sample and --mode", "one of them", "drop one")
    return "sample" if sample else "mode" if mode else None


def in_chosen_way(policy: P, sample: bool, mode: bool, otherwise: Acting = "mode") -> P:
    """Return the policy in the way of the flags, else its declared way, else `otherwise`; a note names another."""

    def tell(_: str) -> None:
        holds = f"a verdict on this policy holds where it {DOES[policy.acting or 'mode']}"
        print(f"note: {holds}, which {'--mode' if mode else '--sample'} changes", file=sys.stderr)  # noqa: T201

    return in_way(policy, chosen_way(sample, mode), otherwise, tell)


def print_way(policy: BasePolicy) -> None:
    """Print the verdict on the policy, which begins with what to do, and how the policy acts."""
    print_details(verdict_line(policy.verdict), f"the policy {DOES[policy.acting or 'mode']}")
