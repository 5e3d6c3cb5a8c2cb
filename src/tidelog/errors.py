"""The exceptions of tidelog.

```
TidelogError
├── LogError             the log is not usable; holds the validation report
├── ConfigError          a setting is wrong (also a ValueError)
├── MemoryLimitError           the data of a run does not fit into memory
├── SpecError            the algorithm does not support the log or the environment
├── EnvironmentFailure   an environment violated its protocol during a step
├── CheckpointError      a checkpoint or a saved policy is corrupt, foreign or missing
├── ProcessError         another process of a training is lost; the run can be resumed
├── DivergenceError      a loss became NaN or infinite; the last good checkpoint is kept
└── ExportError          a policy cannot be written in the requested format
```

Each has `found`, what is wrong and where; `expected`; and `fix`, how to mend it. The last two may be empty.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterable
from typing import Any


class TidelogError(Exception):
    """The base class of all exceptions of tidelog: what was found, what was expected, and the fix.

    Example:
        >>> error = tl.ConfigError("expectile = 2", "a number between 0 and 1", "use 0.7")
        >>> error.problem, error.fix
        ('expectile = 2: expected a number between 0 and 1', 'use 0.7')
        >>> str(error)
        'expectile = 2: expected a number between 0 and 1. fix: use 0.7'
    """

    def __init__(self, found: str, expected: str = "", fix: str = "") -> None:
        super().__init__(found, expected, fix)
        self.found, self.expected, self.fix = found, expected, fix

    @property
    def problem(self) -> str:
        """What was found and what was expected, without the fix."""
        return f"{self.found}: expected {self.expected}" if self.expected else self.found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __str__(self) -> str:
        end = "" if self.problem.endswith(("?", ".")) else "."
        return f"{self.problem}{end} fix: {self.fix}" if self.fix else self.problem


class LogError(TidelogError):
    """The log is not usable; `report` (a `tidelog.data.raw.Report`) lists every problem with its rows."""

    def __init__(self, found: str, expected: str = "", fix: str = "", report: Any = None) -> None:
        super().__init__(found, expected, fix)
        self.report = report


class ConfigError(TidelogError, ValueError):
    """A setting is unknown, out of range, or contradicts another."""


class MemoryLimitError(TidelogError):
    """The data of a run does not fit into memory or onto the disk."""


class SpecError(TidelogError):
    """An algorithm does not support this kind of observation, action or reward."""


class EnvironmentFailure(TidelogError):
    """An environment returned an unusable value, or raised, during a step."""


class CheckpointError(TidelogError):
    """A checkpoint or saved policy is corrupt, foreign, incomplete or missing."""


class ProcessError(TidelogError):
    """Another process of a training is lost, or cannot be reached."""


class DivergenceError(TidelogError):
    """A loss became NaN or infinite during training."""


class ExportError(TidelogError):
    """A policy cannot be written in the requested format."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest the known name closest to a misspelt one, or list all known names."""
    known = sorted(known)
    by_letters = {one.lower(): one for one in reversed(known)}
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6) or [
        by_letters[one] for one in difflib.get_close_matches(name.lower(), by_letters, n=1, cutoff=0.6)
    ]
    return f"did you mean '{close[0]}'?" if close else f"known names: {', '.join(known)}"


def unknown_name(owner: str, kind: str, name: str, known: Iterable[str], fix: str = "") -> ConfigError:
    """Return the error, with the nearest known one, for a name of an option, array or setting that `owner` lacks."""
    return ConfigError(f"{owner} has no {kind} '{name}': {nearest(name, known)}", fix=fix)


def install(extra: str) -> str:
    """Return the command that installs the packages of an extra, by their own names."""
    from importlib import metadata

    try:
        needed = [line.split(";") for line in metadata.requires("tidelog") or ()]
    except metadata.PackageNotFoundError:  # run from its source, without an installation
        return f"install tidelog with its extra: pip install -e '.[{extra}]'"
    of_extra = re.compile(rf"""extra *== *["']{extra}["']""")
    names = [name.strip() for name, *marker in needed if marker and of_extra.search(marker[-1])]
    return f"pip install {' '.join(repr(name) for name in names)}"


def import_extra(package: str, extra: str) -> Any:
    """Import a package of an extra; ConfigError with the command that installs it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(f"this needs the package {package} ({error})", fix=install(extra)) from None
