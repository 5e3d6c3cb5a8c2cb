"""`tidelog log inspect|check|convert`: examine a log before training, or write it in another format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, cast

import polars as pl

from tidelog._files import write_file
from tidelog._text import printable
from tidelog.cli.flags import (
    Column,
    DeclaredFlags,
    File,
    InteractionFlags,
    OutputFlags,
    RandomisedFlag,
    Sources,
    check_targets,
    declared_value,
    parse,
    print_json,
    print_line,
    print_notes,
    read_from_flags,
    roles_of,
    source_of,
    with_declared,
)
from tidelog.data.columns import Columns
from tidelog.data.inspect import Description, describe_table, inspect_log, training_command
from tidelog.data.log import Log
from tidelog.data.parse import formula_note
from tidelog.data.raw import Report
from tidelog.data.read import Source, convert, is_table, quarantine, read_log, validate
from tidelog.errors import ConfigError, LogError, nearest
from tidelog.recommend.interactions import Interactions, text
from tidelog.recommend.read import Roles, is_saved_interactions, validate_by_roles

QUARANTINE_CODE = 4  # the exit code where rows with problems were written
COMMANDS = {
    "inspect": "contents of a log; without a mapping, a proposal for one",
    "check": "all problems of a log",
    "convert": "the same log in another format",
}


@dataclass
class ReadFlags(RandomisedFlag, OutputFlags):
    """The log or the interactions that a command reads, and how it prints what it found."""

    data: Sources
    """a table (.csv, .tsv, .jsonl, .parquet, .arrow) or several, a folder of tables, a glob, a saved log, an .npz or
    .hdf5 (D4RL, robomimic) file, or the id of a Minari data set"""
    columns: File | None = None
    """for tables: the mapping file"""
    overwrite: bool = False
    """replace the files that are written here, if they exist"""
    interactions: InteractionFlags = field(default_factory=InteractionFlags)
    """for tables of interactions, in place of a mapping; beside --columns, the flag of propensities declares them, as
    in `tidelog train`"""


@dataclass(kw_only=True)
class RoleFlags:
    """Roles of a proposed mapping."""

    action: tuple[Column, ...] = ()
    """the column of decisions, or several"""
    observation: tuple[Column, ...] = ()
    """the columns that were known before the decision"""
    episode: Column | None = None
    """the column that says which rows form an episode"""
    step: Column | None = None
    """the column that counts the rows of an episode"""
    terminated: Annotated[str, "COLUMN|true"] | None = None
    """the column of ends, or true where every episode ended"""
    truncated: Column | None = None
    """the column of time limits"""
    cluster: Column | None = None
    """the column of dependent episodes, such as those of one person"""


@dataclass
class Inspect(ReadFlags):
    """Show the contents of a log; for a table without a mapping, propose one."""

    html: File | None = None
    """also write a page with plots of the distributions to this file"""
    write: File | None = None
    """for tables without a mapping: write the proposed mapping to this .toml file"""
    roles: RoleFlags = field(default_factory=RoleFlags)
    """for tables without a mapping: what you know of it (also reward, time and propensity); the rest is proposed"""


@dataclass
class CheckFlags(ReadFlags):
    """Report all problems of a log.

    The exit code is 2 if it is not usable, 4 if rows with problems were written.
    """

    html: File | None = None
    """also write the report as a page to this file"""
    quarantine: File | None = None
    """for tables: write the rows of every error, with the reasons, to this .csv file"""
    keep: File | None = None
    """with --quarantine: write the other rows to this .csv file, without the whole episodes of an
    error"""
    csv_safe: bool = False
    """in these files, write an apostrophe before text that a spreadsheet would compute (it begins with
    = + - @)"""


@dataclass
class Convert(DeclaredFlags, OutputFlags):
    """Write a log in another format; the suffix of --out names it."""

    data: Sources
    """anything that `tidelog log inspect` reads"""
    out: Annotated[str, "FILE|FOLDER"]
    """a .parquet table, .tidelog folder or .npz file"""
    columns: File | None = None
    """for tables: the mapping file"""
    overwrite: bool = False
    """replace this log if it exists"""


def run(words: list[str]) -> int:
    """Inspect, check or convert."""
    if not words or words[0] in ("-h", "--help"):
        print("\n".join(f"  tidelog log {name:<9} {what}" for name, what in COMMANDS.items()))  # noqa: T201
        return 0 if words else 2
    if words[0] not in COMMANDS:
        raise ConfigError(f"no command 'log {words[0]}': {nearest(words[0], COMMANDS)}")
    if words[1:] and not words[1].startswith("-"):
        raise ConfigError(f"'{words[1]}' has no flag before it", fix=f"write --data {words[1]}")
    return {"inspect": _inspect, "check": _check, "convert": _convert}[words[0]](words[1:])


def _mapping(options: Inspect | CheckFlags) -> str | Columns | None:
    """The mapping, with the propensities that flags declare; `--propensity` is not one of interactions then."""
    if options.columns is None and not options.randomised:
        return None
    value = declared_value(options.interactions.propensity, options.randomised)
    options.interactions.propensity = None
    return with_declared(options.columns, value)


def _inspect(words: list[str]) -> int:
    options = parse(Inspect, words, "log inspect")
    source = source_of(options.data, "--data")
    check_targets(options.html, options.write, overwrite=options.overwrite)
    named = options.interactions.propensity if options.columns is not None else None
    declared = ["--randomised"] * options.randomised + ([] if named is None else ["--propensity", named])
    roles = _declared_roles(options, source)
    mapping = _mapping(options)
    if roles_of(options.interactions) is not None or is_saved_interactions(source):
        return _inspect_interactions(options, source)
    if options.write is not None and Path(options.write).suffix.lower() != ".toml":
        raise ConfigError(options.write, "a path that ends in .toml", "change the suffix")
    if options.columns is None and is_table(source):
        return _describe(options, source, roles)
    if options.write is not None:
        if options.columns is None:
            read_log(source)  # what cannot be read has its own error
        unwanted = "--write" if options.columns is None else "--columns or --write"
        raise ConfigError("--write needs a table without a mapping", fix=f"drop {unwanted}")
    log = read_log(source, mapping)
    written = _page(options, log.report, log)
    inspection = inspect_log(log)
    contents = f"{inspection.text()}\n\n{training_command(source, options.columns, log, declared)}"
    _print_contents(options, inspection.to_json(), contents, log.report, written)
    return 0


def _declared_roles(options: Inspect, source: Source) -> dict[str, Any]:
    """The roles of a mapping that flags name; ConfigError beside --columns, roles of interactions, or no table.

    `--reward`, `--time`, `--propensity` and `--reward-unit` are roles of both; those of a mapping are taken out of the
    flags of interactions.
    """
    flags, others = options.interactions, InteractionFlags()
    named = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(options.roles).items()}
    roles: dict[str, Any] = {name: value for name, value in named.items() if value not in (None, [])}
    if any(getattr(flags, name) != value for name, value in vars(others).items() if name not in _BOTH):
        if roles:
            raise ConfigError(
                f"--{next(iter(roles))} is a role of a mapping, and other flags are of interactions", fix="use one kind"
            )
        return {}
    if options.columns is not None or not is_table(source):
        if roles:
            raise ConfigError(f"--{next(iter(roles))} is for a table without a mapping", fix="drop it or --columns")
        return {}
    if any("=" in word for word in flags.reward):
        raise ConfigError(
            f"--reward {' '.join(flags.reward)}",
            "names; KIND=NUMBER is for interactions",
            "name columns, and add `reward_values` to the mapping",
        )
    chances = declared_value(flags.propensity, options.randomised)
    shared = {"reward": list(flags.reward), "time": flags.time, "propensity": chances, "reward_unit": flags.reward_unit}
    roles |= {name: value for name, value in shared.items() if value not in (None, [])}
    options.interactions, options.randomised = others, False
    if roles.get("terminated") == "true":
        roles["terminated"] = True
    return {name: value[0] if isinstance(value, list) and len(value) == 1 and name != "observation" else value
            for name, value in roles.items()}  # fmt: skip


_BOTH = ("reward", "time", "propensity", "reward_unit")  # roles of a mapping and of interactions


def _words_of(roles: Mapping[str, Any]) -> tuple[str, ...]:
    """The flags that name these roles."""
    words = list[str]()
    for name, value in roles.items():
        if isinstance(value, dict):
            value = "{ " + ", ".join(f"{json.dumps(key)} = {json.dumps(one)}" for key, one in value.items()) + " }"
        listed = value if isinstance(value, list) else ["true" if value is True else value]
        words += [f"--{name.replace('_', '-')}", *map(str, listed)]
    return tuple(words)


def _inspect_interactions(options: Inspect, source: Source) -> int:
    """Show the contents of interactions."""
    if options.columns is not None or options.write is not None:
        raise ConfigError(
            "--columns and --write are not for interactions (--user, --item)", fix="drop --columns and --write"
        )
    log = read_from_flags(source, options.interactions)
    written = _page(options, log.report)
    data = {"statistics": log.statistics(), "report": log.report.to_json(), "fingerprint": log.fingerprint()}
    _print_contents(options, data, f"{text(log)}\n\n{log.report.text()}", log.report, written)
    return 0


def _describe(options: Inspect, source: Source, roles: dict[str, Any]) -> int:
    """Describe a table without a mapping, and write the requested files."""
    table = replace(describe_table(source, roles), flags=_words_of(roles), written=options.write)
    of_interactions: Any = table.interaction_roles()
    if of_interactions is not None:
        from tidelog.algorithms.names import names  # JAX: only a table of interactions needs it

        report = validate_by_roles(source, Roles(**of_interactions))
        table = replace(table, ranking=names("interactions")[0], ranking_report=report)
    written = []
    if options.html is not None:
        usable = table.report is not None and table.report.ok
        log = read_log(source, table.proposed) if usable else None
        written += _page(options, table.as_report(), log, table)
    if options.write is not None:
        write_file(Path(options.write), f"{table.toml}\n".encode(), ConfigError)
        written.append(options.write)
    _print_contents(options, table.to_json(), table.text(), table.as_report(), written)
    return 0


def _check(words: list[str]) -> int:
    options = parse(CheckFlags, words, "log check")
    check_targets(options.html, options.quarantine, options.keep, overwrite=options.overwrite)
    source, mapping = source_of(options.data, "--data"), _mapping(options)
    roles = roles_of(options.interactions)
    if options.keep is not None and options.quarantine is None:
        raise ConfigError("--keep writes what --quarantine leaves of a table", fix="add --quarantine FILE")
    if roles is not None:
        if options.columns is not None:
            raise ConfigError("--columns is not for interactions (--user, --item)", fix="drop --columns")
        report = validate_by_roles(source, roles, options.quarantine, options.csv_safe, options.overwrite, options.keep)
    elif options.quarantine is not None:
        if mapping is None:
            raise ConfigError("--quarantine writes rows of a table", fix="add --columns, or --user and --item")
        report = quarantine(source, mapping, options.quarantine, options.csv_safe, options.overwrite, options.keep)
    else:
        report = _report(source, mapping)
    written = []
    if options.html is not None:
        log = read_log(source, mapping) if report.ok and roles is None else None
        written += _page(options, report, log)
    if options.quarantine is not None:
        rows = Path(options.quarantine).exists()
        written.append(options.quarantine if rows else "no quarantine file, because no error names a row")
        written += [options.keep] if options.keep is not None and Path(options.keep).exists() else []
    _print_contents(options, report.to_json(), report.text(), report, written)
    if options.quarantine in written and not (options.csv_safe or options.json or options.quiet):
        note = formula_note(pl.read_csv(options.quarantine, infer_schema=False), options.quarantine)
        print_notes([] if note is None else [note])
    if report.ok:
        return 0
    return QUARANTINE_CODE if options.quarantine in written else 2


def _convert(words: list[str]) -> int:
    options = parse(Convert, words, "log convert")
    source = source_of(options.data, "--data")
    mapping = with_declared(options.columns, declared_value(options.propensity, options.randomised))
    written = convert(source, options.out, mapping, options.overwrite)
    if options.json:
        print_json({"written": str(written)})
    else:
        print_line(f"written: {written}")
    return 0


def _page(
    options: Inspect | CheckFlags, report: Report, log: Log | None = None, table: Description | None = None
) -> list[str]:
    """Write the page of --html, if any, and return the names of written files."""
    from tidelog.report.data_page import write_data_page

    if options.html is None:
        return []
    return [str(write_data_page(options.html, report, log, table, options.overwrite))]


def _print_contents(
    options: Inspect | CheckFlags, facts: dict[str, Any], contents: str, report: Report, written: list[str]
) -> None:
    """Print what was found, as JSON, as text or as the report's first line, and the names of written files."""
    if options.json:
        print(printable(json.dumps(facts, indent=1)))  # noqa: T201
        return
    print_line(report.lines[0] if options.quiet else contents)
    for what in written:
        print_line(f"written: {what}")


def _report(source: Source, columns: str | Columns | None) -> Report:
    """The report on any source; ConfigError for a table without a mapping."""
    if is_saved_interactions(source):
        return Interactions.load(str(source)).report
    if columns is not None:
        return validate(source, columns)
    try:
        return read_log(source).report
    except LogError as error:
        if error.report is None:
            raise
        return cast("Report", error.report)
