"""Logs and interactions read again from where they came from."""

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
    """Read the log again that `read_any` read; LogError where it is one of interactions."""
    found = reopen_any(origin)
    if isinstance(found, Interactions):
        raise LogError(f"{origin['source']} holds interactions, not decisions with what was seen", found.report)
    return found


def reopen_any(origin: Mapping[str, Any]) -> Log | Interactions:
    """Read the log or the interactions again that came from there."""
    if origin.get("roles") is not None:
        return read_by_roles(origin["source"], Roles(**origin["roles"]))
    if INTERACTIONS.stands_at(Path(origin["source"])):
        return open_interactions(origin["source"])
    if origin.get("memory_map"):
        return open_log(origin["source"], memory_map=True)
    return read_any(origin["source"], origin["columns"])
