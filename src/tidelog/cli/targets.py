"""What a command writes: an existing file or folder is refused, or replaced with --overwrite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelog import disk
from tidelog.errors import ConfigError


@contextmanager
def writing(
    *targets: str | Path | None, overwrite: bool, replaceable: Callable[[Path], bool] = Path.is_file
) -> Iterator[None]:
    """Refuse targets that exist, before anything is computed; with `overwrite`, replace them after the work succeeded.

    `replaceable` says whether an existing path is of the kind that the command writes; others are never replaced. After
    an error the old ones are in their places again.
    """
    aside: dict[Path, Path] = {}
    for target in (Path(target) for target in targets if target is not None):
        if target.exists() and not overwrite:
            raise ConfigError(f"{target} exists, nothing was written. fix: choose another name, or add --overwrite")
        if target.exists() and not replaceable(target):
            raise ConfigError(
                f"{target} is not of the kind that this command writes, it is not replaced. fix: choose another name"
            )
        if replaceable is Path.is_file and not target.parent.is_dir():
            raise ConfigError(f"{target} cannot be written: the folder {target.parent} does not exist")
        old = target.with_name(f".replaced-{target.name}")
        if old.exists():
            raise ConfigError(
                f"{old} is what {target} was before a command that was killed. fix: rename it to {target}, or delete it"
            )
        if target.exists():
            aside[target] = old
    try:
        for target, old in aside.items():
            disk.DISK.rename(target, old)
        yield
    except BaseException:
        for target, old in aside.items():
            if old.exists():
                disk.delete(target)
                disk.DISK.rename(old, target)
        raise
    for old in aside.values():
        disk.delete(old)


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run, or nothing."""
    return folder.is_dir() and ((folder / "run.json").is_file() or not any(folder.iterdir()))
