"""Processes killed by SIGKILL at random moments, and disks that fill up, for every algorithm and every command that
writes.

    python -m benchmarks kills --seconds 600            # a piece; pieces add up
    python -m benchmarks kills --full 20                # full disks, on a small tmpfs of its own (needs root)
    python -m benchmarks kills --paths "train bc" judge

Each kill is a real one of a real command, at a moment drawn evenly from its whole life. The commands run in children of
this process, which has imported the package: a kill needs no new interpreter. After each kill everything visible is
old or new: checkpoints are complete and equal their checksums, with the metrics before them; a file or folder is the
one before or the one after. A run is resumed and killed again until it gets through; then learners, metrics, the best
policy and the collected log equal those of the undisturbed run, bit by bit. Results: benchmarks/results/kills.json.
"""

import contextlib
import dataclasses
import hashlib
import importlib
import json
import os
import pkgutil
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache, partial
from itertools import cycle, islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import tidelog.cli
from benchmarks.keep import RESULTS, known
from benchmarks.spread import called
from tidelog import _files
from tidelog._files import checksum
from tidelog._machine import this_machine
from tidelog.algorithms.names import configured, names, source_of
from tidelog.ope.verdict import read_verdict
from tidelog.sinks import rows_at
from tidelog.training.record import CHECKPOINT, Checkpoints, Record
from tidelog.types import Discrete

NAME = "kills"
SMALL = {
    "hidden": "8 8", "embedding": 2, "batch_size": 16, "num_envs": 4, "rollout_steps": 16, "policy_iterations": 2,
    "minibatches": 2, "auxiliary_minibatch": 2, "update_per_collect": 4, "minibatch": 4, "policy_capacity": 6,
    "value_capacity": 8, "size": 8, "history": 6, "targets": 3, "generator_hidden": 8, "perturbation_hidden": 8,
    "tower_hidden": 8, "latent": 4, "samples": 3, "target_samples": 3, "candidates": 4,
}  # fmt: skip
State = dict[str, Any]


class Command(NamedTuple):
    """A command: its words, what it writes below its folder `at` (nothing: it trains a run), and what runs once before.

    `{at}` is its folder, `{base}` that of the logs and tables.
    """

    template: str
    writes: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ()  # the last one writes the older file or folder

    @property
    def trains(self) -> bool:
        return not self.writes


def words_in(at: Path, template: str) -> list[str]:
    """The words of a command in its folder."""
    return template.format(at=at, base=at.parent).split()


def training(name: str) -> str:
    """A tiny run of an algorithm of the registry, with the smallest settings that it has."""
    cls = configured(name)[0]
    has = {field.name for field in dataclasses.fields(cls)}
    own = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in SMALL.items() if key in has)
    log = "codes" if Discrete in cls.takes else "numbers"
    source = {
        "an environment": "--env jax:CartPole-v1 --steps 2048 --eval-every 512",
        "interactions": "--data {base}/shop --steps 300 --eval-every 50",
    }.get(source_of(cls), f"--data {{base}}/{log} --steps 900 --eval-every 100 --no-judge")
    return f"train {name} --out {{at}}/run --save-seconds 0.02 --quiet {own} {source}"


RUN = training("bc").replace("--steps 900", "--steps 60") + " --held-out 0.3"  # short ones, whose policies act
SHOP_RUN = training("recommender-bcq").replace("--steps 300", "--steps 60")
JUDGE = "judge {at}/run --ledger {at}/looks.jsonl --out {at}/verdict.json --overwrite --quiet --effective-episodes 2"
ZIP = "export {at}/run --to zip --out {at}/p.zip --overwrite --no-onnx"
FOLDER = "export {at}/run --to folder --out {at}/p --overwrite --no-onnx"
NPZ = "log convert --out {at}/log.npz --overwrite --data {base}/"
LOG = "log convert --out {at}/l.tidelog --overwrite --data {base}/"
COLLECT = "collect --env treatment --episodes 60 --overwrite --out {at}/log --seed "
ACT = "act {at}/run --data {base}/rows.csv --overwrite --out {at}/acts.csv "
LISTS = "act {at}/run --data {base}/shop.csv --overwrite --out {at}/lists.csv --user u --item i --time t --k "
PATHS: dict[str, Command] = {
    **{f"train {name}": Command(training(name)) for name in names()},
    "train ppg, host, 2 seeds": Command(training("ppg").replace("jax:CartPole-v1", "point-mass") + " --seeds 2"),
    "train ppg, collected log": Command(training("ppg") + " --log-out {at}/collected"),
    "judge": Command(JUDGE, ("verdict.json", "run", "looks.jsonl"), (RUN,)),
    "export zip": Command(ZIP, ("p.zip", "run"), (RUN, f"{ZIP} --sample")),
    "export folder": Command(FOLDER, ("p", "run"), (RUN, f"{FOLDER} --sample")),
    "convert": Command(f"{NPZ}codes", ("log.npz",), (f"{NPZ}large",)),
    "convert, folder": Command(f"{LOG}large", ("l.tidelog",), (f"{LOG}codes",)),
    "collect": Command(f"{COLLECT}0", ("log",), (f"{COLLECT}1",)),
    "act": Command(f"{ACT}--mode", ("acts.csv", "run"), (RUN, f"{ACT}--sample --seed 1")),
    "recommend": Command(f"{LISTS}3", ("lists.csv", "run"), (SHOP_RUN, f"{LISTS}2")),
}


# Children.


class Ended(NamedTuple):
    """How a command ended: its exit code, -9 for a kill, and what it printed."""

    code: int
    text: str
    seconds: float


def run(words: list[str], said: Path, kill_after: float | None = None) -> Ended:
    """Run a command in a child of this process; kill it after a number of seconds."""
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            code = tidelog.cli.main(words)
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        passed = time.monotonic() - begun
        if ended:
            return Ended(os.waitstatus_to_exitcode(status), said.read_text(errors="replace"), passed)
        if kill_after is not None and passed >= kill_after:
            os.kill(child, signal.SIGKILL)
            kill_after = None
        time.sleep(0.002)


def sure(words: list[str], said: Path) -> Ended:
    """Run a command to its end; RuntimeError unless it succeeds."""
    ended = run(words, said)
    if ended.code:
        raise RuntimeError(f"{' '.join(words)} ended with {ended.code}: {ended.text[-2000:]}")
    return ended


# States.


def state_of_run(at: Path) -> State:
    """What an interrupted and an undisturbed run must share: learners, metrics, best policies, the collected log."""
    folder = at / "run"
    last = folder / "checkpoints" / f"{Checkpoints(folder / 'checkpoints', 1).updates()[-1]:010d}"
    sums = {name: facts["sha256"] for name, facts in CHECKPOINT.manifest(last)["files"].items()}
    rows = rows_at(folder, Checkpoints(folder / "checkpoints", 1).metrics())
    metrics = [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]
    log = at / "collected"
    collected = {path.name: checksum(path) for path in log.iterdir()} if log.is_dir() else {}
    return {"last": last.name, "learners": sums, "metrics": json.dumps(metrics), "collected": collected}


def check_interrupted_run(at: Path) -> bool:
    """Check what a kill left of a run, and return whether it can be resumed."""
    folder = at / "run"
    if not (folder / "run.json").exists():
        return False
    record = Record.read(folder)
    checkpoints = Checkpoints(folder / "checkpoints", record.options.keep_checkpoints)
    updates = checkpoints.updates()
    for update in updates:
        one = folder / "checkpoints" / f"{update:010d}"
        manifest = CHECKPOINT.manifest(one)
        for name in manifest["files"]:
            CHECKPOINT.file(one, name, manifest)
    if updates:
        rows_at(folder, checkpoints.metrics())
    return bool(updates)


def seen(at: Path, names: tuple[str, ...]) -> State:
    """What is visible of files and folders: a checksum of each file; of verdicts and looks, without their times."""
    found: State = {}
    for name in names:
        files = [at / name] if (at / name).is_file() else sorted((at / name).rglob("*"))
        for path in files:
            if path.is_dir() or any(_files.is_temporary(one) for one in (path, *path.relative_to(at).parents)):
                continue
            found[str(path.relative_to(at))] = _content(path)
    return found


def _content(path: Path) -> str:
    if path.parent.name == "verdicts":
        read_verdict(path)
    if path.parent.name == "verdicts" or path.name in ("verdict.json", "acting.json"):
        undated = json.loads(path.read_text(), object_hook=lambda one: {k: v for k, v in one.items() if k != "date"})
        return hashlib.sha256(json.dumps(undated).encode()).hexdigest()
    if path.name == "looks.jsonl":
        lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last line feed is not read
        return ", ".join(json.loads(line)["line"] for line in lines)
    return "" if path.name == "training.lock" else checksum(path)


# A path before anything disturbs it.


def warm_up() -> None:
    """Import every module that a command needs, which starts no threads of JAX."""
    for one in pkgutil.walk_packages(tidelog.__path__, "tidelog."):
        if not one.name.endswith(("__main__", "atari")):
            with contextlib.suppress(ImportError):
                importlib.import_module(one.name)


def write_tables(folder: str) -> None:
    """Write the logs and tables that the commands read."""
    import numpy as np
    import polars as pl

    import tidelog as tl

    at, rng = Path(folder), np.random.default_rng(0)
    actions = {
        "codes": rng.integers(0, 3, 800), "large": rng.integers(0, 3, 20_000),
        "numbers": rng.uniform(-1, 1, (800, 2)).astype(np.float32),
    }  # fmt: skip
    for name, action in actions.items():
        row, rows = np.arange(len(action)), len(action)
        about = {"bounds": (-1.0, 1.0)} if name == "numbers" else {"actions": 3, "propensity": np.full(rows, 1 / 3)}
        tl.Log.from_arrays(
            observation=rng.standard_normal((rows, 5)).astype(np.float32), action=action,
            reward=rng.standard_normal(rows).astype(np.float32), terminated=row % 20 == 19, episode=row // 20, **about,
        ).save(at / name)  # fmt: skip
    pl.DataFrame({f"observation_{i}": rng.standard_normal(200) for i in range(5)}).write_csv(at / "rows.csv")
    row = np.arange(300)
    shop = pl.DataFrame({"u": row // 10, "i": rng.integers(0, 20, 300), "t": row * 1.0})
    shop.write_csv(at / "shop.csv")
    tl.read_interactions(shop, user="u", item="i", time="t").save(at / "shop")


class Place(NamedTuple):
    """A prepared path: its folder, what is there before and after an undisturbed command, and how long that takes."""

    path: Command
    at: Path
    backup: Path
    old: State
    new: State
    seconds: float

    def words(self, resumable: bool) -> list[str]:
        """The command; that of a run begins anew, unless there is something to go on with."""
        if resumable:
            return words_in(self.at, "resume {at}/run --quiet")
        for folder in ("run", "collected", "collected.pieces") if self.path.trains else ():
            shutil.rmtree(self.at / folder, ignore_errors=True)
        return words_in(self.at, self.path.template)

    def ends_as_undisturbed(self) -> bool:
        """Whether what is there now is what the undisturbed command wrote; what a command wrote is taken back."""
        if self.path.trains:
            return state_of_run(self.at) == self.new
        now = seen(self.at, self.path.writes)
        restore(self.at, self.path, self.backup)
        return all(now.get(name) == value for name, value in self.new.items() if "verdicts/" not in name)

    @property
    def verdicts(self) -> set[Any]:
        """Verdicts that an undisturbed command leaves, whose names have times."""
        return {value for name, value in self.new.items() if "verdicts/" in name}


def undisturbed(name: str, work: Path) -> Place:
    path, at, backup = PATHS[name], work / name.replace(" ", "_").replace(",", ""), work / f"backup {name}"
    at.mkdir()
    said = at / "said"
    if path.trains:
        sure(words_in(at, path.template), said)  # compiles
        whole = Place(path, at, backup, {}, {}, 0.0)
        seconds = sure(whole.words(resumable=False), said).seconds
        return whole._replace(new=state_of_run(at), seconds=seconds)
    for before in path.prepare:
        sure(words_in(at, before), said)
    backup.mkdir()
    copy_files(at, path.writes, backup)
    old = seen(at, path.writes)
    sure(words_in(at, path.template), said)  # compiles
    restore(at, path, backup)
    seconds = sure(words_in(at, path.template), said).seconds
    new = seen(at, path.writes)
    restore(at, path, backup)
    return Place(path, at, backup, old, new, seconds)


def copy_files(source: Path, names: Sequence[str], target: Path) -> None:
    """Copy those files and folders that exist."""
    for name in names:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name)
        elif (source / name).exists():
            shutil.copy2(source / name, target / name)


def restore(at: Path, path: Command, backup: Path) -> None:
    """Put back what was there before the command."""
    for target in (at / name for name in path.writes):
        shutil.rmtree(target, ignore_errors=True) if target.is_dir() else target.unlink(missing_ok=True)
    copy_files(backup, path.writes, at)


# What happens to it: counts by name.


def disturb(place: Place, dice: random.Random) -> dict[str, int]:
    """Kill a command until it gets through, check every state in between, and compare its end."""
    kills, resumable = 0, False
    while True:
        words = place.words(resumable)
        longest = place.seconds * (0.95 if kills < 15 else 3.0)  # a busy machine must get through, too
        ended = run(words, place.at / "said", dice.uniform(0.0, longest))
        if ended.code == 0:
            return {"kills": kills, "ends": 1, "not equal": int(not place.ends_as_undisturbed())}
        if ended.code != -signal.SIGKILL:
            raise RuntimeError(f"{' '.join(words)} ended with {ended.code}: {ended.text[-2000:]}")
        kills += 1
        resumable = place.path.trains and check_interrupted_run(place.at)
        if not place.path.trains:
            check_interrupted_command(place, seen(place.at, place.path.writes))


def check_interrupted_command(place: Place, now: State) -> None:
    """AssertionError unless every file is the old or the new one."""
    for name in {*place.old, *now}:
        allowed = {place.old.get(name), place.new.get(name)}
        allowed |= {"episodes", "episodes, look", ""} if name == "looks.jsonl" else set()
        allowed |= place.verdicts if "verdicts/" in name else set()
        if now.get(name) not in allowed:
            raise AssertionError(f"{place.at.name}: {name} is neither the old nor the new one after a kill")


def fill_up(place: Place, dice: random.Random) -> dict[str, int]:
    """Run a command on a disk with little space; after space is back, the same command ends as undisturbed."""
    at, run_like = place.at, place.path.trains
    words = place.words(resumable=False)
    size = sum(one.stat().st_size for one in at.rglob("*") if one.is_file())
    free = os.statvfs(at).f_bavail * os.statvfs(at).f_bsize
    left = int(dice.uniform(0, 400_000 if run_like else max(20_000, 1.2 * size)))
    ballast = at.parent / "ballast"
    ballast.write_bytes(b"\0" * max(0, free - left - 8192))
    said = Path(tempfile.gettempdir()) / f"said-{os.getpid()}"
    ended = run(words, said)
    left_over = [str(one) for one in at.rglob(".writing-*")]
    resumable = run_like and check_interrupted_run(at)
    now = seen(at, place.path.writes)
    ballast.unlink()
    said_it = ended.code == 0 or (ended.code in (2, 4) and "No space left" in ended.text)
    whole = all(
        now.get(one) in {place.old.get(one), place.new.get(one), "", *place.verdicts, "episodes", "episodes, look"}
        for one in {*place.old, *now}
        if "/failures/" not in one or "No space left" not in (at / one).read_text()  # a reason, while it lasts
    )
    if ended.code or not run_like:
        sure(place.words(resumable), said)
    equal = place.ends_as_undisturbed()
    good = said_it and whole and equal and not left_over
    if not good:
        print(f"{at.name}: code {ended.code}, said {said_it}, whole {whole}, equal {equal}, left {left_over}\n"
              f"{ended.text[-1500:]}", flush=True)  # fmt: skip
    return {"runs": 1, "failed": int(ended.code != 0), "good": int(good)}


def study(seconds: float = 600.0, paths: Sequence[str] = (), full: int = 0) -> dict[str, Any]:
    """Kill for a number of seconds, or fill `full` disks, path after path, and add the counts to the kept ones.

    Only paths that begin with one of `paths`, if it names some.
    """
    before = known(NAME)
    counts, disks = before.get("paths", {}), before.get("full disks", {})
    dice = random.Random(before.get("kills", 0) + 7 * sum(one["runs"] for one in disks.values()))
    warm_up()
    chosen = [name for name in PATHS if not paths or name.startswith(tuple(paths))]
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "disk"
        base.mkdir()
        os.environ["TIDELOG_STATE"] = "off"
        os.environ.setdefault("TIDELOG_CACHE", str(Path(folder) / "cache"))
        if full:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(base)], check=True)
        try:
            called(write_tables, str(base))  # in a child: this process must start no threads
            place = cache(partial(undisturbed, work=base))
            for name in islice(cycle(chosen), full):
                add(disks, name, fill_up(place(name), dice))
                _keep(counts, disks)
            end = time.monotonic() + seconds
            for name in takewhile(lambda _: not full and time.monotonic() < end, cycle(chosen)):
                add(counts, name, disturb(place(name), dice))
                _keep(counts, disks)
        finally:
            if full:
                subprocess.run(["umount", str(base)], check=True)
    return dict(_keep(counts, disks))


def add(table: dict[str, dict[str, int]], name: str, found: dict[str, int]) -> None:
    """Add counts to those of a path."""
    table[name] = {part: table.get(name, {}).get(part, 0) + count for part, count in found.items()}
    print(f"{name}: {table[name]}", flush=True)


def _keep(counts: dict[str, Any], disks: dict[str, Any]) -> dict[str, Any]:
    """Write the results; this machine's facts come from a child, because they start threads."""
    content = {
        "command": f"python -m benchmarks.{NAME} --seconds 600; --full 20",
        "machine": _machine(),
        "kills": sum(one["kills"] for one in counts.values()),
        "equal": all(one["not equal"] == 0 for one in counts.values()),
        "paths": counts,
        "full disks": disks,
    }
    (RESULTS / f"{NAME}.json").write_text(json.dumps(content, indent=1) + "\n")
    return content


@cache
def _machine() -> dict[str, Any]:
    return called(this_machine)
