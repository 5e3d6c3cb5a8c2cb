"""Environments: one protocol, adapters to it, and problems with exact values."""

from __future__ import annotations

from tidelog.envs.icu import icu_sepsis
from tidelog.envs.play import Episodes, play
from tidelog.envs.protocol import Environment, Observed, Outcome, Resumable
from tidelog.envs.registry import make
from tidelog.envs.tabular import Tabular, View
from tidelog.envs.tabular_environment import TabularEnvironment
from tidelog.envs.treatment import clinician, treatment

__all__ = [
    "Environment",
    "Episodes",
    "Observed",
    "Outcome",
    "Resumable",
    "Tabular",
    "TabularEnvironment",
    "View",
    "clinician",
    "icu_sepsis",
    "make",
    "play",
    "treatment",
]
