"""`tidelog act POLICY --data new.csv --out actions.csv`: write actions for new rows, of a table or of arrays."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import tyro

from tidelog._text import count_of
from tidelog.cli.flags import (
    File,
    OutputFlags,
    Repeated,
    RunOrPolicy,
    check_tables,
    check_targets,
    parse,
    present,
    print_details,
    print_line,
    print_notes,
    source_of,
)
from tidelog.cli.policies import SimpleRule, in_chosen_way, open_for_use, open_simple_rule, print_way, with_rule
from tidelog.data.columns import USUAL_FORM, Columns
from tidelog.data.formats import ending_of
from tidelog.data.read import ARRAYS as FILES_OF_ARRAYS
from tidelog.data.read import SOURCES
from tidelog.errors import ConfigError, SpecError
from tidelog.policies.batch_inference import (
    act_on_arrays,
    act_on_known,
    act_on_table,
    count_unseen,
    write_arrays,
    write_table,
)
from tidelog.runtime.observations import unseen_text
from tidelog.runtime.way_of_acting import Acts
from tidelog.types import Catalogue, Discrete

ARRAYS = ".npz"


@dataclass
class ActFlags(OutputFlags):
    """Write every row of a table or an npz file with the policy's action."""

    policy: tyro.conf.Positional[RunOrPolicy]
    """a saved policy, also hf://USER/NAME, or a run folder (its best policy if there is one, else its first member)"""
    data: Repeated
    """new rows with the features of the log (.csv, .csv.gz, .parquet): a file, a folder or a glob; repeat the flag for
    several; other columns are copied. Or one .npz file with the arrays of `Log.from_arrays`, pictures too"""
    out: File
    """the output file with all rows and their actions (.csv or .parquet; .npz for arrays), and their propensities if
    sampled"""
    member: int | None = None
    """for a run folder: the member, counted from 0 as in `tidelog judge`"""
    sample: bool = False
    """sample actions from the policy's distribution; default: in the way in which it was judged, else the next flag"""
    mode: bool = False
    """take the most likely actions"""
    rule: SimpleRule | None = None
    """for a run folder: act by a simple rule of its training episodes instead of the policy, the best rule of at most
    two questions (`--rule` alone, or `tree`) or the best single action (`constant`)"""
    probabilities: bool = False
    """for discrete actions: also write the probability of every action, and its Q-value if the policy has a critic"""
    seed: int | None = None
    """random seed of sampled actions; default: new random numbers each time"""
    columns: File | None = None
    """the mapping file of the log, for how it is read and its action mask; a run folder has its own"""
    unseen: Literal["other", "skip", "fail"] = "other"
    """what to do with a label that the log of the policy does not have: count it as the label `other` where the policy
    learnt one (elsewhere it is an error), skip its row, or fail"""
    skip_unknown: File | None = None
    """skip rows with a label that the policy cannot read, or without a number that is needed, and write them to this
    file (.csv or .parquet)"""
    csv_safe: bool = False
    """in a .csv file, write an apostrophe before text that a spreadsheet would compute (it begins with = + - @)"""
    overwrite: bool = False
    """replace these files if they exist"""


def run(words: list[str]) -> int:
    """Write actions for a table, of one file or of several, or for arrays."""
    options = parse(ActFlags, with_rule(words), "act")
    return present(options, lambda: _act(options))


def _act(options: ActFlags) -> dict[str, Any]:
    """Write the actions, and return what was written."""
    target, source = Path(options.out), source_of(options.data, "--data")
    kind = None if not isinstance(source, str) else ending_of(source, [*SOURCES, *FILES_OF_ARRAYS])
    if kind in FILES_OF_ARRAYS and kind != ARRAYS:
        convert = shlex.join(["tidelog", "data", "convert", "--data", str(source), "--out", "rows.npz"])
        raise ConfigError(
            f"--data {source}", "a table or an .npz file", f"`{convert}`, then --data rows.npz --out actions.npz"
        )
    if ARRAYS in (target.suffix, *(Path(one).suffix for one in ([source] if isinstance(source, str) else source))):
        return _on_arrays(options, source, target)
    skipped_file = None if options.skip_unknown is None else Path(options.skip_unknown)
    check_tables(target, skipped_file)
    policy = _policy(options)
    check_targets(target, skipped_file, overwrite=options.overwrite)
    rows, skipped, notes = _write_rows(policy, options, source, target, skipped_file)
    print_way(policy)
    print_notes([*policy.notes(), *notes])
    if skipped_file is not None:
        print_details(
            f"{count_of(skipped, 'row')} skipped, each with the values that the policy cannot read: {skipped_file}"
        )
    print_line(f"{count_of(rows, 'row')} with their actions: {target}")
    return {"out": str(target), "rows": rows, "skipped": skipped, "acting": policy.acting}


def _write_rows(
    policy: Acts, options: ActFlags, source: str | list[str], target: Path, skipped_file: Path | None
) -> tuple[int, int, list[str]]:
    """Write the actions of a table, and the skipped rows; return the number of rows, of skipped ones, and notes."""
    columns, skipped, notes = _columns(options, source), 0, list[str | None]()
    if skipped_file is None and options.unseen != "skip":
        acted = act_on_table(
            policy, source, columns, options.seed, probabilities=options.probabilities, unseen=options.unseen
        )
    else:
        known, left_out = act_on_known(policy, source, columns, options.seed, options.unseen)
        skipped = len(left_out)
        if known is None:
            raise SpecError(
                f"all {count_of(skipped, 'row')} have a value that the policy cannot read, such as "
                f"{left_out['unknown'][0]}",
                fix="correct the cells",
            )
        acted = known
        if skipped_file is not None:
            notes.append(write_table(left_out, skipped_file, options.csv_safe))
        elif skipped:
            notes.append(
                f"{count_of(skipped, 'row')} skipped, such as row {left_out['row'][0]}: {left_out['unknown'][0]}"
            )
    if counts := count_unseen(policy, acted):
        notes.append(unseen_text(counts))
    notes.append(write_table(acted, target, options.csv_safe))
    return len(acted), skipped, [note for note in notes if note]


def _columns(options: ActFlags, source: str | list[str]) -> Columns | None:
    """Return the mapping: that of the flag, or the one with which a run read its log, if its file had this ending."""
    if options.columns is not None:
        return Columns.from_file(options.columns)
    folder = Path(options.policy)
    if not (folder / "run.json").exists():
        return None
    from tidelog.training.record import Record

    origin = Record.read(folder).data.origin or {}
    if not origin.get("columns"):
        return None
    columns = Columns.from_mapping(origin["columns"])
    before, now = (one if isinstance(one, str) else one[0] for one in (origin["source"], source))
    same = ending_of(before, SOURCES) == ending_of(now, SOURCES)
    return columns if same else replace(columns, **USUAL_FORM._asdict())


def _on_arrays(options: ActFlags, source: str | list[str], target: Path) -> dict[str, Any]:
    """Write actions for the arrays of one npz file."""
    if not isinstance(source, str):
        raise ConfigError("--data names several files", "one .npz file", "call tidelog act for each file")
    if not (Path(source).suffix == target.suffix == ARRAYS):
        fix = f"--out {target.with_suffix(ARRAYS)}" if Path(source).suffix == ARRAYS else "name a table with --out"
        raise ConfigError(f"--data {source} and --out {target}", f"both to end in {ARRAYS}, or neither", fix)
    flags = {
        "--unseen": None if options.unseen == "other" else options.unseen,
        "--columns": options.columns,
        "--skip-unknown": options.skip_unknown,
        "--csv-safe": options.csv_safe or None,
    }
    unused = [flag for flag, value in flags.items() if value is not None]
    if unused:
        raise ConfigError(f"{unused[0]} has no effect on arrays", fix=f"drop {unused[0]}")
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


def _policy(options: ActFlags) -> Acts:
    """Return the policy in the chosen way of acting; ConfigError for a seed without chance, and flags that exclude."""
    if options.probabilities and (options.skip_unknown is not None or options.unseen == "skip"):
        flag = "--skip-unknown" if options.skip_unknown is not None else "--unseen skip"
        raise ConfigError(f"--probabilities and {flag} are both set", fix="set only one of them")
    if options.unseen == "fail" and options.skip_unknown is not None:
        raise ConfigError("--unseen fail and --skip-unknown are both set", fix="set only one of them")
    policy = in_chosen_way(_opened(options), options.sample, options.mode)
    if options.seed is not None and policy.acting != "sample":
        raise ConfigError("--seed: the policy takes its most likely actions, which are not random", fix="drop --seed")
    return policy


def _opened(options: ActFlags) -> Acts:
    """Return the policy; SpecError for one that ranks items."""
    if options.rule is not None:
        if options.member is not None or options.sample:
            raise ConfigError("--rule has no members and no chance", fix="drop --member and --sample")
        return open_simple_rule(options.policy, options.rule)
    policy = open_for_use(options.policy, options.member)
    if isinstance(policy, Acts) and not isinstance(policy.spec.action, Catalogue):
        return policy
    raise SpecError("this policy ranks items of a catalogue", fix="use tidelog recommend")
