"""The door for logs: sources, one validation, and the canonical log. Names load what they need when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.data.clusters import ClusterCandidate, cluster_candidates
    from tidelog.data.columns import Columns
    from tidelog.data.door import read_d4rl, read_log, read_minari, read_npz, read_ogbench, read_reagent, validate
    from tidelog.data.export import convert
    from tidelog.data.inspect import describe_table, inspect_log
    from tidelog.data.interaction_door import read_interactions, validate_interactions
    from tidelog.data.interaction_storage import open_interactions
    from tidelog.data.interactions import Interactions
    from tidelog.data.log import Log
    from tidelog.data.nstep import n_step
    from tidelog.data.offending import quarantine
    from tidelog.data.report import Problem, Report
    from tidelog.data.scaling import Scaler, by_return_range, minus_one, unscaled
    from tidelog.data.statistics import Statistics
    from tidelog.data.storage import open_log

__all__ = [
    "ClusterCandidate",
    "Columns",
    "Interactions",
    "Log",
    "Problem",
    "Report",
    "Scaler",
    "Statistics",
    "by_return_range",
    "cluster_candidates",
    "convert",
    "describe_table",
    "inspect_log",
    "minus_one",
    "n_step",
    "open_interactions",
    "open_log",
    "quarantine",
    "read_d4rl",
    "read_interactions",
    "read_log",
    "read_minari",
    "read_npz",
    "read_ogbench",
    "read_reagent",
    "unscaled",
    "validate",
    "validate_interactions",
]

_HOME = {
    "clusters": ("ClusterCandidate", "cluster_candidates"),
    "columns": ("Columns",),
    "door": ("read_d4rl", "read_log", "read_minari", "read_npz", "read_ogbench", "read_reagent", "validate"),
    "export": ("convert",),
    "interaction_door": ("read_interactions", "validate_interactions"),
    "interaction_storage": ("open_interactions",),
    "interactions": ("Interactions",),
    "inspect": ("describe_table", "inspect_log"),
    "log": ("Log",),
    "nstep": ("n_step",),
    "offending": ("quarantine",),
    "report": ("Problem", "Report"),
    "scaling": ("Scaler", "by_return_range", "minus_one", "unscaled"),
    "statistics": ("Statistics",),
    "storage": ("open_log",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(f"tidelog.data.{module}"), name)
    raise AttributeError(f"module 'tidelog.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
