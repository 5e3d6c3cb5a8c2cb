"""Environments: one protocol, adapters to it, and problems with exact values.

`protocol` is the interface of `W` copies stepped together, with its checks, and plays complete episodes; `functional`
is the same as pure functions for compiled loops, with CartPole and Pendulum; `registry` makes environments
from names; `gym` adapts those of gymnasium and Atari. Problems with exact values: `tabular` (any finite one,
and the point mass), `treatment`, `satiation`.
"""

from __future__ import annotations

from tidelog.envs.protocol import BatchObservation, Environment, Episodes, Outcome, Resumable, play
from tidelog.envs.registry import make
from tidelog.envs.tabular import Tabular, TabularEnvironment, View
from tidelog.envs.treatment import clinician, treatment

__all__ = [
    "BatchObservation",
    "Environment",
    "Episodes",
    "Outcome",
    "Resumable",
    "Tabular",
    "TabularEnvironment",
    "View",
    "clinician",
    "make",
    "play",
    "treatment",
]
