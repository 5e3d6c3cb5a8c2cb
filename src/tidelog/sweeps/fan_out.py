"""A command over many files by the jobs of an engine: each job takes some of them, one after another.

A file that has its output is done. So a job that was lost, or the same command once more, goes on with the others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tidelog.sweeps.engines import Engine, Job
from tidelog.training.runs.signals import Interrupts

POLL_SECONDS = 0.5
MOST_LOSSES = 3  # processes in a row that end without a new output, until a job is given up
JOBS_PER_WORKER, MOST_JOBS = 4, 64


def groups_of(files: Sequence[int], workers: int | None) -> list[list[int]]:
    """Divide files into jobs: a few for each worker, so that none waits long for the last one."""
    jobs = min(len(files), MOST_JOBS if workers is None else JOBS_PER_WORKER * workers)
    return [list(files[place::jobs]) for place in range(jobs)]


def fan_out(
    folder: Path,
    module: str,
    groups: Sequence[Sequence[int]],
    engine: Engine,
    left: Callable[[Sequence[int]], list[int]],
    tell: Callable[[], None],
    modules: Sequence[str] | None = None,
) -> dict[int, str]:
    """Have an engine work on groups of files, and return why a job was given up, by the numbers of its files.

    `module` has `work_on(folder, files)`; `left` are those of some files that are not done; `tell` shows progress;
    `modules` are imported first, None: those that register algorithms of the user's own.
    After a signal the jobs end, and KeyboardInterrupt or SystemExit(143) is raised.
    """
    imported = _plugins() if modules is None else list(modules)
    waiting = [Job(str(folder.absolute()), number, 1, 0, imported, None, module, list(files))
               for number, files in enumerate(groups)]  # fmt: skip
    losses = dict.fromkeys(range(len(groups)), 0)
    lost: dict[int, str] = {}
    running = 0
    with Interrupts() as interrupts:
        try:
            while waiting or running:
                while waiting and engine.free():
                    engine.submit(waiting.pop(0))
                    running += 1
                for job, how in engine.wait(POLL_SECONDS):
                    running -= 1
                    files = left(job.files)
                    if not files:
                        continue
                    losses[job.number] = losses[job.number] + 1 if len(files) == len(job.files) else 1
                    if losses[job.number] >= MOST_LOSSES:
                        reason = f"its process was lost {MOST_LOSSES} times ({how}). fix: read {job.output}"
                        lost |= dict.fromkeys(files, reason)
                        continue
                    waiting.append(Job(job.folder, job.number, job.attempt + 1, 0, job.modules, None, module, files))
                tell()
                interrupts.leave()
        finally:
            engine.close()
    return lost


def _plugins() -> list[str]:
    """The modules of algorithms that are not tidelog's own; none where no algorithm was imported."""
    registry = sys.modules.get("tidelog.algorithms.core.registry")
    known = () if registry is None else registry.ALGORITHMS.values()
    return sorted({cls.__module__ for cls in known if cls.__module__.split(".")[0] != "tidelog"})
