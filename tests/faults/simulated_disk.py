"""A model of a disk with volatile caches: what it may hold after the machine stopped at any point.

`Recorder` performs each operation of `tidelog._files.Disk` and writes it down. `states` rebuilds from this record what
the disk may hold: content that was not synced may be missing, cut, or zeros; names that were not synced may be missing,
in any combination. A stop of the process alone loses nothing that was written.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tidelog import _files

ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS)
Tree = dict[str, "Tree | bytes"]


class Operation(NamedTuple):
    """One operation: its kind, its path below the root, a second path or a length, and the content of a file."""

    kind: str
    path: str
    other: Any = None
    content: bytes = b""


class Recorder(_files.Disk):
    """A disk that writes down what is done below a root, and can fail at one operation."""

    def __init__(self, root: Path, fails_at: int | None = None, error: int = errno.EIO, exchanges: bool = True) -> None:
        self.root, self.operations = root, list[Operation]()
        self.fails_at, self.error, self.exchanges = fails_at, error, exchanges
        self.first = read_tree(root)

    def mark(self, name: str, **facts: Any) -> None:
        """Write down that something was acknowledged to the caller."""
        self.operations.append(Operation("mark", name, facts))

    def make_folder(self, path: Path) -> None:
        self._begin("make", path)
        super().make_folder(path)

    def write(self, path: Path, content: _files.Content) -> None:
        self._begin("write", path)
        super().write(path, content)
        self._end(content=path.read_bytes())

    def append(self, path: Path, handle: int, content: bytes) -> None:
        self._begin("append", path, content=content)
        super().append(path, handle, content)

    def cut(self, path: Path, length: int) -> None:
        self._begin("cut", path, length)
        super().cut(path, length)

    def sync(self, path: Path) -> None:
        self._begin("sync", path)
        super().sync(path)

    def rename(self, source: Path, target: Path) -> None:
        self._begin("rename", source, self._name(target))
        super().rename(source, target)

    def exchange(self, one: Path, other: Path) -> bool:
        if not self.exchanges:
            return False
        self._begin("exchange", one, self._name(other))
        return super().exchange(one, other)

    def remove(self, path: Path) -> None:
        self._begin("remove", path)
        super().remove(path)

    def _begin(self, kind: str, path: Path, other: Any = None, content: bytes = b"") -> None:
        count = sum(one.kind != "mark" for one in self.operations)
        if count == self.fails_at:
            self.fails_at = None
            raise OSError(self.error, os.strerror(self.error), str(path))
        self.operations.append(Operation(kind, self._name(path), other, content))

    def _end(self, content: bytes) -> None:
        self.operations[-1] = self.operations[-1]._replace(content=content)

    def _name(self, path: Path) -> str:
        return path.absolute().relative_to(self.root.absolute()).as_posix()


class File:
    """A file: its durable content, and the contents that it had since, the last one newest."""

    def __init__(self, content: bytes = b"", durable: bytes | None = None) -> None:
        self.durable, self.since = durable, [content]

    def now(self) -> bytes:
        return self.since[-1]

    def write(self, content: bytes) -> None:
        self.since.append(content)

    def sync(self) -> None:
        self.durable, self.since = self.now(), [self.now()]

    def after_stop(self, random: Random) -> bytes:
        """What may be left of it: all, nothing since the sync, a part, or zeros in place of a part."""
        if self.durable == self.now():
            return self.now()
        content, kind = random.choice(self.since), random.randrange(4)
        durable = self.durable or b""
        shorter = min(durable, content, key=len)  # what was appended or cut leaves the bytes before it
        kept = len(shorter) if durable.startswith(shorter) and content.startswith(shorter) else 0
        at = random.randint(kept, len(content))
        return [content, durable, content[:at], content[:at] + bytes(len(content) - at)][kind]


class Folder:
    """A folder: its durable names, its names now, and the changes in between, each of which happens or not."""

    def __init__(self) -> None:
        self.durable, self.now = dict[str, Any](), dict[str, Any]()
        self.changes = list[tuple[tuple[str, Any], ...]]()

    def change(self, *pairs: tuple[str, Any]) -> None:
        """Change names together: to a file, a folder, or None for none."""
        self.changes.append(pairs)
        _apply(self.now, pairs)

    def sync(self) -> None:
        self.durable, self.changes = dict(self.now), []

    def after_stop(self, random: Random) -> dict[str, Any]:
        """The names that may be left: changes since the sync in order up to one of them, or any of them."""
        if not self.changes:
            return self.durable
        names, ordered = dict(self.durable), random.random() < 0.5
        most = random.randint(0, len(self.changes))
        for i, pairs in enumerate(self.changes):
            if i < most if ordered else random.random() < 0.5:
                _apply(names, pairs)
        return names


def _apply(names: dict[str, Any], pairs: tuple[tuple[str, Any], ...]) -> None:
    for name, value in pairs:
        if value is None:
            names.pop(name, None)
        else:
            names[name] = value


class Machine:
    """The disk while operations are performed one after another."""

    def __init__(self, first: Tree) -> None:
        self.root = _durable(first)

    def perform(self, one: Operation) -> None:
        """Perform an operation in the cache; a sync makes it durable."""
        folder, name = self._parent(one.path)
        match one.kind:
            case "make":
                folder.change((name, Folder()))
            case "write":
                file = folder.now.get(name)
                if file is None:
                    file = File()
                    folder.change((name, file))
                file.write(one.content)
            case "append":
                if name not in folder.now:
                    folder.change((name, File()))
                folder.now[name].write(folder.now[name].now() + one.content)
            case "cut":
                folder.now[name].write(folder.now[name].now()[: one.other])
            case "sync":
                (self.root if one.path == "." else folder.now[name]).sync()
            case "rename":
                other, target = self._parent(one.other)
                assert other is folder, "renames stay in one folder"
                folder.change((name, None), (target, folder.now[name]))
            case "exchange":
                other, target = self._parent(one.other)
                assert other is folder
                folder.change((name, folder.now[target]), (target, folder.now[name]))
            case "remove":
                folder.change((name, None))

    def _parent(self, path: str) -> tuple[Folder, str]:
        *parents, name = path.split("/")
        folder = self.root
        for one in parents:
            folder = folder.now[one]
        return folder, name

    def killed(self) -> Tree:
        """What is there after the process alone was killed."""
        return _tree(self.root, lambda folder: folder.now, File.now)

    def stopped(self, random: Random) -> Tree:
        """What may be there after the machine stopped."""
        return _tree(self.root, lambda folder: folder.after_stop(random), lambda file: file.after_stop(random))


def _durable(tree: Tree) -> Folder:
    folder = Folder()
    for name, value in tree.items():
        folder.now[name] = File(value, value) if isinstance(value, bytes) else _durable(value)
    folder.sync()
    return folder


def _tree(folder: Folder, names: Any, content: Any) -> Tree:
    return {
        name: content(value) if isinstance(value, File) else _tree(value, names, content)
        for name, value in names(folder).items()
    }


class Stop(NamedTuple):
    """A state after a stop: the number of operations before it, what was acknowledged, and what the disk holds."""

    after: int
    acknowledged: dict[str, Any]
    tree: Tree


def states(recorder: Recorder, schedules: int, seed: int) -> Iterator[Stop]:
    """Every state after a kill of the process, and for each point this many random states after a stop of the machine.

    Each schedule has a seed of its own, `(seed, point, number)`, so that one can be looked at alone.
    """
    machine, acknowledged = Machine(recorder.first), dict[str, Any]()
    for point, one in enumerate([None, *recorder.operations]):
        if one is not None and one.kind == "mark":
            acknowledged |= {one.path: one.other}
        elif one is not None:
            machine.perform(one)
        yield Stop(point, dict(acknowledged), machine.killed())
        for number in range(schedules):
            yield Stop(point, dict(acknowledged), machine.stopped(Random(f"{seed} {point} {number}")))


def read_tree(folder: Path) -> Tree:
    """The files below a folder."""
    return {one.name: read_tree(one) if one.is_dir() else one.read_bytes() for one in folder.iterdir()}


def put_tree(tree: Tree, folder: Path) -> None:
    """Write the files of a tree below a new folder."""
    folder.mkdir()
    for name, value in tree.items():
        if isinstance(value, bytes):
            (folder / name).write_bytes(value)
        else:
            put_tree(value, folder / name)


def visible(tree: Tree) -> Tree:
    """A tree without what `tidy` removes, and without empty folders."""
    kept = {
        name: value if isinstance(value, bytes) else visible(value)
        for name, value in tree.items()
        if not name.startswith((_files.WRITING, _files.DELETING, _files.REPLACED))
    }
    return {name: value for name, value in kept.items() if value != {}}
