"""`tidelog train ALGORITHM --data LOG` or `--env NAME`: learn a policy from a log or in an environment."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tidelog.algorithms.core.hyperparameters import chosen_preset
from tidelog.algorithms.names import configured, learns_online, names, ranks
from tidelog.cli.act import open_policy
from tidelog.cli.environment_flags import EnvironmentFlags, SinkName, free_folder, sink_of
from tidelog.cli.flags import (
    Sources,
    flags_of,
    is_flag,
    options_in,
    parse,
    peek,
    read_config,
    source_of,
    verb_flags,
    with_defaults,
)
from tidelog.cli.interaction_flags import InteractionFlags, read_from_flags
from tidelog.cli.tables import train_and_show
from tidelog.data.io.readers import read_any
from tidelog.data.log import Log
from tidelog.errors import ConfigError
from tidelog.recommend.interactions.log import Interactions
from tidelog.training.fit import fit
from tidelog.training.learn import learn


@dataclass(kw_only=True)
class LogFlags:
    """Learn a policy from a log. Every hyper-parameter of the algorithm is a flag."""

    data: Sources
    """the log: a table (.csv, .csv.gz, .parquet) or several, a folder of tables, a glob, a saved log, an .npz file, or
    the id of a Minari data set"""
    columns: str | None = None
    """for tables: the mapping file with the role of each column (`tidelog data inspect` proposes one)"""
    memory_map: bool = False
    """for saved logs: leave the columns on disk and read the rows of each block of updates"""
    out: str | None = None
    """the run folder; default: runs/<algorithm>, with a number if it exists"""
    sink: tuple[SinkName, ...] = ()
    """additional destinations of metrics"""
    preset: str | None = None
    """published settings as defaults"""
    config: str | None = None
    """a TOML file with values for any of these flags; flags on the command line win"""


@dataclass(kw_only=True)
class RankingFlags(InteractionFlags, LogFlags):
    """Learn to rank items from interactions. Every hyper-parameter of the algorithm is a flag."""

    data: Sources
    """the interactions: a table (.csv, .tsv, .parquet, .jsonl) or several, a folder of tables, a glob, or a folder of
    Interactions.save"""
    held_out: float = 0.2
    """the last share of the time, held out from training for validation and for the weight of Q; 0 holds out nothing"""


@dataclass(kw_only=True)
class LearnFlags(EnvironmentFlags):
    """Learn a policy in an environment. Every hyper-parameter of the algorithm is a flag."""

    start: str | None = None
    """initialise with this policy (a run folder or a saved policy), which is distilled into the new one"""
    preset: str | None = None
    """settings for a family of problems as defaults"""
    config: str | None = None
    """a TOML file with values for any of these flags; flags on the command line win"""


Train = verb_flags("fit", LogFlags, steps=20_000, held_out=0.2)
Rank = verb_flags("fit", RankingFlags, steps=20_000)
Play = verb_flags("learn", LearnFlags, steps=200_000)


def run(words: list[str]) -> int:
    """Train, and print the result and the next command."""
    if not words or words[0].startswith("-"):
        usage = " or ".join(_usage())
        if not words or words[0] in ("-h", "--help"):
            print(f"usage: {usage}")  # noqa: T201
            return 0 if words else 2
        raise ConfigError(f"the name of the algorithm is missing. fix: {usage}")
    name, rest = words[0], words[1:]
    cls, settings = configured(name)
    online = learns_online(cls)
    _check_source(name, rest, online)
    flags = flags_of(cls, Play if online else Rank if ranks(cls) else Train)
    arguments = [*read_config(peek(rest, "--config"), flags, rest), *rest]
    defaults = _preset(cls, peek(arguments, "--preset")) | settings
    options = parse(flags, arguments, f"train {name}", with_defaults(flags, defaults))
    algorithm = cls(**{f.name: getattr(options, f.name) for f in fields(cls) if is_flag(f)})
    folder = Path(options.out) if options.out else free_folder(name)
    return _play(algorithm, options, folder) if online else _read(algorithm, options, folder)


def _check_source(name: str, words: list[str], online: bool) -> None:
    """Raise ConfigError for a log with an online algorithm, or an environment with an offline one."""
    flags = {word.split("=")[0] for word in words}
    if online and "--data" in flags and "--env" not in flags:
        raise ConfigError(
            f"{name} learns in an environment (--env NAME), not from a log (--data). fix: learn from the log with "
            "another algorithm, such as `tidelog train iql --data LOG`; then, in an environment, start from it, as in "
            f"`tidelog train {name} --env NAME --start runs/iql`"
        )
    if not online and "--env" in flags and "--data" not in flags:
        raise ConfigError(
            f"{name} learns from a log (--data LOG), not in an environment (--env). fix: collect a log, as in "
            "`tidelog collect --env NAME --episodes 100 --out LOG`, and then continue with `tidelog finetune`"
        )


def _usage() -> tuple[str, str]:
    offline, online = [*names("a log"), *names("interactions")], names("an environment")
    return (
        f"tidelog train {{{','.join(offline)}}} --data LOG [flags]",
        f"tidelog train {{{','.join(online)}}} --env NAME [flags]",
    )


def _play(algorithm: Any, options: Any, folder: Path) -> int:
    """Learn in an environment."""
    start = None if options.start is None else open_policy(options.start)
    sinks = [sink_of(kind, folder) for kind in options.sink]
    more = options_in(options, "learn")
    training = learn(algorithm, options.env, out=folder, start=start, sinks=sinks, train=False, **more)
    return train_and_show(training)


def _read(algorithm: Any, options: Any, folder: Path) -> int:
    """Learn from a log."""
    log, sinks = _log(options), [sink_of(kind, folder) for kind in options.sink]
    training = fit(algorithm, log, out=folder, sinks=sinks, train=False, **options_in(options, "fit"))
    return train_and_show(training)


def _log(options: Any) -> Log | Interactions:
    source = source_of(options.data, "--data")
    if not isinstance(options, RankingFlags):
        return read_any(source, options.columns, memory_map=options.memory_map)
    if options.columns is not None or options.memory_map:
        raise ConfigError("interactions use --user, --item and --time. fix: drop --columns and --memory-map")
    return read_from_flags(source, options)


def _preset(cls: type[Any], name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    presets = getattr(cls, "presets", {})
    if not presets:
        raise ConfigError(f"{cls.__name__} has no presets. fix: drop --preset")
    return chosen_preset(cls.__name__, presets, name)
