"""Earlier use of the judged episodes: to train the policy, or to select its checkpoint."""

from __future__ import annotations

from typing import Any, NamedTuple

from tidelog.data.log import Log
from tidelog.data.overlap import Overlap, Sketch


class Reuse(NamedTuple):
    """Overlaps with the judged episodes; None if unknown."""

    learnt_from: Overlap | None  # share that the policy was trained on
    chosen_by: str | None  # held-out metric that selected the checkpoint, if any
    held_out: Overlap | None  # share that this metric was measured on

    def to_json(self) -> dict[str, Any]:
        """Plain values for a verdict's context."""
        one, two = self.learnt_from, self.held_out
        return {
            "learnt_from": None if one is None else {"share": one.share, **one._asdict()},
            "chosen_by": self.chosen_by,
            "held_out": None if two is None else {"share": two.share, **two._asdict()},
        }


def reuse_of(policy: Any, log: Log) -> Reuse:
    """Earlier use of these episodes, from the policy's origin."""
    origin = policy.origin
    return Reuse(
        _overlap(origin.get("learnt_from"), log), origin.get("chosen_by"), _overlap(origin.get("held_out"), log)
    )


def _overlap(sketch: Any, log: Log) -> Overlap | None:
    return None if sketch is None else Sketch.from_json(sketch).overlap(log)
