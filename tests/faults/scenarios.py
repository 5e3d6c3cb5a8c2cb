"""What tidelog writes, operation by operation, and what must hold after a stop at any of them."""

import dataclasses
import hashlib
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

import tidelog as tl
from tests.faults.simulated_disk import Recorder, Stop, Tree, put_tree, read_tree, states, visible
from tests.ope.cases import QUICK
from tests.ope.noise import noise, random_policies
from tests.training.runs import bc, begin, finish
from tidelog import _files
from tidelog._files import MANIFEST, write_file, write_json
from tidelog.algorithms.names import configured, source_of
from tidelog.cli import main
from tidelog.ope.ledger import Ledger
from tidelog.ope.verdict import store_verdict
from tidelog.policies.policy import remember
from tidelog.recommend.read import read_interactions
from tidelog.sinks import rows_at
from tidelog.training.record import CHECKPOINT, Checkpoints, Record

Step = Callable[[Path], Any]


@contextmanager
def on(recorder: _files.Disk) -> Iterator[None]:
    """Write on another disk."""
    before, _files.DISK = _files.DISK, recorder
    try:
        yield
    finally:
        _files.DISK = before


class Checked(NamedTuple):
    """Counts of a scenario: operations, states that were made, and different ones among them."""

    operations: int
    states: int
    different: int


# Files and folders: after a stop each is what it was before a step, or after it.


def log_of(rows: int) -> tl.Log:
    return tl.Log.from_arrays(
        observation=np.arange(2.0 * rows).reshape(rows, 2), action=np.arange(rows) % 3, reward=np.ones(rows),
        terminated=np.ones(rows, bool),
    )  # fmt: skip


def policy_of(seed: int) -> tl.Policy:
    return tl.fit(bc(), log_of(40), 1, seeds=[seed], progress=False).policy()


def file_steps() -> dict[str, list[Step]]:
    """Each kind of file or folder, written and then replaced."""
    small, large = log_of(5), log_of(9)
    one, two = policy_of(0), policy_of(1)
    verdict = tl.judge(random_policies(1)[0], noise(), limits=QUICK, ledger=False, progress=False)
    return {
        "log": [lambda at: small.save(at / "log"), lambda at: large.save(at / "log", overwrite=True)],
        "npz": [lambda at: small.to_npz(at / "log.npz"), lambda at: large.to_npz(at / "log.npz", overwrite=True)],
        "table": [
            lambda at: small.to_parquet(at / "log.parquet"),
            lambda at: large.to_parquet(at / "log.parquet", overwrite=True),
        ],
        "policy": [lambda at: one.save(at / "best" / "policy"), lambda at: two.save(at / "best" / "policy")],
        "zip": [lambda at: one.save(at / "policy.zip"), lambda at: two.save(at / "policy.zip")],
        "declared way of acting": [lambda at: remember(at, one), lambda at: remember(at, two)],
        "verdicts": [lambda at: store_verdict(verdict, at, "bc"), lambda at: store_verdict(verdict, at, "bc")],
        "values": [
            lambda at: write_json(at / "a" / "b" / "c.json", [1]),
            lambda at: write_json(at / "a/b/c.json", [2]),
        ],
        "report": [
            lambda at: write_file(at / "report.html", b"one" * 9_000),
            lambda at: write_file(at / "report.html", b"two"),
        ],
    }


def command_steps(work: Path) -> dict[str, list[Step]]:
    """Each command that writes a file or folder, and then replaces it with --overwrite."""
    noise_of = np.random.default_rng(0)
    frame = pl.DataFrame({"e": np.arange(40) // 4, "o": noise_of.standard_normal(40), "a": np.arange(40) % 2})
    frame = frame.with_columns(r=pl.lit(1.0), d=pl.Series(np.arange(40) % 4 == 3))
    mapping = 'episode = "e"\nobservation = ["o"]\naction = "a"\nreward = "r"\nterminated = "d"\n'
    write_file(work / "log.toml", mapping.encode())
    for number, name in enumerate(("one.csv", "two.csv")):
        frame.with_columns(r=pl.lit(float(number))).write_csv(work / name)
        faulty = frame.with_columns(r=pl.when(pl.col("e") == number).then(None).otherwise(pl.col("r")))
        faulty.write_csv(work / f"faulty {name}")
    frame.write_csv(work / "clean.csv")
    users = pl.DataFrame({"u": np.arange(40) // 4, "i": np.arange(40) % 7, "t": np.arange(40) * 1.0})
    users.write_csv(work / "shop.csv")
    shop = read_interactions(work / "shop.csv", user="u", item="i", time="t")
    runs = {"run": bc(), "shop": smallest("recommender-bcq")}
    logs = {"run": tl.read_log(work / "one.csv", work / "log.toml"), "shop": shop}

    @cache
    def policy(name: str) -> Path:
        with on(_files.Disk()):  # not an operation of the command that uses it
            tl.fit(runs[name], logs[name], 1, progress=False).policy().save(work / name)
        return work / name

    def called(*words: Any) -> Step:
        def step(at: Path) -> None:
            said = (str(word() if callable(word) else word) for word in words)
            code = main([str(at / word[1:]) if word.startswith("@") else word for word in said])
            assert code == 0 or words[:2] == ("log", "check"), words

        return step

    def trained(at: Path) -> None:
        tl.fit(runs["run"], logs["run"], 2, eval_every=1, out=at / "run", progress=False)
        (at / "run" / "training.lock").unlink()  # which is no operation of the disk

    def twice(command: list[Any], one: Sequence[Any], two: Sequence[Any]) -> list[Step]:
        return [called(*command, *one), called(*command, *two, "--overwrite")]

    data = [("--data", work / name) for name in ("one.csv", "two.csv")]
    logged = [(*one, "--columns", work / "log.toml") for one in data]
    faulty = [("--data", work / f"faulty {name}", "--columns", work / "log.toml") for name in ("one.csv", "two.csv")]
    shown = [
        "act",
        lambda: policy("shop"),
        "--data",
        work / "shop.csv",
        "--user",
        "u",
        "--item",
        "i",
        "--time",
        "t",
    ]
    judged = [
        "judge",
        lambda: policy("run"),
        "--ledger",
        "off",
        "--quiet",
        "--replicates",
        1000,
        "--out",
        "@verdict.json",
    ]
    clean = ("--data", work / "clean.csv", "--columns", work / "log.toml", "--quarantine", "@q.csv")
    return {
        "collect": twice(["collect", "--env", "treatment", "--out", "@log"], ("--episodes", 3), ("--episodes", 4)),
        "act": twice(["act", lambda: policy("run"), "--out", "@acts.csv"], *data),
        "recommend": twice([*shown, "--out", "@lists.csv"], ("--k", 2), ("--k", 3)),
        "inspect": twice(["log", "inspect", "--html", "@page.html", "--write", "@log.toml"], *data),
        "validate": [
            *twice(["log", "check", "--quarantine", "@q.csv"], *faulty),
            called("log", "check", *clean, "--overwrite"),
        ],
        "convert": twice(["log", "convert", "--out", "@log.npz"], *logged),
        "judge": twice(judged, *logged),
        "train": [
            trained,
            lambda at: tl.fit(runs["run"], logs["run"], 3, out=at / "run", overwrite=True, train=False),
        ],
    }


def record_steps(root: Path, steps: Sequence[Step], exchanges: bool = True) -> tuple[Recorder, list[Tree]]:
    """Perform steps below a new folder; return the record, and what was visible before and after each step."""
    root.mkdir()
    recorder, seen = Recorder(root, exchanges=exchanges), [visible(read_tree(root))]
    with on(recorder):
        for number, step in enumerate(steps, 1):
            step(root)
            seen.append(visible(read_tree(root)))
            recorder.mark("steps", number=number)
    return recorder, seen


def check_steps(recorder: Recorder, seen: list[Tree], schedules: int, seed: int, first: int = 0) -> Checked:
    """Every path is what it was after the last acknowledged step, or after the one that was stopped.

    Stops before so many `first` steps are passed over.
    """
    count, different = 0, set()
    for stop in states(recorder, schedules, seed):
        done = stop.acknowledged.get("steps", {"number": 0})["number"]
        if done < first:
            continue
        count += 1
        before, after = seen[done], seen[min(done + 1, len(seen) - 1)]
        now = visible(restored(stop.tree))
        different.add(digest(now))
        for path in paths(before) | paths(after) | paths(now):
            found = at(now, path)
            assert found in (at(before, path), at(after, path)), (stop.after, path)
        assert folders_whole(now, before, after), stop.after
    return Checked(len(recorder.operations), count, len(different))


def folders_whole(now: Tree, before: Tree, after: Tree) -> bool:
    """Whether each folder with a manifest or a run is one of the two, not a mixture of them."""
    holders = [path[:-1] for path in paths(now) if path[-1] in (MANIFEST, "run.json")]
    return all(at(now, path) in (at(before, path), at(after, path)) for path in holders)


def restored(tree: Tree) -> Tree:
    """The tree after `tidy` has put back folders that were being replaced."""
    names = dict(tree)
    for name, value in tree.items():
        if isinstance(value, dict):
            names[name] = restored(value)
        final = name.removeprefix(_files.REPLACED)[:-9]
        if name.startswith(_files.REPLACED) and final not in tree:
            names[final] = names.pop(name)
    return names


def paths(tree: Tree) -> set[tuple[str, ...]]:
    """The paths of all files."""
    found = set[tuple[str, ...]]()
    for name, value in tree.items():
        found |= {(name,)} if isinstance(value, bytes) else {(name, *path) for path in paths(value)}
    return found


def at(tree: Any, path: Sequence[str]) -> Any:
    for name in path:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def digest(tree: Tree) -> str:
    """A hash of all names and contents."""
    total = hashlib.sha256()
    for name, value in sorted(tree.items()):
        total.update(f"{name}/".encode())
        total.update(hashlib.sha256(value).digest() if isinstance(value, bytes) else digest(value).encode())
    return total.hexdigest()


# Runs: after a stop the last checkpoint is at least the last acknowledged one, complete, with all metrics before it.


def record_run(root: Path, start: Callable[[Path], Any], monkeypatch: Any) -> tuple[Recorder, dict[int, Tree]]:
    """Train a run in `root / "run"`; return the record, and every checkpoint that it ever had, by its update."""
    root.mkdir(exist_ok=True)
    recorder, save = Recorder(root), Checkpoints.save
    folders = (root / "run" / "checkpoints").glob("*")
    every = {int(folder.name): read_tree(folder) for folder in folders}

    def saved(self: Checkpoints, update: int, checkpoint: Any) -> None:
        save(self, update, checkpoint)
        every[update] = read_tree(root / "run" / "checkpoints" / f"{update:010d}")
        recorder.mark("saved", update=update)

    monkeypatch.setattr(Checkpoints, "save", saved)
    with on(recorder):
        finish(start(root / "run"))
    monkeypatch.setattr(Checkpoints, "save", save)
    return recorder, every


def stops_of_run(recorder: Recorder, schedules: int, seed: int) -> Iterator[tuple[Stop, bool]]:
    """Every state of a recorded run, and whether it was met for the first time."""
    met = set()
    for stop in states(recorder, schedules, seed):
        key = digest(stop.tree), stop.acknowledged.get("saved", {}).get("update")
        yield stop, key not in met
        met.add(key)


def check_run(stop: Stop, folder: Path, every: dict[int, Tree], least: int | None) -> bool:
    """Check the run folder that a stop leaves, written below a new folder; return whether it can be resumed.

    `least` is the update of the checkpoint that was there before, if any.
    """
    put_tree(stop.tree, folder)
    run = folder / "run"
    acknowledged = stop.acknowledged.get("saved", None if least is None else {"update": least})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        updates = Checkpoints(run / "checkpoints", 1).updates()
    if acknowledged is None and not updates:
        return False
    assert updates, (stop.after, "no checkpoint is left")
    assert acknowledged is None or updates[-1] >= acknowledged["update"], (stop.after, "an acknowledged one is lost")
    Record.read(run)
    for update in updates:
        at = run / "checkpoints" / f"{update:010d}"
        manifest = CHECKPOINT.manifest(at)
        for name in manifest["files"]:
            CHECKPOINT.file(at, name, manifest)
        assert update not in every or read_tree(at) == every[update], (stop.after, f"checkpoint {update} differs")
    rows = rows_at(run, Checkpoints(run / "checkpoints", 1).metrics())
    assert all(row["update"] <= updates[-1] for row in rows)
    return True


def sweep_run(
    recorder: Recorder, every: dict[int, Tree], schedules: int, seed: int, work: Path, least: int | None = None
) -> tuple[Checked, list[Stop]]:
    """Check every state of a recorded run; return counts, and the different states that can be resumed."""
    count, different, resumable = 0, 0, []
    for stop, new in stops_of_run(recorder, schedules, seed):
        count += 1
        if new:
            different += 1
            folder = work / "state"
            if check_run(stop, folder, every, least):
                resumable.append(stop)
            shutil.rmtree(folder)
    return Checked(len(recorder.operations), count, different), resumable


# The ledger: a look that was acknowledged is there, and the file can be read.


def check_ledger(root: Path, work: Path, schedules: int, seed: int) -> Checked:
    """Record two looks; after every stop the acknowledged ones are there and the next one can be recorded."""
    root.mkdir()
    recorder, log = Recorder(root), noise()
    with on(recorder):
        for number, policy in enumerate(random_policies(2), 1):
            tl.judge(policy, log, limits=QUICK, ledger=root / "state" / "looks.jsonl", progress=False)
            recorder.mark("looks", number=number)
    count, met = 0, set()
    for stop in states(recorder, schedules, seed):
        count += 1
        if digest(stop.tree) in met:
            continue
        met.add(digest(stop.tree))
        put_tree(stop.tree, work / "state")
        ledger = Ledger.of(log, work / "state" / "state" / "looks.jsonl")
        done = stop.acknowledged.get("looks", {"number": 0})["number"]
        assert len(ledger.looks) >= done, stop.after
        ledger.record_look([{"name": "x", "algorithm": "x", "identity": "x"}], {})
        assert len(ledger.looks) >= done + 1
        shutil.rmtree(work / "state")
    return Checked(len(recorder.operations), count, len(met))


def resumed_in(root: Path, stop: Stop, finished: Callable[[Path], Any]) -> Any:
    """What `finished` returns for the state of a stop, which replaces the root for the time being."""
    aside = root.with_name(f"{root.name}-aside")
    root.rename(aside)
    try:
        put_tree(stop.tree, root)
        return finished(root)
    finally:
        shutil.rmtree(root)
        aside.rename(root)


SMALL = {
    "hidden": (8, 8), "embedding": 2, "batch_size": 16, "num_envs": 4, "rollout_steps": 16, "policy_iterations": 2,
    "minibatches": 2, "auxiliary_minibatch": 2, "update_per_collect": 4, "minibatch": 4, "policy_capacity": 6,
    "value_capacity": 8, "size": 8, "history": 6, "targets": 3, "generator_hidden": (8,), "perturbation_hidden": (8,),
    "tower_hidden": (8,), "latent": 4, "samples": 3, "target_samples": 3, "candidates": 4,
}  # fmt: skip


def smallest(name: str) -> Any:
    """A registered algorithm with the smallest settings of those that it has."""
    cls, settings = configured(name)
    has = {one.name for one in dataclasses.fields(cls)}
    return cls(**{key: value for key, value in SMALL.items() if key in has} | settings)


def start_algorithm(name: str, work: Path) -> Callable[[Path], Any]:
    """A run of any registered algorithm, with several reports and checkpoints, some of which are deleted."""
    algorithm, options = smallest(name), {"save_seconds": 0.0, "keep_checkpoints": 2, "train": False}
    if source_of(algorithm) == "an environment":
        return lambda out: tl.learn(algorithm, "jax:CartPole-v1", 192, eval_every=64, out=out, **options)
    if source_of(algorithm) == "interactions":
        row = np.arange(60)
        table = pl.DataFrame({"u": row // 6, "i": row % 7, "t": row * 1.0})
        table.write_csv(work / "shop.csv")
        log = read_interactions(work / "shop.csv", user="u", item="i", time="t")
    else:
        noise_of, row = np.random.default_rng(0), np.arange(60)
        discrete = tl.types.Discrete in algorithm.takes
        made = tl.Log.from_arrays(
            observation=noise_of.standard_normal((60, 3)), reward=noise_of.standard_normal(60), episode=row // 6,
            terminated=row % 6 == 5, action=row % 3 if discrete else noise_of.uniform(-1, 1, (60, 2)),
            **({} if discrete else {"bounds": (-1.0, 1.0)}),
        )  # fmt: skip
        made.save(work / "made.tidelog")
        log = tl.Log.load(work / "made.tidelog")
    return lambda out: tl.fit(algorithm, log, 21, eval_every=7, out=out, **options)


def start_run(log: tl.Log) -> Callable[[Path], Any]:
    """A run with several reports and checkpoints, some of which are deleted."""
    return lambda out: begin(bc(), log, out, save_seconds=0.0, keep_checkpoints=2)
