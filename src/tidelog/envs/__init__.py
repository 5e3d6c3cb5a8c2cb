"""Environments: one protocol, adapters to it, and problems with exact values.

`protocol` is the interface of `W` copies stepped together, with its checks; `functional` is the same as pure functions
for compiled loops; `play` plays complete episodes; `registry` makes environments from names. Adapters: `gym`, `vector`,
`pools` (Atari, envpool). Problems: `tabular` (any finite problem), `treatment`,
`satiation`, `vault`, `toys`, and `functional_problems` (CartPole, Pendulum, T-maze).
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
