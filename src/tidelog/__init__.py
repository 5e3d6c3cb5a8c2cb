"""tidelog learns to act from a log, and says how far the result can be trusted.

Names load what they need when they are first used (PEP 562), so that `import tidelog` stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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
    "DiscreteBCQ",
    "DivergenceError",
    "EnvironmentFailure",
    "ExportError",
    "Interactions",
    "Ledger",
    "Limits",
    "Log",
    "LogError",
    "OffPolicyPPG",
    "Policy",
    "RecommenderBCQ",
    "Run",
    "SpaceError",
    "SpecError",
    "TidelogError",
    "Verdict",
    "Verdicts",
    "assemble_slates",
    "collect",
    "estimate",
    "estimate_slates",
    "finish",
    "fit",
    "judge",
    "learn",
    "load",
    "load_policy",
    "open_interactions",
    "open_log",
    "prepare",
    "prepare_learning",
    "read_d4rl",
    "read_interactions",
    "read_log",
    "read_minari",
    "read_npz",
    "read_ogbench",
    "read_reagent",
    "resume",
    "rollout",
    "slot_model",
    "validate",
    "validate_interactions",
]

if TYPE_CHECKING:
    from tidelog.acting.policy import Policy, load_policy
    from tidelog.acting.rollout import collect, rollout
    from tidelog.algorithms.bc import BC
    from tidelog.algorithms.bcq import BCQ
    from tidelog.algorithms.discrete_bcq import DiscreteBCQ
    from tidelog.algorithms.iql import IQL
    from tidelog.algorithms.off_policy_ppg import OffPolicyPPG
    from tidelog.algorithms.ppg import PPG, PPO
    from tidelog.algorithms.recommender_bcq import RecommenderBCQ
    from tidelog.data.columns import Columns
    from tidelog.data.door import read_d4rl, read_log, read_minari, read_npz, read_ogbench, read_reagent, validate
    from tidelog.data.interaction_door import read_interactions, validate_interactions
    from tidelog.data.interaction_storage import open_interactions
    from tidelog.data.interactions import Interactions
    from tidelog.data.log import Log
    from tidelog.data.storage import open_log
    from tidelog.errors import (
        CheckpointError,
        ConfigError,
        DivergenceError,
        EnvironmentFailure,
        ExportError,
        LogError,
        SpaceError,
        SpecError,
        TidelogError,
    )
    from tidelog.judging.estimate import estimate
    from tidelog.judging.ledger import Ledger
    from tidelog.judging.limits import Limits
    from tidelog.judging.results import Verdict
    from tidelog.judging.slate_estimates import assemble_slates, estimate_slates, slot_model
    from tidelog.judging.verdict import judge
    from tidelog.judging.verdicts import Verdicts
    from tidelog.training.fit import finish, fit, load, prepare, resume
    from tidelog.training.learn import learn, prepare_learning
    from tidelog.training.run import Run

_NAMES: dict[str, tuple[str, ...]] = {
    "acting.policy": ("Policy", "load_policy"),
    "acting.rollout": ("collect", "rollout"),
    "algorithms.bc": ("BC",),
    "algorithms.bcq": ("BCQ",),
    "algorithms.discrete_bcq": ("DiscreteBCQ",),
    "algorithms.iql": ("IQL",),
    "algorithms.off_policy_ppg": ("OffPolicyPPG",),
    "algorithms.ppg": ("PPG", "PPO"),
    "algorithms.recommender_bcq": ("RecommenderBCQ",),
    "data.columns": ("Columns",),
    "data.door": ("read_d4rl", "read_log", "read_minari", "read_npz", "read_ogbench", "read_reagent", "validate"),
    "data.interaction_door": ("read_interactions", "validate_interactions"),
    "data.interaction_storage": ("open_interactions",),
    "data.interactions": ("Interactions",),
    "data.log": ("Log",),
    "data.storage": ("open_log",),
    "errors": (
        "CheckpointError",
        "ConfigError",
        "DivergenceError",
        "EnvironmentFailure",
        "ExportError",
        "LogError",
        "SpaceError",
        "SpecError",
        "TidelogError",
    ),
    "judging.estimate": ("estimate",),
    "judging.ledger": ("Ledger",),
    "judging.limits": ("Limits",),
    "judging.results": ("Verdict",),
    "judging.slate_estimates": ("assemble_slates", "estimate_slates", "slot_model"),
    "judging.verdict": ("judge",),
    "judging.verdicts": ("Verdicts",),
    "training.fit": ("finish", "fit", "load", "prepare", "resume"),
    "training.learn": ("learn", "prepare_learning"),
    "training.run": ("Run",),
}
_HOME = {name: f"tidelog.{module}" for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'tidelog' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
