"""`tidelog train ALGORITHM --data LOG` or `--env NAME`: learn a policy from a log or in an environment.

`--from RUN` continues an offline run in an environment, `--like RUN` learns from a whole log with a run's settings.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro

from tidelog._files import write_file
from tidelog.algorithms.finetune import FinetuneConfig
from tidelog.algorithms.hyperparameters import MAIN, chosen_preset, groups_of
from tidelog.algorithms.names import configured, learns_online, names, ranks
from tidelog.auto.settings import DECISIONS, LEAST_HELD_OUT, suggest
from tidelog.cli.flags import (
    OPTIONS,
    OUTPUT,
    DeclaredFlags,
    Env,
    EnvironmentFlags,
    File,
    Folder,
    InteractionFlags,
    Repeated,
    RunFlags,
    RunFolder,
    Sources,
    check_targets,
    declared_value,
    devices_of,
    flag_names,
    free_folder,
    is_run,
    json_only,
    options_in,
    parse,
    peek,
    print_line,
    read_config,
    read_from_flags,
    source_of,
    verb_flags,
    with_declared,
)
from tidelog.cli.policies import refuse_lists
from tidelog.cli.run_result import train_and_show
from tidelog.data.export import toml_text
from tidelog.data.log import Log
from tidelog.data.read import read_log
from tidelog.errors import ConfigError
from tidelog.recommend.interactions import Interactions
from tidelog.recommend.read import reopen_any
from tidelog.sinks import Tracker, open_sink
from tidelog.training.engine import cores_as_devices
from tidelog.training.fit import fit, reads_rewards, refit
from tidelog.training.learn import finetune, learn, load_run
from tidelog.training.metrics import Progress
from tidelog.training.processes import Processes, connect_processes, connected
from tidelog.training.record import Record

AUTO, NONE = "auto", "none"
SETTINGS = "run.toml"  # in the run folder
STEPS = 20_000


# Training in several processes that a launcher starts: the flags by which each one joins the others.


@dataclass(kw_only=True)
class ProcessFlags:
    """One training in several processes that share each batch; a launcher starts each of them."""

    processes: int | None = None
    """number of processes that train together"""
    coordinator: str | None = None
    """HOST:PORT of rank 0, which all processes reach; "auto" asks Slurm, Open MPI or Kubernetes for all three"""
    rank: int | None = None
    """number of this process, from 0"""
    connect_seconds: float = 300.0
    """wait so long for the other processes"""


def connect(options: Any) -> Processes:
    """Connect this process to the others that the flags name; the ranks after 0 print no results.

    ConfigError without `--out` where a new run begins: all processes must know the folder.
    """
    named = (options.coordinator, options.processes, options.rank)
    if named == (None, None, None):
        return connected()
    if options.coordinator != AUTO and None in named:
        raise ConfigError(
            f"--coordinator {options.coordinator}, --processes {options.processes}, --rank {options.rank}",
            "all three, or --coordinator auto",
            "start each process with the address of rank 0, their number and its rank",
        )
    if getattr(options, "out", "") is None:
        raise ConfigError(
            "several processes write one run folder, which all must know", fix="name it with --out FOLDER"
        )
    if options.coordinator == AUTO:
        named = (None, None, None)
    group = connect_processes(*named, seconds=options.connect_seconds)
    shown = os.devnull if group.rank else os.dup(1)
    sys.stdout = open(shown, "w", encoding="utf-8", buffering=1)  # noqa: SIM115 (until the process ends)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Gloo, which adds gradients up on processors, prints to it
    return group


def leave(code: int) -> None:
    """End this process at once after another one was lost: the end of JAX would wait for it."""
    sys.stdout.flush()
    sys.stderr.flush()
    if connected().count > 1:
        os._exit(code)


SETTINGS_SHOWN = f"{MAIN}{OPTIONS}"  # the hyper-parameters that most runs set


@dataclass(kw_only=True)
class LogFlags(RunFlags):
    """Learn a policy from a log. Every hyper-parameter is a flag."""

    common: ClassVar[tuple[str, ...]] = (
        "data", "columns", "out", "overwrite", "preset", "steps", "held_out", "judge", "seeds", "config", "propensity",
        "quiet", "json", SETTINGS_SHOWN,
    )  # fmt: skip

    data: Sources
    """the log: a table (.csv, .csv.gz, .parquet) or several, a folder of tables, a glob, a saved log, an .npz or
    .hdf5 (D4RL, robomimic) file, or the id of a Minari data set"""
    columns: File | None = None
    """for tables: the mapping file with the role of each column (`tidelog log inspect` proposes one)"""
    preset: Annotated[str, "auto|none|PRESET"] = AUTO
    """defaults of the hyper-parameters: "auto" follows the log and says why, "none" leaves them as they are shown here,
    and some algorithms have published ones"""
    steps: int | None = None
    """updates per seed; default: with "auto" as many as the log asks for, else 20000"""
    config: File | None = None
    """a TOML file with values for any of these flags; flags on the command line win"""
    memory_map: bool = False
    """for saved logs: leave the columns on disk and read the rows of each block of updates"""


@dataclass(kw_only=True)
class PolicyFlags(DeclaredFlags, LogFlags):
    """Learn a policy from a log. Every hyper-parameter is a flag."""

    held_out: float | None = None
    """share of the episodes held out of training, which judge what is learnt; default: with "auto" half of up to
    100,000 short episodes, less of more or of long ones; without it 0.2"""
    judge: bool = True
    """at the end, judge all that could be deployed on the held-out episodes, as `tidelog judge RUN` does: the policy in
    each way of acting, and the simple rules"""


@dataclass(kw_only=True)
class RankingFlags(LogFlags):
    """Learn to rank items from interactions. Every hyper-parameter is a flag."""

    common: ClassVar[tuple[str, ...]] = (
        "data", "interactions", "out", "overwrite", "preset", "steps", "held_out", "seeds", "config", "quiet", "json",
        SETTINGS_SHOWN,
    )  # fmt: skip

    data: Sources
    """the interactions: a table (.csv, .tsv, .parquet, .jsonl) or several, a folder of tables, a glob, or a folder of
    Interactions.save"""
    preset: Annotated[str, "auto|none"] = AUTO
    """"auto" lets the number of updates follow the log and stops early, "none" takes 20000"""
    steps: int | None = None
    """most updates per seed; default: with "auto" about 10 passes over the events, from 500 to 10000, else 20000"""
    held_out: float = 0.2
    """the last share of the time, held out from training for validation and for the weight of Q; 0 holds out nothing"""
    interactions: InteractionFlags = field(default_factory=InteractionFlags)
    """the columns of the interactions"""


@dataclass(kw_only=True)
class LearnFlags(EnvironmentFlags):
    """Learn a policy in an environment. Every hyper-parameter is a flag."""

    common: ClassVar[tuple[str, ...]] = (
        "env", "out", "overwrite", "preset", "steps", "seeds", "config", "quiet", "json", SETTINGS_SHOWN,
    )  # fmt: skip

    preset: Annotated[str, "auto|none|PRESET"] = AUTO
    """settings for a family of problems as defaults: "auto" chooses them by the environment's observations and actions,
    "none" leaves the paper's"""
    config: File | None = None
    """a TOML file with values for any of these flags; flags on the command line win"""


def flags_of(algorithm: type[Any]) -> type[Any]:
    """The flags of training with an algorithm: of its data or environment, of the run, and its hyper-parameters."""
    settings = groups_of(algorithm)
    if learns_online(algorithm):
        flags = verb_flags("learn", LearnFlags, settings, steps=DECISIONS)
    elif ranks(algorithm):
        flags = verb_flags("fit", RankingFlags, settings, without=["scale", "data_share", "split_seed"])
    else:
        flags = verb_flags("fit", PolicyFlags, settings)
    groups = [(f"processes{OPTIONS}", ProcessFlags, field(default_factory=ProcessFlags))]
    whole: type[Any] = make_dataclass(flags.__name__, groups, bases=(flags,), kw_only=True)
    whole.__doc__ = flags.__doc__
    return whole


def run(words: list[str]) -> int:
    """Train, and print the result and the next command."""
    flags_set = {word.split("=")[0] for word in words}
    if {"--from", "--like"} <= flags_set:
        raise ConfigError("--from and --like are both set", fix="set only one of them")
    for flag, again in {"--from": _finetune, "--like": _refit}.items():
        if flag in flags_set:
            if not words[0].startswith("-"):
                raise ConfigError(f"{flag} repeats the algorithm of a run", fix=f"drop '{words[0]}'")
            return again(words)
    if not words or words[0].startswith("-"):
        usage = " or ".join(_usage())
        if not words or words[0] in ("-h", "--help"):
            print(_help())  # noqa: T201
            return 0 if words else 2
        raise ConfigError("the name of the algorithm is missing", fix=usage)
    name, rest = words[0], words[1:]
    cls, settings = configured(name)
    online, flags = learns_online(cls), flags_of(cls)
    _check_source(name, rest, online, ranks(cls))
    arguments = [*read_config(peek(rest, "--config"), flags, rest), *rest]
    defaults, preset = dict(settings), peek(arguments, "--preset") or AUTO
    if preset not in (AUTO, NONE):
        presets = getattr(cls, "presets", {})
        if not presets:
            raise ConfigError(f"{cls.__name__} has no presets", fix="drop --preset")
        defaults = chosen_preset(cls.__name__, presets, preset) | settings
    options = parse(flags, arguments, f"train {name}", defaults)
    connect(options)
    cores_as_devices(devices_of(options.devices))  # what suggests settings starts JAX
    if online and options.preset == AUTO:
        options = _suited(cls, name, flags, arguments, settings, options)
    if online:
        return _learn(cls, None, options, Path(options.out) if options.out else free_folder(name))
    log = log_of(options)
    if options.preset == AUTO:
        options = following(cls, log, flags, arguments, f"train {name}", settings, options)
    options.steps = STEPS if options.steps is None else options.steps
    options.held_out = LEAST_HELD_OUT if options.held_out is None else options.held_out
    return _learn(cls, log, options, Path(options.out) if options.out else free_folder(name))


def following(
    cls: type[Any],
    log: Log | Interactions,
    flags: type[Any],
    arguments: list[str],
    command: str,
    settings: dict[str, Any],
    options: Any,
    varied: Collection[str] = (),
) -> Any:
    """Return the options with the settings that follow the log, and print these; without those that are `varied`."""
    flagged = {word.split("=")[0].lstrip("-").replace("-", "_") for word in arguments if word.startswith("--")}
    chosen = [one.name for group in groups_of(cls).values() for one in group if one.name in flagged]
    own = settings | {name: getattr(options, name) for name in (*chosen, *varied) if hasattr(options, name)}
    split_seed = getattr(options, "split_seed", 0)  # interactions are split by time
    with Progress("settings", False if options.quiet else None) as screen:
        suggestion = suggest(cls, log, held_out=options.held_out, split_seed=split_seed, progress=screen.update, **own)
    defaults = {name: one.value for name, one in suggestion.settings.items()} | settings
    options = parse(flags, arguments, command, defaults)
    followed = {name: one for name, one in suggestion.settings.items() if name not in varied}
    names = [name for name, one in followed.items() if getattr(options, name) == one.value]
    with json_only(options.json):
        if names and not options.quiet:
            print_line("settings that follow the log (--preset none leaves the defaults):")
            for line in suggestion.lines(names):
                print_line(f"  {line}")
    return options


def _suited(
    cls: type[Any], name: str, flags: type[Any], arguments: list[str], settings: Mapping[str, Any], options: Any
) -> Any:
    """Return the options with the preset that suits the environment, and print why.

    Where other flags do not fit the preset and fit the constructor's settings, these stay.
    """
    suggestion = suggest(cls, options.env, **settings)
    defaults = {own: one.value for own, one in suggestion.settings.items()} | dict(settings)
    reasons = dict.fromkeys(one.reason for one in suggestion.settings.values())
    if not reasons:
        return options
    suited = parse(flags, arguments, f"train {name}", defaults)
    said = f"settings of the {next(iter(reasons))} (--preset none leaves the paper's)"
    try:
        algorithm_of(cls, suited)
    except ConfigError as error:
        algorithm_of(cls, options)
        suited, why = options, error.problem
        said = f"note: the paper's settings are used: the flags do not fit the {next(iter(reasons))} ({why})"
    if not options.quiet:
        with json_only(options.json):
            print_line(said)
    return suited


def algorithm_of(cls: type[Any], options: Any) -> Any:
    """Return an algorithm with the settings of the flags."""
    return cls(**{one.name: getattr(options, one.name) for group in groups_of(cls).values() for one in group})


def _check_source(name: str, words: list[str], online: bool, ranked: bool) -> None:
    """Raise ConfigError for a log with an online algorithm, or an environment with an offline one."""
    flags = {word.split("=")[0] for word in words}
    if online and "--data" in flags and "--env" not in flags:
        raise ConfigError(
            f"{name} learns in an environment (--env NAME), not from a log (--data)",
            fix=(
                "learn from the log with another algorithm, such as `tidelog train iql --data LOG`; then, in an "
                "environment, go on with it, as in `tidelog train --from runs/iql --env NAME`"
            ),
        )
    if not online and "--env" in flags and "--data" not in flags:
        fix = (
            "name a table of interactions with --data"
            if ranked
            else "collect a log, as in `tidelog collect --env NAME --episodes 100 --out LOG`, and learn from it with "
            f"`tidelog train {name} --data LOG`"
        )
        raise ConfigError(f"{name} learns from a log (--data LOG), not in an environment (--env)", fix=fix)


def _usage() -> list[str]:
    offline, online = [*names("a log"), *names("interactions")], names("an environment")
    return [
        f"tidelog train {{{','.join(offline)}}} --data LOG [flags]",
        f"tidelog train {{{','.join(online)}}} --env NAME [flags]",
        "tidelog train --from RUN --env NAME [flags]",
        "tidelog train --like RUN [--data LOG] [flags]",
    ]


def _help() -> str:
    lines = ["usage:", *(f"  {one}" for one in _usage()), "", "algorithms:"]
    for what in ("a log", "interactions", "an environment"):
        for name in names(what):
            about = (configured(name)[0].__doc__ or "").strip().split("\n")[0]
            lines.append(f"  {name:<16} learns from {what}. {about}")
    return "\n".join(
        [
            *lines,
            "",
            "`--from RUN` continues an offline run in an environment; `--like RUN` learns from the whole log.",
            "`tidelog train NAME --help` shows the common flags of one, `--help-all` all of them.",
        ]
    )


def _learn(cls: type[Any], log: Log | Interactions | None, options: Any, folder: Path) -> int:
    """Learn from a log, or in an environment without one."""
    more = options_in(options, "learn" if log is None else "fit")
    more |= {"out": folder, "overwrite": options.overwrite, "train": False}
    more["sinks"], algorithm = _sinks(options, folder), algorithm_of(cls, options)
    training = learn(algorithm, options.env, **more) if log is None else fit(algorithm, log, **more)
    write_settings(cls, options, folder)
    if isinstance(log, Log) and not log.has_return.all() and reads_rewards(algorithm, log.spec) and not options.json:
        unknown, count = int((~log.has_return).sum()), len(log.episode_ids)
        print_line(f"{unknown:,} of {count:,} episodes have an unknown reward: training leaves them out")
    return train_and_show(training, options.quiet, options.json, judge=getattr(options, "judge", False))


def _sinks(options: Any, folder: Path) -> list[Tracker]:
    """Return the sinks of the flags, of the first process alone; ConfigError for a folder that holds something else."""
    check_targets(folder if options.overwrite else None, overwrite=True, replaceable=is_run)
    return [open_sink(word, folder) for word in options.sink if connected().rank == 0]


def write_settings(cls: type[Any], options: Any, folder: Path) -> None:
    """Write the flags of a run into its folder; `tidelog train ALGORITHM --config FILE` repeats the run.

    No preset follows the log again. Left out are the run's folder, its output and its processes.
    """
    left_out = {"config", "out", "overwrite", "preset", *OUTPUT, *(one.name for one in fields(ProcessFlags))}
    values = {name: getattr(options, name) for name in flag_names(flags_of(cls)) if name not in left_out}
    optional = {one.name for group in groups_of(cls).values() for one in group}
    lines = [f'preset = "{NONE}"']
    for name, value in values.items():
        if name == "data":
            lines.append(f"data = {toml_text([one for several in value for one in several])}")
        elif value is not None and value != ():
            lines.append(f"{name} = {toml_text(value)}")
        elif name in optional:
            lines.append(f"{name} = {toml_text('None' if value is None else [])}")
    if connected().rank == 0:
        write_file(folder / SETTINGS, ("\n".join(lines) + "\n").encode())


def log_of(options: Any) -> Log | Interactions:
    """Read the log or the interactions that the flags name."""
    source = source_of(options.data, "--data")
    if not isinstance(options, RankingFlags):
        declared = declared_value(options.propensity, options.randomised)
        return read_log(source, with_declared(options.columns, declared), memory_map=options.memory_map)
    if options.columns is not None or options.memory_map:
        raise ConfigError("interactions use --user, --item and --time", fix="drop --columns and --memory-map")
    return read_from_flags(source, options.interactions)


# `tidelog train --from RUN --env NAME`: continue an offline run in an environment.


@dataclass(kw_only=True)
class FinetuneFlags(EnvironmentFlags):
    """Continue an offline run in an environment, on its log and new experience."""

    from_run: Annotated[RunFolder, tyro.conf.arg(name="from")]
    """the folder of the offline run"""
    env: Env
    """a built-in environment, a functional one (jax:NAME) or a gymnasium id; its spaces must be those of the log"""
    out: Folder | None = None
    """the new run folder; default: runs/<algorithm>-online, with a number if it exists"""


Finetune = verb_flags("finetune", FinetuneFlags, steps=20_000, **asdict(FinetuneConfig()))


def _finetune(words: list[str]) -> int:
    """Fine-tune a run and print the result."""
    options = parse(Finetune, words, "train")
    refuse_lists(Path(options.from_run), Record.read(Path(options.from_run)), "train --from")
    offline_run = load_run(options.from_run)
    folder = Path(options.out) if options.out else free_folder(f"{offline_run.record.algorithm}-online")
    arguments = options_in(options, "finetune")
    if folder.exists() and folder.samefile(options.from_run):
        raise ConfigError(f"--out {folder} is the run that is continued", fix="choose another folder")
    arguments |= {"out": folder, "sinks": _sinks(options, folder), "overwrite": options.overwrite}
    training = finetune(offline_run, options.env, train=False, **arguments)
    return train_and_show(training, options.quiet, options.json)


# `tidelog train --like RUN`: the settings of a run's policy once more, on the whole log, before the policy is used.


@dataclass(kw_only=True)
class Refit(RunFlags):
    """Learn from the whole log with the settings of a run's policy.

    The result learns from the held-out episodes too, and so has no verdict.
    """

    like: RunFolder
    """the run folder (its best policy if there is one, else its first member)"""
    data: Repeated = ()
    """a newer log with the same columns; default: the log of the run, read again"""
    member: int | None = None
    """the member, counted from 0 as in `tidelog judge`"""
    out: Folder | None = None
    """the new run folder; default: runs/<algorithm>-refit, with a number if it exists"""


def _refit(words: list[str]) -> int:
    """Refit a run and print the result."""
    options = parse(Refit, words, "train")
    record = Record.read(Path(options.like))
    folder = Path(options.out) if options.out else free_folder(f"{record.algorithm}-refit")
    sinks, log = _sinks(options, folder), None
    if options.data:
        if record.data.origin is None:
            raise ConfigError(
                "--data: the run's log was created in memory, so that its columns are unknown",
                fix="use tl.refit(run, out, log=log) in Python",
            )
        log = reopen_any({**record.data.origin, "source": source_of(options.data, "--data"), "parts": []})
    training = refit(
        options.like, folder, log=log, member=options.member, overwrite=options.overwrite, sinks=sinks, train=False
    )
    return train_and_show(training, options.quiet, options.json)
