"""The JSON that tidelog writes and reads back: small samples of every file, their changes, and their readers."""

import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tidelog as tl
from tests.algorithms.players import tiny
from tests.ope.cases import QUICK
from tests.training.runs import bc
from tidelog._files import digest, write_json
from tidelog.data.log import Log
from tidelog.data.read import validate
from tidelog.ope.ledger import Ledger
from tidelog.ope.verdict import held_out_part, read_verdicts, store_verdict
from tidelog.policies.policy import remember
from tidelog.recommend.interactions import Interactions
from tidelog.recommend.read import read_interactions
from tidelog.report.runs import read_runs
from tidelog.runtime.load import load as load_numpy
from tidelog.sinks import read_tracker_runs
from tidelog.training.record import Record
from tidelog.training.run import policy_of_run

VALUES: tuple[Any, ...] = ("text", 7, -1, 0.5, True, None, 10**30, 10**400, float("nan"), float("inf"), [[[]]], {}, [])
DELETED = object()


class SavedFile(NamedTuple):
    """A file below the samples, the folder that a change needs a copy of, and what reads it."""

    path: str
    folder: str
    read: Callable[[Path], Any]
    lines: bool = False  # JSON lines


def _resumed(run: Path, **options: Any) -> None:
    """Continue a run up to its first update."""
    loaded = tl.load_run(run, **options)
    stream = loaded.stream()
    next(stream)
    stream.close()
    loaded.policy()


def read_run(run: Path) -> None:
    """Everything that reads the record of a run over a log."""
    _resumed(run)
    policy_of_run(run)
    record = Record.read(run)
    record.judge_command(run)
    record.resume_command(run)
    record.differences()
    held_out_part(run, record)


def read_report(run: Path) -> None:
    (saved,) = read_runs([run])
    _ = saved.update, saved.done, saved.unit
    for verdict in saved.verdicts:
        _ = verdict.before, verdict.date, verdict.together, verdict.policy, verdict.episodes


def read_checkpoint(run: Path) -> None:
    _resumed(run)
    policy_of_run(run)
    read_report(run)


def read_played(run: Path) -> None:
    _resumed(run)
    policy_of_run(run)
    Record.read(run).resume_command(run)


def read_log(folder: Path) -> None:
    validate(folder).text()
    Log.load(folder, memory_map=True)
    Log.load(folder).statistics()
    tl.read_log(folder)


def read_shop(folder: Path) -> None:
    log = Interactions.load(folder)
    _ = log.spec, log.fingerprint(), log.report.text()


def read_policy(path: Path) -> None:
    policy = tl.load_policy(path)
    repr(policy)
    load_numpy(path).act({name: np.zeros((1, leaf.size), np.float32) for name, leaf in policy.spec.observation.items()
                          if hasattr(leaf, "size")} | {name: np.zeros((1, len(leaf.sizes)), np.int32)
                          for name, leaf in policy.spec.observation.items() if hasattr(leaf, "sizes")})  # fmt: skip


FILES = {
    "run.json": SavedFile("run/run.json", "run", lambda at: (read_run(at), read_report(at))),
    "run.json, played": SavedFile("played/run.json", "played", read_played),
    "checkpoint": SavedFile("run/checkpoints/0000000004/manifest.json", "run", read_checkpoint),
    "checkpoint, played": SavedFile("played/checkpoints/0000000016/manifest.json", "played", read_played),
    "metrics": SavedFile("run/metrics.jsonl", "run", lambda at: (_resumed(at), read_report(at)), lines=True),
    "acting.json": SavedFile("run/acting.json", "run", policy_of_run),
    "sinks": SavedFile("run/sinks.json", "run", read_tracker_runs),
    "verdict": SavedFile("run/verdicts/bc-1.json", "run", lambda at: (read_verdicts(at / "verdicts"), read_report(at))),
    "evaluation": SavedFile("run/evaluations/one.json", "run", read_report),
    "ledger": SavedFile("run/looks.jsonl", "run", lambda at: read_ledger(at), lines=True),
    "log": SavedFile("log/manifest.json", "log", read_log),
    "interactions": SavedFile("shop/manifest.json", "shop", read_shop),
    "policy": SavedFile("policy/manifest.json", "policy", read_policy),
    "best policy": SavedFile("run/best/member-0/manifest.json", "run", policy_of_run),
}


def read_ledger(run: Path) -> None:
    ledger = Ledger.of(tl.collect("treatment", episodes=30, seed=0), run / "looks.jsonl")
    _ = ledger.looks
    ledger.check()
    ledger.record_look([{"name": "x", "algorithm": "x", "identity": "x"}], {})


def write_samples(root: Path) -> None:
    """Write one small sample of every file."""
    tl.collect("treatment", episodes=30, seed=0).save(root / "log")
    log = Log.load(root / "log")
    run = tl.fit(
        bc(),
        log,
        4,
        eval_every=2,
        out=root / "run",
        held_out=0.2,
        best_metric="held_out/imitation_loss",
        progress=False,
        patience=9,
    )
    verdict = tl.judge(
        run.policy(), held_out_part(root / "run", run.record)[0], limits=QUICK, ledger=root / "run" / "looks.jsonl",
        progress=False, sample=True,
    )  # fmt: skip
    store_verdict(verdict, root / "run", "bc")
    for policy in (run.policy(), run.best_policy()):
        policy.declare("sample", verdict.summary)
        remember(root / "run", policy)
    run.best_policy().save(root / "policy")
    write_json(root / "run" / "sinks.json", {"mlflow:sqlite:///runs.db": {"run": "a", "last": [4, 0]}})
    (root / "run" / "evaluations").mkdir()
    (root / "run" / "evaluations" / "one.json").write_text(
        json.dumps({"env": "treatment", "sampled": False, "returns": [[1.0, 2.0]]})
    )
    tl.learn(tiny(), "point-mass", 128, eval_every=64, out=root / "played", log_out=root / "played-log",
             progress=False)  # fmt: skip
    import polars as pl

    table = pl.DataFrame({"u": [1, 1, 2, 2], "i": ["a", "b", "b", "c"], "t": [1.0, 2.0, 1.0, 2.0]})
    table.write_csv(root / "shop.csv")
    read_interactions(root / "shop.csv", user="u", item="i", time="t").save(root / "shop")


def paths_of(value: Any, most: int = 3) -> Iterator[tuple[Any, ...]]:
    """The paths of all values: every key, and the first and last items of lists."""
    if isinstance(value, dict):
        keys: Any = list(value)
    elif isinstance(value, list):
        keys = sorted({*range(min(most, len(value))), *range(max(0, len(value) - 1), len(value))})
    else:
        return
    for key in keys:
        yield (key,)
        for path in paths_of(value[key], most):
            yield (key, *path)


def changes(content: Any) -> Iterator[tuple[str, Any]]:
    """Each value of the content deleted, or replaced by one of another type or range; with a name of the change."""
    for path in paths_of(content):
        for value in (DELETED, *VALUES):
            changed = deepcopy(content)
            owner = changed
            for key in path[:-1]:
                owner = owner[key]
            if value is DELETED:
                del owner[path[-1]]
                name = "deleted"
            else:
                owner[path[-1]] = value
                name = repr(value)[:20]
            yield f"{'.'.join(map(str, path))}: {name}", changed


def texts(file: SavedFile, root: Path) -> Iterator[tuple[str, str]]:
    """Each change of a sample as the text of the file, with the checksums that belong to it."""
    text = (root / file.path).read_text()
    if file.lines:
        lines = text.splitlines()
        for number, line in enumerate(lines):
            for name, changed in changes(json.loads(line)):
                yield (
                    f"line {number + 1}, {name}",
                    "\n".join([*lines[:number], json.dumps(changed), *lines[number + 1 :], ""]),
                )
        return
    content = json.loads(text)
    summed = content.pop("sha256", None) is not None
    for name, changed in changes(content):
        yield name, json.dumps({**changed, "sha256": digest(changed)} if summed else changed)


def outcome(file: SavedFile, root: Path, text: str, work: Path) -> str:
    """`read`, `refused`, or the exception that is not tidelog's own."""
    if work.exists():
        shutil.rmtree(work)
    shutil.copytree(root / file.folder, work, copy_function=_link)
    path = work / Path(file.path).relative_to(file.folder)
    path.unlink()
    path.write_text(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            file.read(work)
        return "read"
    except tl.TidelogError as error:
        return "refused" if "fix: " in str(error) else f"no fix: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:100]}"


def _link(source: str, target: str) -> None:
    """Link what no reader changes: readers append to files, rename them, or write new ones."""
    if Path(source).suffix in (".safetensors", ".npy", ".npz"):
        os.link(source, target)
    else:
        shutil.copy(source, target)
