"""Policies without JAX: `runtime.load("policy")` acts (or ranks) with NumPy alone, from artefacts of `tidelog export`.

It needs NumPy and safetensors, starts in a fraction of a second, and executes no code from a file.

`loading` loads what `artefact_files` reads from disk: a `recipe` of nodes, which `networks`, `policy_heads` and
`history_encoders` compute. `policy` acts on what `observations` reads; `recommender` and `ranking` return lists of
items.
"""

from tidelog.runtime.load import load
from tidelog.runtime.policy import Memory, Policy
from tidelog.runtime.recommender import Recommender

__all__ = ["Memory", "Policy", "Recommender", "load"]
