"""Check an HDF5 file before its contents are read: everything in it must be in the file itself, and fit into memory.

HDF5 can name other files: by external and soft links, by external storage and by virtual data sets. A reader that
follows them returns whatever file the path names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tidelog.memory import in_units, shortage

_SPARE = 1 << 26  # bytes that a small file may declare: values that were never written take no room in it
_MOST_COMPRESSED = 1100  # deflate packs at most 1,032 bytes into one
_COPIES = 3  # of the arrays in memory while a log is built
_MOST_OBJECTS = 10_000_000
_DEEPEST = 64


def own_object(group: Any, name: str) -> Any:
    """Return a member of a group; OSError unless a hard link leads to it, KeyError if there is none."""
    import h5py

    link = group.get(name, getlink=True)
    if link is None:
        raise KeyError(name)
    if not isinstance(link, h5py.HardLink):
        kind = "an external link" if isinstance(link, h5py.ExternalLink) else "a soft link"
        raise OSError(f"'{name}' is {kind} to '{link.path}': expected contents in the file itself")
    return group[name]


def check_datasets(path: Path, datasets: Iterable[tuple[str, Any]]) -> None:
    """Raise OSError if a data set lies outside the file, or if their declared sizes exceed the file or the memory.

    `datasets` are names and h5py's low-level data sets, which are opened several times faster.
    """
    from h5py import h5d

    held = path.stat().st_size
    room, total = max(_SPARE, _MOST_COMPRESSED * held), 0
    for name, dataset in datasets:
        plan, shape, kind = dataset.get_create_plist(), dataset.shape or (), dataset.dtype
        layout = plan.get_layout()
        if layout == h5d.VIRTUAL:
            raise OSError(f"'{name}' is a virtual data set of other files: expected contents in the file itself")
        if layout == h5d.CONTIGUOUS and plan.get_external_count():
            raise OSError(f"'{name}' is stored in another file: expected contents in the file itself")
        chunk = math.prod(plan.get_chunk()) if layout == h5d.CHUNKED else 0
        total += max(math.prod(shape), chunk) * kind.itemsize
        if total > room:
            raise OSError(f"'{name}' declares {list(shape)} {kind}: {in_units(total)} in a file of {in_units(held)}")
    problem = shortage(_COPIES * total)
    if problem is not None:
        raise OSError(problem)


def every_dataset(file: Any) -> Iterator[tuple[str, Any]]:
    """The low-level data sets of a file by their path; OSError for a link out of a group, or a group that repeats."""
    from h5py import h5d, h5g, h5l, h5o

    groups: list[tuple[str, Any, int]] = [("", h5o.open(file.id, b"/"), 0)]
    known = set()
    count = 0
    while groups:
        prefix, group, depth = groups.pop()
        address = h5o.get_info(group).addr
        if address in known or depth > _DEEPEST:
            raise OSError(f"the group '{prefix}' contains itself, appears twice, or is nested too deeply")
        known.add(address)
        for encoded in group:
            name = encoded.decode("utf-8", "replace")
            count += 1
            if count > _MOST_OBJECTS:
                raise OSError(f"more than {_MOST_OBJECTS:,} groups and data sets")
            if group.links.get_info(encoded).type != h5l.TYPE_HARD:
                own_object(file[prefix] if prefix else file, name)  # raises: it names the kind of link
            member = h5o.open(group, encoded)
            if isinstance(member, h5g.GroupID):
                groups.append((f"{prefix}{name}/", member, depth + 1))
            elif isinstance(member, h5d.DatasetID):
                yield f"{prefix}{name}", member
