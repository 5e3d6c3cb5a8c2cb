"""Overlap between training and evaluation episodes, estimated from a sketch of 16 kB.

Every episode has a 64-bit fingerprint of its name, its actions, its rewards and its first observation. A sketch holds
the smallest fingerprints (a bottom-k sketch, Cohen & Kaplan 2007). It answers for the episodes of another log with
fingerprints in its range whether the first log contains them. Up to `SIZE` episodes this is exact.

Categories are hashed by label and features by name: the order of columns and of codes does not matter.
Letters: `E` episodes, `N` steps.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tidelog.data.core.log_columns import LogColumns, ranges
from tidelog.errors import CheckpointError
from tidelog.schema import Count, typed
from tidelog.types import Codes, Discrete, Image, Vector

Hashes = NDArray[np.uint64]
SIZE = 1024  # fingerprints in a sketch
BLOCK = 1 << 21  # steps hashed at once
PIXELS = 1 << 22  # pixels hashed at once
SURE = 0.05  # significance level: an excess with a larger p-value does not count


class Overlap(NamedTuple):
    """The number of evaluation episodes within a sketch's range, and how many of them the sketch contains."""

    known: int  # evaluation episodes with fingerprints in the sketch's range
    shared: int  # those of them that the sketch contains
    exact: bool  # whether the sketch holds all episodes

    @property
    def share(self) -> float:
        """The estimated share of shared episodes; NaN if no episode is in the sketch's range."""
        return self.shared / self.known if self.known else math.nan

    def exceeds(self, share: float) -> bool:
        """Whether the overlap is larger than `share`; for a sampled sketch, significantly larger (binomial test)."""
        if not self.shared or self.exact or share in (0.0, 1.0):
            return bool(self.shared) and self.share > share
        below = np.arange(self.shared)
        chances = [
            math.lgamma(self.known + 1) - math.lgamma(k + 1) - math.lgamma(self.known - k + 1)
            for k in below.tolist()
        ] + below * math.log(share) + (self.known - below) * math.log1p(-share)  # fmt: skip
        return 1.0 - float(np.exp(chances).sum()) < SURE


@dataclass(frozen=True, eq=False)
class Sketch:
    """The smallest fingerprints of a log's episodes."""

    episodes: int
    smallest: Hashes  # [at most SIZE], sorted
    rewards: bool  # whether fingerprints include rewards

    @classmethod
    def of(cls, log: LogColumns, ordinals: NDArray[Any] | None = None) -> Sketch:
        """Build the sketch of a log, or of the episodes with these ordinals."""
        fingerprints, count, rewards = np.zeros(0, np.uint64), 0, log.reward is not None
        for hashes in _blocks(log, ordinals, rewards):
            count += len(hashes)
            few = hashes if len(hashes) <= SIZE else np.partition(hashes, SIZE - 1)[:SIZE]
            smallest = np.unique(np.concatenate([fingerprints, few]))
            fingerprints = smallest[:SIZE]
        return cls(count, fingerprints, rewards)

    @property
    def exact(self) -> bool:
        """Whether the sketch holds all episodes."""
        return self.episodes <= SIZE

    def overlap(self, log: LogColumns, ordinals: NDArray[Any] | None = None) -> Overlap:
        """Count the episodes of a log that this sketch contains."""
        known = shared = 0
        for hashes in _blocks(log, ordinals, self.rewards and log.reward is not None):
            part = self.among(hashes)
            known, shared = known + part.known, shared + part.shared
        return Overlap(known, shared, self.exact)

    def among(self, hashes: Hashes) -> Overlap:
        """Count the fingerprints [E] that this sketch contains; they must include rewards if the sketch does."""
        near = hashes if self.exact else hashes[hashes <= self.smallest[-1]]
        return Overlap(len(near), int(np.isin(near, self.smallest).sum()), self.exact)

    def joined(self, other: Sketch) -> Sketch | None:
        """The sketch of the episodes of both; None if only one of them includes rewards."""
        if self.rewards != other.rewards:
            return None
        both = np.unique(np.concatenate([self.smallest, other.smallest]))
        exact = max(self.episodes, other.episodes) <= SIZE
        return Sketch(len(both) if exact else self.episodes + other.episodes, both[:SIZE], self.rewards)

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` reads back."""
        return {
            "episodes": self.episodes,
            "rewards": self.rewards,
            "smallest": self.smallest.astype(">u8").tobytes().hex(),
        }

    @classmethod
    def from_json(cls, data: Any) -> Sketch:
        """Rebuild from `to_json`; CheckpointError for malformed data."""
        file = typed(data, _SketchFile, "the sketch of the training episodes is malformed")
        try:
            smallest = np.frombuffer(bytes.fromhex(file.smallest), ">u8").astype(np.uint64)
        except ValueError as error:
            raise CheckpointError(
                f"the sketch of the training episodes is malformed: {error}. fix: restore the file"
            ) from error
        fits = len(smallest) <= min(file.episodes, SIZE) and bool(file.episodes) == bool(len(smallest))
        if not fits or not (smallest[1:] > smallest[:-1]).all():
            raise CheckpointError(
                "the sketch of the training episodes is malformed: its fingerprints are not sorted. "
                "fix: restore the file"
            )
        return cls(file.episodes, smallest, file.rewards)


class _SketchFile(msgspec.Struct, forbid_unknown_fields=True):
    episodes: Count
    rewards: bool
    smallest: str


def episode_hashes(log: LogColumns, ordinals: NDArray[Any] | None = None, *, rewards: bool = True) -> Hashes:
    """Fingerprints [E] of all episodes of a log, or of those with these ordinals."""
    return np.concatenate(list(_blocks(log, ordinals, rewards and log.reward is not None)))


def _blocks(log: LogColumns, ordinals: NDArray[Any] | None, rewards: bool) -> Iterator[Hashes]:
    chosen = np.arange(len(log.episode_ids)) if ordinals is None else np.asarray(ordinals, np.int64)
    steps = int((log.starts[chosen + 1] - log.starts[chosen]).sum())
    for part in np.array_split(chosen, max(1, math.ceil(steps / BLOCK))):
        if len(part):
            yield _hashed(log, part, rewards)


def _hashed(log: LogColumns, chosen: NDArray[Any], rewards: bool) -> Hashes:
    first, after = np.asarray(log.starts[chosen]), np.asarray(log.starts[chosen + 1])
    whole = len(chosen) == chosen[-1] - chosen[0] + 1  # consecutive ordinals: a view, no copy
    rows: Any = slice(int(first[0]), int(after[-1])) if whole else ranges(first, after)
    steps = np.asarray(log.step[rows]).astype(np.uint64) * _constant("step")
    steps += _actions(log, np.asarray(log.action[rows]))
    if rewards and log.reward is not None:
        steps += _numbers(np.asarray(log.reward[rows]), "reward")
    sums = np.add.reduceat(_mixed(steps), np.concatenate([[0], np.cumsum(after - first)[:-1]]))
    sums += _numbers(np.asarray(log.episode_ids[chosen]), "episode")
    positions = np.asarray(log.position[first])
    for name in log.spec.observation:
        sums += _observed(log, name, positions)
    return _mixed(sums)


def _actions(log: LogColumns, action: NDArray[Any]) -> Hashes:
    space = log.spec.action
    if isinstance(space, Discrete) and space.names:
        return np.asarray(_words(space.names)[action] * _constant("action"))
    return _numbers(action, "action")


def _observed(log: LogColumns, name: str, positions: NDArray[Any]) -> Hashes:
    leaf, values = log.spec.observation[name], log.observation[name]
    if isinstance(leaf, Image):
        return _images(values, positions, name)
    total = np.zeros(len(positions), np.uint64)
    rows = np.asarray(values[positions])
    filled = dict(leaf.fills) if isinstance(leaf, Vector) else {}
    for column in range(rows.shape[1]):
        label = leaf.names[column] if leaf.names else f"{name}/{column}"
        if label in filled:  # the fill value of missing cells depends on the log
            continue
        if isinstance(leaf, Codes) and leaf.vocabularies and leaf.vocabularies[column]:
            total += _words(leaf.vocabularies[column])[rows[:, column]] * _constant(label)
        else:
            total += _numbers(rows[:, column], label)
    return total


def _images(values: NDArray[Any], positions: NDArray[Any], name: str) -> Hashes:
    size = int(np.prod(values.shape[1:]))
    constants = _mixed(np.arange(1, size + 1, dtype=np.uint64) * _constant(name)) | np.uint64(1)
    parts = np.array_split(positions, max(1, math.ceil(len(positions) * size / PIXELS)))
    return np.concatenate([(np.asarray(values[part]).reshape(len(part), -1) * constants).sum(axis=1) for part in parts])


def _numbers(values: NDArray[Any], name: str) -> Hashes:
    """Hash numbers or text [E] or [E, columns] to one number per row; equal values of any integer type agree."""
    if values.dtype.kind == "U":
        letters = np.ascontiguousarray(values).view(np.uint32).reshape(len(values), -1)
        return _summed(letters, name)
    if values.dtype.kind == "f":
        bits = (values.astype(np.float64) + 0.0).view(np.uint64)  # -0.0 becomes 0.0
        return _summed((bits ^ (bits >> np.uint64(29))).reshape(len(values), -1), name)
    return _summed(values.astype(np.int64).view(np.uint64).reshape(len(values), -1), name)


def _summed(columns: NDArray[Any], name: str) -> Hashes:
    total = columns[:, 0] * _constant(name)
    for place in range(1, columns.shape[1]):
        total += columns[:, place] * _constant(f"{name}/{place}")
    return np.asarray(total)


def _words(words: tuple[str, ...]) -> Hashes:
    return np.asarray([_constant(f"word {word}") for word in words], np.uint64)


def _constant(name: str) -> np.uint64:
    """An odd number derived from a name, the same in every process."""
    return np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") | 1)


def _mixed(values: Hashes) -> Hashes:
    """Mix the bits of each number (the finaliser of SplitMix64, Steele, Lea & Flood 2014)."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
