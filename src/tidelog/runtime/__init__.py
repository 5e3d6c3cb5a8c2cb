"""Policies without JAX: `runtime.load("policy")` acts (or ranks) with NumPy alone, from artefacts of `tidelog export`.

It needs NumPy and safetensors, starts in a fraction of a second, and executes no code from a file.

`load` loads what `artefact` reads from disk: a recipe of nodes, which `networks` and `ranking` compute. `policy` acts
on what `observations` reads; `recommender` reads `Histories` and returns lists of items; `rule` is a tree of questions.
"""

from tidelog.runtime.load import load
from tidelog.runtime.policy import NumpyPolicy, RecurrentState
from tidelog.runtime.recommender import Histories, Recommender

__all__ = ["Histories", "NumpyPolicy", "Recommender", "RecurrentState", "load"]
