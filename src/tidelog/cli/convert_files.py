"""`tidelog data convert --workers N`: each of several tables becomes a shard of one log.

The shards are written in a folder beside the log, `NAME.tidelog.unfinished`, which gets the log's name at the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tidelog.cli.flags import FolderFlags
from tidelog.cli.many_files import DONE, FAILURES, LOCK, ManyFiles, OneFile, Outcome, write_each
from tidelog.data.concat import check_alike
from tidelog.data.core.columns import Columns
from tidelog.data.io.join_shards import TOGETHER, join_shards
from tidelog.data.io.readers import SHARDED_TARGET, Source, read_log
from tidelog.data.io.shards import shard_name
from tidelog.data.io.storage import is_saved_log, saved_columns
from tidelog.data.log import Log
from tidelog.data.sources import is_table_file
from tidelog.data.sources.files import files_of
from tidelog.disk import delete, move_folder
from tidelog.errors import ConfigError, LogError
from tidelog.number_text import count_of
from tidelog.sweeps.engines import FILES, JOBS

MAPPING = "mapping"


def work_on(folder: Path, numbers: list[int], after: Callable[[], None] = lambda: None) -> None:
    """Write the shards of some files; `after` is called after each of them."""
    plan = ManyFiles.read(folder)
    columns = Columns.from_mapping(plan.settings[MAPPING])

    def write(file: OneFile, target: Path) -> Outcome:
        read_log(file.source, columns).save(target, overwrite=True)  # of earlier settings
        return Outcome()

    plan.work(numbers, write, after)


def _check_while_written(plan: ManyFiles) -> Callable[[], None]:
    """Return a check of the shards that were written since its last call: LogError where one differs from the first."""
    first: list[Log] = []
    seen: set[int] = set()

    def check() -> None:
        for number, file in enumerate(plan.files):
            if number not in seen and plan.is_complete(file):
                seen.add(number)
                log = Log(**saved_columns(plan.target(number), memory_map=True))
                check_alike([*first, log], TOGETHER)
                first[:] = first or [log]

    return check


def convert_files(
    source: Source, target: str, columns: str | Columns | None, flags: FolderFlags, overwrite: bool, quiet: bool
) -> str:
    """Convert tables to the shards of one log, by several processes; return a description of what was written.

    What a stopped call has read is used again. ConfigError for a source or a target of another kind, LogError for
    files that cannot be read or are not parts of one log.
    """
    files = files_of(source, is_table_file)
    out = Path(target)
    if files is None or out.suffix.lower() != SHARDED_TARGET:
        raise ConfigError(
            f"--workers, --on and --insecure convert several tables to one {SHARDED_TARGET} folder of shards. fix: "
            "name a folder of tables or a glob with --data, or drop them"
        )
    if columns is None:
        raise ConfigError("several tables without a mapping of their columns. fix: add --columns FILE")
    if out.exists() and not overwrite:
        raise ConfigError(f"{out} exists, nothing was written. fix: choose another name, or add --overwrite")
    if out.exists() and not is_saved_log(out):
        raise ConfigError(f"{out} is not a saved log, it is not replaced. fix: choose another name")
    mapping, unfinished = Columns.of(columns), out.with_name(f"{out.name}.unfinished")
    if mapping.declared is not None and mapping.declared.by is not None:
        raise ConfigError(
            "propensities are declared as shares of the whole log, but each file is read alone. fix: drop --workers "
            "and --on, or declare the probability of each action"
        )
    settings: dict[str, Any] = {MAPPING: json.loads(json.dumps(asdict(mapping)))}  # as it is read back
    names = [shard_name(number) for number in range(len(files.paths))]
    with ManyFiles.begin(unfinished, settings, files.paths, overwrite, names) as plan:
        if plan.earlier:
            raise ConfigError(
                f"{unfinished} was begun with {plan.earlier[0].source} too. fix: name the same files again, or add "
                "--overwrite to begin again"
            )
        write_each(plan, "converting", __name__, flags, quiet, _check_while_written(plan))
        failures = plan.failures()
        if failures:
            number, reason = next(iter(failures.items()))
            raise LogError(
                f"{len(failures):,} of {count_of(len(plan.files), 'file')} could not be read, the first one is "
                f"{plan.files[number].source}: {reason}\nfix: correct them, then call the command again; shards of the "
                f"others stay in {unfinished}"
            )
        plan.delete_replaced()
        join_shards(unfinished, names, numbered=mapping.episode is None)
        for name in (FILES, FAILURES, JOBS, LOCK, DONE):
            delete(unfinished / name)
        move_folder(unfinished, out, LogError)
    return f"{target} with {count_of(len(names), 'shard')}"
