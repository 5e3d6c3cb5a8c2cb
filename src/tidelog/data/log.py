"""The canonical log: construction from arrays, export and statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog.data.assemble import checked
from tidelog.data.core.log_columns import LogColumns
from tidelog.data.io.storage import save
from tidelog.data.parsing.arrays import from_arrays
from tidelog.data.statistics import Statistics, describe


@dataclass(frozen=True, eq=False, repr=False)
class Log(LogColumns):
    """Recorded decisions: `N` steps of `E` episodes over `M` stored observations. Never changed in place."""

    @classmethod
    def from_arrays(
        cls,
        *,
        observation: Any,
        action: Any,
        reward: Any,
        terminated: Any = None,
        truncated: Any = None,
        episode: Any = None,
        next_observation: Any = None,
        followed: Any = None,
        propensity: Any = None,
        action_mask: Any = None,
        next_action_mask: Any = None,
        actions: int | Sequence[int] | None = None,
        bounds: Sequence[Any] | None = None,
        weight: Any = None,
        step: Any = None,
        time: Any = None,
        cluster: Any = None,
        categorical: bool = True,
        terminations: str = "stop",
        extra: Mapping[str, Any] | None = None,
    ) -> Log:
        """Validate arrays of N rows and build a log from them; LogError (with its report) if there is any error.

        `observation` is `[N]` or `[N, O]` (floats: a Vector; integers or text: Codes, unless `categorical=False`),
        `[N, height, width, channels]` uint8 (an Image), or a mapping from leaf names to such arrays, in which inner
        mappings become leaves "outer/inner"; `action` is `[N]` integers, `[N, D]` integers or `[N, A]` floats.
        `episode=None`: every row is an episode of one step. `terminated=True`: every episode terminated at its end.
        `cluster` [N] text or integers: groups of dependent episodes (of one person, store or day), the same value in
        every row of an episode.
        `followed` [N] bool: rows with a known `next_observation`; None: all rows.
        """
        return cls(
            **checked(from_arrays(
                observation=observation, action=action, reward=reward, terminated=terminated, truncated=truncated,
                episode=episode, next_observation=next_observation, followed=followed, propensity=propensity,
                action_mask=action_mask,
                next_action_mask=next_action_mask, actions=actions, bounds=bounds, weight=weight, step=step, time=time,
                cluster=cluster, categorical=categorical, terminations=terminations, extra=extra,
            ))
        )  # fmt: skip

    def statistics(self) -> Statistics:
        """Compute statistics of lengths, returns, actions, propensities and features."""
        return describe(self)

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write a folder that `open_log` reads; LogError if the path exists (with `overwrite`: if it is not a log)."""
        save(self, Path(path), overwrite)

    def to_parquet(self, path: str | Path, overwrite: bool = False) -> Path:
        """Write a table and, next to it, its mapping for `read_log` (.toml); return the path of the mapping."""
        from tidelog.data.io.export import to_parquet

        return to_parquet(self, path, overwrite)

    def to_minari(self, dataset_id: str, overwrite: bool = False) -> None:
        """Write a Minari data set; LogError if it exists, or if the observation after a truncation is not known."""
        from tidelog.data.io.minari_export import to_minari

        to_minari(self, dataset_id, overwrite)

    def to_arrays(self) -> dict[str, Any]:
        """The arguments of `Log.from_arrays` that give the same columns."""
        from tidelog.data.io.export import to_arrays

        return to_arrays(self)

    def to_npz(self, path: str | Path, overwrite: bool = False) -> None:
        """Write the arrays of `to_arrays` to a file that `read_npz` reads."""
        from tidelog.data.io.export import save_npz

        save_npz(self, path, overwrite)
