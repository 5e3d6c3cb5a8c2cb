"""tidelog learns to act from a log, and says how far the result can be trusted.

Names load what they need when they are first used (PEP 562), so that `import tidelog` stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tidelog._machine import import_without_gc

__version__ = "0.1.0"
__all__ = [
    "BC",
    "BCQ",
    "IQL",
    "PPG",
    "PPO",
    "CheckpointError",
    "Columns",
    "ConfigError",
    "Continuous",
    "Discrete",
    "DiscreteBCQ",
    "DivergenceError",
    "EnvironmentFailure",
    "ExportError",
    "Histories",
    "Interactions",
    "Ledger",
    "Limits",
    "Log",
    "LogError",
    "MultiDiscrete",
    "OffPolicyPPG",
    "Policy",
    "ProcessError",
    "RecommenderBCQ",
    "Run",
    "SpaceError",
    "SpecError",
    "Sweep",
    "TidelogError",
    "Verdict",
    "Verdicts",
    "collect",
    "concat",
    "connect_processes",
    "draws",
    "estimate",
    "export",
    "finetune",
    "fit",
    "follow_targets",
    "gradient_steps",
    "grid",
    "hyperparameters",
    "judge",
    "learn",
    "load",
    "load_policy",
    "number",
    "open_interactions",
    "open_log",
    "read_interactions",
    "read_log",
    "refit",
    "register",
    "resume",
    "rollout",
    "simple_rules",
    "static",
    "suggest",
    "sweep",
    "testing",
    "tree_where",
    "validate",
    "validate_interactions",
]

if TYPE_CHECKING:
    from tidelog import testing
    from tidelog.algorithms.bc import BC
    from tidelog.algorithms.bcq import BCQ
    from tidelog.algorithms.discrete_bcq import DiscreteBCQ
    from tidelog.algorithms.hyperparameters import hyperparameters, number, static
    from tidelog.algorithms.iql import IQL
    from tidelog.algorithms.names import register
    from tidelog.algorithms.off_policy_ppg import OffPolicyPPG
    from tidelog.algorithms.optimisation import tree_where
    from tidelog.algorithms.ppg import PPG, PPO
    from tidelog.algorithms.short_form import follow_targets, gradient_steps
    from tidelog.auto.settings import suggest
    from tidelog.data.columns import Columns
    from tidelog.data.log import Log, concat
    from tidelog.data.read import (
        open_log,
        read_log,
        validate,
    )
    from tidelog.errors import (
        CheckpointError,
        ConfigError,
        DivergenceError,
        EnvironmentFailure,
        ExportError,
        LogError,
        ProcessError,
        SpaceError,
        SpecError,
        TidelogError,
    )
    from tidelog.ope.decide import Limits
    from tidelog.ope.judge import judge
    from tidelog.ope.ledger import Ledger
    from tidelog.ope.policy_evidence import estimate
    from tidelog.ope.rules import simple_rules
    from tidelog.ope.verdict import Verdict, Verdicts
    from tidelog.policies.export import export
    from tidelog.policies.policy import Policy, load_policy
    from tidelog.policies.rollout import collect, rollout
    from tidelog.recommend.interactions import Interactions
    from tidelog.recommend.read import open_interactions, read_interactions, validate_interactions
    from tidelog.recommend.recommender_bcq import RecommenderBCQ
    from tidelog.runtime.recommender import Histories
    from tidelog.sweeps.plan import draws, grid
    from tidelog.sweeps.sweep import Sweep, resume, sweep
    from tidelog.training.fit import fit, load, refit
    from tidelog.training.learn import finetune, learn
    from tidelog.training.processes import connect_processes
    from tidelog.training.run import Run
    from tidelog.types import Continuous, Discrete, MultiDiscrete

_NAMES: dict[str, tuple[str, ...]] = {
    "policies.export": ("export",),
    "policies.policy": (
        "Policy",
        "load_policy",
    ),
    "policies.rollout": (
        "collect",
        "rollout",
    ),
    "algorithms.names": ("register",),
    "algorithms.bc": ("BC",),
    "algorithms.hyperparameters": (
        "hyperparameters",
        "number",
        "static",
    ),
    "algorithms.short_form": (
        "follow_targets",
        "gradient_steps",
    ),
    "algorithms.optimisation": ("tree_where",),
    "types": (
        "Continuous",
        "Discrete",
        "MultiDiscrete",
    ),
    "algorithms.bcq": ("BCQ",),
    "algorithms.discrete_bcq": ("DiscreteBCQ",),
    "auto.settings": ("suggest",),
    "algorithms.iql": ("IQL",),
    "algorithms.off_policy_ppg": ("OffPolicyPPG",),
    "algorithms.ppg": (
        "PPG",
        "PPO",
    ),
    "recommend.recommender_bcq": ("RecommenderBCQ",),
    "data.columns": ("Columns",),
    "data.read": (
        "open_log",
        "read_log",
        "validate",
    ),
    "recommend.read": (
        "open_interactions",
        "read_interactions",
        "validate_interactions",
    ),
    "recommend.interactions": ("Interactions",),
    "runtime.recommender": ("Histories",),
    "data.log": (
        "Log",
        "concat",
    ),
    "errors": (
        "CheckpointError",
        "ConfigError",
        "DivergenceError",
        "EnvironmentFailure",
        "ExportError",
        "LogError",
        "ProcessError",
        "SpaceError",
        "SpecError",
        "TidelogError",
    ),
    "ope.policy_evidence": ("estimate",),
    "ope.rules": ("simple_rules",),
    "ope.ledger": ("Ledger",),
    "ope.decide": ("Limits",),
    "ope.verdict": ("Verdict", "Verdicts"),
    "ope.judge": ("judge",),
    "training.learn": (
        "finetune",
        "learn",
    ),
    "training.fit": (
        "fit",
        "refit",
        "load",
    ),
    "training.processes": ("connect_processes",),
    "sweeps.plan": (
        "draws",
        "grid",
    ),
    "sweeps.sweep": (
        "Sweep",
        "resume",
        "sweep",
    ),
    "training.run": ("Run",),
}
_HOME = {name: f"tidelog.{module}" for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "testing":
        return importlib.import_module("tidelog.testing")
    if name in _HOME:
        return getattr(import_without_gc(_HOME[name]), name)
    raise AttributeError(f"module 'tidelog' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
