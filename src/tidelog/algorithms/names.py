"""The table of all algorithms by name.

The training loop and the commands find an algorithm by its name in this table.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tidelog.algorithms import (  # noqa: F401  # each registers its name
    bc,
    bcq,  # each registers its name
    cql,
    discrete_bcq,
    discrete_cql,
    fql,
    iql,
    off_policy_ppg,
    ppg,
    rebrac,
    td3_bc,
)
from tidelog.algorithms.contract import Algorithm
from tidelog.algorithms.part import PolicyPart
from tidelog.algorithms.short_form import ALGORITHMS, CONFIGURATIONS
from tidelog.algorithms.short_form import algorithm as algorithm  # `tl.algorithm`: here all built-in names are taken
from tidelog.errors import ConfigError, SpecError, nearest
from tidelog.recommend import recommender_bcq  # noqa: F401  # registers its name
from tidelog.types import MultiDiscrete, Spec

PART = "part"  # of a policy; a verdict forms it, and nothing trains it
JOIN = "join them into one column, one value per combination"


def as_algorithms(algorithm: Any) -> list[Any]:
    """Return one or several algorithms as a list; ConfigError for anything else."""
    algorithms = list(algorithm) if isinstance(algorithm, list | tuple) else [algorithm]
    if not algorithms:
        raise ConfigError("algorithm: found an empty list", "at least one algorithm", "pass tl.IQL()")
    for one in algorithms:
        if isinstance(one, type):
            raise ConfigError(f"algorithm: {one.__name__} is a class", "an instance", f"pass {one.__name__}()")
        if not isinstance(one, Algorithm):
            raise ConfigError(f"algorithm = {one!r}", "an algorithm or a list of them", "pass tl.IQL()")
    return algorithms


def algorithm_name(algorithm: Any) -> str:
    """Return the name of an algorithm in files and on the command line."""
    for name, cls in {**ALGORITHMS, PART: PolicyPart}.items():
        if type(algorithm) is cls:
            return name
    return type(algorithm).__name__


def shown_name(algorithm: Any) -> str:
    """Return the name of an algorithm for people: that of its configuration, such as "ppo", where it has one."""
    for name, (cls, settings) in CONFIGURATIONS.items():
        if type(algorithm) is cls:
            named = cls(**settings)
            if all(getattr(algorithm, key) == getattr(named, key) for key in settings):
                return name
    return algorithm_name(algorithm)


def algorithm_class(name: str) -> type[Any]:
    """Return the class of a name; ConfigError names the nearest known name."""
    if name not in ALGORITHMS:
        raise ConfigError(
            f"no algorithm '{name}': {nearest(name, ALGORITHMS)}",
            fix="for an algorithm of your own, import its module first; on the command line, add --plugin MODULE",
        )
    return ALGORITHMS[name]


def configured(name: str) -> tuple[type[Any], dict[str, Any]]:
    """Return the class of a name and the settings that the name stands for."""
    return CONFIGURATIONS[name] if name in CONFIGURATIONS else (algorithm_class(name), {})


def names(source: str | None = None) -> list[str]:
    """Return all names, or those that learn from "a log", "an environment" or "interactions"."""
    return [name for name in (*ALGORITHMS, *CONFIGURATIONS) if source in (None, source_of(configured(name)[0]))]


def source_of(algorithm: Any) -> str:
    """Return what an algorithm or its class learns from: "a log", "an environment" or "interactions"."""
    return "an environment" if learns_online(algorithm) else "interactions" if ranks(algorithm) else "a log"


def load_plugin(module: str, source: str = "--plugin") -> None:
    """Import a module that registers algorithms; ConfigError where it does not exist or raises."""
    try:
        import_module(module)
    except Exception as error:  # whatever another author's module raises
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"{source}: importing {module} failed: {type(error).__name__}: {error}",
            fix="correct the module, or run where Python finds it",
        ) from error


def learns_online(algorithm: Any) -> bool:
    """Return whether an algorithm or its class learns in an environment rather than from a log."""
    return hasattr(algorithm, "collection")


def ranks(algorithm: Any) -> bool:
    """Return whether an algorithm or its class learns from interactions and ranks items."""
    return hasattr(algorithm, "queries")


def check_source(algorithm: Any, online: bool) -> None:
    """Raise SpecError unless the algorithm learns from the requested source: an environment or a log."""
    if learns_online(algorithm) == online:
        return
    ways = {False: "from a log, with tl.fit", True: "in an environment, with tl.learn"}
    name = getattr(algorithm, "__name__", type(algorithm).__name__)
    known = names("an environment") if online else [*names("a log"), *names("interactions")]
    raise SpecError(
        f"{name} learns {ways[not online]}", fix=f"use an algorithm that learns {ways[online]}: {', '.join(known)}"
    )


def check_fit(algorithm: Any, spec: Spec, what: str = "log") -> None:
    """Raise SpecError unless the algorithm supports the actions of this spec."""
    kind = type(spec.action)
    if kind in algorithm.takes:
        return
    online = learns_online(algorithm)
    known = [one for one in names() if kind in configured(one)[0].takes and learns_online(configured(one)[0]) == online]
    supported = " or ".join(k.__name__ for k in algorithm.takes)
    found = f"{type(algorithm).__name__} requires {supported} actions, but this {what} has {kind.__name__} actions"
    joined = f", or {JOIN}" if kind is MultiDiscrete else ""
    raise SpecError(found, fix=f"use an algorithm that supports them: {', '.join(known)}{joined}")
