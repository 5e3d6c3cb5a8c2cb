"""Episodes that belong together although the log does not say so: found, and resampled together.

Letters: `N` rows, `E` episodes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.data.log import Log
from tidelog.data.validation.clusters import ClusterCandidate, cluster_candidates, codes_of, day_labels

ENOUGH = 30  # clusters: with so many, to resample them costs little if episodes are independent after all
SIGNIFICANT = 0.01
COPIES = "duplicated rows"  # the warning of the readers


class Dependent(NamedTuple):
    """The log with its clusters, and what has to be said about them."""

    log: Log
    notes: tuple[str, ...] = ()


def with_found_clusters(log: Log) -> Dependent:
    """The log with clusters that were found in it, where it names none.

    Exact copies that the readers warned of are one cluster each. Else a column that looks like a person, a session, a
    store or a day is the cluster if it has enough values. One with fewer is only pointed out: so few units show little,
    and where the logger draws each action anew, rewards that rise and fall with the day do no harm.
    """
    if log.cluster is not None:
        return Dependent(log)
    if any(problem.check == COPIES for problem in log.report.warnings):
        codes = _copies(log)
        if len(np.unique(codes)) < len(codes):
            said = "episodes that are exact copies of one another are counted as one cluster, not as independent ones"
            return Dependent(_clustered(log, codes), (f"{said}. fix: remove the copies",))
    found = sorted(cluster_candidates(log), key=lambda one: (not one.p_value < SIGNIFICANT, -one.correlation))
    for one in found:
        if one.values >= ENOUGH:
            why = f"returns correlate within it: {one.correlation:.2g}" if one.p_value < SIGNIFICANT else "by its name"
            said = f"episodes with the same '{one.name}' are counted as one cluster, not as independent ones ({why})"
            return Dependent(_clustered(log, _codes(log, one)), (f"{said}. fix: {one.fix}",))
    notes = (f"'{one.name}' may say which episodes belong together ({one.found}). fix: {one.fix}" for one in found)
    return Dependent(log, tuple(notes))


def _clustered(log: Log, codes: NDArray[Any]) -> Log:
    """Codes [E] as a column; unknown ones (negative) stand alone."""
    alone = codes < 0
    codes = np.where(alone, codes.max(initial=0) + 1 + np.arange(len(codes)), codes)
    _, dense = np.unique(codes, return_inverse=True)
    return replace(log, cluster=dense.astype(np.int32)[np.asarray(log.episode)])


def _codes(log: Log, one: ClusterCandidate) -> NDArray[Any]:
    """[E]: the code of each episode's value."""
    first = log.starts[:-1]
    if one.name in log.extra:
        return np.asarray(codes_of(np.asarray(log.extra[one.name])[first]))
    return np.asarray(day_labels("time", np.asarray(log.time)[first])[0].codes)


def _copies(log: Log) -> NDArray[np.int64]:
    """[E]: equal numbers for episodes with the same observations, actions and rewards."""
    columns = [np.asarray(leaf)[np.asarray(log.position)] for _, leaf in sorted(log.observation.items())]
    columns.append(np.asarray(log.action))
    columns += [np.asarray(one) for one in (log.reward, log.time, log.propensity) if one is not None]
    flat = [np.ascontiguousarray(one.reshape(len(one), -1)) for one in columns]
    rows = np.concatenate([one.view(np.uint8).reshape(len(one), -1) for one in flat], axis=1)
    _, row = np.unique(np.ascontiguousarray(rows).view(f"V{rows.shape[1]}")[:, 0], return_inverse=True)
    lengths = np.diff(log.starts)
    if lengths.max() == 1:
        return np.asarray(row, np.int64)
    parts = [row[a:b].tobytes() for a, b in zip(log.starts[:-1], log.starts[1:], strict=True)]
    names = {part: number for number, part in enumerate(dict.fromkeys(parts))}
    return np.asarray([names[part] for part in parts], np.int64)
