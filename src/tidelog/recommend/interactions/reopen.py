"""Read logs and interactions again from their origin."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidelog.data.io.readers import open_log, read_any
from tidelog.data.log import Log
from tidelog.errors import LogError
from tidelog.recommend.interactions.log import Interactions
from tidelog.recommend.interactions.readers import open_interactions, read_by_roles
from tidelog.recommend.interactions.roles import Roles
from tidelog.recommend.interactions.storage import INTERACTIONS


def reopen(origin: Mapping[str, Any]) -> Log:
    """Read a log again from its origin; LogError if the origin holds interactions."""
    log = reopen_any(origin)
    if isinstance(log, Interactions):
        raise LogError(f"{origin['source']} holds interactions: expected a log with observations", log.report)
    return log


def reopen_any(origin: Mapping[str, Any]) -> Log | Interactions:
    """Read a log or interactions again from their origin."""
    if origin.get("roles") is not None:
        return read_by_roles(origin["source"], Roles(**origin["roles"]))
    if INTERACTIONS.is_at(Path(origin["source"])):
        return open_interactions(origin["source"])
    if origin.get("memory_map"):
        return open_log(origin["source"], memory_map=True)
    return read_any(origin["source"], origin["columns"])
