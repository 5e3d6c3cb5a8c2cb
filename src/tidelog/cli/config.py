"""`tidelog config RUN --out run.toml`: the file with which `tidelog train` repeats a run.

The file is read back before it is written: where its flags are not the run's algorithm and options, nothing is written.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import tyro

from tidelog.algorithms.core.hyperparameters import groups_of, to_config
from tidelog.algorithms.names import configured, learns_online, ranks
from tidelog.cli.flags import File, OutputFlags, RunFolder, options_in, parse, words_of
from tidelog.cli.interaction_flags import roles_of
from tidelog.cli.output import present, print_details, print_line, print_notes
from tidelog.cli.targets import check_targets
from tidelog.cli.train import NONE, algorithm_of, flags_of
from tidelog.data.io.export import toml_text
from tidelog.disk import write_file, write_json
from tidelog.errors import ConfigError, TidelogError
from tidelog.training.runs.options import Options, as_seeds, options_of
from tidelog.training.runs.record import Record

ALWAYS = ("steps", "held_out", "every")  # options that are written with any value: defaults of flags may follow the log
UNNAMED = ("together",)  # options that decide numbers and have no flag


@dataclass
class Config(OutputFlags):
    """Write a TOML file with which `tidelog train` repeats a run."""

    run: tyro.conf.Positional[RunFolder]
    """the run folder"""
    out: File | None = None
    """the output file; default: the name of the run with .toml"""
    member: int | None = None
    """for a population: the member whose settings are written, with its seed alone"""
    overwrite: bool = False
    """replace the file if it exists"""


def run(words: list[str]) -> int:
    """Write the file, and print the command that repeats the run."""
    options = parse(Config, words, "config")
    return present(options, lambda: _write(options))


def _write(options: Config) -> dict[str, Any]:
    folder = Path(options.run)
    record = Record.read(folder)
    _check(folder, record)
    target = Path(f"{folder.resolve().name}.toml" if options.out is None else options.out)
    if target.suffix != ".toml":
        raise ConfigError(f"--out {target}: expected a path that ends in .toml. fix: change the suffix")
    config = _settings(record, options.member)
    mapping = None if record.data.origin is None else record.data.origin.get("columns")
    beside = target.with_name(f"{target.stem}-columns.json") if isinstance(mapping, Mapping) else None
    check_targets(target, beside, overwrite=options.overwrite)
    values = _source(record, beside) | _options(record) | config
    command = f"tidelog train {record.algorithm} --config {target}"
    lines = [f"# `{command}` repeats {folder}", *(f"{key} = {toml_text(value)}" for key, value in values.items())]
    _read_back("\n".join(lines), record, config)
    if beside is not None:
        write_json(beside, mapping, ConfigError)
    write_file(target, ("\n".join(lines) + "\n").encode(), ConfigError)
    own = record.options.own_evaluators
    if own:
        print_notes([f"the run's own functions are left out, they only measure: {', '.join(own)}"])
    print_line(f"settings: {target}{'' if beside is None else f' (with {beside})'}")
    print_details(f"next: {command}")
    return {"config": str(target), "columns": None if beside is None else str(beside), "command": command}


def _check(folder: Path, record: Record) -> None:
    """Raise ConfigError for a run that no flags of `tidelog train` can repeat, with the way that can."""
    data, origin = record.data, record.data.origin
    if data.refit_of is not None:
        raise ConfigError(f"{folder} is a refit. fix: repeat it with `tidelog refit {data.refit_of.run}`")
    if data.finetuned:
        raise ConfigError(
            f"{folder} is a fine-tuned run. fix: repeat it with `tidelog finetune {data.finetuned_from} --env ...`"
        )
    if data.environment is not None and (not data.named or data.start is not None):
        what = "began with a start policy" if data.named else "has an environment without a registered name"
        raise ConfigError(f"{folder} {what}, which no file can name. fix: repeat it in Python with tl.learn")
    if data.environment is None and (origin is None or origin.get("parts")):
        what = "was created in memory" if origin is None else "is a part of a file"
        raise ConfigError(f"the log of {folder} {what}, which no flag can name. fix: save it with log.save(folder)")


def _settings(record: Record, member: int | None) -> dict[str, Any]:
    """The hyper-parameters and seeds of a member, or of all members where they differ by their seed only."""
    seeds, count = record.options.seeds, len(record.configs)
    if member is not None and not 0 <= member < count * len(seeds):
        raise ConfigError(f"--member {member}: the run has {count * len(seeds)} member(s), counted from 0")
    if member is None and count > 1:
        raise ConfigError(
            f"the run is a population of {count} settings, and a file has one. fix: name a member with --member"
        )
    chosen = seeds if member is None else (seeds[member % len(seeds)],)
    if chosen != as_seeds(len(chosen)):
        raise ConfigError(
            f"the seeds of the run are {list(chosen)}, and --seeds N means 0 to N - 1. fix: repeat it in Python with "
            f"seeds={list(chosen)}"
        )
    cls, _ = configured(record.algorithm)
    defaults = {one.name: one.default for group in groups_of(cls).values() for one in group}
    config = to_config(record.algorithms()[0 if member is None else member // len(seeds)])
    found = {name: "None" if value is None else value for name, value in config.items() if name in defaults}
    found = {name: value for name, value in found.items() if value != "None" or defaults[name] is not None}
    return {"seeds": len(chosen), **found}


def _source(record: Record, mapping: Path | None) -> dict[str, Any]:
    """The flags of the log or the environment."""
    data, origin = record.data, record.data.origin
    if origin is None:
        return {"env": data.environment, "preset": NONE}
    source = origin["source"]
    values: dict[str, Any] = {"data": [source] if isinstance(source, str) else source, "preset": NONE}
    values |= {} if mapping is None else {"columns": str(mapping)}
    values |= {"memory_map": True} if origin.get("memory_map") else {}
    for name, value in (origin.get("roles") or {}).items():
        values[name] = [f"{kind}={worth!r}" for kind, worth in value.items()] if isinstance(value, Mapping) else value
    return values


def _options(record: Record) -> dict[str, Any]:
    """The options of the run that differ from their defaults."""
    online = record.data.environment is not None
    taken = {one.name for one in options_of("learn" if online else "fit") if one.metadata["flag"] is not None}
    cls, _ = configured(record.algorithm)
    values: dict[str, Any] = {}
    for one in fields(Options):
        value = getattr(record.options, one.name)
        if one.name in ("seeds", "own_evaluators") or one.name not in taken:
            continue
        if one.name == "scale" and ranks(cls):
            continue
        if one.name not in (*ALWAYS, "scale") and value == (one.default if one.name != "evaluate" else {}):
            continue
        values[one.name] = [f"{key}={number}" for key, number in value.items()] if isinstance(value, Mapping) else value
    return values


def _read_back(text: str, record: Record, config: Mapping[str, Any]) -> None:
    """Raise ConfigError unless the flags of a file are the settings of the run."""
    cls, _ = configured(record.algorithm)
    flags = flags_of(cls)
    words = words_of(tomllib.loads(text), "the file", flags)
    try:
        found = parse(flags, words, f"train {record.algorithm}")
        algorithm = algorithm_of(cls, found)
        options = options_in(found, "learn" if learns_online(cls) else "fit")
    except (TidelogError, SystemExit) as error:
        raise ConfigError(
            f"the settings of the run cannot be read as flags: {error}. fix: repeat it in Python"
        ) from error
    written = to_config(algorithm)
    differing = [
        name for name in written if config.get(name, None if written[name] is None else "None") != written[name]
    ]
    differing += [name for name in UNNAMED if getattr(record.options, name) != getattr(Options, name)]
    differing += [
        one.name
        for one in fields(Options)
        if one.name in options
        and one.name not in ("seeds", "own_evaluators")
        and (options[one.name] or None) != (getattr(record.options, one.name) or None)
        and not (options[one.name] is None and one.name in ("scale", "selection_share"))
    ]
    if ranks(cls) and record.data.origin is not None and record.data.origin.get("roles"):
        roles = roles_of(found.interactions)
        differing += [] if roles is None or roles.to_json() == record.data.origin["roles"] else ["the columns"]
    if differing:
        raise ConfigError(f"no flag can repeat {', '.join(differing)} of the run. fix: repeat it in Python")
