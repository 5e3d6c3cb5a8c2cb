"""Policies without JAX: `runtime.load("policy")` acts (or ranks) with NumPy alone, on whatever `tidelog export` wrote.

It needs NumPy and safetensors, starts in a fraction of a second, and runs nothing that a file brings along.
"""

from tidelog.runtime.loading import load
from tidelog.runtime.memory import Memory
from tidelog.runtime.policy import Policy
from tidelog.runtime.recommender import Recommender

__all__ = ["Memory", "Policy", "Recommender", "load"]
