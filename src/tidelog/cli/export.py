"""`tidelog export RUN --to folder|zip|onnx`: a policy for other programs, checked against all its runtimes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from tidelog.cli.flags import (
    File,
    OutputFlags,
    Repeated,
    RunOrPolicy,
    parse,
    present,
    print_details,
    print_line,
    print_notes,
    source_of,
    table,
)
from tidelog.cli.policies import SimpleRule, in_chosen_way, open_policy, open_simple_rule, print_way, with_rule
from tidelog.errors import ConfigError, LogError, install
from tidelog.policies.export import LoggedObservations, export, export_onnx, has_onnx, onnx_facts, recheck
from tidelog.policies.policy import Policy
from tidelog.recommend.read import reopen_any
from tidelog.runtime.artefact import check_target, sign
from tidelog.runtime.rule import is_rule_file, load_rule
from tidelog.runtime.way_of_acting import verdict_line
from tidelog.sinks import JSON_LINES, read_rows
from tidelog.training.metrics import Progress
from tidelog.training.record import Record, provenance_of
from tidelog.types import Catalogue

SUFFIX = {"folder": "", "zip": ".zip", "onnx": ".onnx"}
NO_LOG = "no log: name one with --data"


@dataclass
class Export(OutputFlags):
    """Write a policy for other programs, if all its runtimes give the same answers."""

    policy: tyro.conf.Positional[RunOrPolicy]
    """a run folder (its best policy if there is one, else its first member), or a saved policy"""
    to: Literal["folder", "zip", "onnx"] = "folder"
    """a folder, a .zip of it, or only the .onnx file"""
    out: Annotated[str, "PATH"] | None = None
    """the output path; default: `policy`, `policy.zip` or `policy.onnx` in the run folder"""
    member: int | None = None
    """for a run folder: the member, counted from 0 as in `tidelog judge`"""
    sample: bool = False
    """declare that the policy samples its actions; default: as it was judged, else the most likely actions"""
    mode: bool = False
    """declare that it takes its most likely actions"""
    rule: SimpleRule | None = None
    """for a run folder: write a simple rule of its training episodes instead of the policy, as one JSON file: the best
    rule of at most two questions (`--rule` alone, or `tree`) or the best single action (`constant`)"""
    data: Repeated = ()
    """a log for the comparison of runtimes, besides random observations; default: the run's log, if it still exists"""
    columns: File | None = None
    """for tables: the mapping file"""
    onnx: bool = True
    """include the ONNX file in a folder or zip, if the extra is installed"""
    sign: File | None = None
    """sign a folder or zip with this private key, an Ed25519 key in PEM (`tidelog verify` checks it)"""
    overwrite: bool = False
    """replace an older policy at the output"""
    check: bool = False
    """write nothing: repeat the comparison for a saved policy, and require its stated bound"""


def run(words: list[str]) -> int:
    """Export a policy, or check an export."""
    return present(parse(Export, with_rule(words), "export"), _export)


def _export(options: Export) -> dict[str, Any]:
    """Export a policy, or check one, and return where it is written."""
    folder, written = Path(options.policy), None
    if not folder.exists():
        raise ConfigError(f"{folder} does not exist", "a run folder or a saved policy")
    record = Record.read(folder) if (folder / "run.json").exists() else None
    if options.check:
        _check(options, folder, record)
    elif options.rule is not None or is_rule_file(folder):
        written = _rule(options, folder)
    else:
        written = _policy(options, folder, record)
    if written is not None:
        print_line(f"exported: {written}")
    return {"policy": options.policy, "out": None if written is None else str(written), "checked": options.check}


def _policy(options: Export, folder: Path, record: Record | None) -> Path:
    """Export a policy and return its path."""
    target = _target(options, folder, record)
    if options.to != "onnx":
        check_target(target)
    if options.sign is not None:
        if options.to == "onnx":
            raise ConfigError("--sign needs a manifest, and an .onnx file has none", fix="use --to folder or --to zip")
        sign(b"", Path(options.sign))  # an error for a key that cannot sign, before anything is computed
    if target.exists() and not options.overwrite:
        raise ConfigError(f"{target} exists, nothing was written", fix="choose another name, or add --overwrite")
    policy = open_policy(options.policy, options.member)
    if not isinstance(policy.spec.action, Catalogue):
        policy = in_chosen_way(policy, options.sample, options.mode)
        print_way(policy)
    with Progress("exporting", False if options.quiet else None) as screen:
        screen.update("reading the log for the comparison", 0.0)
        logged, not_compared = _logged(options, record, policy)
        if options.to == "onnx":
            comparison = export_onnx(policy, target, logged, overwrite=options.overwrite, progress=screen.update)
        else:
            comparison = export(
                policy,
                target,
                onnx=options.onnx and has_onnx(),
                logged=logged,
                metrics=None if record is None else _metrics(folder, policy.origin),
                provenance=None if record is None else provenance_of(folder, record, policy),
                key=None if options.sign is None else Path(options.sign),
                progress=screen.update,
            )
    if options.quiet:
        return target
    _show(comparison, not_compared)
    print_details(*_onnx_lines(target))
    if options.to != "onnx" and options.onnx and not has_onnx():
        print_details(f"no ONNX file. fix: {install('onnx')}")
    print_notes(policy.notes())
    return target


def _rule(options: Export, folder: Path) -> Path:
    """Export a simple rule and return its path."""
    flags = {"--member": options.member is not None, "--sample": options.sample, "--sign": options.sign is not None}
    flags |= {f"--to {options.to}": options.to != "folder"}
    unused = [flag for flag, is_set in flags.items() if is_set]
    if unused:
        raise ConfigError(f"{unused[0]} has no effect on a rule, which is one JSON file", fix=f"drop {unused[0]}")
    if options.rule is None and options.out is None:
        raise ConfigError(f"{folder} is a saved rule: --out is required", fix="name the output with --out")
    target = Path(options.out) if options.out is not None else folder / "rule.json"
    if target.suffix != ".json":
        raise ConfigError(f"--out {target}", "a path that ends in .json", "change the suffix")
    rule = load_rule(folder) if options.rule is None else open_simple_rule(options.policy, options.rule)
    rule = rule.with_acting("mode")
    rule.save(target, overwrite=options.overwrite)
    print_details(*rule.notes(), verdict_line(rule.verdict))
    return target


def _onnx_lines(target: Path) -> list[str]:
    """The inputs and outputs of the ONNX file that was written, if there is one."""
    facts = onnx_facts(target)
    if facts is None:
        return []
    inputs = [f"{one['name']}{' (optional)' if one['optional'] else ''}" for one in facts["inputs"]]
    lines = [f"ONNX inputs: {', '.join(inputs)}; outputs: {', '.join(facts['outputs'])}"]
    noise = [one for one in facts["inputs"] if one["name"] == "noise" and not one["optional"]]
    if noise:
        shape = ", ".join(map(str, noise[0]["shape"]))
        lines.append(
            f"the input 'noise' is required, because this policy samples its actions: pass numbers of shape [{shape}] "
            f"({noise[0]['content']}), or export it with --mode, which takes its most likely actions"
        )
    return lines


def _check(options: Export, folder: Path, record: Record | None) -> None:
    if record is not None:
        raise ConfigError(f"{folder} is a run folder: --check expects an exported policy")
    logged, not_compared = _logged(options, None, open_policy(options.policy)) if options.data else (None, NO_LOG)
    _show(recheck(folder, logged), not_compared)
    print_line(f"{folder} gives the same answers in all runtimes")


def _target(options: Export, folder: Path, record: Record | None) -> Path:
    if options.out is None and record is None:
        raise ConfigError(f"{folder} is a saved policy: --out is required", fix="name the output with --out")
    target = Path(options.out) if options.out is not None else folder / f"policy{SUFFIX[options.to]}"
    suffix = SUFFIX[options.to]
    if target.suffix != suffix if suffix else target.suffix in SUFFIX.values() and target.suffix:
        raise ConfigError(f"--out {target}", f"a path that ends in {suffix or 'no suffix'} for --to {options.to}")
    if target.exists() and target.samefile(folder):
        raise ConfigError(f"--out {target} is the exported policy itself", fix="choose another path")
    return target


def _logged(options: Export, record: Record | None, policy: Policy) -> tuple[LoggedObservations | None, str | None]:
    """Logged observations, or the reason for their absence."""
    if options.data:
        return LoggedObservations.of(
            reopen_any({"source": source_of(options.data, "--data"), "columns": options.columns}), policy
        ), None
    origin = None if record is None else record.data.origin
    if not isinstance(origin, Mapping):
        return None, NO_LOG
    try:
        return LoggedObservations.of(reopen_any(origin), policy), None
    except (ConfigError, LogError) as error:
        return None, f"the run's log cannot be read ({error}): name it with --data"


def _metrics(folder: Path, origin: Mapping[str, Any]) -> dict[str, Any] | None:
    """The run's metrics row of the policy's update and member."""
    update, member, seed = (origin.get(name) for name in ("update", "member", "seed"))
    for row in read_rows(folder / JSON_LINES):
        if row["update"] == update and (row["member"] == member if member is not None else row["seed"] == seed):
            return dict(row)
    return None


def _show(record: Mapping[str, Any], not_compared: str | None) -> None:
    rows = [
        [f"{reader}, {kind}", f"{record['rows'][kind]}", f"{facts['difference']:.1e}", f"{facts['apart']:.2%}"]
        for reader in ("numpy", "onnx")
        for kind, facts in record.get(reader, {}).items()
        if kind != "holds"
    ]
    bound = record["bound"]
    rows.append(["limit", "", f"{bound['difference']:.1e}", f"{bound['apart']:.2%}"])
    table("against JAX", ["reader, observations", "rows", "largest difference", "another action"], rows)
    if not_compared is not None:
        print_line(f"not compared on logged observations: {not_compared}")
