"""`tidelog refit RUN`: the settings of a run's policy once more, on the whole log, before the policy is used."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from tidelog.cli.flags import (
    Folder,
    Repeated,
    RunFolder,
    SinkName,
    check_targets,
    free_folder,
    is_run,
    parse,
    source_of,
)
from tidelog.cli.run_result import train_and_show
from tidelog.errors import ConfigError
from tidelog.recommend.read import reopen_any
from tidelog.sinks import open_sink
from tidelog.training.fit import refit
from tidelog.training.record import Record


@dataclass
class Refit:
    """Learn from the whole log with the settings of a run's policy.

    The result learns from the held-out episodes too, and so has no verdict.
    """

    run: tyro.conf.Positional[RunFolder]
    """the run folder (its best policy if there is one, else its first member)"""
    data: Repeated = ()
    """a newer log with the same columns; default: the log of the run, read again"""
    member: int | None = None
    """the member, counted from 0 as in `tidelog judge`"""
    out: Folder | None = None
    """the new run folder; default: runs/<algorithm>-refit, with a number if it exists"""
    overwrite: bool = False
    """replace the run in the folder of --out"""
    sink: tuple[SinkName, ...] = ()
    """also show the run in a tracker, such as mlflow, or mlflow:URI for another than its default one"""
    quiet: bool = False
    """print the result only, without progress"""
    json: bool = False
    """print the result as JSON; everything else goes to standard error"""


def run(words: list[str]) -> int:
    """Refit a run and print the result."""
    options = parse(Refit, words, "refit")
    record = Record.read(Path(options.run))
    folder = Path(options.out) if options.out else free_folder(f"{record.algorithm}-refit")
    check_targets(folder if options.overwrite else None, overwrite=True, replaceable=is_run)
    log = None
    if options.data:
        if record.data.origin is None:
            raise ConfigError(
                "--data: the run's log was created in memory, so that its columns are unknown",
                fix="use tl.refit(run, out, log=log) in Python",
            )
        log = reopen_any({**record.data.origin, "source": source_of(options.data, "--data"), "parts": []})
    sinks = [open_sink(word, folder) for word in options.sink]
    training = refit(
        options.run, folder, log=log, member=options.member, overwrite=options.overwrite, sinks=sinks, train=False
    )
    return train_and_show(training, options.quiet, options.json)
