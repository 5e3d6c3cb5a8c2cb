"""A shop of real size: 10 million events of a million users over 200,000 items, by the commands that a user types.

Users walk through groups of 50 items: the next item is of the same group seven times in ten, else anywhere, by
popularity. So the log has something to learn, and a list of ten cannot be right by popularity alone. Kept are, for each
command, its time, its processor time and its largest memory (of the process, from the system's accounting), and the
measures of the report's lists, on held-out users, beside those of rules that count. The training is short for such a
log: it shows that the size can be handled, not how good lists become.

`python -m benchmarks recommender_size [--events 10000000] [--steps 4000] [--folder FOLDER]`
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.keep import keep
from benchmarks.spread import scratch

COMMAND = "python -m benchmarks recommender_size"
SCRATCH = scratch("recommender-size")
EVENTS, USERS_SHARE, ITEMS_SHARE, GROUP, STAY = 10_000_000, 0.1, 0.02, 50, 0.7  # shares of the number of events
ASKED = 100_000  # users who get a list
PRETRAINED = 0.8  # share of the updates for table and reader alone: they are five times as fast
COLUMNS = ["--user", "user", "--item", "item", "--time", "time"]


def walks(events: int, seed: int = 0) -> pl.DataFrame:
    """Events of users in random order of time; users have unequal shares of them."""
    generator = np.random.default_rng(seed)
    users, items = int(events * USERS_SHARE), int(events * ITEMS_SHARE)
    user = np.sort(
        np.concatenate([np.arange(users), (users * generator.random(events - users) ** 1.5).astype(np.int64)])
    )
    anywhere = (items * generator.random(events) ** 2).astype(np.int64)
    anywhere[generator.permutation(events)[:items]] = np.arange(items)  # all of them exist
    stays = generator.random(events) < STAY
    stays[np.append(True, user[1:] != user[:-1])] = False
    last = np.maximum.accumulate(np.where(stays, 0, np.arange(events)))  # the latest free choice
    place = (GROUP * generator.random(events) ** 2).astype(np.int64)
    item = np.where(stays, np.minimum(anywhere[last] // GROUP * GROUP + place, items - 1), anywhere)
    day = 365 * generator.random(events)
    day = day[np.lexsort((day, user))]  # each user's days in order
    return pl.DataFrame({"user": user, "item": item, "time": day})


def measured(words: list[str]) -> dict[str, Any]:
    """Run a command in a process of its own; its time, its processor time, its largest memory and its JSON."""
    print("tidelog", *words, flush=True)
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([sys.executable, "-m", "tidelog", *words, "--json"], stdout=out)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        said = out.read().decode()
    if process.returncode:
        raise SystemExit(f"tidelog {' '.join(words)}: exit code {process.returncode}")
    found = {
        "seconds": time.perf_counter() - begin,
        "processor_seconds": used.ru_utime + used.ru_stime,
        "gigabytes": used.ru_maxrss / 2**20,
    }
    print(found, flush=True)
    places = ("run", "report", "out")  # of this machine
    return found | {"result": {name: value for name, value in json.loads(said).items() if name not in places}}


def events_of_an_update(user: np.ndarray[Any, Any]) -> float:
    """Return the mean number of events that an update of 128 windows with at most 10 targets learns from."""
    counts = np.unique(user, return_counts=True)[1]
    return float(128 * len(user) / np.ceil(counts / 10).sum())


def lists_of(report: Path) -> list[dict[str, str]]:
    """Return the rows of the report's table of lists on the held-out period."""
    table = report.read_text().split("Lists on the held-out period</caption>")[1].split("</table>")[0]
    rows = table.split("<tbody>")[1].split("</tr>")[:-1]
    return [
        {"lists": row.split('scope="row">')[1].split("<")[0]} | dict(re.findall(r'data-label="([^"]*)">([^<]*)', row))
        for row in rows
    ]


def study(events: int = EVENTS, steps: int = 4_000, folder: Path = SCRATCH) -> None:
    """Write the log, and measure every command."""
    folder.mkdir(parents=True, exist_ok=True)
    table, histories, run = folder / "events.parquet", folder / "histories.parquet", folder / "run"
    frame = walks(events)
    frame.write_parquet(table)
    frame.filter(pl.col("user") < ASKED).write_parquet(histories)
    counts = {"events": events, "users": frame["user"].n_unique(), "items": frame["item"].n_unique()}
    update = events_of_an_update(frame["user"].to_numpy())
    del frame
    trained = [
        "--held-out",
        "0.1",
        "--steps",
        str(steps),
        "--pretrain-share",
        str(PRETRAINED),
        "--patience",
        "100",
        "--out",
        str(run),
    ]
    lists = ["--out", str(folder / "lists.parquet"), "--overwrite"]
    commands = {
        "inspect": ["log", "inspect", "--data", str(table), *COLUMNS],
        "train": ["train", "recommender-bcq", "--data", str(table), *COLUMNS, *trained, "--overwrite"],
        "report": ["report", str(run), "--out", str(folder / "report.html")],
        "recommend": ["act", str(run), "--data", str(histories), *COLUMNS, *lists],
    }
    found = {name: measured(words) for name, words in commands.items()}
    learnt = {"steps": steps, "pretrain_share": PRETRAINED, "events_of_an_update": update}
    content = counts | learnt | {"lists": min(ASKED, counts["users"]), "commands": found}
    keep("recommender_size", f"{COMMAND} --steps {steps}", content, measures=lists_of(folder / "report.html"))
