"""What a run was asked to do, as one value that is written into its folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any

from tidelog.errors import ConfigError
from tidelog.training.engine.trainer import Member

Evaluator = int | Callable[[Any], float]


MOST = 2**31 - 1  # updates are counted in 32 bits
MOST_SEEDS = 10_000


@dataclass(frozen=True)
class Settings:
    """Everything but the algorithm and the log; ConfigError where it contradicts itself."""

    steps: int
    seeds: tuple[int, ...]
    every: int  # updates between two reports
    held_out: float = 0.0  # share of episodes kept from training
    split_seed: int = 0
    scale: bool = False  # whether numeric features are standardised
    best: str | None = None  # the metric that picks the best policy
    patience: int | None = None  # reports without a better `best` before the run stops
    episodes: Mapping[str, int] | None = None  # environment -> episodes played at every report
    own_evaluators: tuple[str, ...] = ()
    save_seconds: float = 30.0  # time between two checkpoints
    keep: int = 3  # checkpoints kept
    together: bool | None = None  # members under one vmap; None: where there is an accelerator
    ahead: bool = False  # whether a thread plays one round before what it plays is learnt from
    phase_buffer: str = "device"  # where segments wait between phases: device, host or disk
    phase_buffer_limit: float | None = None  # GB beyond which a run is refused

    def __post_init__(self) -> None:
        for name in ("steps", "every", "split_seed", "keep", *(("patience",) if self.patience is not None else ())):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        limited = ("phase_buffer_limit",) if self.phase_buffer_limit is not None else ()
        for name in ("held_out", "save_seconds", *limited):
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        if not 1 <= self.steps <= MOST:
            raise ConfigError(f"steps = {self.steps}: a run takes 1 to {MOST:,} updates")
        if self.every < 1:
            raise ConfigError(f"every = {self.every}: reports are at least 1 update apart")
        if len(set(self.seeds)) != len(self.seeds) or not self.seeds:
            raise ConfigError(f"seeds = {list(self.seeds)}: give at least one, each once")
        if not 0.0 <= self.held_out < 1.0:
            raise ConfigError(f"held_out = {self.held_out}: expected a share of the episodes in [0, 1)")
        if self.patience is not None and (self.best is None or self.patience < 1):
            raise ConfigError(
                "patience counts reports without a better `best`: name the metric in best, and at least 1"
            )
        if not isinstance(self.ahead, bool):
            raise ConfigError(f"ahead = {self.ahead!r}: expected true or false")
        if self.together is not None and not isinstance(self.together, bool):
            raise ConfigError(f"together = {self.together!r}: expected true, false or nothing")
        if not self.save_seconds >= 0.0:
            raise ConfigError(f"save_seconds = {self.save_seconds}: expected 0 or more between checkpoints")
        if self.keep < 1:
            raise ConfigError(f"keep = {self.keep}: at least 1 checkpoint has to stay")

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` reads back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Settings:
        """Rebuild from `to_json`."""
        lists = {name: tuple(data[name]) for name in ("seeds", "own_evaluators")}
        return cls(**{**data, **lists})


def as_seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """`5` means the seeds 0 to 4, a list means itself."""
    if isinstance(seeds, Sequence) and not isinstance(seeds, str):
        listed = tuple(whole("seeds", seed) for seed in seeds)
        for seed in listed:
            if not 0 <= seed <= MOST:
                raise ConfigError(f"seeds: {seed} is not between 0 and {MOST:,}")
        return listed
    count = whole("seeds", seeds)
    if not 1 <= count <= MOST_SEEDS:
        raise ConfigError(f"seeds = {count}: expected 1 to {MOST_SEEDS:,}")
    return tuple(range(count))


def whole(name: str, value: Any) -> int:
    """A whole number as an int, or ConfigError under that name."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ConfigError(f"{name} = {value!r}: expected a whole number")
    return int(value)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ConfigError(f"{name} = {value!r}: expected a number")
    return float(value)


def as_members(algorithms: Sequence[Any], seeds: Sequence[int]) -> list[Member]:
    """Every algorithm of a population with every seed."""
    pairs = [(algorithm, seed) for algorithm in algorithms for seed in seeds]
    return [Member(i, algorithm, seed) for i, (algorithm, seed) in enumerate(pairs)]
