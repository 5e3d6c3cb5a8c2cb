"""`tidelog sweep ALGORITHM[,ALGORITHM] --data LOG --grid NAME=VALUES`: train with many settings, and compare them."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias, get_args, get_origin

import msgspec
import tyro

from tidelog._text import wrapped
from tidelog.algorithms.hyperparameters import groups_of
from tidelog.algorithms.names import check_source, configured, ranks
from tidelog.auto.settings import LEAST_HELD_OUT
from tidelog.cli.flags import (
    DeclaredFlags,
    File,
    Folder,
    OnEngine,
    OutputFlags,
    Sources,
    free_folder,
    json_only,
    options_in,
    parse,
    peek,
    print_line,
    read_config,
    table,
    verb_flags,
)
from tidelog.cli.train import AUTO, NONE, STEPS, following, log_of
from tidelog.errors import CheckpointError, ConfigError, nearest
from tidelog.parallel import Pool, pool_of
from tidelog.sweeps.plan import grid, random_search
from tidelog.sweeps.sweep import Driver, Sweep, sweep, write_page
from tidelog.training.options import OF_SWEEPS

FAILURES = 4  # the exit code of a sweep with diverged or failed trials
Axis: TypeAlias = Annotated[str, "NAME=VALUES"]
Axes: TypeAlias = Annotated[tuple[tuple[Axis, ...], ...], tyro.conf.UseAppendAction]  # `--grid A B --grid C`


def _help(name: str) -> Any:
    return tyro.conf.arg(help=OF_SWEEPS[name][0])


@dataclass(kw_only=True)
class SweepFlags(DeclaredFlags, OutputFlags):
    """Train with many settings, each in a run folder of its own, and compare them."""

    common: ClassVar[tuple[str, ...]] = (
        "algorithms", "data", "columns", "propensity", "grid", "draw", "trials", "out", "preset", "steps", "held_out",
        "seeds", "best_metric", "halving", "workers", "on", "config", "quiet", "json",
    )  # fmt: skip

    algorithms: tyro.conf.Positional[Annotated[str, "ALGORITHM[,ALGORITHM]"]]
    """one algorithm, whose hyper-parameters are flags too, or several with commas between them"""
    data: Sources
    """the log, as in `tidelog train`"""
    columns: File | None = None
    """for tables: the mapping file with the role of each column"""
    grid: Axes = ()
    """a hyper-parameter with its values, such as temperature=1,3,10; sizes as hidden=64x64,256x256; several grids give
    every combination"""
    draw: Axes = ()
    """a hyper-parameter with a range for random draws, such as "learning_rate=1e-5..1e-3(log)" or batch_size=64..256,
    or with values that are equally likely"""
    trials: int | None = None
    """with --draw: the number of draws, at each point of the grid"""
    draw_seed: int = 0
    """random seed of the draws"""
    data_share: Annotated[str, "SHARE[,SHARE]"] = "1"
    """shares of the training episodes, such as 0.1,0.3,1: each trial is trained with each of them"""
    halving: Annotated[str, "FACTOR,STEPS"] | None = None
    """stop all but the best one in FACTOR trials after STEPS updates, then after FACTOR times as many, and so on; needs
    --best-metric held_out/..."""
    out: Folder | None = None
    """the folder of the sweep; default: sweeps/<algorithm>, with a number if it exists"""
    steps: int | None = None
    """updates per seed; default: of one algorithm as many as the log asks for, else 20000"""
    held_out: float | None = None
    """share of the episodes held out of training; default: for one algorithm as in `tidelog train`, else 0.2"""
    preset: Annotated[str, "auto|none"] = AUTO
    """"auto" lets the settings of one algorithm that are in no grid follow the log, "none" leaves them as they are"""
    cpus: Annotated[int, _help("cpus")] = OF_SWEEPS["cpus"][1]
    workers: Annotated[int | None, _help("workers")] = None
    on: OnEngine = "here"
    """"here" for processes of this machine, "ray" for a Ray cluster: the one of the environment variable RAY_ADDRESS,
    without it one of this machine (extra ray)"""
    insecure: Annotated[bool, _help("insecure")] = False
    config: File | None = None
    """a TOML file with values for any of these flags; flags on the command line win"""
    memory_map: bool = False
    """for saved logs: leave the columns on disk"""


def flags_of(cls: type[Any] | None) -> type[Any]:
    """The flags of a sweep; the hyper-parameters of its algorithm are among them, if it has one algorithm."""
    return verb_flags("fit", SweepFlags, None if cls is None else groups_of(cls), without=["devices"])


def run(words: list[str]) -> int:
    """Train the trials of a sweep, and print their table."""
    names = words[0].split(",") if words and not words[0].startswith("-") else []
    known = [configured(name) for name in names]
    for cls, _ in known:
        check_source(cls, False)
        if ranks(cls):
            raise ConfigError(f"{cls.__name__} learns from interactions", fix="use tl.sweep in Python")
    flags = flags_of(known[0][0] if len(known) == 1 else None)
    arguments = [*words[:1], *read_config(peek(words, "--config"), flags, words), *words[1:]]
    defaults = known[0][1] if len(known) == 1 else {}
    options = parse(flags, arguments, "sweep", defaults)
    if options.preset not in (AUTO, NONE):
        raise ConfigError(f"--preset {options.preset}", "auto or none")
    shares, halving = _numbers(options.data_share, "--data-share", float), None
    if options.halving is not None:
        halving = tuple(_numbers(options.halving, "--halving", int))
    axes = {**_axes(options.grid, "--grid"), **_axes(options.draw, "--draw")}
    folder = Path(options.out) if options.out else free_folder(names[0], "sweeps")
    log = log_of(options)
    with json_only(options.json):
        if len(known) == 1 and options.preset == AUTO:
            options = following(known[0][0], log, flags, arguments, "sweep", defaults, options, axes)
        options.held_out = LEAST_HELD_OUT if options.held_out is None else options.held_out
        algorithms = [one for cls, settings in known for one in _algorithms(cls, settings, options, len(known) == 1)]
        more: dict[str, Any] = options_in(options, "fit")
        for name in ("steps", "data_share"):
            more.pop(name)
        pool = pool_of(options.on, options.cpus, options.workers, options.insecure)
        sweep(
            algorithms,
            log,
            STEPS if options.steps is None else options.steps,
            out=folder,
            on=pool,
            cpus=options.cpus,
            workers=options.workers,
            halving=halving,
            data_share=shares,
            train=False,
            **more,
        )
    return drive_and_show(folder, pool, options.on, options.quiet, options.json)


def drive_and_show(folder: Path, pool: Pool, on: str, quiet: bool = False, as_json: bool = False) -> int:
    """Bring a sweep to its end, print its table and write its page.

    The exit code is 4 if a trial diverged or failed, or if the sweep's own files cannot be written.
    """
    again = f"tidelog resume {shlex.quote(str(folder))}{'' if on == 'here' else f' --on {on}'}"
    driver = Driver(folder, pool)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # Ray prints there what its nodes report
            driver.run(False if quiet else None)
    except CheckpointError as error:
        print(wrapped(f"tidelog: {error}", sys.stderr), file=sys.stderr)  # noqa: T201
        return FAILURES
    except (KeyboardInterrupt, SystemExit):  # all jobs have saved; the signal is raised again
        print(f"tidelog: the sweep is saved; `{again}` continues it", file=sys.stderr)  # noqa: T201
        raise
    result = Sweep(folder)
    with json_only(as_json):
        path = write_page(result)
        if quiet and not as_json:
            print_line(f"sweep folder: {folder}")
        if not quiet:
            _show(result, path)
        failures = [row for row in result.table if row["state"] in ("diverged", "failed")]
        for row in failures if quiet else ():  # else they were shown when they happened
            reason = f"tidelog: trial {row['trial']} {row['state']}: {row['reason']}"
            print(wrapped(reason, sys.stderr), file=sys.stderr)  # noqa: T201
    if as_json:
        decisions = msgspec.to_builtins(result.decisions)
        content = {"folder": str(folder), "metric": result.metric, "caution": result.caution}
        print_line(json.dumps({**content, "trials": result.table, "decisions": decisions}, indent=1))
    return FAILURES if failures else 0


def _show(result: Sweep, path: Path) -> None:
    table(f"{len(result.plan.trials):,} trials", result.head, result.rows())
    for one in result.decisions:
        print_line(
            f"step {one.step:,}: {len(one.promoted):,} of {len(one.compared):,} trials went on by {one.metric}: "
            f"{', '.join(map(str, one.promoted)) or 'none'}"
        )
    print_line(result.caution)
    print_line(f"report: {path}")
    if result.judge_command is not None:
        print_line(f"next: {result.judge_command}")


def _algorithms(cls: type[Any], settings: dict[str, Any], options: Any, alone: bool) -> list[Any]:
    """Return an algorithm at every point of the grid, with every draw."""
    fields = {one.name: one for group in groups_of(cls).values() for one in group}
    own = {name: getattr(options, name) for name in fields} if alone else settings
    axes, ranges = _axes(options.grid, "--grid"), _axes(options.draw, "--draw")
    for name in itertools.chain(axes, ranges):
        if name not in fields:
            raise ConfigError(f"{cls.__name__} has no hyper-parameter '{name}': {nearest(name, fields)}")
        if name in axes and name in ranges:
            raise ConfigError(f"'{name}' is in --grid and in --draw", "it in one of them")
    if ranges and options.trials is None:
        raise ConfigError("--draw needs the number of draws", fix="add --trials 20")
    if options.trials is not None and not ranges:
        raise ConfigError("--trials is the number of draws, and there is no --draw", fix="drop --trials, or add --draw")
    values = {name: [_value(fields[name], one) for one in text.split(",")] for name, text in axes.items()}
    points = grid(cls(**own), **values)
    if not ranges:
        return points
    drawn = {name: _range(fields[name], text) for name, text in ranges.items()}
    return [one for point in points for one in random_search(point, options.trials, options.draw_seed, **drawn)]


def _axes(words: tuple[tuple[str, ...], ...], flag: str) -> dict[str, str]:
    """Parse `temperature=1,3,10` into names and values; ConfigError states the expected form."""
    axes: dict[str, str] = {}
    for word in itertools.chain.from_iterable(words):
        name, _, values = word.partition("=")
        name = name.replace("-", "_")
        if not name or not values:
            raise ConfigError(f"{flag} {word}", "NAME=VALUES, such as temperature=1,3,10")
        if name in axes:
            raise ConfigError(f"{flag}: '{name}' appears twice", fix=f"write all its values after one {name}=")
        axes[name] = values
    return axes


RANGE = re.compile(r"(?P<low>[^.]\S*?)\.\.(?P<high>[^(\s]+)(?P<log>\(log\))?")


def _range(field: dataclasses.Field[Any], text: str) -> Any:
    """Parse `1..10`, `1..10(log)` or a list of values."""
    match = RANGE.fullmatch(text)
    if match is None:
        return [_value(field, one) for one in text.split(",")]
    ends = (_value(field, match["low"]), _value(field, match["high"]))
    return (*ends, "log") if match["log"] else ends


def _value(field: dataclasses.Field[Any], text: str) -> Any:
    """Parse a value of a hyper-parameter as the type of its field; what the field allows is checked by it."""
    kind, optional = field.metadata["type"], field.metadata["optional"]
    if optional and text.lower() == "none":
        return None
    if field.metadata.get("choices") or kind is str:
        return text
    expected = {int: "a whole number", float: "a number", bool: "true or false"}.get(kind, "numbers such as 64x64")
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if get_origin(kind) is tuple:
            return tuple(get_args(kind)[0](one) for one in text.split("x"))
        return kind(text)
    except (ValueError, KeyError):
        raise ConfigError(f"{field.name} = {text}", expected) from None


def _numbers(text: str, flag: str, kind: type[Any]) -> list[Any]:
    try:
        return [kind(one.replace("_", "")) for one in text.split(",")]
    except ValueError:
        expected = "FACTOR,STEPS, such as 3,10000" if kind is int else "shares, such as 0.1,0.3,1"
        raise ConfigError(f"{flag} {text}", expected) from None
