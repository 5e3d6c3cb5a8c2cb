"""The door for logs: sources, one validation, and the canonical log. Names load what they need when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.data.core.columns import Columns
    from tidelog.data.core.report import Problem, Report
    from tidelog.data.io.export import convert
    from tidelog.data.io.inspect import describe_table, inspect_log
    from tidelog.data.io.readers import read_d4rl, read_log, read_minari, read_npz, read_ogbench, read_reagent, validate
    from tidelog.data.io.storage import open_log
    from tidelog.data.log import Log
    from tidelog.data.nstep import n_step
    from tidelog.data.scaling import Scaler, by_return_range, minus_one, unscaled
    from tidelog.data.statistics import Statistics
    from tidelog.data.validation.clusters import ClusterCandidate, cluster_candidates
    from tidelog.data.validation.quarantine import quarantine
    from tidelog.recommend.interactions.log import Interactions
    from tidelog.recommend.interactions.readers import read_interactions, validate_interactions
    from tidelog.recommend.interactions.storage import open_interactions

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
    "data.validation.clusters": ("ClusterCandidate", "cluster_candidates"),
    "data.core.columns": ("Columns",),
    "data.io.readers": ("read_d4rl", "read_log", "read_minari", "read_npz", "read_ogbench", "read_reagent", "validate"),
    "data.io.export": ("convert",),
    "recommend.interactions.readers": ("read_interactions", "validate_interactions"),
    "recommend.interactions.storage": ("open_interactions",),
    "recommend.interactions.log": ("Interactions",),
    "data.io.inspect": ("describe_table", "inspect_log"),
    "data.log": ("Log",),
    "data.nstep": ("n_step",),
    "data.validation.quarantine": ("quarantine",),
    "data.core.report": ("Problem", "Report"),
    "data.scaling": ("Scaler", "by_return_range", "minus_one", "unscaled"),
    "data.statistics": ("Statistics",),
    "data.io.storage": ("open_log",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(f"tidelog.{module}"), name)
    raise AttributeError(f"module 'tidelog.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
