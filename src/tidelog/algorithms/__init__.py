"""The algorithms, one page each, and the table of their names.

The loop and the commands find an algorithm here by name; they never mention one.
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
}  # known by a name of their own

RANKING: tuple[str, ...] = tuple(name for name, cls in ALGORITHMS.items() if hasattr(cls, "seek"))
OFFLINE: tuple[str, ...] = tuple(  # from logs of decisions
    name for name, cls in ALGORITHMS.items() if not hasattr(cls, "collection") and name not in RANKING
)

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


def configured(name: str) -> tuple[type[Any], dict[str, Any]]:
    """The class behind a name and the settings that the name stands for."""
    if name in CONFIGURATIONS:
        return CONFIGURATIONS[name]
    if name not in ALGORITHMS:
        raise ConfigError(f"no algorithm '{name}': {nearest(name, [*ALGORITHMS, *CONFIGURATIONS])}")
    return ALGORITHMS[name], {}


def learns_online(algorithm: Any) -> bool:
    """Whether an algorithm, or a class of them, learns in an environment and not from a log."""
    return hasattr(algorithm, "collection")


def ranks(algorithm: Any) -> bool:
    """Whether an algorithm, or a class of them, learns from interactions and ranks items."""
    return hasattr(algorithm, "seek")


def check_source(algorithm: Any, online: bool) -> None:
    """Raise SpecError unless the algorithm learns where it is asked to: in an environment, or from a log."""
    if learns_online(algorithm) == online:
        return
    ways = {False: "from a log, with tl.fit", True: "in an environment, with tl.learn"}
    able = [name for name, cls in ALGORITHMS.items() if learns_online(cls) == online]
    name = getattr(algorithm, "__name__", type(algorithm).__name__)
    raise SpecError(f"{name} learns {ways[not online]}; what learns {ways[online]}: {', '.join(able)}")


def check_fit(algorithm: Any, spec: Spec, what: str = "log") -> None:
    """Raise SpecError unless the algorithm takes the actions of this spec."""
    kind = type(spec.action)
    if kind in algorithm.takes:
        return
    able = [
        name for name, cls in ALGORITHMS.items() if kind in cls.takes and learns_online(cls) == learns_online(algorithm)
    ]
    wanted = " or ".join(k.__name__ for k in algorithm.takes)
    raise SpecError(
        f"{type(algorithm).__name__} acts on {wanted} actions, but this {what} has {kind.__name__} ones; "
        + (f"algorithms that take them: {', '.join(able)}" if able else NONE_TAKES)
    )
