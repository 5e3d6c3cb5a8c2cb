"""The clinic of `tidelog demo` as a table: what the clinician of `treatment` saw, chose, and what followed."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from tidelog.envs.play import play
from tidelog.envs.protocol import BatchObservation
from tidelog.envs.tabular import TabularEnvironment
from tidelog.envs.treatment import ACTIONS, KIDNEYS, NUMERIC, clinician, treatment


def clinic_visits(patients: int = 5_000, seed: int = 0) -> pl.DataFrame:
    """Play the clinician of `treatment` and return one row per visit, in the order of patients and visits.

    Columns: `patient` (from 1), `visit` (from 0), `severity`, `strain`, `toxicity`, `hour`, `kidneys`, `treatment`,
    `recovered` (the reward, 0 or 1), `ended` (0 or 1), `propensity` (of the treatment, under the clinician).
    """
    played = play(TabularEnvironment(treatment(), 500), _act, patients, seed)
    visit = np.concatenate([np.arange(length) for length in played.lengths])
    columns = {"patient": played.episode + 1, "visit": visit}
    columns |= {name: played.observation["numeric"][:, place].astype(int) for place, name in enumerate(NUMERIC)}
    columns["kidneys"] = np.asarray(KIDNEYS)[played.observation["categorical"][:, 0]]
    columns["treatment"] = np.asarray(ACTIONS)[played.action]
    columns |= {"recovered": played.reward.astype(int), "ended": played.terminated.astype(int)}
    return pl.DataFrame({**columns, "propensity": played.propensity})


def _act(observed: BatchObservation, generator: np.random.Generator) -> tuple[Any, Any]:
    probabilities = clinician()[_states(observed)]
    action = (probabilities.cumsum(axis=1) > generator.random((len(probabilities), 1))).argmax(axis=1)
    return action.astype(np.int32), probabilities[np.arange(len(action)), action]


def _states(observed: BatchObservation) -> Any:
    shown = treatment().observations()
    rows = np.concatenate([shown["numeric"], shown["categorical"]], axis=1)[: len(shown["numeric"])]
    index = {row.tobytes(): state for state, row in reversed(list(enumerate(rows.astype(np.float32))))}
    seen = np.concatenate([observed.observation["numeric"], observed.observation["categorical"]], axis=1)
    return [index[row.tobytes()] for row in seen.astype(np.float32)]
