"""`tidelog evaluate RUN --env NAME | --data LOG`: returns of a run's policies, or a comparison with a log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from tidelog.cli.flags import Env, File, Repeated, RunFolder, parse, source_of
from tidelog.cli.next_lists import refuse_lists
from tidelog.cli.tables import json_only, print_line, table
from tidelog.cli.way_of_acting import in_chosen_way
from tidelog.data.io.readers import read_any
from tidelog.data.sources.files import several_as_text
from tidelog.disk import write_json
from tidelog.errors import ConfigError
from tidelog.policies.rollout import rollout
from tidelog.policies.statistics import bootstrap_interval, iqm, mean
from tidelog.training.runs.agreement import agreement
from tidelog.training.runs.policies import member_policy
from tidelog.training.runs.record import Record


@dataclass
class Evaluate:
    """Play every member of a run in an environment, or compare it with a log."""

    run: tyro.conf.Positional[RunFolder]
    """the run folder"""
    env: Env | None = None
    """a built-in environment or a gymnasium id"""
    episodes: int = 50
    """episodes per seed"""
    sample: bool = False
    """sample actions from the policy's distribution; default: its declared way, else the most likely actions"""
    mode: bool = False
    """take the most likely actions"""
    seed: int = 0
    """random seed of the play"""
    data: Repeated = ()
    """a log: a table, a folder of tables or a glob (with --columns; repeat the flag for several), a saved log, an .npz
    file, or the id of a Minari data set"""
    columns: File | None = None
    """for tables: the mapping file"""
    json: bool = False
    """print the returns or the comparison as JSON; everything else goes to standard error"""


def run(words: list[str]) -> int:
    """Evaluate a run."""
    options = parse(Evaluate, words, "evaluate")
    if (options.env is None) == (not options.data):
        raise ConfigError("expected exactly one of --env NAME (play) and --data LOG (compare). fix: set one of them")
    folder = Path(options.run)
    record = Record.read(folder)
    refuse_lists(folder, record, "evaluate")
    with json_only(options.json):
        result = _play(options, folder, record) if options.env else _compare(options, folder, record)
    if options.json:
        print_line(json.dumps(result, indent=1))
    return 0


def _play(options: Evaluate, folder: Path, record: Record) -> dict[str, Any]:
    seeds, count = record.options.seeds, len(record.configs) * len(record.options.seeds)
    members = (member_policy(folder, record, i) for i in range(count))
    policies = [in_chosen_way(policy, options.sample, options.mode) for policy in members]
    if len({policy.acting for policy in policies}) > 1:
        raise ConfigError(
            f"the members of {folder} were declared to act in different ways. fix: add --sample or --mode"
        )
    sampled = policies[0].acting == "sample"
    returns = [rollout(policy, options.env, options.episodes, options.seed) for policy in policies]
    rows = [[f"member {i} (seed {seeds[i % len(seeds)]})", *_cells(r)] for i, r in enumerate(returns)]
    if count > 1:
        whole = bootstrap_interval(np.stack(returns), mean, whole_runs=True)
        rows.append(
            [
                "all members",
                f"{whole.estimate:.4g}",
                f"{whole.low:.4g} to {whole.high:.4g}",
                f"{iqm(np.stack(returns)):.4g}",
            ]
        )
    how = "sampled" if sampled else "deterministic"
    table(
        f"{options.env}: {options.episodes} episodes per member, {how}",
        ["", "mean return", "95 % interval", "IQM"],
        rows,
    )
    path = folder / "evaluations" / f"{Path(str(options.env)).name}-{how}-{options.seed}.json"
    content = {
        "env": options.env,
        "sampled": sampled,
        "seed": options.seed,
        "returns": [r.tolist() for r in returns],
    }
    write_json(path, content, ConfigError)
    print_line(f"all returns: {path}")
    return content


def _cells(returns: np.ndarray) -> list[str]:
    interval = bootstrap_interval(returns, mean)
    return [f"{interval.estimate:.4g}", f"{interval.low:.4g} to {interval.high:.4g}", f"{iqm(returns):.4g}"]


def _compare(options: Evaluate, folder: Path, record: Record) -> dict[str, Any]:
    log = read_any(source_of(options.data, "--data"), options.columns)
    count = len(record.configs) * len(record.options.seeds)
    measures = [agreement(member_policy(folder, record, i), log) for i in range(count)]
    head = ["", *(f"member {i}" for i in range(count))]
    rows = [[name, *(f"{measure[name]:.4g}" for measure in measures)] for name in measures[0]]
    table(f"{several_as_text(options.data)}: {log.steps:,} steps", head, rows)
    return {"steps": log.steps, "members": [{name: float(one[name]) for name in one} for one in measures]}
