"""The commands for a run whose policies rank items: lists for the users of its log; those that need actions refuse."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tidelog.cli.flags import print_line
from tidelog.errors import ConfigError
from tidelog.recommend.evaluate import Advice, K, advise_lists, word_of
from tidelog.recommend.next_item import most_items_of_a_user
from tidelog.training.metrics import Screen
from tidelog.training.record import Record
from tidelog.training.run import Run
from tidelog.types import Catalogue

MOST_EVENTS = 2_000_000  # events of a log whose rules are counted at the end of a training
SHARE, LEAST_SECONDS = 0.2, 5.0  # of the training's time, and seconds, in which another rule is begun
OWN = "your table of histories and its columns replace the words in capitals"


def print_next(run: Run, seconds: float) -> None:
    """Print whether to use the lists of a run's policy, and the next commands; the training took so many seconds."""
    rule = None
    for line in lists_advice(run, max(seconds * SHARE, LEAST_SECONDS)):
        if isinstance(line, Advice):
            rule = None if line.use_policy else line.rule
        else:
            print_line(line)
    print_line(f"next: {next_command(run, rule)}")
    if rule is not None:
        print_line(f"then: tidelog serve {shlex.quote(str(run.folder))} --rule {word_of(rule)}")


def next_command(run: Run, rule: str | None = None) -> str:
    """Return a `tidelog recommend` command for a run's log with every flag that it needs, ready to be run.

    `rule` is the counting rule whose lists are advised, None for those of the policy.

    A log that is no table, or is no longer there, has words in capitals instead of its file and columns.
    """
    roles: Mapping[str, Any] = (run.record.data.origin or {}).get("roles") or {}
    source = (run.record.data.origin or {}).get("source")
    here = bool(roles) and Path(str(source)).is_file()
    words: list[tuple[str, str | None]] = [] if rule is None else [("--rule", word_of(rule))]
    words += [("--data", _shown(source) if here else "HISTORIES.csv"), *_columns(run, roles)]
    if rule is None and run.policy().ranker().features:
        table = roles.get("user_features")
        words.append(("--user-features", _shown(table) if table and Path(table).is_file() else "USERS.csv"))
    if rule is None and run.policy().ranker().reads_gaps:
        words.append(("--now", "NOW"))
    words += _choices(run) if here else []
    words.append(("--out", _free("lists.csv")))
    flags = " ".join(flag if value is None else f"{flag} {shlex.quote(value)}" for flag, value in words)
    command = f"tidelog recommend {shlex.quote(str(run.folder))} {flags}"
    return command if here else f"{command}   ({OWN})"


def lists_advice(run: Run, seconds: float) -> Iterator[str | Advice]:
    """Yield lines on whether to use the lists of a run's policy, and then the advice; nothing if none was held out.

    Rules are left out, and named, where the comparison takes longer than so many seconds.
    """
    held_out = run.held_out_lists()
    if held_out is None or held_out.train is None:
        return
    train, policy = held_out.train, run.policy() if run.record.options.best is None else run.best_policy()
    if len(train) > MOST_EVENTS:
        yield f"`tidelog report {shlex.quote(str(run.folder))}` compares these lists with rules that count"
        return
    yield "comparing the lists with rules that count ..."
    ranker, events = policy.ranker(), held_out.reported
    with Screen("comparing lists") as screen:
        advice = advise_lists(ranker, train, events, run.name, seconds=seconds, progress=screen.tell)
    yield advice.decision
    yield advice.sentence
    if advice.left_out:
        rest = " and ".join(advice.left_out)
        yield f"{rest} took too long here: `tidelog report {shlex.quote(str(run.folder))}` compares all rules"
    yield advice


def refuse_lists(folder: Path, record: Record, command: str) -> None:
    """Raise ConfigError if the policies of a run rank items: a command needs actions."""
    if isinstance(record.spec.action, Catalogue):
        quoted = shlex.quote(str(folder))
        raise ConfigError(
            f"{folder} ranks items of a catalogue, `tidelog {command}` needs a policy that chooses one action",
            fix=(
                f"`tidelog report {quoted}` compares its lists with baselines; `tidelog recommend {quoted}` "
                "writes lists"
            ),
        )


def _columns(run: Run, roles: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Return the columns of the log; words in capitals where they are unknown. One kind of event needs no column."""
    history: Any = run.record.spec.observation["history"]
    several = len(history.events) > 1
    needed = ("user", "item", "time", *(("event",) if several or roles.get("event") else ()))
    return [(f"--{role}", roles.get(role) or role.upper()) for role in needed]


def _choices(run: Run) -> list[tuple[str, str | None]]:
    """Return flags for a small catalogue: shorter lists, or with items of the history where a user has taken all."""
    items = run.record.spec.action.n  # type: ignore[union-attr]
    train, validation = run.learnt_from()  # the store of a held-out period has the earlier events too
    stores: Any = (train if validation is None else validation.stores)["log"]
    left = items - most_items_of_a_user(stores, items - K)
    if left >= K:
        return []
    seen: list[tuple[str, str | None]] = [] if left > 0 else [("--exclude-seen", "no")]
    k = min(K, items) if left <= 0 else left
    return seen if k == K else [("--k", str(k)), *seen]


def _shown(path: Any) -> str:
    """Return a path relative to the current folder, if it is below that."""
    here, path = Path.cwd(), Path(path)
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _free(name: str) -> str:
    """Return a file name that does not exist, with a number if needed."""
    path, number = Path(name), 1
    while path.exists():
        number += 1
        path = Path(name).with_stem(f"{Path(name).stem}-{number}")
    return str(path)
