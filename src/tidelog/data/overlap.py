"""Which episodes a policy learnt from, remembered in 16 kB, so that it is not judged on what it was taught.

Every episode has a 64-bit fingerprint of its name, its actions, its rewards and what was first seen. A sketch keeps the
smallest of them (a bottom-k sketch, Cohen & Kaplan 2007): whoever holds the sketch of one log can tell of another log's
episodes with fingerprints in that range whether they were in the first. Up to `SIZE` episodes this is exact.

Words are hashed as words and features by their names, so that the order of columns and of codes does not matter.
Letters: `E` episodes, `N` steps.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.data.core.log_columns import LogColumns, ranges
from tidelog.errors import CheckpointError
from tidelog.types import Codes, Discrete, Image, Vector

Hashes = NDArray[np.uint64]
SIZE = 1024  # fingerprints kept
BLOCK = 1 << 21  # steps that are hashed at once
PIXELS = 1 << 22  # the same for pictures
SURE = 0.05  # an excess that chance explains with more than this probability is none


class Overlap(NamedTuple):
    """How many of the episodes that a sketch can speak about it holds."""

    known: int  # judged episodes whose fingerprints lie in the sketch's range
    shared: int  # those of them that the sketch holds
    exact: bool  # whether the range is all there is

    @property
    def share(self) -> float:
        """The estimated share of shared episodes; NaN where the sketch can speak about none."""
        return self.shared / self.known if self.known else math.nan

    def exceeds(self, share: float) -> bool:
        """Whether more than that share is shared, and if the sketch is a sample, by more than chance explains."""
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
        """The sketch of a log, or of the episodes with these ordinals."""
        kept, count, rewards = np.zeros(0, np.uint64), 0, log.reward is not None
        for hashes in _blocks(log, ordinals, rewards):
            count += len(hashes)
            smallest = np.unique(np.concatenate([kept, _few(hashes)]))
            kept = smallest[:SIZE]
        return cls(count, kept, rewards)

    def overlap(self, log: LogColumns, ordinals: NDArray[Any] | None = None) -> Overlap:
        """How many episodes of a log this sketch holds."""
        known = shared = 0
        for hashes in _blocks(log, ordinals, self.rewards and log.reward is not None):
            found = self.among(hashes)
            known, shared = known + found.known, shared + found.shared
        return Overlap(known, shared, self.episodes <= SIZE)

    def among(self, hashes: Hashes) -> Overlap:
        """How many of these fingerprints [E] this sketch holds; they count rewards as the sketch does."""
        exact = self.episodes <= SIZE
        near = hashes if exact else hashes[hashes <= self.smallest[-1]]
        return Overlap(len(near), int(np.isin(near, self.smallest).sum()), exact)

    def joined(self, other: Sketch) -> Sketch | None:
        """The sketch of the episodes of both; None where one counts rewards and the other had none."""
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
    def from_json(cls, data: Mapping[str, Any]) -> Sketch:
        """Rebuild from `to_json`; CheckpointError where that is not what it is."""
        try:
            smallest = np.frombuffer(bytes.fromhex(data["smallest"]), ">u8").astype(np.uint64)
            return cls(int(data["episodes"]), smallest, bool(data["rewards"]))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the sketch of the episodes learnt from cannot be understood: {error!r}") from error


def episode_hashes(log: LogColumns, ordinals: NDArray[Any] | None = None, *, rewards: bool = True) -> Hashes:
    """Fingerprints [E] of a log's episodes, or of those with these ordinals."""
    return np.concatenate(list(_blocks(log, ordinals, rewards and log.reward is not None)))


def _few(hashes: Hashes) -> Hashes:
    return hashes if len(hashes) <= SIZE else np.partition(hashes, SIZE - 1)[:SIZE]


def _blocks(log: LogColumns, ordinals: NDArray[Any] | None, rewards: bool) -> Iterator[Hashes]:
    chosen = np.arange(len(log.episode_ids)) if ordinals is None else np.asarray(ordinals, np.int64)
    steps = int((log.starts[chosen + 1] - log.starts[chosen]).sum())
    for part in np.array_split(chosen, max(1, math.ceil(steps / BLOCK))):
        if len(part):
            yield _hashed(log, part, rewards)


def _hashed(log: LogColumns, chosen: NDArray[Any], rewards: bool) -> Hashes:
    first, after = np.asarray(log.starts[chosen]), np.asarray(log.starts[chosen + 1])
    whole = len(chosen) == chosen[-1] - chosen[0] + 1  # ordinals without a gap: a view, no copy
    rows: Any = slice(int(first[0]), int(after[-1])) if whole else ranges(first, after)
    steps = np.asarray(log.step[rows]).astype(np.uint64) * _constant("step")
    steps += _actions(log, np.asarray(log.action[rows]))
    if rewards and log.reward is not None:
        steps += _numbers(np.asarray(log.reward[rows]), "reward")
    sums = np.add.reduceat(_mixed(steps), np.concatenate([[0], np.cumsum(after - first)[:-1]]))
    sums += _numbers(np.asarray(log.episode_ids[chosen]), "episode")
    seen = np.asarray(log.position[first])
    for name in log.spec.observation:
        sums += _observed(log, name, seen)
    return _mixed(sums)


def _actions(log: LogColumns, action: NDArray[Any]) -> Hashes:
    space = log.spec.action
    if isinstance(space, Discrete) and space.names:
        return np.asarray(_words(space.names)[action] * _constant("action"))
    return _numbers(action, "action")


def _observed(log: LogColumns, name: str, seen: NDArray[Any]) -> Hashes:
    leaf, values = log.spec.observation[name], log.observation[name]
    if isinstance(leaf, Image):
        return _pictures(values, seen, name)
    total = np.zeros(len(seen), np.uint64)
    rows = np.asarray(values[seen])
    filled = dict(leaf.fills) if isinstance(leaf, Vector) else {}
    for column in range(rows.shape[1]):
        called = leaf.names[column] if leaf.names else f"{name}/{column}"
        if called in filled:  # what stands in for a missing value depends on the log that it is missing in
            continue
        if isinstance(leaf, Codes) and leaf.vocabularies and leaf.vocabularies[column]:
            total += _words(leaf.vocabularies[column])[rows[:, column]] * _constant(called)
        else:
            total += _numbers(rows[:, column], called)
    return total


def _pictures(values: NDArray[Any], seen: NDArray[Any], name: str) -> Hashes:
    size = int(np.prod(values.shape[1:]))
    constants = _mixed(np.arange(1, size + 1, dtype=np.uint64) * _constant(name)) | np.uint64(1)
    parts = np.array_split(seen, max(1, math.ceil(len(seen) * size / PIXELS)))
    return np.concatenate([(np.asarray(values[part]).reshape(len(part), -1) * constants).sum(axis=1) for part in parts])


def _numbers(values: NDArray[Any], name: str) -> Hashes:
    """Numbers or words [E] or [E, columns] as one number each; equal values of any width or kind of integer agree."""
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
    """An odd number that depends on a name, the same in every process."""
    return np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") | 1)


def _mixed(values: Hashes) -> Hashes:
    """Every bit of each number spread over all bits (the finaliser of SplitMix64, Steele, Lea & Flood 2014)."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
