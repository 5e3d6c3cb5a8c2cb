"""`resume`: continue an interrupted run, or an interrupted sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tidelog.data.log import Log
from tidelog.errors import ConfigError
from tidelog.parallel import Pool, pool_of
from tidelog.recommend.interactions import Interactions
from tidelog.sinks import Sink
from tidelog.sweeps.driver import Driver
from tidelog.sweeps.plan import FILE, Plan
from tidelog.sweeps.sweep import Sweep
from tidelog.training.fit import resume as resume_run
from tidelog.training.options import Evaluator
from tidelog.training.record import FILE as RUN
from tidelog.training.run import Run


def resume(
    folder: str | Path,
    log: Log | Interactions | None = None,
    *,
    env: Any = None,
    algorithm: Any = None,
    evaluate: Mapping[str, Evaluator] | None = None,
    sinks: Sequence[Sink] = (),
    checkpoint: int | None = None,
    on: str | Pool = "here",
    workers: int | None = None,
    insecure: bool = False,
    progress: bool | None = None,
) -> Run | Sweep:
    """Continue an interrupted run or sweep, bit-equal to an uninterrupted one (same versions, device, thread count).

    A run: pass `log` if its log was created in memory, `env` if its environment has no registered name, `algorithm` if
    it has custom parts, `evaluate` if it has custom evaluators, `checkpoint` to start from an older checkpoint than the
    last. A sweep, `on` this machine or Ray with `workers` trials at once, as in `tl.sweep`: trials that failed are
    tried again; a diverged or stopped trial stays as it is.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> run = tl.fit(tl.BC(hidden=(16,)), log, steps=20, every=5, out="runs/bc", train=False)
        >>> for now in run.stream():
        ...     if now.update == 10:
        ...         break
        >>> tl.resume("runs/bc", log=log).update  # a log that was read from a file is found again without `log=`
        20
    """
    if not (Path(folder) / FILE).is_file():
        is_run = (Path(folder) / RUN).is_file()
        if is_run and (on != "here" or workers is not None or insecure):
            raise ConfigError(f"on, workers and insecure are for a sweep, and {folder} is a run", fix="drop them")
        return resume_run(
            folder,
            log,
            env=env,
            algorithm=algorithm,
            evaluate=evaluate,
            sinks=sinks,
            checkpoint=checkpoint,
            progress=progress,
        )
    of_runs = {"log": log, "env": env, "algorithm": algorithm, "evaluate": evaluate, "checkpoint": checkpoint}
    named = [name for name, value in of_runs.items() if value is not None] + (["sinks"] if sinks else [])
    if named:
        raise ConfigError(f"{folder} is a sweep, and {named[0]}= is for a run", fix=f"drop {named[0]}")
    plan = Plan.read(Path(folder))
    pool = pool_of(on, plan.cpus, workers, insecure)
    try:
        Driver(Path(folder), pool).run(progress)
    finally:
        if isinstance(on, str):
            pool.close()
    return Sweep(folder)
