"""Stops of the machine at every operation that a run and its files perform, in many states of the disk.

A run with reports and checkpoints that are deleted; a run of every registered algorithm; every kind of file or folder,
written and replaced, also by commands with --overwrite; the ledger of looks. For each operation
`tests/faults/simulated_disk.py` draws states that the disk may hold after a stop, and each state is checked
(`tests/faults/scenarios.py`). Some states of the runs are resumed to the end and compared bit by bit.

Command: `python -m benchmarks faults [states per operation, default 500 [algorithms, default all]]`. Each call adds
states of new seeds to the kept counts.
"""

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks.keep import keep, known
from tests.faults import scenarios
from tests.faults.simulated_disk import put_tree
from tests.training.runs import all_of, chunks_of, finish, learnt_of
from tidelog import collect, load_run
from tidelog.algorithms.names import names
from tidelog.data.read import read_log

NAME, COMMAND = "faults", "python -m benchmarks faults"
RESUMED, RESUMED_OF_EACH = 40, 3


def study(schedules: int = 500, /, *algorithms: str) -> dict[str, Any]:
    """Check states of new seeds, and add them to the kept counts."""
    before = {"rounds": 0, "scenarios": {}, "resumed": 0, **known(NAME)}
    seed, counts, count_resumed = before["rounds"], before["scenarios"], before["resumed"]

    def add(name: str, checked: scenarios.Checked) -> None:
        so_far = counts.get(name, {"states": 0, "different": 0})
        counts[name] = {
            "operations": checked.operations,
            "states": so_far["states"] + checked.states,
            "different": so_far["different"] + checked.different,  # within each call
        }
        print(name, counts[name], flush=True)

    patch = pytest.MonkeyPatch()  # nothing is put back, the process ends
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        work = Path(folder)
        for name, steps in scenarios.file_steps().items():
            for exchanges in (True, False):
                at = work / f"{name} {exchanges}"
                recorder, seen = scenarios.record_steps(at, steps, exchanges)
                add(f"{name}, {'exchanged' if exchanges else 'renamed'}",
                    scenarios.check_steps(recorder, seen, schedules, seed))  # fmt: skip
        commands = work / "commands"
        commands.mkdir()
        for name, steps in scenarios.command_steps(commands).items():
            recorder, seen = scenarios.record_steps(work / name, steps)
            grows = int(name == "train")
            add(f"{name} --overwrite", scenarios.check_steps(recorder, seen, schedules, seed, first=grows))
        add("ledger", scenarios.check_ledger(work / "ledger", work, schedules, seed))
        collect("treatment", episodes=30, seed=0).save(work / "log")
        chunks_of(7, patch)
        start = scenarios.start_run(read_log(work / "log"))
        recorder, every = scenarios.record_run(work / "run", start, patch)
        checked, resumable = scenarios.sweep_run(recorder, every, schedules, seed, work)
        add("run", checked)
        whole = all_of(load_run(work / "run" / "run"))
        for number, stop in enumerate(random.Random(seed).sample(resumable, min(RESUMED, len(resumable)))):
            put_tree(stop.tree, work / f"resumed {number}")
            if all_of(finish(load_run(work / f"resumed {number}" / "run"))) != whole:
                raise AssertionError(f"state after operation {stop.after} is not bit-equal")
            count_resumed += 1
        for name in algorithms or names():
            at = work / f"of {name}"
            at.mkdir()
            recorder, every = scenarios.record_run(at / "disk", scenarios.start_algorithm(name, at), patch)
            checked, resumable = scenarios.sweep_run(recorder, every, schedules, seed, at)
            add(f"train {name}", checked)
            whole = learnt_of(load_run(at / "disk" / "run"))
            for stop in random.Random(seed).sample(resumable, min(RESUMED_OF_EACH, len(resumable))):
                run = scenarios.resumed_in(at / "disk", stop, lambda root: finish(load_run(root / "run")))
                if learnt_of(run) != whole:
                    raise AssertionError(f"{name}: state after operation {stop.after} is not bit-equal")
                count_resumed += 1
    total = sum(one["states"] for one in counts.values())
    found = {"rounds": seed + 1, "scenarios": counts, "states": total, "resumed": count_resumed, "violations": 0}
    keep(NAME, COMMAND, found)
    return found
