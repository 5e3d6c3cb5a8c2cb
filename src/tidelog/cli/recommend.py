"""`tidelog recommend POLICY --data histories.csv --user U --item I --time T --out lists.csv`: lists for users."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from tidelog.cli.act import open_policy
from tidelog.cli.flags import parse
from tidelog.cli.tables import say
from tidelog.errors import ConfigError
from tidelog.policies.batch_inference import write_table
from tidelog.recommend.recommendation_tables import recommend_for_table


@dataclass
class Recommend:
    """Write the best items for every user of a table of what they took so far."""

    policy: tyro.conf.Positional[str]
    """a saved policy, or a run folder (its first seed, or the best policy if one was kept)"""
    data: str
    """what users took so far, one item a row (.csv, .tsv, .parquet, .jsonl)"""
    out: str
    """where to write the lists, one item a row (.csv or .parquet)"""
    user: str
    """the column of users"""
    item: str
    """the column of items; an empty cell is a user without a history"""
    time: str | None = None
    """the column of times; without one, rows stand in order"""
    event: str | None = None
    """the column of the kind of event"""
    user_features: str | None = None
    """a table with one row a user, where the policy was trained with one"""
    k: int = 10
    """how long the lists are"""
    exclude_seen: bool = True
    """leave out what the user has taken before"""
    candidates: str | None = None
    """a text file with an item a line: recommend nothing else"""
    exclude: str | None = None
    """a text file with an item a line: never recommend these"""
    unknown: Literal["error", "skip"] = "error"
    """what becomes of items in histories that the log never had, and of what is not known of users"""
    seed: int | None = None
    """for a run folder: which seed recommends"""


def run(words: list[str]) -> int:
    """Recommend, and write the lists."""
    options = parse(Recommend, words, "recommend")
    target = Path(options.out)
    if target.exists():
        raise ConfigError(f"{target} exists: choose another file, nothing was written")
    lists = recommend_for_table(
        open_policy(options.policy, options.seed),
        Path(options.data),
        user=options.user,
        item=options.item,
        time=options.time,
        event=options.event,
        user_features=None if options.user_features is None else Path(options.user_features),
        k=options.k,
        exclude_seen=options.exclude_seen,
        candidates=_lines(options.candidates),
        exclude=_lines(options.exclude),
        unknown=options.unknown,
    )
    write_table(lists, target)
    say(f"lists of {options.k} items for {lists[options.user].n_unique():,} users: {target}")
    return 0


def _lines(path: str | None) -> list[str] | None:
    """The items that stand in a file, one a line."""
    if path is None:
        return None
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return [line.strip() for line in lines if line.strip()]
