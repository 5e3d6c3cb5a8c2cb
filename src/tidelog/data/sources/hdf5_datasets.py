"""The data sets of an HDF5 file, all in the file itself.

HDF5 can name other files: by external and soft links, by external storage and by virtual data sets. A reader that
follows them returns whatever file the path names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tidelog.memory import shortage

_COPIES = 3  # of the arrays in memory while a log is built


def own_datasets(file: Any) -> dict[str, Any]:
    """The data sets of a file by their path, as h5py's low-level objects, which are opened several times faster.

    OSError if a link or a data set leads out of its group, or a group appears twice.
    """
    from h5py import h5d, h5g, h5l, h5o

    links: list[tuple[bytes, int]] = []
    file.id.links.visit(lambda name, link: links.append((name, link.type)), info=True)
    found: dict[str, Any] = {}
    for encoded, kind in links:
        name = encoded.decode("utf-8", "replace")
        if kind != h5l.TYPE_HARD:
            which = "an external" if kind == h5l.TYPE_EXTERNAL else "a soft"
            raise OSError(f"'{name}' is {which} link: expected contents in the file itself")
        member = h5o.open(file.id, encoded)
        if isinstance(member, h5g.GroupID) and h5o.get_info(member).rc > 1:
            raise OSError(f"the group '{name}' contains itself or appears twice")
        if isinstance(member, h5d.DatasetID):
            plan = member.get_create_plist()
            layout = plan.get_layout()
            if layout == h5d.VIRTUAL or (layout == h5d.CONTIGUOUS and plan.get_external_count()):
                raise OSError(
                    f"'{name}' is a virtual data set or stored in another file: expected contents in the file"
                )
            found[name] = member
    return found


def check_memory(datasets: Iterable[Any]) -> None:
    """Raise OSError if the declared sizes of data sets exceed the memory that is available."""
    problem = shortage(_COPIES * sum(math.prod(one.shape or ()) * one.dtype.itemsize for one in datasets))
    if problem is not None:
        raise OSError(problem)
