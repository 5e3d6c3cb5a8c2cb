"""`tidelog act POLICY --data new.csv --out actions.csv`: actions for new rows, or lists of items for users."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from tidelog._files import read_text
from tidelog._text import count_of
from tidelog.cli.flags import (
    Column,
    File,
    OutputFlags,
    Repeated,
    RunOrPolicy,
    Switch,
    check_tables,
    check_targets,
    parse,
    present,
    print_details,
    print_line,
    print_notes,
    source_of,
)
from tidelog.cli.policies import (
    WORDS,
    columns_of_run,
    in_chosen_way,
    open_for_use,
    open_policy,
    open_rule,
    open_simple_rule,
    print_way,
    with_rule,
)
from tidelog.data.columns import Columns
from tidelog.data.formats import ARRAYS as FILES_OF_ARRAYS
from tidelog.data.formats import TABLES, ending_of
from tidelog.data.read import table_with
from tidelog.errors import ConfigError, SpecError
from tidelog.policies.batch_inference import (
    act_on_arrays,
    act_on_known,
    act_on_table,
    count_unseen,
    write_arrays,
    write_table,
)
from tidelog.recommend.tables import new_items, recommend_for_table
from tidelog.runtime.observations import unseen_text
from tidelog.runtime.recommender import PolicyRanker, Recommends, excludes_seen
from tidelog.runtime.way_of_acting import BasePolicy
from tidelog.training.metrics import Progress
from tidelog.types import Catalogue, Discrete, Hybrid

ARRAYS = ".npz"


@dataclass(kw_only=True)
class ActionFlags:
    """Flags for a policy that chooses actions."""

    sample: Switch = False
    """sample actions from the policy's distribution; default: in the way in which it was judged, else the next flag"""
    mode: Switch = False
    """take the most likely actions"""
    probabilities: Switch = False
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


@dataclass(kw_only=True)
class ListFlags:
    """Flags for a policy that ranks items, or for a rule that counts events."""

    user: Column | None = None
    """the column of users; default: that of the run's log, for a run folder"""
    item: Column | None = None
    """the column of items; an empty cell is a user without a history; default: that of the run's log"""
    time: Column | None = None
    """the column of times; without it, rows are in order; default: that of the run's log, if the table has it"""
    event: Column | None = None
    """the column of the kind of event; default: that of the run's log, if the table has it"""
    user_features: File | None = None
    """a table with one row per user, if the policy was trained with one"""
    new_items: File | None = None
    """a table with one row per item and the columns of the item features: items that the log did not have are ranked by
    these, if the policy was trained with --content"""
    k: int = 10
    """length of the lists"""
    exclude_seen: Literal["auto", "yes", "no"] = "auto"
    """exclude items that the user has chosen before; auto: unless a tenth of the log's events repeat an item"""
    candidates: File | None = None
    """a text file with one item per line: recommend only these"""
    diversity: float = 0.0
    """from 0 to 1: more different items in a list, at the cost of their scores"""
    explain: Switch = False
    """add the item of the history on which each recommendation depends most, and how many times likelier it makes it"""
    exclude: File | None = None
    """a text file with one item per line: never recommend these"""
    unknown: Literal["error", "skip"] = "error"
    """what to do with history items and user features that the log does not have"""


@dataclass
class ActFlags(OutputFlags):
    """Write a policy's actions for the rows of a table, or its lists for users."""

    policy: tyro.conf.Positional[RunOrPolicy]
    """a saved policy, also hf://USER/NAME, or a run folder (its best policy if there is one, else its first member)"""
    data: Repeated
    """new rows with the features of the log, or histories with one item per row (.csv, .csv.gz, .parquet): a file, a
    folder or a glob; repeat the flag for several; other columns are copied beside actions. Or one .npz file with the
    arrays of `Log.from_arrays`, pictures too"""
    out: File
    """the output file: all rows with their actions, and their propensities if sampled; or the lists, one item per row
    (.csv or .parquet; .npz for arrays)"""
    member: int | None = None
    """for a run folder: the member, counted from 0 as in `tidelog judge`"""
    rule: Annotated[str, "NAME"] | None = None
    """for a run folder, a rule instead of its policy: for actions the best rule of at most two questions (`--rule`
    alone, or `tree`) or the best single action (`constant`); for lists one that counts events, such as
    last-event-markov"""
    csv_safe: bool = False
    """in a .csv file, write an apostrophe before text that a spreadsheet would compute (it begins with = + - @)"""
    overwrite: bool = False
    """replace these files if they exist"""
    actions: ActionFlags = field(default_factory=ActionFlags)
    """for a policy that chooses actions"""
    lists: ListFlags = field(default_factory=ListFlags)
    """for a policy that ranks items"""


def run(words: list[str]) -> int:
    """Write actions for a table, of one file or of several, or for arrays; or lists for the users of a table."""
    return present(parse(ActFlags, with_rule(words, others=True), "act"), _act)


def _act(options: ActFlags) -> dict[str, Any]:
    """Write the actions or the lists, and return what was written."""
    target, source = Path(options.out), source_of(options.data, "--data")
    kind = None if not isinstance(source, str) else ending_of(source, [*TABLES, *FILES_OF_ARRAYS])
    if kind in FILES_OF_ARRAYS and kind != ARRAYS:
        convert = shlex.join(["tidelog", "log", "convert", "--data", str(source), "--out", "rows.npz"])
        raise ConfigError(
            f"--data {source}", "a table or an .npz file", f"`{convert}`, then --data rows.npz --out actions.npz"
        )
    skipped_file = None if options.actions.skip_unknown is None else Path(options.actions.skip_unknown)
    on_arrays = ARRAYS in (
        target.suffix,
        *(Path(one).suffix for one in ([source] if isinstance(source, str) else source)),
    )
    if on_arrays:
        _check_arrays(options, source, target)
    else:
        check_tables(target, skipped_file)
    with Progress("acting", False if options.quiet else None) as screen:
        screen.update("reading the policy", 0.0)
        policy = _opened(options)
    ranks = isinstance(policy.spec.action, Catalogue)
    unused = options.actions if ranks else options.lists
    for one in fields(unused):
        if getattr(unused, one.name) != one.default:
            flag = f"--{one.name.replace('_', '-')}"
            raise ConfigError(
                f"{flag} has no effect: {options.policy} {'ranks items' if ranks else 'chooses actions'}",
                fix=f"drop {flag}",
            )
    if ranks:
        if on_arrays:
            raise SpecError(f"{options.policy} ranks items", "a table of histories", "name one with --data and --out")
        return _write_lists(policy, options, source, target)
    policy = in_chosen_way(policy, options.actions.sample, options.actions.mode)
    if options.actions.seed is not None and policy.acting != "sample":
        raise ConfigError("--seed: the policy takes its most likely actions, which are not random", fix="drop --seed")
    check_targets(target, skipped_file, overwrite=options.overwrite)
    skipped = 0
    if on_arrays:
        rows, notes = _write_arrays(policy, options, str(source), target)
    else:
        rows, skipped, notes = _write_rows(policy, options, source, target, skipped_file)
    print_way(policy)
    print_notes([*policy.notes(), *notes])
    if skipped_file is not None:
        print_details(
            f"{count_of(skipped, 'row')} skipped, each with the values that the policy cannot read: {skipped_file}"
        )
    print_line(f"{count_of(rows, 'row')} with their actions: {target}")
    return {"out": str(target), "rows": rows, "skipped": skipped, "acting": policy.acting}


def _opened(options: ActFlags) -> Any:
    """Return the policy or the rule; ConfigError for flags that exclude one another."""
    flags = options.actions
    if flags.probabilities and (flags.skip_unknown is not None or flags.unseen == "skip"):
        flag = "--skip-unknown" if flags.skip_unknown is not None else "--unseen skip"
        raise ConfigError(f"--probabilities and {flag} are both set", fix="set only one of them")
    if flags.unseen == "fail" and flags.skip_unknown is not None:
        raise ConfigError("--unseen fail and --skip-unknown are both set", fix="set only one of them")
    if options.rule in WORDS:
        if options.member is not None or flags.sample:
            raise ConfigError("--rule has no members and no chance", fix="drop --member and --sample")
        return open_simple_rule(options.policy, options.rule)
    if options.rule is not None:
        if options.lists.new_items is not None or options.member is not None:
            raise ConfigError("--rule counts the log, without a policy", fix="drop --new-items and --member")
        return open_rule(options.policy, options.rule)
    if options.lists.new_items is not None:
        return open_policy(options.policy, options.member)  # with the weights of its networks
    return open_for_use(options.policy, options.member)


def _write_rows(
    policy: BasePolicy, options: ActFlags, source: str | list[str], target: Path, skipped_file: Path | None
) -> tuple[int, int, list[str]]:
    """Write the actions of a table, and the skipped rows; return the number of rows, of skipped ones, and notes."""
    columns, skipped, notes = _columns(options, source), 0, list[str | None]()
    flags = options.actions
    if skipped_file is None and flags.unseen != "skip":
        acted = act_on_table(
            policy, source, columns, flags.seed, probabilities=flags.probabilities, unseen=flags.unseen
        )
    else:
        known, left_out = act_on_known(policy, source, columns, flags.seed, flags.unseen)
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
    """Return the mapping: that of the flag, or the one with which a run read its log."""
    if options.actions.columns is not None:
        return Columns.from_file(options.actions.columns)
    return columns_of_run(_origin(options), source)


def _origin(options: ActFlags) -> dict[str, Any]:
    """Return where the log of a run is from and how it was read; nothing for a saved policy."""
    folder = Path(options.policy)
    if not (folder / "run.json").exists():
        return {}
    from tidelog.training.record import Record

    return dict(Record.read(folder).data.origin or {})


def _check_arrays(options: ActFlags, source: str | list[str], target: Path) -> None:
    """Raise ConfigError for flags and files that do not fit the arrays of one npz file."""
    if not isinstance(source, str):
        raise ConfigError("--data names several files", "one .npz file", "call tidelog act for each file")
    if not (Path(source).suffix == target.suffix == ARRAYS):
        fix = f"--out {target.with_suffix(ARRAYS)}" if Path(source).suffix == ARRAYS else "name a table with --out"
        raise ConfigError(f"--data {source} and --out {target}", f"both to end in {ARRAYS}, or neither", fix)
    flags = {
        "--unseen": None if options.actions.unseen == "other" else options.actions.unseen,
        "--columns": options.actions.columns,
        "--skip-unknown": options.actions.skip_unknown,
        "--csv-safe": options.csv_safe or None,
    }
    unused = [flag for flag, value in flags.items() if value is not None]
    if unused:
        raise ConfigError(f"{unused[0]} has no effect on arrays", fix=f"drop {unused[0]}")


def _write_arrays(policy: BasePolicy, options: ActFlags, source: str, target: Path) -> tuple[int, list[str]]:
    """Write actions for the arrays of one npz file; return the number of rows, and notes."""
    flags, notes = options.actions, list[str]()
    arrays, objects = act_on_arrays(policy, source, flags.seed, probabilities=flags.probabilities)
    write_arrays(arrays, target)
    notes += [f"arrays of objects are not copied: {', '.join(objects)}"] if objects else []
    space = policy.spec.action
    for label, part in space.parts if isinstance(space, Hybrid) else (("actions", space),):
        if isinstance(part, Discrete) and part.names:
            codes = ", ".join(f"{code} = {name}" for code, name in enumerate(part.names))
            notes.append(f"{label} are codes: {codes}")
    acted = [name for name in arrays if name.split("/")[0] in ("action", "policy_action")]
    return len(arrays[acted[-1]]), notes


# Lists of items for users.


def _write_lists(policy: Any, options: ActFlags, source: str | list[str], target: Path) -> dict[str, Any]:
    """Write the lists of a policy, or of a rule that counts events, and return what was written."""
    flags = _fill_columns(options, source)
    check_targets(target, overwrite=options.overwrite)
    ranking: Recommends = policy
    if flags.new_items is not None:
        ranking = new_items(policy, flags.new_items, str(flags.item))
    history: Any = ranking.spec.observation["history"]
    with Progress("recommending", False if options.quiet else None) as screen:
        screen.update("reading the histories", 0.05)
        lists = recommend_for_table(
            ranking,
            source,
            user=str(flags.user),
            item=str(flags.item),
            time=flags.time,
            event=flags.event,
            user_features=None if flags.user_features is None else Path(flags.user_features),
            k=flags.k,
            exclude_seen={"auto": None, "yes": True, "no": False}[flags.exclude_seen],
            candidates=_lines(flags.candidates),
            explain=flags.explain,
            diversity=flags.diversity,
            exclude=_lines(flags.exclude),
            unknown=flags.unknown,
            progress=lambda share: screen.update("making the lists", 0.1 + 0.8 * share),
        )
    note, users = write_table(lists, target, options.csv_safe), int(lists[str(flags.user)].n_unique())
    print_notes(ranking.notes())
    if flags.event is None and len(history.events) > 1:
        usual = history.events[history.usual - 1]
        print_notes([f"every event counts as '{usual}'; --event names the column of the kind of event"])
    if flags.user_features is None and ranking.ranker().features:
        print_notes(["nothing is known of the users; --user-features names their table"])
    print_notes([note] if note else [])
    print_line(f"lists of {count_of(flags.k, 'item')} for {count_of(users, 'user')}: {target}")
    if flags.exclude_seen == "auto":
        print_details(seen_line(ranking.ranker()))
    return {"out": str(target), "users": users, "k": flags.k, "rows": len(lists)}


def _fill_columns(options: ActFlags, source: str | list[str]) -> ListFlags:
    """Return the flags with the columns of the run's log where they are left out; ConfigError without user or item.

    Columns of times and of kinds of events are those of the log where the table has them.
    """
    columns = {role: getattr(options.lists, role) for role in ("user", "item", "time", "event")}
    roles = _origin(options).get("roles") or {}
    logged: dict[str, str] = {role: roles[role] for role, name in columns.items() if name is None and roles.get(role)}
    optional = [column for role, column in logged.items() if role in ("time", "event")]
    table = table_with(source, list((columns | logged).values())) if optional else None
    left_out: dict[str, Any] = {
        role: name for role, name in logged.items() if name not in optional or (table and table.has(name))
    }
    missing = [f"--{role}" for role in ("user", "item") if (columns | left_out)[role] is None]
    if missing:
        raise ConfigError(
            f"{options.policy} does not say which columns are users and items",
            fix=f"add {' and '.join(missing)}, the names of these columns",
        )
    if left_out:
        print_details("columns of the run's log: " + ", ".join(f"--{role} {name}" for role, name in left_out.items()))
    return replace(options.lists, **left_out)


def seen_line(ranker: PolicyRanker) -> str:
    """Return what lists do with items of the history by default, and why."""
    share = f"{ranker.repeat_share:.0%} of the events in training repeat an item of their user"
    if excludes_seen(ranker):
        return f"{share}: lists leave out items of the history; --exclude-seen no keeps them"
    return f"{share}: lists may contain items of the history; --exclude-seen yes leaves them out"


def _lines(path: str | None) -> list[str] | None:
    """The items in a file, one per line."""
    if path is None:
        return None
    try:
        lines = read_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return [line.strip() for line in lines if line.strip()]
