"""Detection of dependent episodes in a log without a cluster column; they are resampled together.

Letters: `N` rows, `E` episodes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.data.log import Log
from tidelog.data.validation.clusters import ClusterCandidate, cluster_candidates, codes_of, day_labels

ENOUGH = 30  # smallest number of clusters; resampling this many costs little if episodes are independent
SIGNIFICANT = 0.01
COPIES = "duplicated rows"  # check name of the readers' warning


class ClusteredLog(NamedTuple):
    """The log with its clusters, and notes about them."""

    log: Log
    notes: tuple[str, ...] = ()


def with_detected_clusters(log: Log) -> ClusteredLog:
    """The log with detected clusters, if it has no cluster column.

    Exact copies that the readers warned about form one cluster each. Otherwise a column that looks like a person, a
    session, a store or a day is the cluster if it has enough values. A column with fewer values is only reported: so
    few units show little, and if the logger samples each action independently, rewards that vary with the day are
    harmless.
    """
    if log.cluster is not None:
        return ClusteredLog(log)
    if any(problem.check == COPIES for problem in log.report.warnings):
        codes = _copies(log)
        if len(np.unique(codes)) < len(codes):
            note = "episodes that are exact copies of one another are counted as one cluster, not as independent ones"
            return ClusteredLog(_clustered(log, codes), (f"{note}. fix: remove the copies",))
    candidates = sorted(cluster_candidates(log), key=lambda one: (not one.p_value < SIGNIFICANT, -one.correlation))
    for one in candidates:
        if one.values >= ENOUGH:
            why = f"returns correlate within it: {one.correlation:.2g}" if one.p_value < SIGNIFICANT else "by its name"
            note = f"episodes with the same '{one.name}' are counted as one cluster, not as independent ones ({why})"
            return ClusteredLog(_clustered(log, _codes(log, one)), (f"{note}. fix: {one.fix}",))
    notes = (f"'{one.name}' may identify dependent episodes ({one.found}). fix: {one.fix}" for one in candidates)
    return ClusteredLog(log, tuple(notes))


def _clustered(log: Log, codes: NDArray[Any]) -> Log:
    """Codes [E] as a column; each unknown (negative) code is its own cluster."""
    alone = codes < 0
    codes = np.where(alone, codes.max(initial=0) + 1 + np.arange(len(codes)), codes)
    _, dense = np.unique(codes, return_inverse=True)
    return replace(log, cluster=dense.astype(np.int32)[np.asarray(log.episode)])


def _codes(log: Log, one: ClusterCandidate) -> NDArray[Any]:
    """[E]: code of each episode's value."""
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
