"""The algorithms, one page each, and the table of their names.

The loop and the commands find an algorithm here by name; they never mention one.
"""

from __future__ import annotations

from typing import Any

from tidelog.algorithms.bc import BC
from tidelog.algorithms.bcq import BCQ
from tidelog.algorithms.discrete_bcq import DiscreteBCQ
from tidelog.algorithms.iql import IQL
from tidelog.errors import ConfigError, SpecError, nearest
from tidelog.types import Spec

ALGORITHMS: dict[str, type[Any]] = {"iql": IQL, "bc": BC, "bcq": BCQ, "discrete-bcq": DiscreteBCQ}

NONE_TAKES = "no algorithm takes several choices at once: make one column of them, a word for every combination"


def algorithm_name(algorithm: Any) -> str:
    """The name of an algorithm in files and on the command line."""
    for name, cls in ALGORITHMS.items():
        if type(algorithm) is cls:
            return name
    return type(algorithm).__name__


def algorithm_class(name: str) -> type[Any]:
    """The class behind a name, or ConfigError with the nearest one."""
    if name not in ALGORITHMS:
        raise ConfigError(f"no algorithm '{name}': {nearest(name, ALGORITHMS)}")
    return ALGORITHMS[name]


def check_fit(algorithm: Any, spec: Spec) -> None:
    """Raise SpecError unless the algorithm takes the actions of this spec."""
    kind = type(spec.action)
    if kind in algorithm.takes:
        return
    able = [name for name, cls in ALGORITHMS.items() if kind in cls.takes]
    wanted = " or ".join(k.__name__ for k in algorithm.takes)
    raise SpecError(
        f"{type(algorithm).__name__} acts on {wanted} actions, but this log has {kind.__name__} ones; "
        + (f"algorithms that take them: {', '.join(able)}" if able else NONE_TAKES)
    )
