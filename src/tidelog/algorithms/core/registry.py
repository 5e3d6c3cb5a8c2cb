"""The table of algorithm names, and the decorator that adds an algorithm to it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, TypeVar

from tidelog.algorithms.core.short_form import complete
from tidelog.errors import ConfigError

C = TypeVar("C", bound=type[Any])

ALGORITHMS: dict[str, type[Any]] = {}
CONFIGURATIONS: dict[str, tuple[type[Any], dict[str, Any]]] = {}  # other names: a class and fixed settings


def register(name: str) -> Callable[[C], C]:
    """Add a class of hyper-parameters to the algorithms, under a name for files and the command line.

    Methods that the class does not have are filled in (`short_form.py`). The decorator stands above
    `@hyperparameters`. Raises ConfigError for an invalid or taken name, and for a class that lacks a method.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ConfigError(
            f"register: the name '{name}' is invalid. fix: use lower-case words joined by -, such as td3-bc"
        )

    def add(cls: C) -> C:
        fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
        if not dataclasses.is_dataclass(cls) or any("leaf" not in field.metadata for field in fields):
            raise ConfigError(f"register: {cls.__name__} has no hyper-parameters. fix: put @hyperparameters below it")
        other = CONFIGURATIONS[name][0] if name in CONFIGURATIONS else ALGORITHMS.get(name)
        if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ConfigError(
                f"register: the name '{name}' already belongs to {other.__module__}.{other.__qualname__}. "
                "fix: choose another"
            )
        ALGORITHMS[name] = complete(name, cls)
        return cls

    return add


def configure(name: str, cls: type[Any], **settings: Any) -> None:
    """Add a name for a registered algorithm with fixed settings, such as PPO for one setting of PPG."""
    CONFIGURATIONS[name] = (cls, settings)
