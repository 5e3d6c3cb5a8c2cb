"""The result of a training on the screen: last metrics of each member, advice on lists, and the next commands."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tidelog._text import TO_TEST, wrapped
from tidelog.cli.flags import json_only, print_json, print_line, print_notes, table
from tidelog.data.formats import ARRAYS, ending_of
from tidelog.errors import CheckpointError, TidelogError
from tidelog.runtime.observations import feature_names
from tidelog.training.metrics import Progress
from tidelog.training.processes import connected
from tidelog.training.run import Run
from tidelog.types import Catalogue


def train_and_show(run: Run, quiet: bool = False, as_json: bool = False, judge: bool = False) -> int:
    """Train a run to its end and print the result; with `quiet`, only the run folder, and what to do with the policy.

    `judge` also judges all that could be deployed, if the run held episodes out that can be judged. The exit code is 4
    if a checkpoint cannot be written; the previous one is intact.
    """
    facts: dict[str, Any] = {}
    try:
        with json_only(as_json):
            began = time.monotonic()
            run.train(progress=False if quiet else None)
            seconds = time.monotonic() - began
            record = run.record
            rewards = bool(record.sketches) and all(sketch["rewards"] for sketch in record.sketches.values())
            judge &= rewards and record.spec.rewards is None and bool(record.held_out) and connected().rank == 0
            judge &= not isinstance(record.spec.action, Catalogue)
            if not quiet:
                show_run(run, seconds, judged=judge)
            if quiet and not as_json:
                print_line(f"run folder: {run.folder}")
            if judge:
                facts["judged"], use = _judged(run, quiet)
                if not quiet:
                    print_commands(run, judged=True, use=use)
        if as_json:
            print_json(run_facts(run) | facts)
    except CheckpointError as error:
        print(wrapped(f"tidelog: {error}", sys.stderr), file=sys.stderr)  # noqa: T201
        return 4
    except (KeyboardInterrupt, SystemExit):  # the progress is saved; the signal is raised again
        again = run.record.resume_command(Path(str(run.folder)))
        where = f"saved at {run.unit[:-1]} {run.done:,}; `{again}` continues it"
        print(f"tidelog: {where}", file=sys.stderr)  # noqa: T201
        raise
    return 0


def _judged(run: Run, quiet: bool) -> tuple[dict[str, Any] | None, str | None]:
    """Judge the run, print the verdict, and return it in short, and how commands name the policy that it says to use.

    None, after a note, where the run cannot be judged.
    """
    from tidelog.cli import judge  # starts slowly

    record, folder = run.record, str(run.folder)
    several = len(run.members) > 1 and record.options.best_metric is None
    words = [folder, *(["--all-members"] if several else []), *(["--quiet"] if quiet else [])]
    try:
        _, verdict, use = judge.judge_and_show(judge.parsed(words))
    except TidelogError as error:
        again = shlex.join(["tidelog", "judge", *words])
        note = f"note: the run was not judged: {error}. `{again}` judges it"
        print(wrapped(note, sys.stderr), file=sys.stderr)  # noqa: T201
        return None, None
    result: Any = verdict
    if quiet:
        print_line(result.advice)
    return {name: value for name, value in result.to_json().items() if name != "verdicts"}, use


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


def show_run(run: Run, seconds: float, judged: bool = False) -> None:
    """Print the last metrics of each member, or the range over many members, and the next commands.

    The training took so many `seconds`. `judged`: the run is judged next, and its commands are printed after that.
    """
    table(f"{run.name}: last metrics, update {run.update:,}", *last_metrics(run.metrics))
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
        from tidelog.recommend.evaluate import Advice, word_of  # starts slowly, here and below

        rule = None  # instead of the lists of the policy
        for line in lists_advice(run, max(seconds * SHARE, LEAST_SECONDS)):
            if isinstance(line, Advice):
                rule = None if line.use_policy else line.rule
            else:
                print_line(line)
        print_line(f"next: {next_command(run, rule)}")
        if rule is not None:
            print_line(f"then: tidelog serve {shlex.quote(str(run.folder))} --rule {word_of(rule)}")
        return
    for line in imitation_lines(run):
        print_line(line)
    if run.record.options.log_out is not None:
        print_line(f"log of all decisions: {_relative(run.record.options.log_out)}")
    if not judged:
        print_commands(run)


def imitation_lines(run: Run) -> Iterator[str]:
    """What can be said of a run on a log without rewards: how well its policies predict held-out decisions."""
    record = run.record
    if record.has_rewards or not record.held_out or connected().rank:
        return
    from tidelog.ope.policies import imitation_of
    from tidelog.ope.verdict import held_out_part

    try:
        part, which = held_out_part(Path(str(run.folder)), record)
    except TidelogError as error:
        yield f"note: the policy was not compared with the logged actions: {error}"
        return
    for member in run.members[: 1 if record.options.best_metric is not None else MOST_MEMBERS]:
        policy = run.best_policy() if record.options.best_metric is not None else run.policy(member=member.index)
        name = f" (member {member.index})" if record.options.best_metric is None and len(run.members) > 1 else ""
        yield f"on {which}, {run.name}{name} {imitation_of(policy, part).sentence}"
    yield "the log has no rewards: nothing can be said of whether other decisions are better"


def print_commands(run: Run, judged: bool = False, use: str | None = None) -> None:
    """Print what to do with a policy: play it if its environment is known, judge it if it learnt from a log, use it.

    `judged`: without the command that judges the run; `use` names what its verdict says to use, None says to test it
    beside what one has.
    """
    record, folder = run.record, shlex.quote(str(run.folder))
    commands = []
    if record.environment is not None:
        environment = shlex.quote(record.environment)
        commands.append(f"tidelog evaluate {folder} --env {environment}")
        if not record.is_finetuned:  # a verdict on another policy needs the log of one that does not change
            commands.append(f"tidelog collect --env {environment} --policy {folder} --episodes 1000 --out LOG")
    origin = record.data.origin or {}
    if (record.environment is None or record.is_finetuned) and record.has_rewards and not judged:
        commands.append(record.judge_command(Path(str(run.folder))))
    if ending_of(str(origin.get("source", "")), ARRAYS) is not None:
        commands.append(f"tidelog act {use or folder} --data NEW_ROWS.npz --out actions.npz")
    elif feature_names(record.spec):
        mapping = " --columns MAPPING.toml" if record.spec.masked or run.policy().is_recurrent else ""
        commands.append(f"tidelog act {use or folder} --data NEW_ROWS.csv --out actions.csv{mapping}")
    elif record.environment is None:
        commands.append(f"tidelog evaluate {folder} --env NAME")
    for position, command in enumerate(commands):
        is_test = judged and use is None and command.startswith("tidelog act")
        print_line(f"{TO_TEST if is_test else 'then:' if position or judged else 'next:'} {command}")


MOST_MEMBERS = 4  # whose metrics fit side by side into 80 columns


def last_metrics(metrics: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of a table of the last metrics: a column for each member, or the range over many."""
    last = list({row["member"]: row for row in sorted(metrics, key=lambda row: row["member"])}.values())
    names = [name for name in (last[0] if last else ()) if name not in ("update", "member", "seed")]
    if len(last) <= MOST_MEMBERS:
        head = [f"seed {row['seed']}" for row in last]
        return ["metric", *head], [[name, *(_number(row.get(name)) for row in last)] for name in names]
    values = {name: [row[name] for row in last if row.get(name) is not None] for name in names}
    ranges = [
        [name, *(_number(of(several) if several else None) for of in (min, median, max))]
        for name, several in values.items()
    ]
    return [f"metric of {len(last)} members", "lowest", "median", "highest"], ranges


def _relative(path: Any) -> str:
    """A path as it is written in the working folder, if it is below that."""
    here, path = Path.cwd(), Path(path)
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.4g}"


# For a run whose policies rank items: whether to use its lists, and the commands that write them.

MOST_EVENTS = 2_000_000  # events of a log whose rules are counted at the end of a training
SHARE, LEAST_SECONDS = 0.2, 5.0  # of the training's time, and seconds, in which another rule is begun
OWN = "your table of histories and its columns replace the words in capitals"


def next_command(run: Run, rule: str | None = None) -> str:
    """Return a `tidelog act` command for a run's log with every flag that it needs, ready to be run.

    `rule` is the counting rule whose lists are advised, None for those of the policy.

    A log that is no table, or is no longer there, has words in capitals instead of its file and columns.
    """
    from tidelog.recommend.evaluate import word_of

    roles: Mapping[str, Any] = (run.record.data.origin or {}).get("roles") or {}
    source = (run.record.data.origin or {}).get("source")
    here = bool(roles) and Path(str(source)).is_file()
    words: list[tuple[str, str | None]] = [] if rule is None else [("--rule", word_of(rule))]
    words.append(("--data", _relative(source) if here else "HISTORIES.csv"))
    if not here:  # else they are those of the run's log
        several = len(run.record.spec.observation["history"].events) > 1  # type: ignore[union-attr]
        words += [(f"--{role}", role.upper()) for role in ("user", "item", "time", *(["event"] if several else []))]
    if rule is None and run.policy().ranker().features:
        table = roles.get("user_features")
        words.append(("--user-features", _relative(table) if table and Path(table).is_file() else "USERS.csv"))
    words += _choices(run) if here else []
    words.append(("--out", "lists.csv"))
    flags = " ".join(flag if value is None else f"{flag} {shlex.quote(value)}" for flag, value in words)
    command = f"tidelog act {shlex.quote(str(run.folder))} {flags}"
    return command if here else f"{command}   ({OWN})"


def lists_advice(run: Run, seconds: float) -> Iterator[Any]:
    """Yield lines on whether to use the lists of a run's policy, and then the advice; nothing if none was held out.

    Rules are left out, and named, where the comparison takes longer than so many seconds.
    """
    from tidelog.recommend.evaluate import advise_lists

    held_out: Any = run.chooser
    if held_out is None or held_out.train is None:
        return
    train, policy = held_out.train, run.policy() if run.record.options.best_metric is None else run.best_policy()
    if len(train) > MOST_EVENTS:
        yield f"`tidelog report {shlex.quote(str(run.folder))}` compares these lists with rules that count"
        return
    yield "comparing the lists with rules that count ..."
    ranker, events = policy.ranker(), held_out.reported
    with Progress("comparing lists") as screen:
        advice = advise_lists(ranker, train, events, run.name, seconds=seconds, progress=screen.update)
    yield advice.decision
    yield advice.sentence
    if advice.left_out:
        rest = " and ".join(advice.left_out)
        yield f"{rest} took too long here: `tidelog report {shlex.quote(str(run.folder))}` compares all rules"
    yield advice


def _choices(run: Run) -> list[tuple[str, str | None]]:
    """Return flags for a small catalogue: shorter lists, or with items of the history where a user has taken all."""
    from tidelog.recommend.evaluate import K
    from tidelog.recommend.next_item import most_items_of_a_user

    items = run.record.spec.action.n  # type: ignore[union-attr]
    train, validation = run.learnt_from()  # the store of a held-out period has the earlier events too
    stores: Any = (train if validation is None else validation.stores)["log"]
    left = items - most_items_of_a_user(stores, items - K)
    if left >= K:
        return []
    seen: list[tuple[str, str | None]] = [] if left > 0 else [("--exclude-seen", "no")]
    k = min(K, items) if left <= 0 else left
    return seen if k == K else [("--k", str(k)), *seen]
