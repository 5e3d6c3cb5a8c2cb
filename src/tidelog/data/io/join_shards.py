"""Make one log in shards of saved logs that were written side by side, one for each file of a source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tidelog.data.concat import check_alike, joined_report
from tidelog.data.io.shards import manifest_of
from tidelog.data.io.storage import LOG, saved_columns
from tidelog.data.log import Log
from tidelog.disk import write_file
from tidelog.errors import LogError
from tidelog.folders import MANIFEST, digest

TOGETHER = "convert the files without --workers, which reads them as one table"


def join_shards(folder: Path, names: Sequence[str], *, numbered: bool) -> Log:
    """Write the manifest over saved logs in a folder, in the order of their names, and return these as one log.

    `numbered`: episodes have no names and are counted over all shards. Only sizes and identifiers are read. LogError
    if they are not parts of one log: they differ in their spec or columns, an episode is in two of them, two are equal,
    or they have clusters, whose names in the files a saved log does not have.
    """
    logs = [Log(**saved_columns(folder / name, memory_map=True)) for name in names]
    check_alike(logs, TOGETHER)
    first = logs[0]
    if first.cluster is not None:
        raise LogError(
            f"{first.report.source} has clusters, and a cluster may be in several files: expected files without. "
            f"fix: {TOGETHER}"
        )
    kinds = {"text" if log.episode_ids.dtype.kind == "U" else "numbers": log.report.source for log in logs}
    if len(kinds) > 1:
        raise LogError(
            f"identifiers of episodes are text in {kinds['text']} and numbers in {kinds['numbers']}: expected one "
            f"type. fix: {TOGETHER}"
        )
    if not numbered:
        ids = np.concatenate([log.episode_ids for log in logs])
        found, counts = np.unique(ids, return_counts=True)
        if len(found) < len(ids):
            twice = found[counts > 1][0]
            one, other, *_ = [log.report.source for log in logs if (log.episode_ids == twice).any()]
            raise LogError(
                f"episode {twice.item()!r} is in {one} and in {other} ({len(ids) - len(found):,} such): expected each "
                f"episode in one file. fix: {TOGETHER}, or remove the file that is a copy"
            )
    seen: dict[str, str] = {}
    for name, log in zip(names, logs, strict=True):
        before = seen.setdefault(digest(LOG.manifest(folder / name)["files"]), log.report.source)
        if before != log.report.source:
            raise LogError(
                f"{before} and {log.report.source} have the same rows: expected different files. fix: remove the copy"
            )
    report = joined_report(logs) if len(logs) > 1 else first.report
    body: dict[str, Any] = {"spec": first.spec.to_json(), "report": report.to_json(), "reward_unit": first.reward_unit}
    body |= {"atoms": list(first.atoms)} if first.atoms else {}
    write_file(folder / MANIFEST, manifest_of(folder, names, {**body, "numbered": numbered}), LogError)
    return first
