"""`tidelog export RUN --to folder|zip|onnx`: a policy that runs anywhere, and whose readers were compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from tidelog.cli.act import open_policy
from tidelog.cli.flags import parse
from tidelog.cli.tables import say, table
from tidelog.errors import ConfigError, LogError
from tidelog.policies.export.artefact import Logged, export, export_onnx, has_onnx, recheck
from tidelog.policies.policy import Policy
from tidelog.recommend.interactions.reopen import reopen_any
from tidelog.training.runs.record import Record
from tidelog.training.runs.sinks import rows_until

SUFFIX = {"folder": "", "zip": ".zip", "onnx": ".onnx"}
EXTRA = "pip install 'tidelog[onnx]'"


@dataclass
class Export:
    """Write a policy in a form that runs anywhere, once all its readers (JAX, NumPy, ONNX) give the same answers."""

    policy: tyro.conf.Positional[str]
    """a run folder (its first seed, or the best policy if one was kept), or a saved policy"""
    to: Literal["folder", "zip", "onnx"] = "folder"
    """a folder, one .zip of it, or the .onnx file alone"""
    out: str | None = None
    """where to write; default: `policy`, `policy.zip` or `policy.onnx` in the run folder"""
    seed: int | None = None
    """for a run folder: which seed"""
    log: str | None = None
    """the log on which readers are compared, beside random observations; default: the run's own, where it is found"""
    columns: str | None = None
    """for tables: the mapping file"""
    onnx: bool = True
    """let a folder or zip hold the ONNX file too, where the extra is installed"""
    check: bool = False
    """write nothing: compare the readers of a saved policy again, and hold them to the bound that it states"""


def run(words: list[str]) -> int:
    """Export, or check what was exported."""
    options = parse(Export, words, "export")
    folder = Path(options.policy)
    if not folder.exists():
        raise ConfigError(f"{folder} does not exist: give a run folder or a saved policy")
    record = Record.read(folder) if (folder / "run.json").exists() else None
    if options.check:
        return _check(options, folder, record)
    target = _target(options, folder, record)
    policy = open_policy(options.policy, options.seed)
    logged, why_not = _logged(options, record, policy)
    if options.to == "onnx":
        found = export_onnx(policy, target, logged)
    else:
        metrics = None if record is None else _metrics(folder, policy.origin)
        found = export(policy, target, onnx=options.onnx and has_onnx(), logged=logged, metrics=metrics)
    _show(found, why_not)
    if options.to != "onnx" and options.onnx and not has_onnx():
        say(f"without an ONNX file: {EXTRA}")
    say(f"exported: {target}")
    return 0


def _check(options: Export, folder: Path, record: Record | None) -> int:
    if record is not None:
        raise ConfigError(f"{folder} is a run: --check is for what was exported of it")
    logged = None
    if options.log is not None:
        logged = Logged.of(reopen_any({"source": options.log, "columns": options.columns}), open_policy(options.policy))
    _show(recheck(folder, logged), None if logged else "name the log with --log")
    say(f"{folder} gives the same answers everywhere")
    return 0


def _target(options: Export, folder: Path, record: Record | None) -> Path:
    if options.out is None and record is None:
        raise ConfigError(f"{folder} is a saved policy: say with --out where to write")
    target = Path(options.out) if options.out is not None else folder / f"policy{SUFFIX[options.to]}"
    wanted = SUFFIX[options.to]
    if target.suffix != wanted if wanted else target.suffix in SUFFIX.values() and target.suffix:
        raise ConfigError(
            f"--out {target}: with --to {options.to} expected a name that ends in {wanted or 'no suffix'}"
        )
    if target == folder:
        raise ConfigError(f"--out {target} is what is to be exported: choose another place")
    return target


def _logged(options: Export, record: Record | None, policy: Policy) -> tuple[Logged | None, str | None]:
    """Logged observations, or why there are none."""
    if options.log is not None:
        return Logged.of(reopen_any({"source": options.log, "columns": options.columns}), policy), None
    origin = None if record is None else record.data.get("origin")
    if not isinstance(origin, Mapping):
        return None, "name a log with --log"
    try:
        return Logged.of(reopen_any(origin), policy), None
    except (ConfigError, LogError) as error:
        return None, f"the run's log cannot be read again ({error}): name it with --log"


def _metrics(folder: Path, origin: Mapping[str, Any]) -> dict[str, Any] | None:
    """The run's report of the update and member that the policy is of."""
    update, member, seed = (origin.get(name) for name in ("update", "member", "seed"))
    for row in rows_until(folder, int(update or 0)):
        if row["update"] == update and (row["member"] == member if member is not None else row["seed"] == seed):
            return dict(row)
    return None


def _show(record: Mapping[str, Any], why_not: str | None) -> None:
    rows = [
        [f"{reader}, {kind}", f"{record['rows'][kind]}", f"{facts['difference']:.1e}", f"{facts['apart']:.2%}"]
        for reader in ("numpy", "onnx")
        for kind, facts in record.get(reader, {}).items()
        if kind != "holds"
    ]
    bound = record["bound"]
    rows.append(["let pass", "", f"{bound['difference']:.1e}", f"{bound['apart']:.2%}"])
    table("against JAX", ["reader, observations", "rows", "largest difference", "another action"], rows)
    if why_not is not None:
        say(f"not compared on logged observations: {why_not}")
