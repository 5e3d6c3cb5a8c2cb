"""A command that writes a file for each file that it reads: `files.json` in its folder, and what is done or failed.

FOLDER/files.json        the files, and the settings of the command; written first
FOLDER/.../name.csv      what was written for a file, at the place that the file has below the files' common folder
FOLDER/skipped/.../name.csv rows of a file that were left out, if the command was told to leave them out
FOLDER/files.done/0/.../name.csv.json that name.csv is complete, and what is said about it (0: calls with --overwrite)
FOLDER/failures/0003.txt why there is nothing for a file
FOLDER/jobs/0003.txt     what a process printed, if there were several
FOLDER/files.lock        locked while a process writes here
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from tidelog.cli.flags import FolderFlags
from tidelog.cli.output import print_details, print_line, print_notes
from tidelog.data.sources import SOURCES, ending_of
from tidelog.disk import delete, is_temporary, make_folders, not_written, tidy, write_file, write_json
from tidelog.errors import ConfigError, TidelogError
from tidelog.folders import digest
from tidelog.input_files import check_regular, read_regular
from tidelog.number_text import count_of
from tidelog.schema import Count, decode_file
from tidelog.sweeps.engines import FILES, JOBS
from tidelog.training.runs.lock import locked
from tidelog.training.runs.progress import Screen

FAILURES, SKIPPED, LOCK, DONE = "failures", "skipped", "files.lock", "files.done"
MOST_SHOWN = 5  # failures that are printed
ENDINGS = (".csv", ".parquet", ".tidelog")
TEXT = ("csv", "tsv")  # tables for which a .csv is written, and a .parquet for others
HUB, POLICY = "hf://", "policy"
T = TypeVar("T")


class OneFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that is read, as it was when the command began, and the file that is written for it."""

    source: str  # an absolute path
    target: str  # below the folder
    size: Count  # bytes
    modified: Count  # milliseconds


class Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is said about the output of a file."""

    skipped: Count = 0  # rows that were left out
    notes: list[str] = []


class ManyFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `files.json`."""

    folder: str
    settings: dict[str, Any]  # flags by their names, and what else the output depends on
    files: list[OneFile]
    earlier: list[OneFile] = []  # of earlier calls with the same settings, whose outputs are here too
    replaced: list[OneFile] = []  # whose outputs are of other settings, and are deleted once all others are complete
    round: Count = 0  # the number of calls with --overwrite

    @classmethod
    @contextmanager
    def begin(
        cls,
        folder: Path,
        settings: dict[str, Any],
        sources: Sequence[Path],
        overwrite: bool,
        names: Sequence[str] | None = None,
    ) -> Iterator[Self]:
        """Write `files.json`; where the same command wrote before, go on with files that have no output yet.

        `names` are those of the outputs, if they are not to lie where the files do. ConfigError where another command
        wrote, or where a file has changed since its output was written; CheckpointError where another process writes
        now.
        """
        if not (folder / FILES).exists() and folder.exists() and not _is_free(folder):
            raise ConfigError(f"{folder} exists and is not of this command. fix: choose another folder")
        files = _files(sources, folder) if names is None else list(map(_one_file, sources, names))
        plan = cls(str(folder.absolute()), settings, files)
        try:
            make_folders(folder)
        except OSError as problem:
            raise not_written(folder, problem, ConfigError) from problem
        with locked(folder, LOCK, "written"):
            before = cls.read(folder) if (folder / FILES).exists() else None
            written = [] if before is None else [*before.files, *before.earlier, *before.replaced]
            _check_no_link_leads_out(folder, [*plan.files, *written])
            if before is not None:
                plan = plan._after(before, overwrite)
            for parent in {one.parent for file in [*plan.files, *written] for one in plan._places(file)} | {folder}:
                tidy(parent)
            delete(folder / FAILURES)
            write_json(folder / FILES, msgspec.to_builtins(plan), ConfigError)
            yield plan
            plan.delete_replaced()

    def _after(self, before: Self, overwrite: bool) -> Self:
        """This plan with what earlier calls wrote; ConfigError if it would mix with that."""
        plan = msgspec.structs.replace(self, round=before.round + overwrite)
        mine, earlier = {one.target for one in plan.files}, []
        if not overwrite:
            plan._check_goes_on(before)
            known = [*before.files, *before.earlier]
            earlier = [one for one in known if one.target not in mine and plan.is_complete(one)]
        there = {one.target: one for one in [*before.files, *before.earlier, *before.replaced]
                 if any(place.exists() for place in plan._places(one))}  # fmt: skip
        for one in [*plan.files, *earlier]:
            there.pop(one.target, None)
        return msgspec.structs.replace(plan, earlier=earlier, replaced=list(there.values()))

    def delete_replaced(self) -> None:
        """Delete what is of other settings, if every file has its output or a failure."""
        if self.left():
            return
        for one in self.replaced:
            for place in self._places(one)[:2]:
                delete(place)
        for one in self.files if self.settings.get("--skip-unknown") is None else ():
            if self.is_complete(one):
                delete(self._places(one)[1])
        folder = Path(self.folder)
        for rounds in (folder / DONE).glob("*"):
            if rounds.name != str(self.round):
                delete(rounds)
        if self.replaced:
            write_json(folder / FILES, msgspec.to_builtins(msgspec.structs.replace(self, replaced=[])), ConfigError)

    def _places(self, one: OneFile) -> tuple[Path, Path, Path]:
        """The output of a file, its rows that are left out, and the record that both are complete."""
        folder = Path(self.folder)
        record = folder / DONE / str(self.round) / f"{one.target}.json"
        return folder / one.target, folder / SKIPPED / one.target, record

    def is_complete(self, one: OneFile) -> bool:
        """Whether the output of a file is there, and is of these settings."""
        output, _, record = self._places(one)
        return record.exists() and output.exists()

    def _check_goes_on(self, before: Self) -> None:
        """Raise ConfigError unless all that was written before is what this command would write."""
        fix = "fix: choose another folder, or add --overwrite to begin again"
        for name in sorted({*self.settings, *before.settings}):
            if self.settings.get(name) != before.settings.get(name):
                raise ConfigError(f"{self.folder} was begun with another {name}. {fix}")
        sources, targets = ({getattr(one, name): one for one in self.files} for name in ("source", "target"))
        for one in [*before.files, *before.earlier]:
            if not before.is_complete(one):
                continue
            if one.source in sources and sources[one.source] != one:
                same = sources[one.source].target == one.target
                what = "has changed" if same else "has another place below the files"
                raise ConfigError(f"{one.source} {what} since its output was written. {fix}")
            if one.source not in sources and one.target in targets:
                raise ConfigError(
                    f"{self.folder}/{one.target} was written for {one.source}, which is another file. {fix}"
                )

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read `files.json`; ConfigError, or SpecError, if it was not written by this command."""
        path = folder / FILES
        if not path.is_file():
            raise ConfigError(f"{folder} has no {FILES}, it is not of this command. fix: choose another folder")
        plan = decode_file(path, cls, ConfigError, "choose another folder")
        for one in [*plan.files, *plan.earlier, *plan.replaced]:
            parts = Path(one.target).parts
            if not parts or Path(one.target).suffix not in ENDINGS or ".." in parts or Path(one.target).is_absolute():
                raise ConfigError(f"{path} names {one.target!r}, no file that it writes. fix: choose another folder")
        return msgspec.structs.replace(plan, folder=str(folder.absolute()))

    def options(self, flags: Callable[..., T], recorded: Sequence[str]) -> T:
        """The flags of the command, as it was called."""
        values = {name: self.settings.get(_flag(name)) for name in recorded}
        return flags(policy=self.settings.get(POLICY), out=self.folder, data=(), **values)

    def check_same(self, settings: dict[str, Any]) -> None:
        """Raise ConfigError unless these settings, such as the version of the policy, are those of the command."""
        changed = [name for name in settings if self.settings.get(name) != settings[name]]
        if changed:
            raise ConfigError(
                f"{changed[0]} has changed since {self.folder} was begun. fix: call the command again with --overwrite"
            )

    def left(self, numbers: Iterable[int] | None = None) -> list[int]:
        """The files, of these or of all, that have neither an output nor a failure."""
        wanted = range(len(self.files)) if numbers is None else numbers
        return [one for one in wanted if not self.is_complete(self.files[one]) and not self._failure(one).exists()]

    def failures(self) -> dict[int, str]:
        """Why there is nothing for a file, by its number."""
        found = {number: self._failure(number) for number in range(len(self.files))}
        return {
            number: read_regular(path).decode("utf-8", "replace") for number, path in found.items() if path.exists()
        }

    def target(self, number: int) -> Path:
        """The file that is written for a file."""
        return Path(self.folder) / self.files[number].target

    def work(
        self, numbers: Iterable[int], write: Callable[[OneFile, Path], Outcome], after: Callable[[], None]
    ) -> None:
        """Call `write(file, target)` for each of some files that is left, and `after` after each of them.

        An error of tidelog is kept as the file's failure.
        """
        for number in self.left(numbers):
            target = self.target(number)
            try:
                make_folders(target.parent)
                outcome = write(self.files[number], target)
                write_json(self._places(self.files[number])[2], msgspec.to_builtins(outcome), ConfigError)
            except OSError as problem:
                self.fail(number, str(not_written(target, problem, ConfigError)))
            except TidelogError as error:
                self.fail(number, str(error))
            after()

    def tell(self, what: str, folder: str) -> dict[str, Any]:
        """Print what is said about the outputs, how many files with what were written, and what failed; return it."""
        failures = self.failures()
        complete = [one for number, one in enumerate(self.files) if number not in failures]
        outcomes = [decode_file(self._places(one)[2], Outcome, ConfigError, "add --overwrite") for one in complete]
        notes = [outcome.notes for outcome in outcomes if outcome.notes]
        print_notes(note for first in notes[:1] for note in first)
        if len(notes) > 1:
            print_notes([f"the same note is for {count_of(len(notes) - 1, 'more file')} in {folder}"])
        skipped = [outcome.skipped for outcome in outcomes if outcome.skipped]
        if skipped:
            rows, where = count_of(sum(skipped), "row"), Path(folder) / SKIPPED
            print_details(
                f"{rows} of {count_of(len(skipped), 'file')} skipped, each with the values that the policy cannot "
                f"read: {where}"
            )
        print_line(
            f"{count_of(len(complete), 'file')} with {'its' if len(complete) == 1 else 'their'} {what}: {folder}"
        )
        for number, reason in list(failures.items())[:MOST_SHOWN]:
            print_line(f"nothing for {self.files[number].source}: {reason}")
        if len(failures) > MOST_SHOWN:
            print_line(f"... and for {len(failures) - MOST_SHOWN:,} more: {Path(folder) / FAILURES}")
        older = [number for number in failures if self.target(number).exists()]
        if older:
            print_line(
                f"{count_of(len(older), 'output')} of an earlier call {'is' if len(older) == 1 else 'are'} unchanged, "
                f"such as {self.target(older[0])}"
            )
        failed = [self.files[number].source for number in failures]
        return {"out": folder, "files": len(self.files), "failed": failed, "skipped": sum(skipped)}

    def fail(self, number: int, reason: str) -> None:
        """Write the reason for which there is nothing for a file."""
        write_file(self._failure(number), reason.encode("utf-8", "backslashreplace"), ConfigError, parents=True)

    def _failure(self, number: int) -> Path:
        return Path(self.folder) / FAILURES / f"{number:04d}.txt"


def earlier_sources(folder: Path, files: Sequence[Path]) -> list[Path]:
    """The other files that earlier calls read for this folder, as far as they are still there."""
    if not (folder / FILES).exists():
        return []
    plan, named = ManyFiles.read(folder), {str(path.absolute()) for path in files}
    sources = [one.source for one in [*plan.files, *plan.earlier] if one.source not in named]
    return [Path(one) for one in sources if Path(one).exists()]


def settings_of(
    options: Any, recorded: Sequence[str], policy: object, *, reads: Sequence[str], writes: Sequence[str] = ()
) -> dict[str, Any]:
    """What the output depends on: the recorded flags, the content of files that flags name, and the policy.

    Files are named by their absolute paths, since a process of another machine has another working folder.
    """
    settings = {_flag(name): getattr(options, name) for name in recorded}
    for name in (*reads, *writes):
        if (path := getattr(options, name)) is not None:
            settings[_flag(name)] = str(Path(path).absolute())
            if name in reads:
                settings[f"content of {_flag(name)}"] = _checksum(path, _flag(name))
    where = options.policy if options.policy.startswith(HUB) else str(Path(options.policy).absolute())
    return {**settings, POLICY: where, "version of the policy": _version(policy)}


def write_each(
    plan: ManyFiles, doing: str, module: str, flags: FolderFlags, quiet: bool, check: Callable[[], None] = lambda: None
) -> None:
    """Have `work_on` of a command's module write the files that are left, here or by the jobs of an engine.

    `check` is called whenever files may have become complete; an error that it raises ends the command.
    """
    work = importlib.import_module(module).work_on
    count = len(plan.files)
    with Screen(doing, False if quiet else None) as screen:

        def tell() -> None:
            done = count - len(plan.left())
            screen.tell(f"{done:,} of {count_of(count, 'file')}", done / count)
            check()

        tell()
        left = plan.left()
        if flags.workers is None and flags.on == "here":
            work(Path(plan.folder), left, tell)
        elif left:
            from tidelog.sweeps.engines.named import engine_of
            from tidelog.sweeps.fan_out import fan_out, groups_of

            groups = groups_of(left, flags.workers)
            engine = engine_of(flags.on, 1, flags.workers, len(groups), flags.insecure)
            for number, reason in fan_out(Path(plan.folder), module, groups, engine, plan.left, tell).items():
                plan.fail(number, reason)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _checksum(path: str, flag: str) -> str:
    try:
        return hashlib.sha256(read_regular(path)).hexdigest()
    except OSError as problem:
        raise ConfigError(f"{flag} {path} cannot be read: {problem}. fix: name a file that is there") from problem


def _version(policy: Any) -> str:
    """A checksum of a policy, or of what a rule counts, to tell whether a folder was begun with it."""
    if hasattr(policy, "manifest"):
        return digest(dict(policy.manifest))
    from tidelog.policies.named_arrays import fingerprint

    return fingerprint(policy.params)


def _is_free(folder: Path) -> bool:
    """Whether nothing is in a folder but what a killed process of this command left."""
    return folder.is_dir() and all(is_temporary(one) or one.name == LOCK for one in folder.iterdir())


def _check_no_link_leads_out(folder: Path, files: Sequence[OneFile]) -> None:
    """Raise ConfigError if an output would be written, or deleted, outside of the folder."""
    inside = folder.resolve()
    for parent in {(below / one.target).parent for one in files for below in (folder, folder / SKIPPED, folder / DONE)}:
        if not parent.resolve().is_relative_to(inside):
            raise ConfigError(f"{parent} is a link out of {folder}. fix: remove the link, or choose another folder")


def _one_file(path: Path, target: str) -> OneFile:
    """A file as it is now; ConfigError if it cannot be read."""
    try:
        facts = check_regular(path)
    except OSError as problem:
        raise ConfigError(f"{path} cannot be read: {problem}. fix: name files that are there") from problem
    return OneFile(str(path.absolute()), target, facts.st_size, facts.st_mtime_ns // 1_000_000)


def _files(sources: Sequence[Path], folder: Path) -> list[OneFile]:
    """Each file with a place for what is written; ConfigError if two would have the same, or one is in the folder."""
    paths, inside = [path.absolute() for path in sources], folder.resolve()
    common = Path(os.path.commonpath([path.parent for path in paths]))
    files: list[OneFile] = []
    for path in paths:
        ending = str(ending_of(path, SOURCES))
        place = path.relative_to(common)
        written = ".csv" if ending.split(".")[1] in TEXT else ".parquet"
        target = place.with_name(place.name[: -len(ending)] + written)
        if path.resolve().is_relative_to(inside):
            raise ConfigError(
                f"{path} is in {folder}, where this command writes. fix: name files outside of it, or another folder"
            )
        if target.parts[0] in (FILES, FAILURES, JOBS, LOCK, SKIPPED, DONE):
            part = "file" if len(target.parts) == 1 else f"folder '{target.parts[0]}'"
            raise ConfigError(f"{path}: its output would be {target}, which this command needs. fix: rename the {part}")
        files.append(_one_file(path, str(target)))
    seen: dict[str, str] = {}
    for one in files:
        if one.target in seen:
            raise ConfigError(
                f"{seen[one.target]} and {one.source} would both be written as {one.target}. fix: rename one of them"
            )
        seen[one.target] = one.source
    for one in files:
        for parent in Path(one.target).parents:
            if str(parent) in seen:
                clash = f"{seen[str(parent)]} would be written as {parent}, the folder that {one.source} needs"
                raise ConfigError(f"{clash}. fix: rename one of them")
    return files
