"""A treatment problem with exact values: five visits, six treatments and 362 states.

A patient has a severity (1-4), organ strain (0-2), drug toxicity (0-2), and healthy or impaired kidneys.
At each visit, eight hours apart, the policy chooses a dose (none, low, high) and whether to support the organs.
Doses cure, a high dose most; they increase toxicity, which strains the organs one visit later; strain worsens the
patient and can kill. Impaired kidneys clear the drug slowly. Support relieves strain but slows the cure. Often the
quickest cure is not the best treatment, and the best dose depends on a categorical column as well as on severity.

The reward is 1 on recovery and 0 otherwise: a policy's value at discount 1 is its share of recovered patients.
The visit is part of the state and shown as `hour`. After the last visit the patient recovers or dies with
probabilities given by the final state: every episode *terminates* and none is truncated. There is no bootstrap at the
end, one policy `[S, A]` for all visits, and exact values.

There are five visits, and the clinician is often right, because products of probability ratios must stay small
to detect a better policy in the clinician's log. At discount 1: clinician 0.625, the clinician's
most frequent choice 0.683, always a high dose 0.697, optimal 0.792, uniform 0.487.

This is not medicine: the numbers were chosen to separate policies.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidelog.envs.protocol import BatchObservation, play
from tidelog.envs.tabular import Floats, Tabular, TabularEnvironment, View
from tidelog.types import Codes, Vector

VISITS, HOURS = 5, 8
SEVERITIES, STRAINS, TOXICITIES = 4, 3, 3
KIDNEYS = ("healthy", "impaired")
ACTIONS = ("none", "low", "high", "none+support", "low+support", "high+support")
NUMERIC = ("severity", "strain", "toxicity", "hour")

_CLINICAL = SEVERITIES * STRAINS * TOXICITIES * len(KIDNEYS)
RECOVERED = VISITS * _CLINICAL
DIED = RECOVERED + 1

_DEATH = (0.0, 0.02, 0.06, 0.08)  # per visit, by severity
_DEATH_BY_STRAIN, _DEATH_AVERTED = 0.10, 0.6
_CURE = (0.05, 0.65, 0.75)  # one severity less, by dose
_CURE_WITH_SUPPORT = 0.7
_WORSE = (0.40, 0.12, 0.08)  # one severity more, by dose
_WORSE_BY_STRAIN = 0.30
_TOXICITY = ((0.0, 0.1, 0.5), (0.0, 0.1, 0.95))  # one more, by kidneys and dose
_CLEARED = (0.6, 0.3)  # one less without a dose, by kidneys
_STRAINED = (0.02, 0.30, 0.95)  # one more, by toxicity
_STRAINED_WITH_SUPPORT = 0.3
_RELIEVED, _RELIEVED_ALONE = 0.9, 0.2
_DISCHARGE = np.outer((0.80, 0.35, 0.10, 0.02), (1.0, 0.7, 0.35))  # recovery after the last visit: severity, strain

_FIRST_SEVERITY, _FIRST_STRAIN, _FIRST_KIDNEYS = (0.15, 0.35, 0.30, 0.20), (0.65, 0.25, 0.10), (0.6, 0.4)
_PROTOCOL, _OVERTREATING, _ERRATIC = 0.50, 0.38, 0.12


class _Patient(NamedTuple):
    severity: int
    strain: int
    toxicity: int
    kidneys: int


@cache
def treatment() -> Tabular:
    """The problem, 362 states (the last two are final: recovered, died) and 6 actions.

    Leaves: "numeric" (severity, strain, toxicity, hour, unscaled) and "categorical" (the kidneys).

    Example:
        >>> from tidelog.envs import treatment
        >>> problem = treatment()
        >>> problem.states, problem.actions
        (362, 6)
    """
    transition = _transition()
    earned = np.zeros(len(transition))
    earned[RECOVERED] = 1.0
    initial = np.zeros(len(transition))
    first = initial[:_CLINICAL].reshape(SEVERITIES, STRAINS, TOXICITIES, len(KIDNEYS))
    first[:, :, 0] = np.einsum("g,s,k->gsk", _FIRST_SEVERITY, _FIRST_STRAIN, _FIRST_KIDNEYS)
    return Tabular(
        transition,
        np.broadcast_to(earned, transition.shape),
        initial,
        final=np.arange(len(transition)) >= RECOVERED,
        name="treatment",
        action_names=ACTIONS,
        views=_views(),
    )


def clinician(problem: Tabular | None = None) -> Floats:
    """The logging policy, `[362, 6]`, every action at 0.02 or more: a mixture of three policies at each visit.

    50% follows a sensible protocol that ignores the kidneys and mild strain, 38% gives the maximal treatment, 12%
    acts at random. Each state of the given problem (by default `treatment()`) has a row.

    Example:
        >>> from tidelog.envs import clinician, treatment
        >>> round(treatment().value_of(clinician()), 2)  # the share of patients who recover
        0.63
    """
    leaves = (problem or treatment()).observations()
    severity, strain, toxicity, _ = leaves["numeric"].T
    dose = np.where(toxicity == TOXICITIES - 1, 0, np.where(severity == SEVERITIES, 2, 1))
    protocol = dose + 3 * (strain == STRAINS - 1)
    probabilities = np.full((len(dose), len(ACTIONS)), _ERRATIC / len(ACTIONS))
    probabilities[np.arange(len(dose)), protocol] += _PROTOCOL
    probabilities[:, ACTIONS.index("high+support")] += _OVERTREATING
    return probabilities


def exact_value(policy: NDArray[Any], discount: float = 1.0) -> float:
    """Exact value of a policy, `[362, 6]` probabilities or `[362]` actions: at discount 1, the share that recovers."""
    return treatment().value_of(policy, discount)


def _views() -> dict[str, View]:
    levels = (range(VISITS), range(1, SEVERITIES + 1), range(STRAINS), range(TOXICITIES), range(len(KIDNEYS)))
    rows = np.asarray([*itertools.product(*levels), (0,) * 5, (0,) * 5])
    visit, severity, strain, toxicity, kidneys = rows.T
    numeric = np.stack([severity, strain, toxicity, HOURS * visit], axis=1).astype(np.float32)
    codes = kidneys[:, None].astype(np.int32)
    return {
        "numeric": View(Vector(len(NUMERIC), NUMERIC), numeric),
        "categorical": View(Codes((len(KIDNEYS),), ("kidneys",), (KIDNEYS,)), codes),
    }


def _transition() -> Floats:
    live, recovers, dies = _one_visit()
    transition = np.zeros((DIED + 1, len(ACTIONS), DIED + 1))
    for visit in range(VISITS):
        now, later = (slice(_CLINICAL * step, _CLINICAL * (step + 1)) for step in (visit, visit + 1))
        transition[now, :, RECOVERED], transition[now, :, DIED] = recovers, dies
        if visit + 1 < VISITS:
            transition[now, :, later] = live
        else:
            odds = np.broadcast_to(_DISCHARGE[:, :, None, None], _shape()).ravel()
            transition[now, :, RECOVERED] += live @ odds
            transition[now, :, DIED] += live @ (1.0 - odds)
    transition[[RECOVERED, DIED], :, [RECOVERED, DIED]] = 1.0
    return transition


def _one_visit() -> tuple[Floats, Floats, Floats]:
    live = np.zeros((_CLINICAL, len(ACTIONS), *_shape()))
    recovers, dies = np.zeros((2, _CLINICAL, len(ACTIONS)))
    patients = itertools.starmap(_Patient, itertools.product(*map(range, _shape())))
    for (row, patient), action in itertools.product(enumerate(patients), range(len(ACTIONS))):
        support = action >= 3
        by_strain = _DEATH_BY_STRAIN * patient.strain
        dies[row, action] = _DEATH[patient.severity] + by_strain * (1.0 - _DEATH_AVERTED * support)
        after = _after(patient, action % 3, support) * (1.0 - dies[row, action])
        recovers[row, action] = after[0].sum()
        live[row, action, ..., patient.kidneys] = after[1:]
    return live.reshape(_CLINICAL, len(ACTIONS), _CLINICAL), recovers, dies


def _after(patient: _Patient, dose: int, support: bool) -> Floats:
    cure = _CURE[dose] * (_CURE_WITH_SUPPORT if support else 1.0)
    worse = (1.0 - cure) * (_WORSE[dose] + _WORSE_BY_STRAIN * patient.strain * (0.5 if support else 1.0))
    strained = _STRAINED[patient.toxicity] * (_STRAINED_WITH_SUPPORT if support else 1.0)
    relieved = _RELIEVED if support else _RELIEVED_ALONE * (patient.toxicity == 0)
    cleared = _CLEARED[patient.kidneys] if dose == 0 else 0.0
    severity = _moved(patient.severity + 1, cure, worse, SEVERITIES + 1)
    strain = _moved(patient.strain, (1.0 - strained) * relieved, strained, STRAINS)
    toxicity = _moved(patient.toxicity, cleared, _TOXICITY[patient.kidneys][dose], TOXICITIES)
    return np.asarray(np.einsum("g,s,t->gst", severity, strain, toxicity))


def _moved(level: int, down: float, up: float, levels: int) -> Floats:
    chances = np.zeros(levels)
    for position, chance in ((level - 1, down), (level, 1.0 - down - up), (level + 1, up)):
        chances[min(max(position, 0), levels - 1)] += chance
    return chances


def _shape() -> tuple[int, int, int, int]:
    return SEVERITIES, STRAINS, TOXICITIES, len(KIDNEYS)


# The clinic of `tidelog demo` as a table: what the clinician of `treatment` saw, chose, and what followed.


def clinic_visits(patients: int = 5_000, seed: int = 0) -> pl.DataFrame:
    """Play the clinician of `treatment` and return one row per visit, in the order of patients and visits.

    Columns: `patient` (from 1), `visit` (from 0), `severity`, `strain`, `toxicity`, `hour`, `kidneys`, `treatment`,
    `recovered` (the reward, 0 or 1), `ended` (0 or 1), `propensity` (of the treatment, under the clinician).
    """
    played = play(TabularEnvironment(treatment(), 500), _act, patients, seed)
    visit = np.concatenate([np.arange(length) for length in played.lengths])
    columns = {"patient": played.episode + 1, "visit": visit}
    columns |= {name: played.observation["numeric"][:, position].astype(int) for position, name in enumerate(NUMERIC)}
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
