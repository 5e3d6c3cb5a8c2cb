"""`tidelog train ALGORITHM --data LOG` or `--env NAME`: learn a policy from a log or in an environment."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from tidelog.algorithms import ALGORITHMS, CONFIGURATIONS, configured, learns_online, ranks
from tidelog.algorithms.hyper import chosen_preset
from tidelog.cli.options import flags_of, is_flag, pairs, parse, peek, read_config, with_defaults
from tidelog.cli.tables import say, trained
from tidelog.cli.taken import Taken, read_taken
from tidelog.data import Interactions, Log
from tidelog.data.origin import read_any
from tidelog.errors import ConfigError
from tidelog.training.fit import prepare
from tidelog.training.learn import prepare_learning
from tidelog.training.sinks import TensorBoard, Trackio, WandB


@dataclass(kw_only=True)
class Train:
    """Learn a policy from a log. Every hyper-parameter of the algorithm is a flag."""

    data: str
    """the log: a table (.csv, .csv.gz, .parquet), a saved log, an .npz file, or the id of a Minari data set"""
    columns: str | None = None
    """for tables: the mapping file that says which column is what (`tidelog data inspect` proposes one)"""
    memory_map: bool = False
    """for saved logs: leave the columns on disk and fetch what each block of updates reads"""
    steps: int = 20_000
    """updates a seed"""
    seeds: int = 1
    """how many seeds to train side by side"""
    out: str | None = None
    """the run folder; default: runs/<algorithm>, with a number if that is taken"""
    held_out: float = 0.2
    """share of the episodes kept from training, for validation losses and judgement; 0 keeps none"""
    evaluate: tuple[str, ...] = ()
    """environments to play at every report, as NAME=EPISODES"""
    every: int | None = None
    """updates between reports; default: 50 reports a run"""
    scale: Literal["standard", "none"] | None = None
    """standardise numeric features; default: standard for tables, none for arrays and Minari"""
    best: str | None = None
    """keep the policy at the best report of this metric"""
    patience: int | None = None
    """stop after so many reports without a better one"""
    save_seconds: float = 30.0
    """time between two checkpoints"""
    warm_start: tuple[str, ...] = ()
    """start parts from other runs, as PART=RUN"""
    sink: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """where metrics go besides the run folder"""
    preset: str | None = None
    """published settings to start from"""
    config: str | None = None
    """a TOML file with values for any of these flags; flags on the command line win"""


@dataclass(kw_only=True)
class Serve(Taken, Train):
    """Learn to rank items from interactions. Every hyper-parameter of the algorithm is a flag."""

    data: str
    """the interactions: a table (.csv, .tsv, .parquet, .jsonl), or a folder that Interactions.save wrote"""
    held_out: float = 0.2
    """share of the time, its end, kept from training, for validation and for the weight of Q; 0 keeps none"""


@dataclass(kw_only=True)
class Play:
    """Learn a policy in an environment. Every hyper-parameter of the algorithm is a flag."""

    env: str
    """a built-in environment, a functional one (jax:NAME), procgen/GAME-MODE, envpool:ID or a gymnasium id"""
    steps: int = 200_000
    """decisions a seed, rounded up to whole rollouts"""
    seeds: int = 1
    """how many seeds to train side by side"""
    out: str | None = None
    """the run folder; default: runs/<algorithm>, with a number if that is taken"""
    evaluate: tuple[str, ...] = ()
    """environments to play at every report, as NAME=EPISODES; sampled:NAME=EPISODES draws the actions"""
    every: int | None = None
    """decisions between reports; default: 50 reports a run"""
    best: str | None = None
    """keep the policy at the best report of this metric"""
    patience: int | None = None
    """stop after so many reports without a better one"""
    save_seconds: float = 30.0
    """time between two checkpoints"""
    log_out: str | None = None
    """write all that was collected as a log with propensities, once the run is complete"""
    sink: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """where metrics go besides the run folder"""
    preset: str | None = None
    """settings for a family of problems to start from"""
    config: str | None = None
    """a TOML file with values for any of these flags; flags on the command line win"""


def run(words: list[str]) -> int:
    """Train, and say what came of it and what to do next."""
    if not words or words[0].startswith("-"):
        usage = " or ".join(_usage())
        if not words or words[0] in ("-h", "--help"):
            print(f"usage: {usage}")  # noqa: T201
            return 0 if words else 2
        raise ConfigError(f"name the algorithm first: {usage}")
    name, rest = words[0], words[1:]
    cls, settings = configured(name)
    online = learns_online(cls)
    flags = flags_of(cls, Play if online else Serve if ranks(cls) else Train)
    given = [*read_config(peek(rest, "--config"), flags), *rest]
    defaults = _preset(cls, peek(given, "--preset")) | settings
    options = parse(flags, given, f"train {name}", with_defaults(flags, defaults))
    algorithm = cls(**{f.name: getattr(options, f.name) for f in fields(cls) if is_flag(f)})
    folder = Path(options.out) if options.out else _free_folder(name)
    return _play(algorithm, options, folder) if online else _read(algorithm, options, folder)


def _usage() -> tuple[str, str]:
    names = [*ALGORITHMS, *CONFIGURATIONS]
    online = [name for name in names if learns_online(configured(name)[0])]
    offline = [name for name in names if name not in online]
    return (
        f"tidelog train {{{','.join(offline)}}} --data LOG [flags]",
        f"tidelog train {{{','.join(online)}}} --env NAME [flags]",
    )


def _read(algorithm: Any, options: Any, folder: Path) -> int:
    """Learn from a log."""
    log = _log(options)
    training = prepare(
        algorithm,
        log,
        options.steps,
        options.seeds,
        folder,
        held_out=options.held_out,
        evaluate=_episodes(options.evaluate),
        every=options.every,
        scale=options.scale,
        best=options.best,
        patience=options.patience,
        save_seconds=options.save_seconds,
        warm_start=pairs(options.warm_start, "PART=RUN, as in critic=runs/iql"),
        sinks=[_sink(kind, folder) for kind in options.sink],
    )
    return trained(training)


def _log(options: Any) -> Log | Interactions:
    if not isinstance(options, Serve):
        return read_any(options.data, options.columns, memory_map=options.memory_map)
    if options.columns is not None or options.memory_map:
        raise ConfigError("interactions take flags such as --user and --item: leave --columns and --memory-map away")
    return read_taken(options.data, options)


def _play(algorithm: Any, options: Any, folder: Path) -> int:
    """Learn in an environment."""
    training = prepare_learning(
        algorithm,
        options.env,
        options.steps,
        options.seeds,
        folder,
        evaluate=_episodes(options.evaluate),
        every=options.every,
        best=options.best,
        patience=options.patience,
        save_seconds=options.save_seconds,
        log_out=options.log_out,
        sinks=[_sink(kind, folder) for kind in options.sink],
    )
    for note in training.notes():
        say(f"note: {note}")
    return trained(training)


def _preset(cls: type[Any], name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    presets = getattr(cls, "presets", {})
    if not presets:
        raise ConfigError(f"{cls.__name__} has no presets")
    return chosen_preset(cls.__name__, presets, name)


def _episodes(values: tuple[str, ...]) -> dict[str, int]:
    expected = "NAME=EPISODES, as in Pendulum-v1=10"
    found = pairs(values, expected)
    for name, count in found.items():
        if not count.isdigit():
            raise ConfigError(f"'{name}={count}': expected {expected}")
    return {name: int(count) for name, count in found.items()}


def _sink(kind: str, folder: Path) -> Any:
    if kind == "tensorboard":
        return TensorBoard(folder / "tensorboard")
    return WandB(project="tidelog", name=folder.name) if kind == "wandb" else Trackio(project="tidelog")


def _free_folder(name: str) -> Path:
    folder, number = Path("runs") / name, 1
    while folder.exists() and any(folder.iterdir()):
        number += 1
        folder = Path("runs") / f"{name}-{number}"
    return folder
