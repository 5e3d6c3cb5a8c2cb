"""The ledger of looks: a record of every verdict, under the fingerprints of the judged episodes.

A look is one verdict, or one table of verdicts from one call, with certain settings on certain episodes. The same
policies with the same settings on the same episodes are the same look, however often they are judged, and also when
they are judged again under an assumption that the first verdict asked for (`ASSUMED`): the ledger keeps its decisions.
Looks at other sets that share episodes also count; a sketch of each judged set measures the shared part.

A ledger is an append-only file of JSON lines. Each write holds a lock and is synced to disk:

    {"line": "episodes", "fingerprint": ..., "sketch": {...}}                      a set of episodes, once
    {"line": "look", "key": ..., "number": 2, "episodes": ..., "policies": ...}    before the verdicts of the look
    {"line": "decisions", "key": ..., "decisions": {name: decision}}               after them
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, TypedDict

import msgspec
import numpy as np
from msgspec.structs import replace

from tidelog import _files
from tidelog._files import MANIFEST
from tidelog.data.columns import SHARES
from tidelog.data.log import Log
from tidelog.data.statistics import SIZE, Hashes, Sketch, episode_hashes
from tidelog.errors import CheckpointError, ConfigError
from tidelog.ope.evidence import Evidence
from tidelog.ope.verdict import IF_RANDOMISED
from tidelog.schema import Count, decode

FILE = "looks.jsonl"
OFF = "off"  # value of TIDELOG_STATE that disables the user's folder
# by setting: its value at a look, and the assumption in its place that the look's verdict may ask for
ASSUMED: Mapping[str, tuple[Any, Any]] = {"propensities": (None, SHARES), "missing_at_random": (False, True)}
COUNTED = 0.01  # a look at another set counts if the set holds more than this share of the judged episodes


Widening = Annotated[float, msgspec.Meta(ge=1.0)]


class JudgedPolicy(TypedDict):
    """A policy of a look."""

    name: str
    algorithm: str | None  # None: the policy is not of an algorithm
    identity: str


class Look(msgspec.Struct, frozen=True, tag_field="line", tag="look"):
    """One look at some episodes, as recorded in the ledger."""

    key: str  # a hash of episodes, policies and settings
    number: Count  # from 1, among the looks at the same episodes; 0: no number was shown, so it is not a look
    episodes: str  # of the judged log, without what is declared
    time: str  # UTC, ISO 8601
    policies: tuple[JudgedPolicy, ...]
    settings: dict[str, Any]
    decisions: dict[str, str] = {}  # by name, from a line of their own; empty while judging or after a failure
    together: dict[str, Widening] = {}  # by name: for the other policies of the look
    share: float = 1.0  # share of this log's episodes that the look judged


class RecordedLook(NamedTuple):
    """The look of a verdict: its number, and the earlier looks."""

    key: str
    number: int
    before: int  # other looks at these episodes
    policies_before: int  # number of results in these looks: a policy judged in two ways has two
    different_before: int  # number of different policies among them
    policies: int  # number of policies of this look
    elsewhere: float  # largest share of these episodes in another set that was judged before; 0 if there is none
    recorded: bool  # whether it was recorded
    together: tuple[float, ...] | None = None  # widening of the judged policies in the earlier look that holds them
    stated: bool = False  # whether that look had weaker assumptions


@dataclass(frozen=True, eq=False)
class Ledger:
    """Looks at the episodes of one log, read from several files and written to every writable one.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> ledger = tl.Ledger.of(log, "looks.jsonl")
        >>> len(ledger.looks)
        0
    """

    files: tuple[Path, ...]
    fingerprint: str
    hashes: Hashes  # [E]: fingerprints of the episodes
    optional: bool = True  # whether judging continues if no file is writable

    @classmethod
    def of(cls, log: Log, ledger: str | Path | None = None, runs: Sequence[str | Path] = ()) -> Self:
        """The ledger of a log's episodes.

        `ledger` is the one file to use. None: `looks.jsonl` in the folders of the judged `runs`, in the folder of a
        saved log, and in the user's state folder. Raises CheckpointError when it reads a damaged file.
        """
        if isinstance(ledger, bool) or not isinstance(ledger, str | Path | None):
            raise ConfigError(f"ledger = {ledger!r}", "a file, None for the default files, or False for none")
        if ledger is not None:
            files = [Path(ledger).resolve()]  # a link that the user names is the user's own
        else:
            files = [Path(run) / FILE for run in runs]
            source = None if log.origin is None else log.origin.get("source")
            saved = isinstance(source, str) and (Path(source) / MANIFEST).is_file()
            files += [Path(str(source)) / FILE] if saved else []
            state = state_folder()
            files += [] if state is None else [state / FILE]
        return cls(
            tuple(sorted({one.absolute() for one in files})),
            undeclared_fingerprint(log),
            episode_hashes(log),
            not ledger,
        )

    @property
    def looks(self) -> tuple[Look, ...]:
        """Looks at these episodes, or at sets that share some of them, in the order of their numbers."""
        with _opened(self.files, write=False) as files:
            content = [_read(file) for file in files]
        return self._looks(content)

    def check(self) -> None:
        """Raise what would stop the recording of a look: a damaged file, or none that can be written of those named."""
        with _opened(self.files, write=not self.optional) as files:
            for file in files:
                _read(file)
            self._check_written(any(file.writable for file in files))

    def _check_written(self, written: bool) -> None:
        if not written and not self.optional:
            raise ConfigError(f"{self.files[0]} cannot be written", fix="use another file in ledger=, or ledger=False")

    def record_look(
        self, policies: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], *, counted: bool = True
    ) -> RecordedLook:
        """Record a look at these policies (name, algorithm, identity), unless it is recorded already.

        Holds the lock of all files: concurrent judges get different numbers. A look that is not `counted` shows no
        number and gets the number 0. Some of the policies of an earlier look, with its settings or an assumption that
        it asked for, are that look: its intervals hold for all of its policies, whichever of them is chosen.
        """
        identities = sorted(str(one["identity"]) for one in policies)
        key = hashed([self.fingerprint, identities, dict(settings), counted])[:32]
        with _opened(self.files, write=True) as files:
            content = [_read(file) for file in files]
            known = self._looks(content)
            holder = None if any(look.key == key for look in known) else self._holder(known, policies, settings)
            key = key if holder is None else holder.key
            same = [look for look in known if look.key == key]
            others = [look for look in known if look.key != key and look.number]
            number = 0 if not counted else max((look.number for look in same), default=len(others) + 1)
            earlier = [look for look in others if not same or look.number < number]
            elsewhere = max((look.share for look in others if look.episodes != self.fingerprint), default=0.0)
            look = {
                "line": "look", "key": key, "number": number, "time": _now(), "episodes": self.fingerprint,
                "policies": [dict(one) for one in policies], "settings": dict(settings),
            }  # fmt: skip
            recorded = False
            for file, read in zip(files, content, strict=True):
                lines = [] if key in read.looks else [look]
                if lines and self.fingerprint not in read.sketches:
                    sketch = Sketch(len(self.hashes), np.unique(self.hashes)[:SIZE], rewards=True)
                    lines = [{"line": "episodes", "fingerprint": self.fingerprint, "sketch": sketch.to_json()}, look]
                recorded |= file.append(lines)
            self._check_written(recorded)
        before = len(others) if not same else max(number - 1, 0)
        judged = [str(one["identity"]) for look in earlier for one in look.policies]
        together = None
        if holder is not None:
            by_identity = {str(one["identity"]): holder.together[one["name"]] for one in holder.policies}
            together = tuple(by_identity[str(one["identity"])] for one in policies)
        count = len(policies if holder is None else holder.policies)
        stated = holder is not None and _differing(holder.settings, settings) != set()
        return RecordedLook(
            key, number, before, len(judged), len(set(judged)), count, elsewhere, recorded, together, stated
        )

    def _holder(
        self, looks: Sequence[Look], policies: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
    ) -> Look | None:
        """The first finished look at these policies among others, with these settings or less than they assume."""
        wanted = {str(one["identity"]) for one in policies}
        for look in looks:
            identities = {str(one["identity"]) for one in look.policies if one["name"] in look.together}
            alike = _is_asked_for(look, settings, wanted)
            if look.episodes == self.fingerprint and look.number and alike and wanted <= identities:
                return look
        return None

    def record_decisions(
        self, look: RecordedLook, decisions: Mapping[str, str], together: Mapping[str, float] | None = None
    ) -> None:
        """Record the decisions of a look, and the widening of each policy's interval for the other policies."""
        if look.together is not None:  # part of an earlier look, which has its decisions
            return
        line = {"line": "decisions", "key": look.key, "time": _now(), "decisions": dict(decisions)}
        line |= {"together": dict(together or {})}
        with _opened(self.files, write=True) as files:
            for file in files:
                known = _read(file).looks.get(look.key)
                if known is not None and known.decisions != line["decisions"]:
                    file.append([line])

    def _looks(self, content: Sequence[_Content]) -> tuple[Look, ...]:
        looks: dict[str, Look] = {}
        for read in content:
            shares = {name: self._share(name, sketch) for name, sketch in read.sketches.items()}
            for key, look in read.looks.items():
                share = shares.get(look.episodes, 0.0)
                if share and (key not in looks or looks[key].number < look.number):
                    looks[key] = replace(look, share=share)
        return tuple(sorted(looks.values(), key=lambda look: (look.number, look.time, look.key)))

    def _share(self, fingerprint: str, sketch: Sketch) -> float:
        """Share of this log's episodes that another set holds; 0 if they are too few to count."""
        if fingerprint == self.fingerprint:
            return 1.0
        shared = sketch.among(self.hashes)
        return shared.share if shared.exceeds(COUNTED) else 0.0


def undeclared_fingerprint(log: Log) -> str:
    """The fingerprint of a log's episodes, whatever is declared of their propensities."""
    declared = None if log.declared is None else dataclasses.replace(log, propensity=None, declared=None, stratum=None)
    return (declared or log).fingerprint()


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> set[str]:
    """The settings that differ; ways of acting are part of identities."""
    return {name for name in {*before, *now} - {"sample"} if before.get(name) != now.get(name)}


def _is_asked_for(look: Look, settings: Mapping[str, Any], wanted: Collection[str]) -> bool:
    """Whether settings are those of a look, or state an assumption that its verdict on these policies asked for.

    What is *better* whatever unknown rewards are is also *better* where they are missing at random. Shares as
    propensities are another estimate than that of a look, which gives it where it says *better if randomised*.
    """
    differing = _differing(look.settings, settings)
    if any((look.settings.get(name), settings.get(name)) != ASSUMED.get(name) for name in differing):
        return False
    said = {look.decisions.get(one["name"]) for one in look.policies if str(one["identity"]) in wanted}
    return "propensities" not in differing or (IF_RANDOMISED in look.decisions.values() and "worse" not in said)


def policy_identity(policy: Evidence) -> str:
    """Hash of a policy's behaviour on a log: its probabilities, or densities of the logged actions."""
    digest = hashlib.sha256(np.ascontiguousarray(policy.target, np.float64).tobytes())
    if policy.target_all is not None:
        digest.update(np.ascontiguousarray(policy.target_all, np.float64).tobytes())
    return digest.hexdigest()[:32]


def hashed(value: Any) -> str:
    """SHA-256 of plain values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def state_folder() -> Path | None:
    """The user's folder for tidelog's persistent state: TIDELOG_STATE, else the XDG state folder; None for "off"."""
    override, state = os.environ.get("TIDELOG_STATE", ""), os.environ.get("XDG_STATE_HOME", "")
    if override == OFF:
        return None
    if override:
        return Path(override)
    if Path(state).is_absolute():
        return Path(state) / "tidelog"
    try:
        return Path.home() / ".local" / "state" / "tidelog"
    except RuntimeError:  # no home folder
        return None


class _Content(NamedTuple):
    """Content of one file."""

    sketches: dict[str, Sketch]  # by the fingerprint of a log
    looks: dict[str, Look]  # by their keys


class _File(NamedTuple):
    """A locked file; it has no handle if it is missing or cannot be opened."""

    path: Path
    handle: int | None
    writable: bool

    def append(self, lines: Sequence[Mapping[str, Any]]) -> bool:
        """Write whole lines and sync them to disk; return whether the file is writable.

        An incomplete last line of a process that was killed is removed first: its look was never shown.
        """
        if self.handle is None or not self.writable:
            return False
        text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode()
        try:
            content = os.pread(self.handle, os.fstat(self.handle).st_size, 0)
            if content and not content.endswith(b"\n"):
                _files.DISK.cut(self.path, content.rfind(b"\n") + 1)
            _files.DISK.append(self.path, self.handle, text)
            _files.DISK.sync(self.path)
        except OSError as error:
            raise _files.not_written(self.path, error, CheckpointError) from error
        return True


@contextmanager
def _opened(paths: Sequence[Path], *, write: bool) -> Iterator[list[_File]]:
    """Open all files, locked in the order of their names until the block ends."""
    with ExitStack() as stack:
        files = []
        for path in paths:
            handle, writable = _open(path, write)
            if handle is not None:
                stack.callback(os.close, handle)
                kind = fcntl.LOCK_EX if writable else fcntl.LOCK_SH
                try:
                    try:
                        fcntl.flock(handle, kind | fcntl.LOCK_NB)
                    except BlockingIOError:
                        warnings.warn(f"another judge uses the ledger {path}: waiting for it to end", stacklevel=2)
                        fcntl.flock(handle, kind)
                except OSError:  # a file system without locks: concurrent judges would overwrite each other
                    writable = False
            files.append(_File(path, handle, writable))
        yield files


def _open(path: Path, write: bool) -> tuple[int | None, bool]:
    if write:
        try:
            _files.make_folders(path.parent)
            _files.create_missing(path)
            return _files.open_own(path, os.O_RDWR | os.O_APPEND), True
        except OSError:  # a file that is not writable may still be readable
            pass
    try:
        return _files.open_own(path, os.O_RDONLY), False
    except (FileNotFoundError, NotADirectoryError):
        return None, False
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}", fix="correct its permissions, or use another file in ledger="
        ) from error


def _read(file: _File) -> _Content:
    content = _Content({}, {})
    if file.handle is None:
        return content
    with os.fdopen(os.dup(file.handle), "rb") as lines:
        lines.seek(0)
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):  # of a process that was killed while it wrote
                break
            try:
                entry = decode(line, _LINES, "it")
                if isinstance(entry, EpisodesLine):
                    content.sketches[entry.fingerprint] = Sketch.from_json(entry.sketch)
                elif isinstance(entry, Look):
                    content.looks[entry.key] = entry
                else:
                    look = content.looks[entry.key]
                    content.looks[entry.key] = replace(look, decisions=entry.decisions, together=entry.together)
            except (KeyError, CheckpointError) as error:
                reason = error.problem if isinstance(error, CheckpointError) else f"no look has the key {error}"
                raise CheckpointError(
                    f"{file.path}, line {number}: not a line of a ledger of looks ({reason})",
                    "a line written by `tidelog judge`",
                    "remove that line, or use another file with ledger= (--ledger)",
                ) from error
    return content


class EpisodesLine(msgspec.Struct, tag_field="line", tag="episodes"):
    """A set of episodes."""

    fingerprint: str
    sketch: dict[str, Any]


class DecisionsLine(msgspec.Struct, tag_field="line", tag="decisions"):
    """The decisions of a look."""

    key: str
    decisions: dict[str, str]
    together: dict[str, Widening] = {}


_LINES: Any = EpisodesLine | Look | DecisionsLine


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
