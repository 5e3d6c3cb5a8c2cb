"""Flags of population-based training."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from tidelog.errors import ConfigError
from tidelog.training.runs.population import PopulationBasedTraining


@dataclass(kw_only=True)
class PopulationFlags:
    """Flags of population-based training of a run's seeds: all three of the first ones, or none."""

    population_every: int | None = None
    """updates between two exploits: the worst seeds copy good ones, and the numbers of --population-vary change"""
    population_metric: Annotated[str, "METRIC"] | None = None
    """the metric that compares the seeds, on held-out episodes that do not judge them: held_out/..."""
    population_vary: tuple[Annotated[str, "NAME"], ...] = ()
    """the numbers of the algorithm that change, such as learning_rate"""
    population_share: float = 0.2
    """the share of the seeds that copy others, and of those that are copied"""
    population_factors: tuple[float, ...] = (0.8, 1.25)
    """each copied number is multiplied by one of these"""


def population_of(flags: PopulationFlags) -> PopulationBasedTraining | None:
    """Return the settings in the flags; None without such flags, ConfigError if some of them are missing."""
    if flags == PopulationFlags():
        return None
    needed = ("population_every", "population_metric", "population_vary")
    missing = [f"--{name.replace('_', '-')}" for name in needed if getattr(flags, name) in (None, ())]
    if missing:
        raise ConfigError(
            f"population-based training needs {', '.join(missing)}. fix: use --population-every 1000 "
            "--population-metric held_out/imitation_loss --population-vary learning_rate"
        )
    return PopulationBasedTraining(**{name.removeprefix("population_"): value for name, value in asdict(flags).items()})


def as_flags(population: PopulationBasedTraining | None) -> dict[str, Any]:
    """Return settings as values of the flags; {} for None."""
    settings = {} if population is None else asdict(population)
    return {f"population_{name}": list(v) if isinstance(v, tuple) else v for name, v in settings.items()}
