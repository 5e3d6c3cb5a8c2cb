"""The options of a run, listed once: keywords of `fit`, `learn` and `finetune`, command-line flags, `run.json`.

`Options` has each one's help, default and limits. The typed dictionaries below it name the keywords of each verb with
their types, for editors and type checkers; their docstrings are made of `Options`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from tidelog.errors import ConfigError, unknown_name
from tidelog.schema import RENAMED

Evaluator = int | Callable[[Any], float]

LARGEST = 2**31 - 1  # updates are counted in 32 bits
MOST_SEEDS = 10_000
REPORTS = 50  # reports of a run by default
VERBS = ("fit", "learn", "finetune")
Scale = Literal["standard", "none"]


def option(
    default: Any = MISSING, *, help: str, verbs: Sequence[str] = VERBS, flag: Any = None, first: bool = False
) -> Any:
    """Return a field of `Options` with its help, the verbs that take it, and the type of its flag (None: no flag).

    `first` is for the few flags that most runs set; help lists the others last.
    """
    return field(default=default, metadata={"help": help, "verbs": tuple(verbs), "flag": flag, "first": first})


# what each value must be: a test, the words for it, and the fix
_LIMITS: Mapping[str, tuple[Callable[[Any], bool], str, str]] = {
    "steps": (lambda value: value >= 1, f"1 to {LARGEST:,}", ""),
    "split_seed": (lambda value: value >= 0, "at least 0", "use split_seed=0"),
    "eval_every": (lambda value: value >= 1, "at least 1", ""),
    "held_out": (lambda value: 0.0 <= value < 1.0, "a share of the episodes in [0, 1)", "use 0.2"),
    "selection_share": (lambda value: 0.0 < value <= 1.0, "a share of the held-out episodes in (0, 1]", "use 0.25"),
    "data_share": (lambda value: 0.0 < value <= 1.0, "a share of the training episodes in (0, 1]", "use 0.5"),
    "scale": (lambda value: value in ("standard", "none"), "'standard' or 'none'", ""),
    "vmap": (lambda value: value is None or isinstance(value, bool), "True, False or None", ""),
    "save_seconds": (lambda value: value >= 0.0, "0 or more seconds between checkpoints", ""),
    "keep_checkpoints": (lambda value: value >= 1, "at least 1 checkpoint", ""),
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Everything about a run except the algorithm and the log or environment; ConfigError for invalid values."""

    steps: int = option(help="updates per seed (fit) or decisions per seed (learn, finetune)", flag=int, first=True)
    seeds: tuple[int, ...] = option(
        help="number of seeds that train side by side", verbs=("fit", "learn"), flag=int, first=True
    )
    eval_every: int = option(
        help="updates (fit) or decisions (learn, finetune) between reports; default: 50 reports per run, 20 over "
        "interactions",
        flag=int | None,
    )
    evaluate: Mapping[str, int] = option(
        None,
        help="environments for evaluation at every report, as NAME=EPISODES; sampled:NAME=EPISODES samples the actions",
        flag=tuple[Annotated[str, "NAME=EPISODES"], ...],
    )
    own_evaluators: tuple[str, ...] = option((), help="names of the user's own functions of the policy in reports")
    best_metric: str | None = option(
        None, help="keep the policy at the best report of this metric", flag=Annotated[str, "METRIC"] | None
    )
    patience: int | None = option(
        None, help="stop after this many reports without improvement (needs best_metric)", flag=int | None
    )
    held_out: float = option(
        0.0,
        help="share of the episodes for validation losses and judging; 0: none",
        verbs=("fit",),
        flag=float,
        first=True,
    )
    selection_share: float = option(
        1.0,
        help="share of the held-out episodes, or users, that choose the policy with best_metric=held_out/...; only the "
        "others can judge it; default: 0.25 of episodes or 0.5 of users if that leaves at least 100, else 1",
        verbs=("fit",),
        flag=float | None,
    )
    data_share: float = option(
        1.0,
        help="share of the training episodes that are read, chosen by the seed of the split",
        verbs=("fit",),
        flag=float,
    )
    split_seed: int = option(0, help="seed of the split into training and held-out episodes", verbs=("fit",), flag=int)
    scale: Scale = option(  # noqa: RUF009 (a field)
        "none",
        help="standardise numeric features (default), or none",
        verbs=("fit",),
        flag=Scale | None,
    )
    warm_start: Mapping[str, str] | None = option(
        None,
        help="start parts from other runs, as PART=RUN",
        verbs=("fit",),
        flag=tuple[Annotated[str, "PART=RUN"], ...],
    )
    log_out: str | None = option(
        None,
        help="write all collected decisions as a log, with propensities where the policy has a density; the policy "
        "changes meanwhile: `tidelog collect` writes the log of one policy, as verdicts need it",
        verbs=("learn", "finetune"),
        flag=Annotated[str, "FOLDER"] | None,
    )
    offline: float | None = option(
        None, help="share of a minibatch that comes from the log; default: 0.5", verbs=("finetune",), flag=float | None
    )
    updates: float | None = option(
        None, help="updates per decision; default: 1", verbs=("finetune",), flag=float | None
    )
    collect_every: int | None = option(
        None, help="decisions between updates; default: 10", verbs=("finetune",), flag=int | None
    )
    restart_schedules: bool | None = option(
        None, help="restart the learning-rate schedules; default: constant rates", verbs=("finetune",), flag=bool
    )
    stop_after: int | None = option(
        None, help="updates after which a refit ends, on schedules of `steps` updates", verbs=()
    )
    save_seconds: float = option(30.0, help="seconds between two checkpoints", flag=float)
    keep_checkpoints: int = option(3, help="number of checkpoints in the run folder")
    vmap: bool | None = option(None, help="members under one vmap; default: on accelerators")

    devices: int | Mapping[str, int] | None = option(
        None,
        help="spread the members over N devices (on CPU: cores), each with a copy of the data; or members=M batch=N: "
        "over M groups of N devices that share each batch; default: one",
        verbs=("fit", "learn"),
        flag=tuple[Annotated[str, "N|AXIS=N"], ...],
    )

    def __post_init__(self) -> None:
        for name in ("steps", "eval_every", "split_seed", "keep_checkpoints", "patience", "stop_after"):
            if getattr(self, name) is not None or name not in ("patience", "stop_after"):
                object.__setattr__(self, name, whole(name, getattr(self, name)))
                if abs(getattr(self, name)) > LARGEST:
                    raise ConfigError(f"{name} = {getattr(self, name)}", f"at most {LARGEST:,}")
        for name in ("held_out", "selection_share", "data_share", "save_seconds"):
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        for name, (allows, expected, fix) in _LIMITS.items():
            if not allows(getattr(self, name)):
                raise ConfigError(f"{name} = {getattr(self, name)!r}", expected, fix)
        if self.stop_after is not None and not 1 <= self.stop_after <= self.steps:
            raise ConfigError(f"stop_after = {self.stop_after}", f"1 to the {self.steps:,} steps")
        if self.patience is not None and (self.best_metric is None or self.patience < 1):
            raise ConfigError(f"patience = {self.patience}: patience needs best_metric= and must be at least 1")
        object.__setattr__(self, "evaluate", dict(self.evaluate or {}))
        object.__setattr__(self, "seeds", as_seeds(list(self.seeds)))
        if len(set(self.seeds)) != len(self.seeds) or not self.seeds:
            raise ConfigError(f"seeds = {list(self.seeds)}", "at least one seed, each once", "use seeds=5")
        if self.devices is not None:
            object.__setattr__(self, "devices", _devices(self.devices))

    @property
    def last(self) -> int:
        """The number of steps at which training ends."""
        return self.steps if self.stop_after is None else self.stop_after


def options_of(verb: str) -> list[Any]:
    """Return the fields of `Options` that a verb takes."""
    return [one for one in fields(Options) if verb in one.metadata["verbs"] and one.name != "own_evaluators"]


class RunOptions(TypedDict, total=False):
    """Keywords of every verb that trains."""

    eval_every: int | None
    best_metric: str | None
    patience: int | None
    save_seconds: float
    keep_checkpoints: int
    vmap: bool | None


class LogOptions(RunOptions, total=False):
    """Keywords of `fit` and `sweep`."""

    held_out: float
    selection_share: float | None
    split_seed: int
    scale: Scale | None
    warm_start: Mapping[str, str | Path] | None


class FitOptions(LogOptions, total=False):
    """Keywords of `fit`."""

    evaluate: Mapping[str, Evaluator] | None
    data_share: float
    devices: int | Mapping[str, int] | None


class LearnOptions(RunOptions, total=False):
    """Keywords of `learn`."""

    evaluate: Mapping[str, Evaluator] | None
    log_out: str | Path | None
    devices: int | Mapping[str, int] | None


class FinetuneOptions(RunOptions, total=False):
    """Keywords of `finetune`."""

    evaluate: Mapping[str, Evaluator] | None
    log_out: str | Path | None
    offline: float
    updates: float
    collect_every: int
    restart_schedules: bool


class SweepOptions(LogOptions, total=False):
    """Keywords of `sweep`."""

    evaluate: Mapping[str, int] | None
    data_share: float | Sequence[float]
    cpus: int
    workers: int | None
    insecure: bool


# keywords of `sweep` about its processes: help, as flags show it too, and default
OF_SWEEPS: Mapping[str, tuple[str, Any]] = {
    "cpus": ("processor cores of each trial", 1),
    "workers": ("trials at the same time; default: as many as there are cores for", None),
    "insecure": ('with on="ray": also use a cluster that requires no token', False),
}


IN_PYTHON = {  # what a keyword takes where its flag is written otherwise
    "evaluate": "a mapping from environments to episodes of evaluation at every report (`sampled:NAME` samples the "
    "actions), and from names of your own to functions of the policy; those of `sweep` are environments",
    "warm_start": "a mapping from parts of the state to the runs that they start from",
    "devices": "N devices (on CPU: cores) over which the members are spread, each with a copy of the data, or "
    '{"members": M, "batch": N}: M groups of N devices that share each batch; default: one',
}


def _describe(keywords: Any) -> None:
    """Add the help of each keyword, and a default that the help does not name, to its dictionary's docstring."""
    described = {one.name: (one.metadata["help"], one.default) for one in fields(Options)} | dict(OF_SWEEPS)
    described |= {name: (text, None) for name, text in IN_PYTHON.items()}
    lines = []
    for name in keywords.__annotations__:
        text, default = described[name]
        default = 0.2 if (name, keywords) == ("held_out", SweepOptions) else default
        shown = default not in (None, MISSING) and "default:" not in text and "(default)" not in text
        lines.append(f"- ``{name}``{f' = ``{default}``' if shown else ''}: {text}")
    keywords.__doc__ = "\n".join([keywords.__doc__, "", *lines])


OF_VERBS = {"fit": FitOptions, "learn": LearnOptions, "finetune": FinetuneOptions, "sweep": SweepOptions}
for _keywords in OF_VERBS.values():
    _describe(_keywords)


def option_values(
    verb: str, keywords: Any, options: Mapping[str, Any], steps: int, least: int = 1, reports: int = REPORTS, **own: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of `Options` from the keywords of a verb, and the user's own evaluators.

    ConfigError, with the nearest one, for an option that is none of the verb's `keywords`. `own` replaces options;
    `least` and `reports` are those of `reports_every`.
    """
    known = keywords.__annotations__
    for name in options:
        if name not in known:
            if RENAMED.get(name) in known:
                raise ConfigError(f"{verb} has no option '{name}'", fix=f"write {RENAMED[name]}")
            where = f"help(tidelog.training.options.{keywords.__name__}) describes all of them"
            others = [verb for verb, other in OF_VERBS.items() if name in other.__annotations__]
            if others:
                raise ConfigError(f"{verb} has no option '{name}', {' and '.join(others)} have one", fix=where)
            raise unknown_name(verb, "option", name, {**known, **own}, where)
    episodes, functions = evaluators(options.get("evaluate") or {})
    every = reports_every(options.get("eval_every"), steps, least, reports)
    made = {"steps": steps, "eval_every": every, "evaluate": episodes, "own_evaluators": tuple(functions)}
    return {**options, **made, **own}, functions


def reports_every(every: int | None, steps: int, least: int = 1, reports: int = REPORTS) -> int:
    """Return the steps between two reports: `eval_every`, or `reports` per run, at least `least` steps between them."""
    return max(least, whole("steps", steps) // reports) if every is None else every


def as_seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """Return the seeds of a run: `5` means 0 to 4, a list stays as it is."""
    if isinstance(seeds, Sequence) and not isinstance(seeds, str):
        numbers = tuple(whole("seeds", seed) for seed in seeds)
        for seed in numbers:
            if not 0 <= seed <= LARGEST:
                raise ConfigError(f"seeds: {seed} is outside the range", f"0 to {LARGEST:,}")
        return numbers
    count = whole("seeds", seeds)
    if not 1 <= count <= MOST_SEEDS:
        raise ConfigError(f"seeds = {count}", f"1 to {MOST_SEEDS:,}")
    return tuple(range(count))


def whole(name: str, value: Any) -> int:
    """Return a whole number as an int; ConfigError with that name for anything else."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ConfigError(f"{name} = {value!r}", "a whole number")
    return int(value)


def _devices(value: Any) -> int | dict[str, int]:
    """Return the number of devices for members, or, where several share a batch, the numbers of both axes."""
    axes = value if isinstance(value, Mapping) else {"members": value}
    if not axes or not set(axes) <= {"members", "batch"}:
        raise ConfigError(
            f"devices = {value!r}",
            "a number, or numbers of members and batch",
            "use devices={'members': 4, 'batch': 2}, on the command line --devices members=4 batch=2",
        )
    numbers = {"members": 1, "batch": 1} | {axis: whole("devices", number) for axis, number in axes.items()}
    if not 1 <= min(numbers.values()) <= max(numbers.values()) <= LARGEST:
        raise ConfigError(f"devices = {value}", "at least 1", "leave it out for one")
    return numbers["members"] if numbers["batch"] == 1 else numbers


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ConfigError(f"{name} = {value!r}", "a number")
    return float(value)


# Conversions of arguments that are no options.


def evaluators(evaluate: Mapping[str, Evaluator]) -> tuple[dict[str, int], dict[str, Any]]:
    """Split `evaluate` into episodes by environment and the user's own functions; ConfigError for a number below 1."""
    if not isinstance(evaluate, Mapping):
        raise ConfigError(f"evaluate = {evaluate!r}", "{environment: episodes} or {name: function}")
    own = {name: value for name, value in evaluate.items() if callable(value)}
    episodes = {name: whole(f"evaluate['{name}']", value) for name, value in evaluate.items() if name not in own}
    for name, count in episodes.items():
        if count < 1:
            raise ConfigError(f"evaluate['{name}'] = {count}", "at least 1 episode", "use 10")
    return episodes, own


def as_path(name: str, value: Any) -> Path | None:
    """Return a path, or None; ConfigError with that name if it is no path."""
    if value is not None and not isinstance(value, str | Path):
        raise ConfigError(f"{name} = {value!r}", "a path")
    return None if value is None else Path(value)
