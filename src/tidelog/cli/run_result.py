"""The result of a training on the screen: last metrics of each member, and the next commands."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from tidelog.cli.next_lists import lists_advice, next_command
from tidelog.cli.output import json_only, print_json, print_line, print_notes, table
from tidelog.cli.wrapping import wrapped
from tidelog.data.sources import ARRAYS, ending_of
from tidelog.errors import CheckpointError
from tidelog.runtime.observations import feature_names
from tidelog.training.runs.run import Run
from tidelog.types import Catalogue


def train_and_show(run: Run, quiet: bool = False, as_json: bool = False) -> int:
    """Train a run to its end and print the result; with `quiet`, only the run folder.

    The exit code is 4 if a checkpoint cannot be written; the previous one is intact.
    """
    try:
        with json_only(as_json):
            run.train(progress=False if quiet else None)
            if not quiet:
                show_run(run)
        if as_json:
            print_json(run_facts(run))
        elif quiet:
            print_line(f"run folder: {run.folder}")
    except CheckpointError as error:
        print(wrapped(f"tidelog: {error}", sys.stderr), file=sys.stderr)  # noqa: T201
        return 4
    except (KeyboardInterrupt, SystemExit):  # the progress is saved; the signal is raised again
        again = run.record.resume_command(Path(str(run.folder)))
        where = f"saved at {run.unit[:-1]} {run.done:,}; `{again}` continues it"
        print(f"tidelog: {where}", file=sys.stderr)  # noqa: T201
        raise
    return 0


def run_facts(run: Run) -> dict[str, Any]:
    """The result of a run for scripts: its folder, what is done, and the last metrics of each member."""
    return {
        "run": str(run.folder),
        "algorithm": run.name,
        "done": run.done,
        "unit": run.unit,
        "finished": run.finished,
        "metrics": list({row["member"]: row for row in run.metrics}.values()),
    }


def show_run(run: Run) -> None:
    """Print the last metrics of each member, and the next commands."""
    last = {row["member"]: row for row in run.metrics}
    names = [name for name in next(iter(last.values()), {}) if name not in ("update", "member", "seed")]
    head = ["metric", *(f"seed {last[m]['seed']}" for m in sorted(last))]
    rows = [[name, *(_number(last[m].get(name)) for m in sorted(last))] for name in names]
    table(f"{run.name}: last metrics, update {run.update:,}", head, rows)
    print_line(f"run folder: {run.folder}")
    if isinstance(run.record.spec.action, Catalogue):
        chosen = run.best_report()
        if chosen is not None:
            early = f" Training stopped early, after {run.done:,}." if run.done < run.record.options.last else ""
            print_line(
                f"kept: the policy of update {chosen.update:,}, with the best {chosen.metric}, "
                f"{_number(chosen.value)}; every command uses it.{early}"
            )
        print_notes((run.policy() if chosen is None else run.best_policy()).notes())
        for line in lists_advice(run):
            print_line(line)
        print_line(f"next: {next_command(run)}")
        return
    for place, command in enumerate(_next_commands(run)):
        print_line(f"{'then' if place else 'next'}: {command}")


def _next_commands(run: Run) -> list[str]:
    """What to do with a policy: play it if its environment is known, judge it if it learnt from a log, then use it."""
    record, folder = run.record, shlex.quote(str(run.folder))
    commands = []
    if record.environment is not None:
        commands.append(f"tidelog evaluate {folder} --env {shlex.quote(record.environment)}")
    origin = record.data.origin or {}
    has_reward = not record.sketches or any(sketch["rewards"] for sketch in record.sketches.values())
    if (record.environment is None or record.is_finetuned) and has_reward:
        commands.append(record.judge_command(Path(str(run.folder))))
    if ending_of(str(origin.get("source", "")), ARRAYS) is not None:
        commands.append(f"tidelog act {folder} --data NEW_ROWS.npz --out actions.npz")
    elif feature_names(record.spec):
        mapping = " --columns MAPPING.toml" if record.spec.masked or run.policy().is_recurrent else ""
        commands.append(f"tidelog act {folder} --data NEW_ROWS.csv --out actions.csv{mapping}")
    elif record.environment is None:
        commands.append(f"tidelog evaluate {folder} --env NAME")
    return commands


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.4g}"
