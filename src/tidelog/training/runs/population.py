"""The settings of population-based training (PBT), Jaderberg et al. 2017, arXiv:1711.09846."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real

from tidelog.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class PopulationBasedTraining:
    """Population-based training of the members of one run (Jaderberg et al. 2017, arXiv:1711.09846).

    At every multiple of `every` updates the worst `share` of the members by `metric` (at least one) copy members of the
    best `share`: networks, optimiser states and numbers (exploit). The numbers named by `vary` are then multiplied by
    one of `factors` each (explore); one that would leave its range stays. ConfigError for invalid values.

    Example:
        >>> log = tl.collect("treatment", episodes=40, seed=0)
        >>> pbt = tl.PopulationBasedTraining(every=50, metric="held_out/imitation_loss", vary=("learning_rate",))
        >>> run = tl.fit(tl.BC(hidden=(16,)), log, steps=100, seeds=4, held_out=0.5, population=pbt)
        >>> [copy.update for copy in run.copies]
        [50]
    """

    every: int
    metric: str
    vary: tuple[str, ...]
    share: float = 0.2
    factors: tuple[float, ...] = (0.8, 1.25)

    def __post_init__(self) -> None:
        if isinstance(self.every, bool) or not isinstance(self.every, Integral) or self.every < 1:
            raise ConfigError(f"population.every = {self.every!r}: expected a whole number of updates. fix: use 1_000")
        if not isinstance(self.metric, str):
            raise ConfigError(f"population.metric = {self.metric!r}: expected the name of a metric")
        vary = (self.vary,) if isinstance(self.vary, str) else self.vary
        if not isinstance(vary, tuple | list) or not vary or not all(isinstance(name, str) for name in vary):
            raise ConfigError(
                f"population.vary = {self.vary!r}: expected names of hyper-parameters. fix: use vary=('learning_rate',)"
            )
        if len(set(vary)) < len(vary):
            raise ConfigError(f"population.vary = {list(vary)}: a name is there twice. fix: name each once")
        if isinstance(self.share, bool) or not isinstance(self.share, Real) or not 0.0 < self.share <= 0.5:
            raise ConfigError(
                f"population.share = {self.share!r}: expected a share of the members in (0, 0.5], so that none is both "
                "copied and replaced. fix: use share=0.2"
            )
        factors = self.factors if isinstance(self.factors, tuple | list) else ()
        good = [isinstance(one, Real) and not isinstance(one, bool) and 0.0 < one < math.inf for one in factors]
        if not factors or not all(good):
            raise ConfigError(
                f"population.factors = {self.factors!r}: expected numbers above 0. fix: use factors=(0.8, 1.25)"
            )
        object.__setattr__(self, "every", int(self.every))
        object.__setattr__(self, "vary", tuple(vary))
        object.__setattr__(self, "share", float(self.share))
        object.__setattr__(self, "factors", tuple(float(one) for one in factors))
