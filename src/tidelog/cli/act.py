"""`tidelog act POLICY --data new.csv --out actions.csv`: the practitioner's last step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl
import tyro

from tidelog.cli.flags import parse
from tidelog.cli.tables import say
from tidelog.errors import ConfigError, SpecError
from tidelog.policies.batch_inference import act_on_known, act_on_table, write_table
from tidelog.policies.policy import Policy, load_policy
from tidelog.training.runs.policies import policy_of_run

ENDINGS = (".csv", ".parquet")


@dataclass
class Act:
    """Write the policy's action for every row of a table, beside the row."""

    policy: tyro.conf.Positional[str]
    """a saved policy, or a run folder (its first seed, or the best policy if one was kept)"""
    data: str
    """new rows with the features that the log had (.csv, .csv.gz, .parquet); other columns are passed through"""
    out: str
    """where to write them with their actions (.csv or .parquet)"""
    seed: int | None = None
    """for a run folder: which seed acts"""
    columns: str | None = None
    """the mapping file of the log, where its action mask should be honoured"""
    skip_unknown: str | None = None
    """leave out rows with a word that the log never had, and write them to this file (.csv or .parquet)"""


def run(words: list[str]) -> int:
    """Act on a table."""
    options = parse(Act, words, "act")
    target = Path(options.out)
    aside = None if options.skip_unknown is None else Path(options.skip_unknown)
    for place in (target, aside):
        if place is not None and place.exists():
            raise ConfigError(f"{place} exists: choose another file, nothing was written")
        if place is not None and place.suffix not in ENDINGS:
            raise ConfigError(f"{place}: expected a file that ends in {' or '.join(ENDINGS)}")
    policy = open_policy(options.policy, options.seed)
    if aside is None:
        acted = act_on_table(policy, Path(options.data), options.columns)
    else:
        acted = _known(policy, options, aside)
    write_table(acted, target)
    say(f"{len(acted):,} rows with their actions: {target}")
    return 0


def _known(policy: Policy, options: Act, aside: Path) -> pl.DataFrame:
    """The rows whose words the log had, with their actions; the others go to a file of their own."""
    acted, skipped = act_on_known(policy, Path(options.data), options.columns)
    if acted is None:
        raise SpecError(
            f"every one of the {len(skipped):,} rows has a word that the log never had: {skipped['unknown'][0]}"
        )
    write_table(skipped, aside)
    say(f"{len(skipped):,} rows skipped, each with what the log never had: {aside}")
    return acted


def open_policy(path: str, seed: int | None = None) -> Policy:
    """The policy of a saved folder or of a run; ConfigError where it is neither."""
    folder = Path(path)
    if (folder / "run.json").exists():
        return policy_of_run(folder, seed)
    if not folder.exists():
        raise ConfigError(f"{folder} does not exist: give a run folder or a saved policy")
    if seed is not None:
        raise ConfigError(f"{folder} is a saved policy, which has no seeds: leave --seed away")
    return load_policy(folder)
