"""The algorithms, one page each, and the table of their names.

The training loop and the commands find an algorithm by its name in this table.
"""

from __future__ import annotations

from typing import Any

from tidelog.algorithms.bc import BC
from tidelog.algorithms.bcq import BCQ
from tidelog.algorithms.discrete_bcq import DiscreteBCQ
from tidelog.algorithms.iql import IQL
from tidelog.algorithms.off_policy_ppg import OffPolicyPPG
from tidelog.algorithms.ppg import PPG, PPO_SETTINGS
from tidelog.errors import ConfigError, SpecError, nearest
from tidelog.recommend.recommender_bcq import RecommenderBCQ
from tidelog.types import Spec

ALGORITHMS: dict[str, type[Any]] = {
    "iql": IQL,
    "bc": BC,
    "bcq": BCQ,
    "discrete-bcq": DiscreteBCQ,
    "recommender-bcq": RecommenderBCQ,
    "ppg": PPG,
    "off-policy-ppg": OffPolicyPPG,
}
CONFIGURATIONS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "ppo": (PPG, PPO_SETTINGS)
}  # names of algorithms with fixed settings

RANKING: tuple[str, ...] = tuple(name for name, cls in ALGORITHMS.items() if hasattr(cls, "seek"))
OFFLINE: tuple[str, ...] = tuple(  # learn from logs of decisions
    name for name, cls in ALGORITHMS.items() if not hasattr(cls, "collection") and name not in RANKING
)

NONE_TAKES = "no algorithm supports several choices at once. fix: join them into one column, one value per combination"


def algorithm_name(algorithm: Any) -> str:
    """Return the name of an algorithm in files and on the command line."""
    for name, cls in ALGORITHMS.items():
        if type(algorithm) is cls:
            return name
    return type(algorithm).__name__


def algorithm_class(name: str) -> type[Any]:
    """Return the class of a name; ConfigError names the nearest known name."""
    if name not in ALGORITHMS:
        raise ConfigError(f"no algorithm '{name}': {nearest(name, ALGORITHMS)}")
    return ALGORITHMS[name]


def configured(name: str) -> tuple[type[Any], dict[str, Any]]:
    """Return the class of a name and the settings that the name stands for."""
    if name in CONFIGURATIONS:
        return CONFIGURATIONS[name]
    if name not in ALGORITHMS:
        raise ConfigError(f"no algorithm '{name}': {nearest(name, [*ALGORITHMS, *CONFIGURATIONS])}")
    return ALGORITHMS[name], {}


def learns_online(algorithm: Any) -> bool:
    """Return whether an algorithm or its class learns in an environment rather than from a log."""
    return hasattr(algorithm, "collection")


def ranks(algorithm: Any) -> bool:
    """Return whether an algorithm or its class learns from interactions and ranks items."""
    return hasattr(algorithm, "seek")


def check_source(algorithm: Any, online: bool) -> None:
    """Raise SpecError unless the algorithm learns from the requested source: an environment or a log."""
    if learns_online(algorithm) == online:
        return
    ways = {False: "from a log, with tl.fit", True: "in an environment, with tl.learn"}
    names = [name for name, cls in ALGORITHMS.items() if learns_online(cls) == online]
    name = getattr(algorithm, "__name__", type(algorithm).__name__)
    raise SpecError(
        f"{name} learns {ways[not online]}. fix: use an algorithm that learns {ways[online]}: {', '.join(names)}"
    )


def check_fit(algorithm: Any, spec: Spec, what: str = "log") -> None:
    """Raise SpecError unless the algorithm supports the actions of this spec."""
    kind = type(spec.action)
    if kind in algorithm.takes:
        return
    names = [
        name for name, cls in ALGORITHMS.items() if kind in cls.takes and learns_online(cls) == learns_online(algorithm)
    ]
    supported = " or ".join(k.__name__ for k in algorithm.takes)
    raise SpecError(
        f"{type(algorithm).__name__} requires {supported} actions, but this {what} has {kind.__name__} actions. "
        + (f"fix: use an algorithm that supports them: {', '.join(names)}" if names else NONE_TAKES)
    )
