"""The benchmarked algorithms with their settings, and plain loops for comparison. Letters: `B` batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidelog.algorithms import algorithm_class, names
from tidelog.algorithms.discrete_bcq import DiscreteBCQ
from tidelog.bench.plain import discrete_bcq_loop
from tidelog.data.log import Log
from tidelog.errors import ConfigError, nearest
from tidelog.types import Continuous

Loop = Callable[[int], None]  # runs that many updates


@dataclass(frozen=True)
class Entry:
    """An algorithm, and optionally the same updates as a plain compiled loop."""

    algorithm: Any
    plain: Callable[[Log, Any], Loop] | None = None

    @property
    def discrete(self) -> bool:
        """Whether its benchmark log has discrete actions."""
        return Continuous not in self.algorithm.takes


ENTRIES: dict[str, Entry] = {name: Entry(algorithm_class(name)()) for name in names("a log")} | {
    "discrete-bcq": Entry(DiscreteBCQ(), discrete_bcq_loop),
    "discrete-bcq-1024": Entry(DiscreteBCQ(batch_size=1024), discrete_bcq_loop),
}


def entry_of(name: str) -> Entry:
    """Return the entry of that name, or raise ConfigError with the nearest one."""
    if name not in ENTRIES:
        raise ConfigError(f"no benchmark '{name}': {nearest(name, ENTRIES)}")
    return ENTRIES[name]
