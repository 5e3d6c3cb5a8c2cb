"""`tidelog act POLICY --data new.csv --out actions.csv`: write actions for new rows, of a table or of arrays."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import tyro

from tidelog.cli.flags import File, OnEngine, OutputFlags, Repeated, RunOrPolicy, parse, source_of
from tidelog.cli.named_policies import open_for_use
from tidelog.cli.output import present, print_details, print_line, print_notes
from tidelog.cli.targets import check_targets
from tidelog.cli.way_of_acting import in_chosen_way, print_way
from tidelog.data.core.columns import USUAL_FORM, Columns
from tidelog.data.sources import ARRAYS as FILES_OF_ARRAYS
from tidelog.data.sources import is_table_file
from tidelog.data.sources.files import files_of
from tidelog.data.sources.tables import SOURCES, ending_of
from tidelog.disk import make_folders
from tidelog.errors import ConfigError, SpecError
from tidelog.folders import digest
from tidelog.input_files import read_text
from tidelog.number_text import count_of
from tidelog.policies.array_inference import act_on_arrays, write_arrays
from tidelog.policies.batch_inference import act_on_known, act_on_table, write_table
from tidelog.runtime.policy import Policy as SavedPolicy
from tidelog.runtime.way_of_acting import Acts
from tidelog.training.runs.progress import Screen
from tidelog.types import Catalogue, Discrete

if TYPE_CHECKING:
    from tidelog.cli.many_files import OneFile

ENDINGS = (".csv", ".parquet")
ARRAYS = ".npz"
HUB, POLICY = "hf://", "policy"
RECORDED = ("member", "sample", "mode", "probabilities", "seed", "columns", "skip_unknown", "csv_safe")
FAILURES, MOST_SHOWN = 4, 5  # the exit code where files have no actions, and how many are named


@dataclass
class Act(OutputFlags):
    """Write every row of a table or an npz file with the policy's action."""

    policy: tyro.conf.Positional[RunOrPolicy]
    """a saved policy, also hf://USER/NAME, or a run folder (its best policy if there is one, else its first member)"""
    data: Repeated
    """new rows with the features of the log (.csv, .csv.gz, .parquet): a file, a folder or a glob; repeat the flag for
    several; other columns are copied. Or one .npz file with the arrays of `Log.from_arrays`, pictures too"""
    out: File
    """the output file with the rows and their actions (.csv or .parquet; .npz for arrays), and their propensities if
    sampled; or, for several files of rows, a folder, with a file for each of them: called again, the command goes on
    where it was stopped"""
    member: int | None = None
    """for a run folder: the member, counted from 0 as in `tidelog judge`"""
    sample: bool = False
    """sample actions from the policy's distribution; default: in the way in which it was judged, else the next flag"""
    mode: bool = False
    """take the most likely actions"""
    probabilities: bool = False
    """for discrete actions: also write the probability of every action, and its Q-value if the policy has a critic"""
    seed: int | None = None
    """random seed of sampled actions; default: new random numbers each time"""
    columns: File | None = None
    """the mapping file of the log, for how it is read and its action mask; a run folder has its own"""
    skip_unknown: File | None = None
    """skip rows with a category that the log does not have, or without a number that is needed, and write them to
    this file (.csv or .parquet)"""
    csv_safe: bool = False
    """in a .csv file, write an apostrophe before text that a spreadsheet would compute (it begins with = + - @)"""
    overwrite: bool = False
    """replace these files if they exist"""
    workers: int | None = None
    """with a folder as --out: processes at the same time, each with one processor core; default: this process alone"""
    on: OnEngine = "here"
    """with a folder as --out: "here" for this machine, "ray" for a Ray cluster, as in `tidelog sweep`"""
    insecure: bool = False
    """with --on ray: also use a cluster that requires no token"""


def run(words: list[str]) -> int:
    """Write actions for a table."""
    options = parse(Act, words, "act")
    failed: list[str] = []

    def act() -> dict[str, Any]:
        files = _separate_files(options)
        if files is None:
            return _act(options)
        result = _act_on_files(options, files)
        failed.extend(result["failed"])
        return result

    return present(options, act) or (FAILURES if failed else 0)


def work_on(folder: Path, numbers: list[int], after: Callable[[], None] = lambda: None) -> None:
    """Write the actions for some files of a folder that `tidelog act` began; `after` is called after each of them."""
    from tidelog.cli.many_files import ManyFiles

    plan = ManyFiles.read(folder)
    flags = {name[2:].replace("-", "_"): value for name, value in plan.settings.items() if name.startswith("--")}
    options = Act(policy=plan.settings[POLICY], out=str(folder), data=(), **flags)
    policy = _policy(options)

    def write(file: OneFile, target: Path) -> None:
        seed = options.seed  # each file has random numbers of its own, whichever process draws them
        if seed is not None:
            seed = int(np.random.SeedSequence([seed, *file.target.encode()]).generate_state(1)[0])
        skipped = None if options.skip_unknown is None else Path(options.skip_unknown) / file.target
        if skipped is not None:
            make_folders(skipped.parent)
        _write_rows(policy, replace(options, seed=seed), file.source, target, skipped)

    plan.work(numbers, write, after)


def _identity(policy: Acts) -> str:
    """A checksum of the policy, to tell whether it is still the one that a folder was begun with."""
    if isinstance(policy, SavedPolicy):
        return digest(dict(policy.manifest))
    from tidelog.policies.named_arrays import fingerprint

    return fingerprint(policy.params)  # type: ignore[attr-defined]


def _separate_files(options: Act) -> list[Path] | None:
    """The files of rows, if each gets a file of its own, in a folder; ConfigError for flags that need this."""
    source, target = source_of(options.data, "--data"), Path(options.out)
    files = None if target.suffix else files_of(source, lambda path: is_table_file(str(path)))
    if files is not None:
        return list(files.paths)
    if options.workers is not None or options.on != "here" or options.insecure:
        raise ConfigError(
            "--workers, --on and --insecure are for several files of rows, each with a file of its own. fix: name a "
            "folder as --out, or drop them"
        )
    return None


def _act_on_files(options: Act, files: list[Path]) -> dict[str, Any]:
    """Write a file of actions for each file, in this process or in several, and return what was written."""
    from tidelog.cli.many_files import ManyFiles
    from tidelog.sweeps.fan_out import fan_out, groups_of
    from tidelog.sweeps.sweep import engine_of

    policy = _policy(options)
    if policy.is_recurrent:
        raise ConfigError(
            "a recurrent policy needs every row of an episode, and one may be in several files. fix: --out "
            "FILE.parquet reads all files as one table"
        )
    settings = {f"--{name.replace('_', '-')}": getattr(options, name) for name in RECORDED}
    for name in ("--columns", "--skip-unknown"):
        settings[name] = None if settings[name] is None else str(Path(settings[name]).absolute())
    settings |= {
        POLICY: options.policy if options.policy.startswith(HUB) else str(Path(options.policy).absolute()),
        "mapping": None if options.columns is None else read_text(Path(options.columns)),
        "version of the policy": _identity(policy),
        "way of acting": policy.acting,
    }
    folder = Path(options.out)
    plan = ManyFiles.begin(folder, settings, files, options.overwrite)
    with Screen("acting", False if options.quiet else None) as screen:

        def tell() -> None:
            done = len(files) - len(plan.left())
            screen.tell(f"{done:,} of {len(files):,} files", done / len(files))

        tell()
        if options.workers is None and options.on == "here":
            work_on(folder, plan.left(), tell)
        elif left := plan.left():
            groups = groups_of(left, options.workers)
            engine = engine_of(options.on, 1, options.workers, len(groups), options.insecure)
            for number, reason in fan_out(folder, __name__, groups, engine, plan.left, tell).items():
                plan.fail(number, reason)
    failures = plan.failures()
    print_way(policy)
    print_notes(policy.notes())
    print_line(f"{count_of(len(files) - len(failures), 'file')} with their actions: {folder}")
    for number, reason in list(failures.items())[:MOST_SHOWN]:
        print_line(f"nothing for {plan.files[number].source}: {reason}")
    if len(failures) > MOST_SHOWN:
        print_line(f"... and for {len(failures) - MOST_SHOWN:,} more: {folder / 'failures'}")
    failed = [plan.files[number].source for number in failures]
    return {"out": str(folder), "files": len(files), "failed": failed, "acting": policy.acting}


def _act(options: Act) -> dict[str, Any]:
    """Write the actions, and return what was written."""
    target, source = Path(options.out), source_of(options.data, "--data")
    kind = None if not isinstance(source, str) else ending_of(source, [*SOURCES, *FILES_OF_ARRAYS])
    if kind in FILES_OF_ARRAYS and kind != ARRAYS and not is_table_file(str(source)):
        convert = shlex.join(["tidelog", "data", "convert", "--data", str(source), "--out", "rows.npz"])
        raise ConfigError(
            f"--data {source}: expected a table or an .npz file. fix: `{convert}`, then --data rows.npz --out "
            "actions.npz"
        )
    if ARRAYS in (target.suffix, *(Path(one).suffix for one in ([source] if isinstance(source, str) else source))):
        return _on_arrays(options, source, target)
    skipped_file = None if options.skip_unknown is None else Path(options.skip_unknown)
    for place in (target, skipped_file):
        if place is not None and place.suffix not in ENDINGS:
            raise ConfigError(f"{place}: expected a path that ends in {' or '.join(ENDINGS)}. fix: change the suffix")
    policy = _policy(options)
    check_targets(target, skipped_file, overwrite=options.overwrite)
    rows, skipped, note = _write_rows(policy, options, source, target, skipped_file)
    print_way(policy)
    print_notes([*policy.notes(), *([note] if note else [])])
    print_line(f"{count_of(rows, 'row')} with their actions: {target}")
    return {"out": str(target), "rows": rows, "skipped": skipped, "acting": policy.acting}


def _write_rows(
    policy: Acts, options: Act, source: str | list[str], target: Path, skipped_file: Path | None
) -> tuple[int, int, str | None]:
    """Write the actions of one table; return the number of rows, of skipped ones, and a note if there is one."""
    columns, skipped = _columns(options, source), 0
    if skipped_file is None:
        acted = act_on_table(policy, source, columns, options.seed, probabilities=options.probabilities)
    else:
        acted, skipped = _known(policy, options, source, skipped_file)
    return len(acted), skipped, write_table(acted, target, options.csv_safe)


def _columns(options: Act, source: str | list[str]) -> Columns | None:
    """Return the mapping: that of the flag, or the one with which a run read its log, if its file had this ending."""
    if options.columns is not None:
        return Columns.from_file(options.columns)
    folder = Path(options.policy)
    if not (folder / "run.json").exists():
        return None
    from tidelog.training.runs.record import Record

    origin = Record.read(folder).data.origin or {}
    if not origin.get("columns"):
        return None
    columns = Columns.from_mapping(origin["columns"])
    before, now = (one if isinstance(one, str) else one[0] for one in (origin["source"], source))
    same = ending_of(before, SOURCES) == ending_of(now, SOURCES)
    return columns if same else replace(columns, **USUAL_FORM._asdict())


def _on_arrays(options: Act, source: str | list[str], target: Path) -> dict[str, Any]:
    """Write actions for the arrays of one npz file."""
    if not isinstance(source, str):
        raise ConfigError("--data names several files: expected one .npz file. fix: call tidelog act for each file")
    if not (Path(source).suffix == target.suffix == ARRAYS):
        raise ConfigError(
            f"--data {source} and --out {target}: expected both to end in .npz, or neither. fix: change --out"
        )
    flags = {
        "--columns": options.columns,
        "--skip-unknown": options.skip_unknown,
        "--csv-safe": options.csv_safe or None,
    }
    unused = [flag for flag, value in flags.items() if value is not None]
    if unused:
        raise ConfigError(f"{unused[0]} has no effect on arrays. fix: drop {unused[0]}")
    policy = _policy(options)
    check_targets(target, overwrite=options.overwrite)
    arrays, objects = act_on_arrays(policy, source, options.seed, probabilities=options.probabilities)
    write_arrays(arrays, target)
    print_way(policy)
    print_notes(policy.notes())
    print_notes([f"arrays of objects are not copied: {', '.join(objects)}"] if objects else [])
    if isinstance(policy.spec.action, Discrete) and policy.spec.action.names:
        codes = ", ".join(f"{code} = {name}" for code, name in enumerate(policy.spec.action.names))
        print_notes([f"actions are codes: {codes}"])
    rows = len(arrays["policy_action" if "policy_action" in arrays else "action"])
    print_line(f"{count_of(rows, 'row')} with their actions: {target}")
    return {"out": str(target), "rows": rows, "skipped": 0, "acting": policy.acting}


def _policy(options: Act) -> Acts:
    """Return the policy in the chosen way of acting; ConfigError for a seed without chance, and flags that exclude."""
    if options.probabilities and options.skip_unknown is not None:
        raise ConfigError("--probabilities and --skip-unknown are both set. fix: set only one of them")
    policy = in_chosen_way(_opened(options), options.sample, options.mode)
    if options.seed is not None and policy.acting != "sample":
        raise ConfigError("--seed: the policy takes its most likely actions, which are not random. fix: drop --seed")
    return policy


def _opened(options: Act) -> Acts:
    """Return the policy; SpecError for one that ranks items."""
    policy = open_for_use(options.policy, options.member)
    if isinstance(policy, Acts) and not isinstance(policy.spec.action, Catalogue):
        return policy
    raise SpecError("this policy ranks items of a catalogue. fix: use tidelog recommend")


def _known(policy: Acts, options: Act, source: str | list[str], skipped_file: Path) -> tuple[pl.DataFrame, int]:
    """Act on the rows whose categories the log has; write the others to a file, and return their number."""
    acted, skipped = act_on_known(policy, source, _columns(options, source), options.seed)
    if acted is None:
        raise SpecError(
            f"all {len(skipped):,} rows have a value that the policy cannot read, such as {skipped['unknown'][0]}. "
            "fix: correct the cells"
        )
    note = write_table(skipped, skipped_file, options.csv_safe)
    print_notes([note] if note else [])
    print_details(
        f"{count_of(len(skipped), 'row')} skipped, each with the values that the policy cannot read: {skipped_file}"
    )
    return acted, len(skipped)
