"""What is measured: algorithms at settings of their own, and plain loops beside them. Letters: `B` batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidelog.algorithms import ALGORITHMS, OFFLINE
from tidelog.algorithms.discrete_bcq import DiscreteBCQ
from tidelog.bench.plain import discrete_bcq_loop
from tidelog.data.log import Log
from tidelog.errors import ConfigError, nearest
from tidelog.types import Continuous

Loop = Callable[[int], None]  # takes that many updates


@dataclass(frozen=True)
class Entry:
    """An algorithm, and perhaps the same updates as anyone would write them down in a compiled loop."""

    algorithm: Any
    plain: Callable[[Log, Any], Loop] | None = None

    @property
    def discrete(self) -> bool:
        """Whether it is measured on a log of discrete actions."""
        return Continuous not in self.algorithm.takes


ENTRIES: dict[str, Entry] = {name: Entry(ALGORITHMS[name]()) for name in OFFLINE} | {
    "discrete-bcq": Entry(DiscreteBCQ(), discrete_bcq_loop),
    "discrete-bcq-1024": Entry(DiscreteBCQ(batch_size=1024), discrete_bcq_loop),
}


def entry_of(name: str) -> Entry:
    """The entry of that name, or ConfigError with the nearest one."""
    if name not in ENTRIES:
        raise ConfigError(f"nothing to measure is called '{name}': {nearest(name, ENTRIES)}")
    return ENTRIES[name]
