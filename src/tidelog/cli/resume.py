"""`tidelog resume RUN`: continue an interrupted run, or an interrupted sweep."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import tyro

from tidelog.cli.flags import (
    EnvNames,
    OnEngine,
    OutputFlags,
    RunFolder,
    SinkName,
    json_only,
    parse,
    print_json,
    print_line,
)
from tidelog.cli.run_result import run_facts, train_and_show
from tidelog.cli.sweep import drive_and_show
from tidelog.cli.train import ProcessFlags, connect
from tidelog.envs.registry import import_module, module_of
from tidelog.errors import ConfigError
from tidelog.parallel import pool_of
from tidelog.sinks import open_sink
from tidelog.sweeps.job import PLAN
from tidelog.sweeps.plan import Plan
from tidelog.training.learn import load_run
from tidelog.training.record import FILE as RUN
from tidelog.training.record import Record


@dataclass
class Resume(OutputFlags):
    """Continue an interrupted run from its last checkpoint, or an interrupted sweep."""

    run: tyro.conf.Positional[RunFolder]
    """the run folder, or the folder of a sweep"""
    env: EnvNames = ()
    """the run's environment again, if it is of your own module (MODULE:NAME): a run folder imports no module by itself;
    repeat the flag for those of its evaluations"""
    checkpoint: int | None = None
    """go back to the checkpoint at this update"""
    sink: tuple[SinkName, ...] = ()
    """also show the run in a tracker, such as mlflow, or mlflow:URI for another than its default one"""
    workers: int | None = None
    """for a sweep: trials at the same time; default: as many as there are cores for"""
    on: OnEngine = "here"
    """for a sweep: \"here\", or \"ray\" for a Ray cluster"""
    insecure: bool = False
    """with --on ray: also use a cluster that requires no token"""
    processes_options: ProcessFlags = field(default_factory=ProcessFlags)
    """one training in several processes"""


def run(words: list[str]) -> int:
    """Resume a run and print the result."""
    options = parse(Resume, words, "resume")
    if (Path(options.run) / PLAN).is_file():
        if options.env or options.checkpoint is not None or options.sink:
            raise ConfigError("--env, --checkpoint and --sink are for a run, and this is a sweep", fix="drop them")
        folder = Path(options.run)
        pool = pool_of(options.on, Plan.read(folder).cpus, options.workers, options.insecure)
        return drive_and_show(folder, pool, options.on, options.quiet, options.json)
    of_sweeps = options.workers is not None or options.on != "here" or options.insecure
    if of_sweeps and (Path(options.run) / RUN).is_file():
        raise ConfigError("--workers, --on and --insecure are for a sweep, and this is a run", fix="drop them")
    group = connect(options)
    _import_environments(Record.read(Path(options.run)), options)  # before a sink creates a folder there
    sinks = [open_sink(word, Path(options.run)) for word in options.sink if group.rank == 0]
    training = load_run(options.run, checkpoint=options.checkpoint, sinks=sinks)
    if training.finished:
        with json_only(options.json):
            for _ in training.stream():  # the process may have ended before it wrote the collected log
                pass
        if options.json:
            print_json(run_facts(training))
        else:
            sent = f"; sent to {', '.join(options.sink)}" if sinks and not any(sink.failed for sink in sinks) else ""
            print_line(
                f"{options.run} is complete at {training.unit[:-1]} {training.done:,}: there is nothing to resume{sent}"
            )
        return 0
    steps = training.record.options.steps
    with json_only(options.json):
        for difference in training.record.differences():
            print_line(f"note: {difference}; results may differ in the last bits from an uninterrupted run")
        if not options.quiet:
            print_line(f"resuming {options.run} at {training.unit[:-1]} {training.done:,} of {steps:,}")
    return train_and_show(training, options.quiet, options.json)


def _import_environments(record: Record, options: Resume) -> None:
    """Import the modules of the run's environments that --env names; ConfigError for those of others."""
    for name in options.env:
        if name not in record.environments():
            named = ", ".join(record.environments()) or "none"
            raise ConfigError(
                f"--env {name} is not an environment of {options.run} (it has: {named})",
                fix=f"`{record.resume_command(Path(options.run))}`",
            )
        module = module_of(name)
        if module is not None:
            import_module(module, name)
