"""The ledger of looks: every verdict on a log is written down under the fingerprints of the judged episodes.

A look is one verdict, or one table of verdicts that were given at once, with given settings on given episodes. The same
policies with the same settings on the same episodes are the same look, however often they are judged. Looks at other
sets that share episodes count as well; a sketch of each judged set tells.

A ledger is a file of JSON lines that is only ever appended to, each time under a lock and synced to the disk:

    {"line": "episodes", "fingerprint": ..., "sketch": {...}}                      a set of episodes, once
    {"line": "look", "key": ..., "number": 2, "episodes": ..., "policies": ...}    before the look's verdicts are given
    {"line": "decisions", "key": ..., "decisions": {name: decision}}               after it
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from tidelog.data.log import Log
from tidelog.data.overlap import SIZE, Hashes, Sketch, episode_hashes
from tidelog.errors import CheckpointError, ConfigError
from tidelog.folders import MANIFEST
from tidelog.ope.evidence.evidence import Evidence

FILE = "looks.jsonl"
OFF = "off"  # the value of TIDELOG_STATE under which nothing is kept in the user's folder
COUNTED = 0.01  # a look at a set that holds more than this share of the judged episodes is a look at them


@dataclass(frozen=True)
class Look:
    """One look at some episodes, as the ledger has it."""

    key: str  # a hash of episodes, policies and settings
    number: int  # counted from 1 among the looks at the same episodes; 0 where no number was shown, which is no look
    episodes: str  # the fingerprint of the judged log
    time: str  # when, UTC, ISO 8601
    policies: tuple[Mapping[str, Any], ...]  # name, algorithm, identity
    settings: Mapping[str, Any] = field(default_factory=dict)
    decisions: Mapping[str, str] = field(default_factory=dict)  # by name; empty while judging, or where that failed
    share: float = 1.0  # of the episodes that were asked about, those at which this look was taken


class Taken(NamedTuple):
    """The look that a verdict is: its number, and what was looked at before."""

    key: str
    number: int
    before: int  # other looks at these episodes
    elsewhere: float  # the largest share of these episodes in another set that was judged before, 0 without one
    kept: bool  # whether it was written down


@dataclass(frozen=True, eq=False)
class Ledger:
    """What is known about looks at the episodes of one log, read from several files and written to all that it can."""

    files: tuple[Path, ...]
    fingerprint: str
    hashes: Hashes  # [E]: fingerprints of the episodes
    optional: bool = True  # whether judging goes on where no file can be written

    @classmethod
    def of(cls, log: Log, ledger: str | Path | None = None, runs: Sequence[str | Path] = ()) -> Self:
        """The ledger of a log's episodes.

        `ledger` names the one file to use. None: `looks.jsonl` in the folders of `runs` that are judged, in the saved
        log's folder where the log was opened from one, and in the user's state folder. Raises CheckpointError where a
        file is damaged, as soon as it is read.
        """
        if isinstance(ledger, bool) or not isinstance(ledger, str | Path | None):
            raise ConfigError(f"ledger = {ledger!r}: expected a file, None for the usual places, or False for none")
        files = _usual_files(log, runs) if ledger is None else [Path(ledger)]
        return cls(tuple(sorted({one.absolute() for one in files})), log.fingerprint(), episode_hashes(log), not ledger)

    @property
    def looks(self) -> tuple[Look, ...]:
        """Looks at these episodes, or at sets that share some with them, in the order of their numbers."""
        with _opened(self.files, write=False) as files:
            content = [_read(file) for file in files]
        return self._looks(content)

    def take(
        self, policies: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], *, counted: bool = True
    ) -> Taken:
        """Write down that these policies (name, algorithm, identity) are about to be judged, unless it was before.

        Under the lock of all files, so that judges side by side get different numbers. A look that is not `counted`
        shows no number and gets the number 0.
        """
        identities = sorted(str(one["identity"]) for one in policies)
        key = hashed([self.fingerprint, identities, dict(settings), counted])[:32]
        with _opened(self.files, write=True) as files:
            content = [_read(file) for file in files]
            known = self._looks(content)
            same = [look for look in known if look.key == key]
            others = [look for look in known if look.key != key and look.number]
            number = 0 if not counted else max((look.number for look in same), default=len(others) + 1)
            elsewhere = max((look.share for look in others if look.episodes != self.fingerprint), default=0.0)
            look = {
                "line": "look", "key": key, "number": number, "time": _now(), "episodes": self.fingerprint,
                "policies": [dict(one) for one in policies], "settings": dict(settings),
            }  # fmt: skip
            kept = False
            for file, read in zip(files, content, strict=True):
                lines = [] if key in read.looks else [look]
                if lines and self.fingerprint not in read.sketches:
                    sketch = Sketch(len(self.hashes), np.unique(self.hashes)[:SIZE], rewards=True)
                    lines = [{"line": "episodes", "fingerprint": self.fingerprint, "sketch": sketch.to_json()}, look]
                kept |= file.append(lines)
        if not kept and not self.optional:
            raise ConfigError(f"{self.files[0]} cannot be written: name another file in ledger=, or pass ledger=False")
        return Taken(key, number, len(others) if not same else max(number - 1, 0), elsewhere, kept)

    def decided(self, taken: Taken, decisions: Mapping[str, str]) -> None:
        """Write down what came of a look."""
        line = {"line": "decisions", "key": taken.key, "time": _now(), "decisions": dict(decisions)}
        with _opened(self.files, write=True) as files:
            for file in files:
                known = _read(file).looks.get(taken.key)
                if known is not None and known.decisions != line["decisions"]:
                    file.append([line])

    def _looks(self, content: Sequence[_Content]) -> tuple[Look, ...]:
        found: dict[str, Look] = {}
        for read in content:
            shares = {name: self._share(name, sketch) for name, sketch in read.sketches.items()}
            for key, look in read.looks.items():
                share = shares.get(look.episodes, 0.0)
                if share and (key not in found or found[key].number < look.number):
                    found[key] = replace(look, share=share)
        return tuple(sorted(found.values(), key=lambda look: (look.number, look.time, look.key)))

    def _share(self, fingerprint: str, sketch: Sketch) -> float:
        """The share of this log's episodes that another set holds, 0 where they are too few to count."""
        if fingerprint == self.fingerprint:
            return 1.0
        shared = sketch.among(self.hashes)
        return shared.share if shared.exceeds(COUNTED) else 0.0


def policy_identity(policy: Evidence) -> str:
    """A hash of what a policy would do along a log: its probabilities, or densities of what was logged."""
    digest = hashlib.sha256(np.ascontiguousarray(policy.target, np.float64).tobytes())
    if policy.target_all is not None:
        digest.update(np.ascontiguousarray(policy.target_all, np.float64).tobytes())
    return digest.hexdigest()[:32]


def hashed(value: Any) -> str:
    """SHA-256 of plain values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def state_folder() -> Path | None:
    """The user's folder for what tidelog remembers between runs: TIDELOG_STATE, else as XDG has it; None for "off"."""
    given, state = os.environ.get("TIDELOG_STATE", ""), os.environ.get("XDG_STATE_HOME", "")
    if given == OFF:
        return None
    if given:
        return Path(given)
    if Path(state).is_absolute():
        return Path(state) / "tidelog"
    try:
        return Path.home() / ".local" / "state" / "tidelog"
    except RuntimeError:  # no home folder
        return None


def _usual_files(log: Log, runs: Sequence[str | Path]) -> list[Path]:
    found = [Path(run) / FILE for run in runs]
    source = None if log.origin is None else Path(str(log.origin.get("source")))
    if source is not None and (source / MANIFEST).is_file():
        found.append(source / FILE)
    state = state_folder()
    return found if state is None else [*found, state / FILE]


class _Content(NamedTuple):
    """What one file says."""

    sketches: dict[str, Sketch]  # by the fingerprint of a log
    looks: dict[str, Look]  # by their keys


class _File(NamedTuple):
    """A file under its lock; without a handle where it is not there or cannot be opened."""

    path: Path
    handle: int | None
    writable: bool

    def append(self, lines: Sequence[Mapping[str, Any]]) -> bool:
        """Write whole lines and wait until they are on the disk; whether the file can hold them."""
        if self.handle is None or not self.writable:
            return False
        text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode()
        try:
            while text:
                text = text[os.write(self.handle, text) :]
            os.fsync(self.handle)
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be written: {error}") from error
        return True


@contextmanager
def _opened(paths: Sequence[Path], *, write: bool) -> Iterator[list[_File]]:
    """All files, locked in the order of their names until the block ends."""
    with ExitStack() as stack:
        found = []
        for path in paths:
            handle, writable = _open(path, write)
            if handle is not None:
                stack.callback(os.close, handle)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX if writable else fcntl.LOCK_SH)
                except OSError:  # a file system without locks: judges side by side would write over each other
                    writable = False
            found.append(_File(path, handle, writable))
        yield found


def _open(path: Path, write: bool) -> tuple[int | None, bool]:
    if write:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644), True
        except OSError:  # a place that cannot be written may still be read
            pass
    try:
        return os.open(path, os.O_RDONLY), False
    except (FileNotFoundError, NotADirectoryError):
        return None, False
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}; fix: mend its permissions, or name another file in ledger="
        ) from error


def _read(file: _File) -> _Content:
    content = _Content({}, {})
    if file.handle is None:
        return content
    with os.fdopen(os.dup(file.handle), "rb") as lines:
        lines.seek(0)
        for number, line in enumerate(lines, start=1):
            try:
                if not line.endswith(b"\n"):
                    raise ValueError("it is cut off")
                _understand(json.loads(line), content)
            except (ValueError, KeyError, TypeError, RecursionError, CheckpointError) as error:
                raise CheckpointError(
                    f"{file.path}, line {number}: not a line of a ledger of looks ({error}); expected what `tidelog "
                    "judge` appended; fix: remove that line, or name another file with ledger= (--ledger)"
                ) from error
    return content


def _understand(line: Any, content: _Content) -> None:
    kind = line["line"]
    if kind == "episodes":
        content.sketches[str(line["fingerprint"])] = Sketch.from_json(line["sketch"])
    elif kind == "look":
        number = line["number"]
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ValueError(f"number {number!r}")
        names = tuple({**one, "name": str(one["name"])} for one in line["policies"])
        look = Look(str(line["key"]), number, str(line["episodes"]), str(line["time"]), names, dict(line["settings"]))
        content.looks[look.key] = look
    elif kind == "decisions":
        key = str(line["key"])
        content.looks[key] = replace(content.looks[key], decisions=dict(line["decisions"]))
    else:
        raise ValueError(f"unknown kind {kind!r}")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
