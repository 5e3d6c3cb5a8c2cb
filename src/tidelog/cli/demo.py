"""`tidelog demo`: a complete example on a log that it creates, compared with exact values.

A clinician of mixed quality treats patients of a built-in problem. The decisions are written as a table; the table is
validated and read; IQL and behaviour cloning learn from one half; the other half is used to judge the policies.
Only then are the policies played, and the verdicts are compared with exact values.
"""

from __future__ import annotations

import contextlib
import io
import shlex
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tidelog as tl
from tidelog._files import write_file
from tidelog.cli.flags import Folder, OutputFlags, free_folder, json_only, parse, print_json, print_line, table
from tidelog.envs.treatment import clinic_visits, clinician, exact_value, treatment
from tidelog.errors import ConfigError
from tidelog.ope.verdict import held_out_part, store_verdict
from tidelog.policies.batch_inference import write_table
from tidelog.policies.policy import remember
from tidelog.policies.rollout import MappedPolicy, rollout
from tidelog.policies.statistics import bootstrap_interval, mean
from tidelog.report.page import report_of
from tidelog.training.run import Run

MAPPING = """\
# the columns of treatment.csv
episode = "patient"
step = "visit"
observation = ["severity", "strain", "toxicity", "hour", "kidneys"]
action = "treatment"
reward = "recovered"
reward_unit = "recoveries"
terminated = "ended"
propensity = "propensity"
"""


HELD_OUT = 0.5  # of the patients


@dataclass
class Demo(OutputFlags):
    """Create a log, learn from it, judge the policies, then play them and compare."""

    out: Folder | None = None
    """the output folder; default: tidelog-demo, with a number if it exists"""
    patients: int = 5_000
    """episodes in the log"""
    steps: int | None = None
    """updates per seed; default: as many as the log asks for"""
    seeds: int = 3
    """number of seeds of each algorithm"""
    episodes: int = 1_000
    """number of patients that each policy treats in the end"""


def run(words: list[str]) -> int:
    """Run the demo."""
    options = parse(Demo, words, "demo")
    if min(options.patients, options.episodes, 2 if options.steps is None else options.steps) < 2 or options.seeds < 1:
        raise ConfigError("a number is too small", "patients, steps and episodes >= 2, and seeds >= 1")
    if options.out is not None and Path(options.out).exists():
        raise ConfigError(f"{options.out} exists, nothing was written", fix="choose another folder")
    folder = free_folder("tidelog-demo", ".") if options.out is None else Path(options.out)
    quietly = contextlib.redirect_stdout(io.StringIO()) if options.quiet else json_only(options.json)
    with quietly:
        judged, report = _run(options, folder)
    if options.json:
        policies = [
            {
                "name": one.name,
                **one.verdict.summary,
                "exact difference": _exact(one.policy) - exact_value(clinician()),
            }
            for one in judged
        ]
        print_json({"folder": str(folder), "policies": policies, "policy": str(folder / "policy"), "report": report})
    elif options.quiet:
        for one in judged:
            print_line(f"{one.name}: {one.verdict.decision.upper()}")
        print_line(f"policy: {folder / 'policy'}")
        print_line(f"report: {report}")
    return 0


def _run(options: Demo, folder: Path) -> tuple[list[_Judged], str]:
    folder.mkdir(parents=True, exist_ok=True)
    log = _create_log(folder, options.patients)
    runs = {name: _learn(name, cls, log, folder, options) for name, cls in {"iql": tl.IQL, "bc": tl.BC}.items()}
    verdicts = _judge(runs, log, folder, options.quiet)
    _play(runs, log, options.episodes)
    _compare(verdicts)
    report = _export(verdicts, runs, log, folder)
    print_line(f"\nall files are in {folder}/")
    print_line("next, with a log of your own:")
    print_line("  tidelog log inspect --data YOUR.csv --write columns.toml")
    print_line("  tidelog train iql --data YOUR.csv --columns columns.toml")
    print_line("  tidelog judge runs/iql --sample      says whether to trust it")
    policy, data = (shlex.quote(f"{folder}/{name}") for name in ("policy", "treatment.csv"))
    print_line(f"  tidelog act {policy} --data {data} --out actions.csv")
    return verdicts, report


def _create_log(folder: Path, patients: int) -> tl.Log:
    print_line(f"1. A clinician treats {patients:,} patients; the decisions are written as a table.")
    visits = clinic_visits(patients)
    path, mapping = folder / "treatment.csv", folder / "columns.toml"
    write_table(visits, path)
    write_file(mapping, MAPPING.encode(), ConfigError)
    print_line(f"   {path}, {mapping}\n")
    print_line("2. Validation: is this log usable?")
    report = tl.check(path, mapping)
    print_line("\n".join(f"   {line}" for line in report.text().split("\n")[:1]))
    log, recovered = tl.read_log(path, mapping), visits["recovered"].sum() / patients
    print_line(f"   {log.steps:,} decisions, {len(log.episodes):,} patients, {recovered:.1%} recovered\n")
    return log


def _learn(name: str, cls: type[Any], log: tl.Log, folder: Path, options: Demo) -> Run:
    print_line(f"{3 if name == 'iql' else 4}. {name.upper()} learns from half of the patients, {options.seeds} seeds.")
    suggestion = tl.suggest(cls, log, held_out=HELD_OUT)
    steps = options.steps or suggestion.steps
    print_line("\n".join(f"   {line}" for line in suggestion.lines() if options.steps is None or "steps" not in line))
    every = max(1, steps // 20)
    training = tl.fit(
        suggestion.algorithm, log, steps, options.seeds, folder / name, held_out=HELD_OUT,
        evaluate={"exact value": _exact}, eval_every=every, train=False,
    )  # fmt: skip
    for now in training.stream():
        for row in now.rows[:1]:
            if row["update"] % (5 * every) == 0:
                print_line(
                    f"   update {row['update']:>6,}   exact value {row['exact value']:.3f}   {now.rate:,.0f} updates/s"
                )
    print_line("")
    return training


def _exact(policy: tl.Policy) -> float:
    """The exact share of recoveries under the policy with sampled actions."""
    return exact_value(MappedPolicy(policy, treatment().spec, "treatment").probabilities(treatment().observations()))


class _Judged(NamedTuple):
    name: str
    policy: tl.Policy
    verdict: tl.Verdict


def _judge(runs: dict[str, Run], log: tl.Log, folder: Path, quiet: bool) -> list[_Judged]:
    print_line("5. Are the policies better than the clinician? They are judged on the other half of the log only.")
    seeds = {f"{run}, seed {seed}": (run, seed) for run in runs for seed in runs[run].record.options.seeds}
    policies = {name: runs[run].policy(seed) for name, (run, seed) in seeds.items()}
    held_out, _ = held_out_part(folder / "iql", runs["iql"].record, log)  # all runs held out the same episodes
    ledger = tl.Ledger.of(held_out, runs=[folder / run for run in runs])
    # its log is generated: looks at it are not looks of the user
    own = tuple(file for file in ledger.files if file.is_relative_to(folder.absolute()))
    verdicts = tl.judge(
        policies,
        held_out,
        sample=True,
        model="tabular",
        ledger=replace(ledger, files=own),
        context={"date": datetime.now(UTC).isoformat()},
        progress=False if quiet else None,
    )
    judged = []
    for name, (run, seed) in seeds.items():
        store_verdict(verdicts[name], folder / run, f"seed-{seed}-sampled")
        remember(folder / run, policies[name])
        judged.append(_Judged(name, policies[name], verdicts[name]))
    print_line(f"   All {len(judged)} policies are judged at once; their intervals hold simultaneously.")
    print_line(f"   {verdicts.advice}")
    print_line(f"   {judged[0].name}: {judged[0].verdict.decision}. {judged[0].verdict.paragraph}\n")
    return judged


def _play(runs: dict[str, Run], log: tl.Log, episodes: int) -> None:
    print_line(f"6. Now each policy treats {episodes:,} new patients, for comparison. (In practice this comes last.)")
    logged = log.statistics().returns or {}
    rows = [["clinician (the log)", f"{logged['mean']:.3f}", "", f"{exact_value(clinician()):.3f}"]]
    for name, training in runs.items():
        seeds = training.record.options.seeds
        policies = [training.policy(seed) for seed in seeds]
        returns = np.stack([rollout(p, "treatment", episodes, seed=1, num_envs=250, sample=True) for p in policies])
        several = len(seeds) > 1  # an interval over runs; of a single one over its patients
        interval = bootstrap_interval(returns if several else returns[0], mean, whole_runs=several)
        ends = f"{interval.low:.3f} to {interval.high:.3f}"
        exact = np.mean([_exact(policy) for policy in policies])
        trained = "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
        rows.append([f"{name} ({trained})", f"{interval.estimate:.3f}", ends, f"{exact:.3f}"])
    rows.append(["best possible", "", "", f"{treatment().optimal()[0]:.3f}"])
    table("share of patients who recover", ["", "played", "95% interval", "exact"], rows)


def _compare(judged: list[_Judged]) -> None:
    print_line("7. How accurate were the verdicts? Differences from the clinician, in share of patients who recover:")
    rows = []
    for one in judged:
        low, high = one.verdict.difference.low, one.verdict.difference.high
        exact = _exact(one.policy) - exact_value(clinician())
        cells = [f"{one.verdict.difference.estimate:+.3f}", f"{low:+.3f} to {high:+.3f}", f"{exact:+.3f}"]
        rows.append([one.name, one.verdict.decision, *cells, "yes" if low <= exact <= high else "no"])
    table("judged from the log alone", ["", "verdict", "judged", "95% interval", "exact", "inside"], rows)
    inside = sum(row[-1] == "yes" for row in rows)
    print_line(f"   the exact difference is inside {inside} of {len(judged)} intervals")


def _export(judged: list[_Judged], runs: dict[str, Run], log: tl.Log, folder: Path) -> str:
    best = max(
        judged, key=lambda one: (one.verdict.decision == "better", np.nan_to_num(one.verdict.difference.low, nan=-9.0))
    )
    best.policy.save(folder / "policy")
    if best.verdict.decision == "better":
        print_line(f"   the policy with the best verdict ({best.name}): {folder / 'policy'}")
    else:
        print_line(
            f"   no policy was shown to be better; {best.name} is saved with its verdict, {best.verdict.decision}:"
        )
        print_line(f"   {folder / 'policy'}. More patients (--patients) let the log show more")
    report = report_of([folder / name for name in runs], folder / "report.html", log=log)
    print_line(f"   report: {report}")
    return str(report)
