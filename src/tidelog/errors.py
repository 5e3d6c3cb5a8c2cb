"""Everything that tidelog raises on purpose.

```
TidelogError
├── LogError             the log is not usable; carries the validation report
├── ConfigError          a setting is wrong (also a ValueError)
├── SpaceError           what a run would keep does not fit where it is to lie
├── SpecError            algorithm and log, or algorithm and environment, do not fit
├── EnvironmentFailure   an environment broke its promises while it was stepped
├── CheckpointError      a checkpoint or a saved policy is corrupt, foreign or missing
├── DivergenceError      a loss became NaN or infinite; the last good checkpoint is kept
└── ExportError          a policy cannot be written in the form that was asked for
```

Each message says what was found, where, what was expected, and what to do about it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class TidelogError(Exception):
    """The root of the tree: catch it to catch all of them."""


class LogError(TidelogError):
    """The log is not usable; `report` (a `tidelog.data.Report`) lists every problem with its rows."""

    def __init__(self, message: str, report: Any = None) -> None:
        super().__init__(message)
        self.report = report


class ConfigError(TidelogError, ValueError):
    """A setting is unknown, out of range, or contradicts another."""


class SpaceError(TidelogError):
    """What a run would keep does not fit into the memory or onto the disk where it is to lie."""


class SpecError(TidelogError):
    """An algorithm cannot take this kind of observation, action or reward."""


class EnvironmentFailure(TidelogError):
    """An environment returned something unusable, or raised, while it was stepped."""


class CheckpointError(TidelogError):
    """A checkpoint or saved policy is corrupt, foreign, incomplete or missing."""


class DivergenceError(TidelogError):
    """A loss became NaN or infinite during training."""


class ExportError(TidelogError):
    """A policy cannot be written in the form that was asked for."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name a misspelt one was probably meant to be, or list them all."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else f"known names: {', '.join(known)}"
