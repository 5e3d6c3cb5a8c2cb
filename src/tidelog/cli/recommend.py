"""`tidelog recommend POLICY --data histories.csv --user U --item I --time T --out lists.csv`: lists for users."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from tidelog._files import read_text
from tidelog._text import count_of
from tidelog.cli.flags import (
    Column,
    File,
    OutputFlags,
    Repeated,
    RunOrPolicy,
    check_tables,
    check_targets,
    parse,
    present,
    print_details,
    print_line,
    print_notes,
    source_of,
)
from tidelog.cli.policies import open_for_use, open_policy, open_rule
from tidelog.data.read import table_with
from tidelog.errors import ConfigError
from tidelog.policies.batch_inference import write_table
from tidelog.recommend.tables import new_items, recommend_for_table
from tidelog.runtime.recommender import PolicyRanker, Recommends, Vocabulary, excludes_seen
from tidelog.training.metrics import Screen


@dataclass
class Recommend(OutputFlags):
    """Write the best items for every user in a table of histories."""

    policy: tyro.conf.Positional[RunOrPolicy]
    """a saved policy, or a run folder (its best policy if there is one, else its first member)"""
    data: Repeated
    """histories of users, one item per row (.csv, .tsv, .parquet, .jsonl): a file, a folder or a glob; repeat the flag
    for several"""
    out: File
    """the output file with the lists, one item per row (.csv or .parquet)"""
    user: Column | None = None
    """the column of users; default: that of the run's log, for a run folder"""
    item: Column | None = None
    """the column of items; an empty cell is a user without a history; default: that of the run's log"""
    time: Column | None = None
    """the column of times; without it, rows are in order; default: that of the run's log, if the table has it"""
    event: Column | None = None
    """the column of the kind of event; default: that of the run's log, if the table has it"""
    user_features: File | None = None
    """a table with one row per user, if the policy was trained with one"""
    new_items: File | None = None
    """a table with one row per item and the columns of the item features: items that the log did not have are ranked by
    these, if the policy was trained with --content"""
    k: int = 10
    """length of the lists"""
    exclude_seen: Literal["auto", "yes", "no"] = "auto"
    """exclude items that the user has chosen before; auto: unless a tenth of the log's events repeat an item"""
    candidates: File | None = None
    """a text file with one item per line: recommend only these"""
    diversity: float = 0.0
    """from 0 to 1: more different items in a list, at the cost of their scores"""
    because: bool = False
    """add the item of the history on which each recommendation depends most, and how many times likelier it makes it"""
    exclude: File | None = None
    """a text file with one item per line: never recommend these"""
    unknown: Literal["error", "skip"] = "error"
    """what to do with history items and user features that the log does not have"""
    rule: Annotated[str, "NAME"] | None = None
    """for a run folder: instead of its policy, a rule that counts the events of its log, such as last-event-markov;
    `tidelog train` and `tidelog report` compare them with the policy"""
    member: int | None = None
    """for a run folder: the member, counted from 0"""
    csv_safe: bool = False
    """in a .csv file, write an apostrophe before text that a spreadsheet would compute (it begins with = + - @)"""
    overwrite: bool = False
    """replace the output file if it exists"""


def run(words: list[str]) -> int:
    """Write recommendations for the users of a table, of one file or of several."""
    options = parse(Recommend, words, "recommend")
    return present(options, lambda: _recommend(options))


def _fill_columns(options: Recommend, source: str | list[str]) -> Recommend:
    """Return the flags with the columns of the run's log where they are left out; ConfigError without user or item.

    Columns of times and of kinds of events are those of the log where the table has them.
    """
    columns = {role: getattr(options, role) for role in ("user", "item", "time", "event")}
    logged: dict[str, str] = {}
    folder = Path(options.policy)
    if (folder / "run.json").exists():
        from tidelog.training.record import Record

        roles = (Record.read(folder).data.origin or {}).get("roles") or {}
        logged = {role: roles[role] for role, column in columns.items() if column is None and roles.get(role)}
    optional = [column for role, column in logged.items() if role in ("time", "event")]
    table = table_with(source, list((columns | logged).values())) if optional else None
    left_out: dict[str, Any] = {
        role: name for role, name in logged.items() if name not in optional or (table and table.has(name))
    }
    missing = [f"--{role}" for role in ("user", "item") if (columns | left_out)[role] is None]
    if missing:
        raise ConfigError(
            f"{options.policy} does not say which columns are users and items",
            fix=f"add {' and '.join(missing)}, the names of these columns",
        )
    if left_out:
        print_details("columns of the run's log: " + ", ".join(f"--{role} {name}" for role, name in left_out.items()))
    return replace(options, **left_out)


def _recommend(options: Recommend) -> dict[str, Any]:
    """Write the lists, and return what was written."""
    target, source = Path(options.out), source_of(options.data, "--data")
    check_tables(target)
    options = _fill_columns(options, source)
    check_targets(target, overwrite=options.overwrite)
    with Screen("recommending", False if options.quiet else None) as screen:
        screen.tell("reading the policy", 0.0)
        policy = _opened(options)
        screen.tell("reading the histories", 0.05)
        lists = recommend_for_table(
            policy,
            source,
            user=str(options.user),
            item=str(options.item),
            time=options.time,
            event=options.event,
            user_features=None if options.user_features is None else Path(options.user_features),
            k=options.k,
            exclude_seen={"auto": None, "yes": True, "no": False}[options.exclude_seen],
            candidates=_lines(options.candidates),
            because=options.because,
            diversity=options.diversity,
            exclude=_lines(options.exclude),
            unknown=options.unknown,
            progress=lambda share: screen.tell("making the lists", 0.1 + 0.8 * share),
        )
    note, users = write_table(lists, target, options.csv_safe), int(lists[str(options.user)].n_unique())
    print_notes([*policy.notes(), *_unread(policy, options), *([note] if note else [])])
    print_line(f"lists of {count_of(options.k, 'item')} for {count_of(users, 'user')}: {target}")
    if options.exclude_seen == "auto":
        print_details(seen_line(policy.ranker()))
    return {"out": str(target), "users": users, "k": options.k, "rows": len(lists)}


def _opened(options: Recommend) -> Recommends:
    """Return the policy; SpecError for one that does not rank items."""
    if options.rule is not None:
        if options.new_items is not None or options.member is not None:
            raise ConfigError("--rule counts the log, without a policy", fix="drop --new-items and --member")
        return open_rule(options.policy, options.rule)
    if options.new_items is not None:
        return new_items(open_policy(options.policy, options.member), options.new_items, str(options.item))
    policy: Any = open_for_use(options.policy, options.member)
    Vocabulary(policy.spec)
    ranking: Recommends = policy
    return ranking


def seen_line(ranker: PolicyRanker) -> str:
    """Return what lists do with items of the history by default, and why."""
    share = f"{ranker.repeat_share:.0%} of the events in training repeat an item of their user"
    if excludes_seen(ranker):
        return f"{share}: lists leave out items of the history; --exclude-seen no keeps them"
    return f"{share}: lists may contain items of the history; --exclude-seen yes leaves them out"


def _unread(policy: Recommends, options: Recommend) -> list[str]:
    """Return notes about columns that the policy learnt from and that this command does not read."""
    history: Any = policy.spec.observation["history"]
    notes = []
    if options.event is None and len(history.events) > 1:
        usual = history.events[history.usual - 1]
        notes.append(f"every event counts as '{usual}'; --event names the column of the kind of event")
    if options.user_features is None and policy.ranker().features:
        notes.append("nothing is known of the users; --user-features names their table")
    return notes


def _lines(path: str | None) -> list[str] | None:
    """The items in a file, one per line."""
    if path is None:
        return None
    try:
        lines = read_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return [line.strip() for line in lines if line.strip()]
