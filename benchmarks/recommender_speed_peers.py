"""Events a second of recommender BCQ's table and reader beside GRU4Rec and SASRec in PyTorch, and a profile of ours.

`python -m benchmarks recommender_speed_peers --peer-python PYTHON [--cases NAME ...] [--cores 0 | --cores 0,1]`, where
PYTHON is that of an environment with torch and NumPy; it needs no tidelog. The same events, windows, batch, sizes, loss
and optimiser; each way waits in a process of its own and is measured in turn, in another order every round; a ratio is
that of one round. `tidelog` is the plain model as in the scripts: no scores for repeated items, no counted successors.
`defaults` is what `tidelog train` does: with both. `--profile` says instead what our update's time is spent on, on one
core. Each number of cores is a part of the kept file with its own machine.
"""

import collections
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.keep import keep, known
from benchmarks.peers import answer, compared, keep_to
from benchmarks.spread import words_of
from benchmarks.update_profile import profiled
from tidelog.training.record import processor

COMMAND = "python -m benchmarks recommender_speed_peers --peer-python PYTHON"
FILE = "recommender_peers"
SCRIPT = Path(__file__).with_name("peer_scripts") / "recommender_speed_torch.py"
SETTINGS: dict[str, Any] = {"history": 50, "targets": 10, "batch_size": 128, "size": 64, "dropout": 0.2}
EVENTS_OF_EACH, USERS, SAMPLED = 50, 10_000, 1_024
CATALOGUES = {"all items": 5_000, "a sample": 100_000, "a sample of a million": 1_000_000}  # what the softmax is over
CASES = {
    f"{name}, {over}": (reader, over)
    for over in CATALOGUES
    for name, reader in (("GRU4Rec", "gru"), ("SASRec", "attention"))
}
PLAIN = {"memory": 0, "successors": 0}
UPDATES, TRACED = 20, 60  # of one call, as a training makes many at once; of a profile


def events_of(case: str) -> Any:
    """Return the log of a case: every item has an event."""
    from benchmarks.recommender_speed import walks

    items = CATALOGUES[CASES[case][1]]
    return walks(items, max(USERS, items // EVENTS_OF_EACH), EVENTS_OF_EACH)


def trainer_and_log(case: str, plain: bool) -> tuple[Any, Any]:
    """Return a compiled trainer of table and reader, and its log."""
    import tidelog as tl
    from benchmarks.recommender_speed import trainer_of
    from tidelog.recommend.networks import HISTORY_ENCODERS

    reader, _ = CASES[case]
    log = events_of(case)
    changes: dict[str, Any] = {"encoder": HISTORY_ENCODERS[reader], "pretrain_share": 1.0, "sampled_items": SAMPLED}
    algorithm = tl.RecommenderBCQ(**{**SETTINGS, **changes, **(PLAIN if plain else {})})
    return trainer_of(algorithm, log), log


def work(case: str, way: str) -> None:
    """Be tidelog's process."""
    trainer, _ = trainer_and_log(case, way == "tidelog")
    trainer.advance(20)
    answer({"loss": trainer.peek().get("pretrain/imitation_loss")}, lambda: trainer.advance(UPDATES))


def events_file(case: str, folder: str) -> str:
    """Write the events and the last events of all windows for PyTorch; return the path."""
    from tidelog.recommend.next_item import store_interactions

    log = events_of(case)
    store = store_interactions(log, SETTINGS["targets"])
    path = f"{folder}/events.npz"
    np.savez(path, item=log.item, start=log.starts[log.user], ends=np.asarray(store.ends))
    return path


def compare(case: str, python: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Return the rates of all ways, in events that are learnt from, and tidelog's ratios to PyTorch."""
    reader, over = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        settings = SETTINGS | {"items": CATALOGUES[over], "sampled": 0 if over == "all items" else SAMPLED}
        settings["events"] = events_file(case, folder)
        commands = {way: words_of(work, case, way) for way in ("tidelog", "defaults")}
        commands["torch"] = [python, str(SCRIPT), reader, json.dumps(settings)]
        return compared(commands, rounds, seconds)


def trace(case: str, folder: str) -> dict[str, Any]:
    """Milliseconds and shares of one update on one core, by what its operations do."""
    from benchmarks.update_profile import OTHERS, PARTS, part_of, traced

    trainer, _ = trainer_and_log(case, plain=True)
    trainer.advance(4)
    parts: dict[str, float] = dict.fromkeys((*PARTS, OTHERS), 0.0)
    longest: dict[str, float] = collections.defaultdict(float)
    for operation, microseconds, _ in traced(trainer, TRACED, folder):
        parts[part_of(operation)] += microseconds / 1e3
        longest[operation] += microseconds / 1e3
    total = sum(parts.values())
    return {
        "milliseconds": {part: round(one, 3) for part, one in parts.items()},
        "shares": {part: round(one / total, 3) for part, one in parts.items()},
        "longest": {name[-160:]: round(one, 3) for name, one in sorted(longest.items(), key=lambda one: -one[1])[:25]},
    }


def study(
    peer_python: str = sys.executable,
    cases: Sequence[str] = tuple(CASES),
    rounds: int = 5,
    seconds: float = 3.0,
    cores: str = "",
    profile: bool = False,
) -> None:
    """Compare on these cores, such as 0 or 0,1, or profile our update, and keep the results beside those of before."""
    count = keep_to(cores)
    facts = {"parts": {}, "profiles": {}} | known(FILE)
    facts = {name: value for name, value in facts.items() if name not in ("command", "machine")}
    facts |= {"settings": SETTINGS, "catalogues": CATALOGUES, "sampled_items": SAMPLED, "users": USERS}
    for case in cases:
        if profile:
            facts["profiles"][case] = profiled(trace, case) | {"processor": processor()}
        else:
            part = {"processor": processor(), "cores": count, "rounds": rounds, "seconds": seconds}
            ways = {"ways": compare(case, peer_python, rounds, seconds)}
            facts["parts"].setdefault(f"{count} core{'s' * (count > 1)}", {})[case] = part | ways
        print(case, count, facts["profiles"].get(case) if profile else ways, flush=True)
        keep(FILE, COMMAND, facts)
