"""Fuzz every reader: damaged files give a log, a report or an error of tidelog, soon, and with little memory.

    python -m benchmarks fuzz_readers --seconds 600          # pieces over all readers; they add up
    python -m benchmarks fuzz_readers --readers csv npz --inputs 5000

Inputs are mutated from small valid files: by structure (JSON values, names, sizes, members of archives, columns of
tables, data sets of HDF5, manifests with repaired checksums) and by bytes, guided by coverage of tidelog where
`atheris` is installed. A child process reads many inputs one after another, with 1 GB of address space beyond its start
and 10 processor seconds an input. A finding is any exception that is not a TidelogError, a report that contradicts its
log, a changed policy with a valid signature, a slow input, or the end of the process. An input that was read before, in
any piece of this work folder, is neither read nor counted again. The
shortest input of each finding is in `findings` of the work folder, under the name that it needs in tests/data/corpus.
Results, with the version and the checksum of the source that each batch of seeds was read by:
benchmarks/results/fuzz_readers.json.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import gzip
import hashlib
import importlib.util
import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.keep import RESULTS as FOLDER
from benchmarks.keep import known
from benchmarks.spread import words_of

RESULTS = FOLDER / "fuzz_readers.json"
COMMAND = "python -m benchmarks fuzz_readers --seconds 600"
SHARED_MEMORY = Path("/dev/shm")
BEYOND, SLOWEST, SILENT = 1 << 30, 10.0, 30.0  # bytes; processor seconds an input; the same until the child is killed
LONGEST = 1 << 16  # bytes of an input
SAVED_EVERY = 100
REPEATS = 20  # inputs in a row that were read before, on average, until a piece ends
Files = dict[str, bytes]
MAPPING = {
    "observation": ["o", "w"], "action": "a", "reward": "r", "episode": "e", "step": "s", "terminated": "d",
    "propensity": "p", "time": "t", "missing": "mean+flag",
}  # fmt: skip
ROLES = {"user": "e", "item": "w", "time": "t", "event": "a", "propensity": "p", "slate": "l"}


class SlowInput(BaseException):  # no reader may catch it
    """An input took longer than it may."""


class Contradiction(Exception):
    """The report of a file and what reading it gave differ."""


class Reader(NamedTuple):
    """Files that a seed writes into a folder, and the function that reads the folder; True if the files are valid."""

    seed: Callable[[Path], None]
    read: Callable[[Path], bool]


SEEDS: Files = {}  # of the reader of this process; empty where a single input is read


# Seeds.


def frame() -> Any:
    import polars as pl

    return pl.DataFrame({
        "e": [1, 1, 1, 2, 2, 3], "s": [0, 1, 2, 0, 1, 0], "o": [0.5, None, 1.5, 2.0, -1.0, 3.0],
        "w": ["icu", "er", "icu", "er", "home", "icu"], "a": [0, 1, 2, 0, 1, 1], "r": [0.0, 1.0, 0.5, 0.0, 2.0, 1.0],
        "d": [0, 0, 1, 0, 1, 0], "p": [0.5, 0.25, 1.0, 0.5, 0.3, 0.2], "t": [1.0, 2.0, 3.0, 1.0, 2.0, 1.0],
        "l": ["icu|er", "er|home", "icu", "er", "home|icu", "icu"],
    })  # fmt: skip


def table(name: str) -> Callable[[Path], None]:
    def seed(folder: Path) -> None:
        path = folder / name
        if name.endswith(".csv.gz"):
            path.write_bytes(gzip.compress(frame().write_csv().encode()))
        else:
            getattr(frame(), {".csv": "write_csv", ".parquet": "write_parquet", ".arrow": "write_ipc",
                              ".jsonl": "write_ndjson"}[path.suffix])(path)  # fmt: skip

    return seed


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "observation/x": rng.normal(size=(6, 2)).astype(np.float32), "observation/c": np.arange(6) % 3,
        "action": np.arange(6) % 2, "reward": np.ones(6, np.float32), "episode": np.arange(6) // 3,
        "terminated": np.arange(6) % 3 == 2, "action_mask": np.ones((6, 2), bool), "actions": np.asarray(2),
    }  # fmt: skip


def seed_npz(folder: Path) -> None:
    np.savez(folder / "log.npz", **arrays())


def seed_ogbench(folder: Path) -> None:
    np.savez(
        folder / "log.npz", observations=np.zeros((6, 2), np.float32), actions=np.zeros((6, 1), np.float32),
        terminals=np.arange(6) % 3 == 2, rewards=np.ones(6), masks=np.ones(6),
    )  # fmt: skip


def seed_d4rl(folder: Path) -> None:
    import h5py

    with h5py.File(folder / "log.hdf5", "w") as file:
        file["observations"], file["actions"] = np.zeros((6, 2), np.float32), np.zeros((6, 1), np.float32)
        file["terminals"], file["timeouts"] = np.arange(6) == 2, np.arange(6) == 5
        file.create_dataset("rewards", data=np.arange(6.0), chunks=(2,), compression="gzip")


def seed_minari(folder: Path) -> None:
    import h5py

    def box(shape: list[int]) -> dict[str, Any]:
        size = [[-1.0] * shape[0], [1.0] * shape[0]]
        return {"type": "Box", "dtype": "float32", "shape": shape, "low": size[0], "high": size[1]}

    code = {"type": "Discrete", "dtype": "int64", "start": 0, "n": 3}
    about = {
        "total_episodes": 2, "total_steps": 4, "data_format": "hdf5", "jpeg_encoding": True, "dataset_id": "x/y-v0",
        "minari_version": "0.5.4", "action_space": json.dumps(code),
        "observation_space": json.dumps({"type": "Dict", "subspaces": {"x": box([2]), "c": code}}),
    }  # fmt: skip
    (folder / "metadata.json").write_text(json.dumps(about))
    with h5py.File(folder / "main_data.hdf5", "w") as file:
        for number in range(2):
            one = file.create_group(f"episode_{number}")
            one["observations/x"], one["observations/c"] = np.zeros((3, 2), np.float32), np.asarray([0, 1, 2])
            one["actions"], one["rewards"] = np.asarray([0, 1]), np.asarray([1.0, 2.0])
            one["terminations"], one["truncations"] = np.asarray([False, True]), np.zeros(2, bool)
            one["infos/propensity"] = np.full(3, 0.5)


def seed_robomimic(folder: Path) -> None:
    import h5py

    with h5py.File(folder / "log.hdf5", "w") as file:
        for number in range(2):
            one = file.create_group(f"data/demo_{number}")
            one["obs/x"], one["next_obs/x"] = np.zeros((3, 2), np.float32), np.zeros((3, 2), np.float32)
            one["actions"], one["rewards"] = np.zeros((3, 1), np.float32), np.asarray([0.0, 0.0, 1.0])
            one["dones"] = np.asarray([0, 0, 1])


def seed_propensities(folder: Path) -> None:
    import polars as pl

    frame().select(episode="e", step="s", propensity="p").write_csv(folder / "p.csv")
    rows = frame().select(episode=pl.int_range(pl.len()), estimated_propensity=pl.lit(0.5))
    rows.write_parquet(folder / "rows.parquet")


def seed_document(folder: Path) -> None:
    (folder / "log.json").write_text(json.dumps(frame().to_dicts()))


def seed_mapping(folder: Path) -> None:
    frame().write_csv(folder / "log.csv")
    lines = [f"{key} = {json.dumps(value)}" for key, value in MAPPING.items()]
    (folder / "m.toml").write_text("\n".join([*lines, "actions = 3", "vocabularies = { w = ['er', 'home', 'icu'] }"]))
    (folder / "m.json").write_text(json.dumps({**MAPPING, "actions": 3, "bounds": None}))


def seed_log(folder: Path) -> None:
    from tidelog.data.read import read_log

    read_log(frame(), {**MAPPING, "extra": ["l"]}).save(folder / "log")


def seed_interactions(folder: Path) -> None:
    import polars as pl

    frame().write_csv(folder / "log.csv")
    pl.DataFrame({"w": ["icu", "er", "home"], "f": [1.0, 2.0, 3.0], "k": ["x|y", "y", "x"]}).write_csv(folder / "f.csv")


def seed_saved_interactions(folder: Path) -> None:
    from tidelog.recommend.read import read_interactions

    seed_interactions(folder)
    read_interactions(folder / "log.csv", **ROLES, item_features=folder / "f.csv").save(folder / "log")
    for name in ("log.csv", "f.csv"):
        (folder / name).unlink()


@cache
def trained_run() -> Path:
    """The folder of a small run, which every seed of a run copies from."""
    import tidelog as tl

    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)

    ends = np.arange(40) % 4 == 3
    log = tl.Log.from_arrays(
        observation=np.arange(80.0, dtype=np.float32).reshape(40, 2), action=np.arange(40) % 2,
        reward=np.arange(40.0, dtype=np.float32), episode=np.repeat(range(10), 4), terminated=ends,
    )  # fmt: skip
    log.save(folder / "log")
    tl.fit(tl.BC(hidden=(4,)), tl.Log.load(folder / "log"), steps=2, out=folder / "run", progress=False)
    return folder / "run"


def seed_record(folder: Path) -> None:
    for name in ("run.json", "metrics.jsonl"):
        shutil.copy(trained_run() / name, folder / name)
    (folder / "sinks.json").write_text(json.dumps({"mlflow": {"run": "x1", "last": [2, 0]}}))


def seed_checkpoint(folder: Path) -> None:
    last = sorted((trained_run() / "checkpoints").iterdir())[-1]
    shutil.copytree(last, folder / "checkpoints" / last.name)


def saved_policy(name: str) -> Callable[[Path], None]:
    def seed(folder: Path) -> None:
        import tidelog as tl

        tl.load_run(trained_run()).policy().save(folder / name)

    return seed


def seed_signed(folder: Path) -> None:
    """A policy with its origin, as a zip that is signed, and the signer's public key."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    import tidelog as tl
    from tidelog.policies.export import export
    from tidelog.training.record import Record, provenance_of

    run, private = trained_run(), ed25519.Ed25519PrivateKey.generate()
    plain, pem = serialization.NoEncryption(), serialization.Encoding.PEM
    policy = tl.load_run(run).policy()
    with tempfile.TemporaryDirectory() as made:
        key = Path(made) / "key.pem"
        key.write_bytes(private.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
        origin = provenance_of(run, Record.read(run), policy)
        for name in ("policy", "policy.zip"):
            export(policy, folder / name, onnx=False, provenance=origin, key=key)
    public = private.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (folder / "key.pem").write_bytes(public)


def seed_sweep(folder: Path) -> None:
    import tidelog as tl
    from tidelog.sweeps.plan import RungDecision, Status, append_decision, trial_folder, write_status

    algorithms = [tl.BC(hidden=(width,)) for width in (4, 8)]
    tl.sweep(algorithms, tl.Log.load(trained_run().parent / "log"), 4, out=folder, eval_every=2, halving=(2, 2),
             best_metric="held_out/imitation_loss", train=False)  # fmt: skip
    shutil.rmtree(folder / "log", ignore_errors=True)
    for trial in range(2):
        at = trial_folder(folder, trial)
        (at / "run").mkdir(parents=True)
        row = {"update": 2, "member": 0, "seed": 0, "held_out/imitation_loss": 0.5 + trial}
        (at / "run" / "metrics.jsonl").write_text(json.dumps(row) + "\n")
        write_status(at, Status("standing", 2))
    append_decision(folder, RungDecision(2, "held_out/imitation_loss", [0.5, 1.5], [0, 1], [0]))


def bodies(*requests: dict[str, Any]) -> Callable[[Path], None]:
    def seed(folder: Path) -> None:
        for number, request in enumerate(requests):
            (folder / f"{number}.json").write_text(json.dumps(request))

    return seed


SEED_BODIES = bodies(
    {"observation": {"o": 0.5, "w": "icu"}, "seed": 3},
    {"observations": [{"o": 1.5, "w": "er"}, {"o": None, "w": "home"}], "masks": [[True, True, False], [1, 1, 1]]},
)
SEED_BODIES_OF_LISTS = bodies(
    {"history": ["icu", "er"], "k": 2, "exclude_seen": False, "explain": True},
    {"histories": [["icu"], []], "k": 1, "exclude": ["er"], "candidates": ["er", "home"], "unknown": "skip"},
)


def seed_config(folder: Path) -> None:
    lines = ('data = ["log.csv"]', "steps = 100", "seeds = 2", "learning-rate = 3e-4", "hidden = [32, 32]",
             'out = "run"', "overwrite = true")  # fmt: skip
    (folder / "train.toml").write_text("\n".join(lines))


def verdicts_on_noise(count: int, ledger: Any = False) -> list[Any]:
    """Verdicts on random policies, from a log of noise."""
    from tests.ope.cases import QUICK
    from tests.ope.noise import noise, random_policies
    from tidelog import judge

    return [judge(one, noise(), limits=QUICK, ledger=ledger, progress=False) for one in random_policies(count)]


def seed_judged(folder: Path) -> None:
    """The run without its checkpoint, and the files that judging and playing write beside it."""
    from tidelog.ope.verdict import store_verdict

    seed_record(folder)
    store_verdict(verdicts_on_noise(1)[0], folder, "bc")
    (folder / "evaluations").mkdir()
    played = {"env": "treatment", "sampled": False, "returns": [[1.0, 2.0]]}
    (folder / "evaluations" / "one.json").write_text(json.dumps(played))


def seed_declared(folder: Path) -> None:
    import tidelog as tl
    from tidelog.policies.policy import remember

    seed_record(folder)
    seed_checkpoint(folder)
    policy = tl.load_run(trained_run()).policy()
    policy.declare("sample", verdicts_on_noise(1)[0].summary)
    remember(folder, policy)


def seed_ledger(folder: Path) -> None:
    verdicts_on_noise(2, folder / "looks.jsonl")


def seed_json(folder: Path) -> None:
    from tidelog.data.read import read_log
    from tidelog.data.statistics import Scaler, Sketch

    log = read_log(frame(), MAPPING)
    parts: dict[str, Any] = {
        "spec": log.spec,
        "report": log.report,
        "scaler": Scaler.fit(log),
        "sketch": Sketch.of(log),
    }
    for name, part in parts.items():
        (folder / f"{name}.json").write_text(json.dumps(part.to_json()))


# Readers.


def reported(source: Any, mapping: Any) -> bool:
    """Whether the report has no error; Contradiction unless reading agrees with it."""
    from tidelog.data.read import read_log, validate
    from tidelog.errors import LogError, TidelogError

    report = validate(source, mapping)
    json.dumps(report.to_json())
    if not report.ok:
        report.text()
        return False
    try:
        log = read_log(source, mapping)
    except LogError as error:
        raise Contradiction("the report has no error, but the log is refused") from error
    except TidelogError:
        return False  # a mapping that no table uses, for example
    log.statistics()
    log.fingerprint()
    return True


def file_reader(name: str, mapping: Any = None) -> Callable[[Path], bool]:
    return lambda folder: reported(folder / name, mapping)


def read_mapping(folder: Path) -> bool:
    first, second = (reported(folder / "log.csv", folder / name) for name in ("m.toml", "m.json"))
    return first and second


def read_saved_log(folder: Path) -> bool:
    from tidelog.data.log import Log
    from tidelog.errors import TidelogError

    try:
        Log.load(folder / "log", memory_map=True)
    except TidelogError:
        return False
    log = Log.load(folder / "log")
    log.statistics()
    log.fingerprint()
    _ = log.reach, log.clusters, [len(one) for one in log.episodes], log.transitions[:3].next_observation
    return True


def read_interaction_table(folder: Path) -> bool:
    from tidelog.recommend.read import check, read_interactions

    roles = {**ROLES, "item_features": folder / "f.csv"}
    report = check(folder / "log.csv", **roles)
    json.dumps(report.to_json())
    return report.ok and len(read_interactions(folder / "log.csv", **roles)) > 0


def read_saved_interactions(folder: Path) -> bool:
    from tidelog.recommend.interactions import Interactions, text

    log = Interactions.load(folder / "log")
    text(log)
    _ = log.spec, log.histories(np.arange(len(log)), 4), log.fingerprint()
    return True


def read_policy(name: str) -> Callable[[Path], bool]:
    def read(folder: Path) -> bool:
        from tidelog.runtime.load import load

        load(folder / name).act({"observation": np.zeros((1, 2), np.float32)})
        return True

    return read


def read_record(folder: Path) -> bool:
    from tidelog.sinks import read_rows, read_tracker_runs
    from tidelog.training.record import Record

    record = Record.read(folder)
    record.algorithms()
    read_rows(folder / "metrics.jsonl")
    read_tracker_runs(folder)
    return True


@cache
def table_logs() -> tuple[Any, Any]:
    """The log of the table, and one whose episodes have one step."""
    from tidelog.data.read import read_log

    steps = {name: value for name, value in MAPPING.items() if name not in ("episode", "step", "time", "terminated")}
    return read_log(frame(), MAPPING), read_log(frame(), steps)


def read_propensity_files(folder: Path) -> bool:
    from tidelog.errors import TidelogError
    from tidelog.ope.propensities import read_propensities

    read = 0
    for log, name in zip(table_logs(), ("p.csv", "rows.parquet"), strict=True):
        try:
            values = read_propensities(folder / name, log).values
        except TidelogError:
            continue
        if values.shape != (log.steps,) or not ((values > 0) & (values <= 1)).all():
            raise Contradiction("propensities that are not one probability for each step")
        read += 1
    return read == 2


def read_signed(folder: Path) -> bool:
    from tidelog.errors import TidelogError
    from tidelog.runtime.artefact import SavedPolicy

    key, read = folder / "key.pem", 0
    for name in ("policy", "policy.zip"):
        try:
            saved = SavedPolicy(folder / name)
            saved.check_signature(key)
            for one in saved.manifest["files"]:
                saved.read(one)
            saved.check_bytes()
        except TidelogError:
            continue
        read += 1
        changed = {
            path for path, content in files_in(folder).items()
            if path == name or path.startswith(f"{name}/")
            if SEEDS and SEEDS.get(path) != content and not path.endswith("signature.json")
        }  # fmt: skip
        if changed:
            raise Contradiction(f"the signature is valid, but {', '.join(sorted(changed))} changed")
    return read == 2


def read_sweep(folder: Path) -> bool:
    from tidelog.sweeps.plan import Status, read_status, trial_folder
    from tidelog.sweeps.sweep import Sweep

    sweep = Sweep(folder)
    sweep.plan.rungs()
    sweep.rows()
    return read_status(trial_folder(folder, 0)) == Status("standing", 2)


def read_config_file(folder: Path) -> bool:
    import tidelog as tl
    from tidelog.cli.flags import read_config
    from tidelog.cli.train import flags_of

    return bool(read_config(str(folder / "train.toml"), flags_of(tl.BC)))


@cache
def endpoint(lists: bool) -> Any:
    """What answers requests, for a policy that is trained in this process."""
    import tidelog as tl
    from tidelog.data.read import read_log
    from tidelog.recommend.read import read_interactions
    from tidelog.runtime.load import load
    from tidelog.serving.app import ActEndpoint, RecommendEndpoint

    with tempfile.TemporaryDirectory() as made:
        path = Path(made)
        if lists:
            seed_interactions(path)
            log: Any = read_interactions(path / "log.csv", user="e", item="w", time="t")
            algorithm: Any = tl.RecommenderBCQ(size=4, history=4, targets=2)
        else:
            log, algorithm = read_log(frame(), MAPPING), tl.BC(hidden=(4,))
        tl.fit(algorithm, log, 1, held_out=0.0, progress=False).policy().save(path / "policy")
        policy = load(path / "policy")
    return RecommendEndpoint(policy, 8) if lists else ActEndpoint(policy, 8)


def answer(lists: bool) -> Callable[[Path], bool]:
    def read(folder: Path) -> bool:
        from tidelog.errors import SpecError
        from tidelog.serving.app import RequestError

        asks, answered = endpoint(lists), 0
        for name in ("0.json", "1.json"):
            try:
                request = asks.read((folder / name).read_bytes() if (folder / name).exists() else b"")
                json.dumps(asks.compute(request), allow_nan=False).encode("ascii")
                answered += 1
            except (RequestError, SpecError):
                continue
        return answered == 2

    return read


def read_checkpoint(folder: Path) -> bool:
    from tidelog.training.record import Checkpoints, read_member

    read_member(folder, 0)
    Checkpoints(folder / "checkpoints", 1).memory()
    return True


def read_judged(folder: Path) -> bool:
    from tidelog.ope.verdict import read_verdicts
    from tidelog.report.runs import read_runs

    verdicts = read_verdicts(folder / "verdicts")
    (saved,) = read_runs([folder])
    _ = saved.update, saved.done, saved.unit
    for verdict in saved.verdicts:
        _ = verdict.before, verdict.date, verdict.together, verdict.policy, verdict.episodes
    return bool(verdicts)


def read_declared(folder: Path) -> bool:
    from tidelog.training.run import policy_of_run

    _ = policy_of_run(folder).acting
    return True


@cache
def judged_log() -> Any:
    from tests.ope.noise import noise

    return noise()


def read_ledger(folder: Path) -> bool:
    from tidelog.ope.ledger import Ledger

    ledger = Ledger.of(judged_log(), folder / "looks.jsonl")
    looks = ledger.looks
    ledger.check()
    ledger.record_look([{"name": "x", "algorithm": "x", "identity": "x"}], {})
    return len(looks) == 2


def read_policy_in_jax(folder: Path) -> bool:
    from tidelog.policies.policy import load_policy

    policy = load_policy(folder / "policy")
    repr(policy)
    policy.act({"observation": np.zeros((1, 2), np.float32)})
    return True


def read_json(folder: Path) -> bool:
    from tidelog._files import parse_json, read_text
    from tidelog.data.raw import Report
    from tidelog.data.statistics import Scaler, Sketch
    from tidelog.types import Spec

    for name, kind in {"spec": Spec, "report": Report, "scaler": Scaler, "sketch": Sketch}.items():
        try:
            data = parse_json(read_text(folder / f"{name}.json"))
        except (OSError, ValueError):
            return False
        kind.from_json(data).to_json()  # type: ignore[attr-defined]
    return True


READERS: dict[str, Reader] = {
    "csv": Reader(table("log.csv"), file_reader("log.csv", MAPPING)),
    "csv.gz": Reader(table("log.csv.gz"), file_reader("log.csv.gz", MAPPING)),
    "jsonl": Reader(table("log.jsonl"), file_reader("log.jsonl", MAPPING)),
    "parquet": Reader(table("log.parquet"), file_reader("log.parquet", MAPPING)),
    "arrow": Reader(table("log.arrow"), file_reader("log.arrow", MAPPING)),
    "npz": Reader(seed_npz, file_reader("log.npz")),
    "ogbench": Reader(seed_ogbench, file_reader("log.npz")),
    "d4rl": Reader(seed_d4rl, file_reader("log.hdf5")),
    "minari": Reader(seed_minari, lambda folder: reported(folder, None)),
    "robomimic": Reader(seed_robomimic, file_reader("log.hdf5")),
    "document": Reader(seed_document, file_reader("log.json", MAPPING)),
    "mapping": Reader(seed_mapping, read_mapping),
    "log": Reader(seed_log, read_saved_log),
    "interactions": Reader(seed_interactions, read_interaction_table),
    "saved interactions": Reader(seed_saved_interactions, read_saved_interactions),
    "policy": Reader(saved_policy("policy"), read_policy("policy")),
    "policy zip": Reader(saved_policy("policy.zip"), read_policy("policy.zip")),
    "run": Reader(seed_record, read_record),
    "checkpoint": Reader(seed_checkpoint, read_checkpoint),
    "json": Reader(seed_json, read_json),
    "policy, jax": Reader(saved_policy("policy"), read_policy_in_jax),
    "judged run": Reader(seed_judged, read_judged),
    "acting.json": Reader(seed_declared, read_declared),
    "ledger": Reader(seed_ledger, read_ledger),
    "propensities": Reader(seed_propensities, read_propensity_files),
    "signed policy": Reader(seed_signed, read_signed),
    "sweep": Reader(seed_sweep, read_sweep),
    "train.toml": Reader(seed_config, read_config_file),
    "http act": Reader(SEED_BODIES, answer(lists=False)),
    "http recommend": Reader(SEED_BODIES_OF_LISTS, answer(lists=True)),
}


# Inputs: the files of a folder as one sequence of bytes.


def packed(files: Files) -> bytes:
    parts = []
    for name, content in sorted(files.items()):
        encoded = name.encode()
        parts.append(bytes([len(encoded)]) + encoded + len(content).to_bytes(4, "little") + content)
    return b"".join(parts)


def unpacked(data: bytes) -> Files:
    """The files of an input, none for bytes that are not packed."""
    files, at = {}, 0
    while at < len(data):
        end = at + 1 + data[at]
        name = data[at + 1 : end].decode("utf-8", "replace")
        size = int.from_bytes(data[end : end + 4], "little")
        files[name], at = data[end + 4 : end + 4 + size], end + 4 + size
    safe = all(name and not name.startswith("/") and ".." not in name and "\0" not in name for name in files)
    return files if safe and packed(files) == data else {}


def files_in(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def write_files(files: Files, folder: Path) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


# Mutations.

ODD_NUMBERS = (0, 1, 2, 7, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63)
ODD_WORDS = (
    *("", "NA", "nan", "inf", "-1", "0.5", "1e400", "1e39", "1" + "0" * 18, "9" * 30, "true", "null", "[]", '"'),
    *("a,b", "\0", "é", "١٢", "2020-01-01", "2020-02-30", "x|y", "1_000", "-0", " 1 ", "[1,2]", "{}"),
)
ODD_VALUES: tuple[Any, ...] = (None, True, 0, -1, 1.5, 10**9, 2**63, 10**30, "", "x", "1", [], {}, [1], {"x": 1}, [[1]],
                               1e400, float("nan"), "\ud800", ["a", None])  # fmt: skip


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    """One to three changes of bytes: flips, numbers of one to eight bytes, cuts, copies and moves."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(changed) + 1)
        kind = rng.randrange(6)
        if kind == 0 and changed:
            changed[at - 1] ^= 1 << rng.randrange(8)
        elif kind == 1:
            width = rng.choice((1, 2, 4, 8))
            number = (rng.choice(ODD_NUMBERS) + rng.choice((0, 0, -1, len(changed)))) % 256**width
            changed[at : at + width] = number.to_bytes(width, rng.choice(("little", "big")))
        elif kind == 2:
            del changed[at : at + rng.choice((1, 2, 8, 64, len(changed)))]
        elif kind == 3:
            changed[at:at] = rng.randbytes(rng.randint(1, 8))
        elif kind == 4:
            start = rng.randrange(len(changed) + 1)
            changed[at:at] = changed[start : start + rng.choice((1, 4, 16, 128))]
        else:
            word = rng.choice(ODD_WORDS).encode()
            changed[at : at + len(word)] = word
    return bytes(changed)


def mutate_json(rng: random.Random, value: Any) -> Any:
    """Another value in one place: replaced, removed, doubled, renamed."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        kind = rng.random()
        if kind < 0.08:
            return {name: inner for name, inner in value.items() if name != key}
        if kind < 0.14:
            return {(rng.choice((*ODD_WORDS, "/etc/hostname", "../x")) if name == key else name): inner
                    for name, inner in value.items()}  # fmt: skip
        return {**value, key: mutate_json(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        kind = rng.random()
        if kind < 0.1:
            return [*value[:at], *value[at + 1 :]]
        if kind < 0.2:
            return [*value, value[at]]
        return [*value[:at], mutate_json(rng, value[at]), *value[at + 1 :]]
    if isinstance(value, str) and value[:1] in ("{", "[") and rng.random() < 0.7:
        try:
            return json.dumps(mutate_json(rng, json.loads(value)))
        except ValueError:
            return value
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.4:
        return rng.choice((-value, value + 1, value * 10**6, value / 3))
    return rng.choice(ODD_VALUES)


def mutate_text(rng: random.Random, text: str) -> str:
    """Another cell, a doubled or missing line, or a name twice."""
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    kind = rng.randrange(5)
    if kind == 0:
        lines[at:at] = [lines[at]]
    elif kind == 1:
        del lines[at]
    else:
        cells = lines[at].split(",")
        place = rng.randrange(len(cells))
        cells[place] = rng.choice((*ODD_WORDS, rng.choice(cells), cells[place] * 2))
        lines[at] = ",".join(cells)
    return "\n".join(lines)


def mutate_content(rng: random.Random, name: str, content: bytes) -> bytes:
    """Change one file in a way that fits its format, or its bytes."""
    try:
        if rng.random() < 0.35:
            return mutate_bytes(rng, content)
        if name.endswith((".json", ".jsonl")):
            lines = content.decode().split("\n") if not content.startswith(b"{\n") else [content.decode()]
            at = rng.randrange(len(lines))
            lines[at] = json.dumps(mutate_json(rng, json.loads(lines[at])))
            return "\n".join(lines).encode("utf-8", "surrogatepass")
        if name.endswith((".csv", ".toml")):
            return mutate_text(rng, content.decode()).encode()
        if name.endswith(".gz"):
            return gzip.compress(mutate_content(rng, name[:-3], gzip.decompress(content)), 1)
        if name.endswith((".npz", ".zip")):
            return mutate_zip(rng, content)
        if name.endswith(".npy"):
            return mutate_npy(rng, content)
        if name.endswith((".parquet", ".arrow")):
            return mutate_table(rng, name, SEEDS.get(name, content))  # what is damaged may end this process
        if name.endswith(".hdf5"):
            return mutate_hdf5(rng, SEEDS.get(name, content))
        if name.endswith(".safetensors"):
            size = int.from_bytes(content[:8], "little")
            header = json.dumps(mutate_json(rng, json.loads(content[8 : 8 + size]))).encode()
            return len(header).to_bytes(8, "little") + header + content[8 + size :]
    except Exception:  # a file that does not have its format any more
        return mutate_bytes(rng, content)
    return mutate_bytes(rng, content)


def mutate_zip(rng: random.Random, content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    at = rng.randrange(len(members))
    name, inner = members[at]
    kind = rng.random()
    if kind < 0.08:
        members.append(members[at])
    elif kind < 0.16:
        members[at] = (rng.choice((name + "x", "../" + name, members[0][0])), inner)
    elif kind < 0.22:
        del members[at]
    else:
        members[at] = (name, mutate_content(rng, name, inner))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, inner in members:
            archive.writestr(zipfile.ZipInfo(name), inner)
    return file.getvalue()


def mutate_npy(rng: random.Random, content: bytes) -> bytes:
    """Change a header, or write the numbers in another type or shape."""
    if rng.random() < 0.4:
        end = 10 + int.from_bytes(content[8:10], "little")
        return content[:8] + content[8:10] + mutate_bytes(rng, content[10:end]) + content[end:]
    values = np.load(io.BytesIO(content), allow_pickle=False)
    kind = rng.randrange(5)
    with np.errstate(all="ignore"):
        if kind == 0:
            values = values.astype(rng.choice(("f8", "f4", "i1", "i8", "u8", "?", "U3", "S3", "M8[us]", "c8")))
        elif kind == 1:
            values = values.reshape(rng.choice(((-1,), (1, -1), (-1, 1), (-1, 1, 1, 1))))
        elif kind == 2:
            values = values[: rng.randrange(len(values) + 1)] if values.ndim else values
        elif values.size:
            values = values.copy()
            odd = np.asarray(rng.choice((0, -1, 1, 7, 2**31 - 1, float("nan"), float("inf"))))
            values.reshape(-1)[rng.randrange(values.size)] = odd.astype(values.dtype)
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def mutate_table(rng: random.Random, name: str, content: bytes) -> bytes:
    """Write a column in another type, under another name, twice, not at all, or with odd cells."""
    import polars as pl

    read, write = ("read_parquet", "write_parquet") if name.endswith(".parquet") else ("read_ipc", "write_ipc")
    table = getattr(pl, read)(io.BytesIO(content))
    column = rng.choice(table.columns)
    kind = rng.randrange(7)
    if kind == 0:
        odd = rng.choice((pl.String, pl.Int8, pl.UInt64, pl.Float32, pl.Boolean, pl.Datetime("us"), pl.Date, pl.Binary,
                          pl.Duration("ms"), pl.Categorical(), pl.Decimal(12, 2), pl.Time, pl.Int128))  # fmt: skip
        table = table.with_columns(table[column].cast(odd, strict=False))
    elif kind == 1:
        table = table.rename({column: rng.choice((*ODD_WORDS, column.upper()))})
    elif kind == 2:
        table = table.drop(column)
    elif kind == 3:
        table = table.with_columns(pl.concat_list(column, column).alias(column))
    elif kind == 4:
        table = table.with_columns(pl.struct(column).alias(column))
    elif kind == 5:
        table = table.sample(rng.randrange(12), with_replacement=True, seed=rng.randrange(2**30))
    else:
        at, odd = rng.randrange(max(1, len(table))), rng.choice(ODD_VALUES)
        cells = [odd if row == at else cell for row, cell in enumerate(table[column].to_list())]
        table = table.with_columns(pl.Series(column, cells, strict=False))
    file = io.BytesIO()
    packing = ("uncompressed", "zstd", "lz4") if write == "write_ipc" else ("uncompressed", "zstd", "snappy", "gzip")
    getattr(table, write)(file, compression=rng.choice(packing))
    return file.getvalue()


def mutate_hdf5(rng: random.Random, content: bytes) -> bytes:
    """Write a data set in another type or shape, under another name, as a link, or not at all."""
    import h5py

    file = io.BytesIO(content)
    with h5py.File(file, "r+") as root:
        names: list[str] = []
        root.visit(names.append)
        name = rng.choice(names)
        one, kind = root[name], rng.randrange(6)
        if kind == 0:
            del root[name]
        elif kind == 1:
            root.move(name, name + rng.choice(("x", "/x", "0", " ")))
        elif kind == 2:
            del root[name]
            soft = (h5py.SoftLink("/" + rng.choice(names)), h5py.SoftLink(name))
            root[name] = rng.choice((*soft, h5py.ExternalLink("/etc/hostname", "/")))
        elif isinstance(one, h5py.Group):
            one.attrs["x"] = 1
        else:
            values = np.asarray(one[()])
            del root[name]
            kind = rng.randrange(4)
            if kind == 0:
                values = values.astype(rng.choice(("f8", "f2", "i1", "u8", "?", "S3", "c8")))
            elif kind == 1:
                values = values.reshape(rng.choice(((-1,), (1, -1), (-1, 1), (-1, 1, 1, 1))))
            elif kind == 2:
                values = values[: rng.randrange(len(values) + 1)] if values.ndim else values
            elif values.size and values.dtype.kind in "fiu":
                values.reshape(-1)[rng.randrange(values.size)] = rng.choice((0, 1, 7, 100))
            odd = {} if not values.ndim or rng.random() < 0.6 else {"chunks": True, "compression": "gzip"}
            root.create_dataset(name, data=values, **odd)
    return file.getvalue()


def repaired(files: Files) -> Files:
    """The same files with the right checksums in every manifest, record of a run, and plan of a sweep."""
    from tidelog._files import Kind, digest

    files = dict(files)
    for name in [name for name in files if name.split("/")[-1] == "manifest.json"]:
        try:
            body = json.loads(files[name])
            body.pop("sha256", None)
            folder = name[: -len("manifest.json")]
            listed = body.get("files")
            for file in listed if isinstance(listed, dict) else ():
                content = files.get(folder + file)
                if content is not None and isinstance(listed[file], dict) and "sha256" in listed[file]:
                    listed[file] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for column in body.get("columns", ()):
                content = files.get(folder + column["file"], b"")
                values = np.load(io.BytesIO(content), allow_pickle=False)
                column |= {"dtype": values.dtype.str, "shape": list(values.shape)}
            kind, listed = Kind(body.pop("kind"), body.pop("schema")), body.pop("files")
            files[name] = kind.text(body, listed)
        except Exception:  # a manifest without the structure of one stays as it is
            continue
    for name in [name for name in files if name.split("/")[-1] in ("run.json", "sweep.json")]:
        try:
            body = json.loads(files[name])
            files[name] = json.dumps(
                {**body, "sha256": digest({k: v for k, v in body.items() if k != "sha256"})}
            ).encode()
        except Exception:  # a record without the structure of one stays as it is
            continue
    return files


def mutated(data: bytes, seed: int) -> bytes:
    """An input after one to four changes; most folders with checksums get them right again."""
    rng = random.Random(seed)
    files = unpacked(data)
    if not files:
        return data
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        name = rng.choice(sorted(files))
        files[name] = mutate_content(rng, name, files[name])
    if rng.random() < 0.03 and len(files) > 1:
        del files[rng.choice(sorted(files))]
    return packed(repaired(files) if rng.random() < 0.8 else files)


# The child: reads inputs, and writes down what came of them.


class Child:
    """Reads the inputs of one reader in a scratch folder, until it has read `inputs` or used `seconds` of processor."""

    def __init__(self, name: str, work: Path, inputs: int, seconds: float) -> None:
        self.name, self.reader, self.work, self.inputs, self.seconds = name, READERS[name], work, inputs, seconds
        self.counts, self.findings = Counter[str](), Counter[str]()
        self.seen, self.repeats, self.from_second = 0, 0, 0.0
        self.scratch = Path(tempfile.mkdtemp(dir=work))
        self.known_file = (work / "known").open("a+b")
        self.known_file.seek(0)
        content = self.known_file.read()
        self.known = {content[at : at + 8] for at in range(0, len(content), 8)}

    def begin(self) -> None:
        """Allow a little more memory than now, and count time from now; what is loaded is collected no more."""
        gc.collect()
        gc.freeze()
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + BEYOND, size + BEYOND))
        self.from_second = time.process_time()

    def one(self, data: bytes) -> None:
        """Read an input, unless it was read before."""
        key, files = hashlib.blake2b(data, digest_size=8).digest(), unpacked(data)
        if not files or key in self.known:
            self.repeats += 1
            if self.repeats > REPEATS * (self.seen + SAVED_EVERY):
                self.end()
            return
        self.known.add(key)
        self.known_file.write(key)
        (self.work / "input").write_bytes(data)
        found = outcome(self.reader, files, self.scratch)
        self.seen += 1
        self.counts[found if found in ("valid", "caught") else "finding"] += 1
        if found not in ("valid", "caught"):
            self.findings[found] += 1
            keep_input(self.work, self.name, found, data)
        if self.seen >= self.inputs or time.process_time() - self.from_second > self.seconds:
            self.end()
        if self.seen % SAVED_EVERY == 0:
            self.save()

    def save(self) -> None:
        self.known_file.flush()
        state = {"inputs": self.seen, "repeats": self.repeats, "counts": self.counts, "findings": self.findings,
                 "processor": round(time.process_time() - self.from_second, 1)}  # fmt: skip
        (self.work / "state.part").write_text(json.dumps(state))
        (self.work / "state.part").replace(self.work / "state.json")

    def end(self) -> None:
        """Save, and end the process, which a fuzzer would not."""
        self.save()
        sys.stderr.flush()
        os._exit(0)


def outcome(reader: Reader, files: Files, scratch: Path, seconds: float = SLOWEST) -> str:
    """`valid`, `caught`, or the name of a finding: its exception and the place where it was raised."""
    from tidelog.errors import TidelogError

    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    write_files(files, scratch)

    def stop(*_: Any) -> None:
        raise SlowInput

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", RuntimeWarning)
            return "valid" if reader.read(scratch) else "caught"
    except TidelogError:
        return "caught"
    except (Exception, SlowInput) as error:
        inside = f"{os.sep}tidelog{os.sep}"
        frames = [one for one in traceback.extract_tb(error.__traceback__) if inside in one.filename]
        place = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "?"
        return f"{type(error).__name__} in {place}"
    except BaseException as error:  # a panic of a library in Rust
        return f"{type(error).__name__}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def keep_input(work: Path, name: str, key: str, data: bytes) -> None:
    """Keep the shortest input of a finding."""
    folder = work.parent / "findings"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name.replace(' ', '_')}-{hashlib.sha256(key.encode()).hexdigest()[:10]}"
    if not path.exists() or len(data) < path.stat().st_size:
        path.write_bytes(data)
        Path(f"{path}.json").write_text(json.dumps({"reader": name, "key": key}))


def child(name: str, folder: str, inputs: int, seconds: float, seed: int) -> None:
    """Read inputs in this process, which ends with them."""
    work = Path(folder)
    one = Child(name, work, inputs, seconds)
    pool = [path.read_bytes() for path in sorted((work / "seeds").iterdir())]
    SEEDS.update(unpacked(pool[0]))
    guided = importlib.util.find_spec("atheris") is not None
    with contextlib.ExitStack() as stack:  # reading the seeds loads every module, which measures its coverage then
        if guided:
            import atheris

            stack.enter_context(atheris.instrument_imports(include=["tidelog"]))
        for data in pool:
            found = outcome(one.reader, unpacked(data), one.scratch, 10 * SLOWEST)
            if found != "valid":
                raise SystemExit(f"the seed of {name}: {found}")
    one.begin()
    if not guided:
        rng = random.Random(seed)
        while True:
            one.one(mutated(rng.choice(pool), rng.getrandbits(60)))
    (work / "grown").mkdir(exist_ok=True)
    calls = random.Random(seed)

    def custom(data: bytes, most: int, number: int) -> bytes:
        try:
            start = data if calls.random() < 0.5 else calls.choice(pool)
            changed = mutated(start, calls.getrandbits(60) ^ number)
            return changed if len(changed) <= most else data
        except BaseException:  # libFuzzer would wait for ever
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(3)

    flags = {"runs": -1, "seed": seed % 2**31 or 1, "max_len": LONGEST, "mutate_depth": 1, "len_control": 0,
             "timeout": 600, "rss_limit_mb": 0, "verbosity": 0, "handle_segv": 0, "handle_abrt": 0}  # fmt: skip
    words = [f"-artifact_prefix={work}/", *(f"-{name}={value}" for name, value in flags.items())]
    atheris.Setup([sys.argv[0], *words, str(work / "grown"), str(work / "seeds")], one.one, custom_mutator=custom)
    atheris.Fuzz()


# The parent: pieces and results.


def processor_seconds(process: int) -> float:
    """What a process has used, 0 if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_piece(name: str, base: Path, inputs: int, seconds: float, seed: int) -> dict[str, Any]:
    """Run one child, and add the end of its process to the findings if it was not orderly."""
    work = base / name.replace(" ", "_")
    (work / "seeds").mkdir(parents=True, exist_ok=True)
    if not any((work / "seeds").iterdir()):
        with tempfile.TemporaryDirectory() as made:
            READERS[name].seed(Path(made))
            (work / "seeds" / "0").write_bytes(packed(files_in(Path(made))))
    for path in (work / "state.json", work / "input"):
        path.unlink(missing_ok=True)
    words = words_of(child, name, str(work), inputs, seconds, seed)
    last, used = 0.0, 0.0  # when the last input began, and what the child had used then
    with (work / "messages").open("wb") as messages:
        process = subprocess.Popen(words, stdout=messages, stderr=messages)
        while process.poll() is None:
            time.sleep(0.5)
            now = (work / "input").stat().st_mtime if (work / "input").exists() else 0.0
            if now != last:
                last, used = now, processor_seconds(process.pid)
            elif now and (processor_seconds(process.pid) - used > SILENT or time.time() - now > 20 * SILENT):
                process.kill()
                process.wait()
    empty: dict[str, Any] = {"inputs": 0, "repeats": 0, "processor": 0.0, "counts": {}, "findings": {}}
    state = json.loads((work / "state.json").read_text()) if (work / "state.json").exists() else empty
    if process.returncode and (work / "input").exists():
        key = f"the process ended with {process.returncode}"
        state["findings"][key] = 1
        keep_input(work, name, key, (work / "input").read_bytes())
    elif process.returncode:
        raise SystemExit((work / "messages").read_text())
    for folder in work.glob("tmp*"):
        shutil.rmtree(folder, ignore_errors=True)
    return state


def source_checksum() -> str:
    """A checksum of tidelog's source, to tell which program read the inputs."""
    import tidelog

    total, root = hashlib.sha256(), Path(tidelog.__file__).parent
    for path in sorted(root.rglob("*.py")):
        total.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()[:16]


def add(results: dict[str, Any], name: str, state: dict[str, Any], seconds: float, seed: int, batch: Any) -> None:
    """Add a piece to the batch of its reader that the same program has read, and keep the results."""
    batches = results["readers"].setdefault(name, [])
    one = next((one for one in batches if all(one[key] == value for key, value in batch.items())), None)
    if one is None:
        one = {**batch, "inputs": 0, "repeats": 0, "processor": 0.0, "seconds": 0.0, "counts": {}, "findings": {},
               "seeds": []}  # fmt: skip
        batches.append(one)
    for part in ("inputs", "repeats", "processor"):
        one[part] = round(one[part] + state[part], 1)
    one["seconds"] = round(one["seconds"] + seconds, 1)
    one["seeds"].append(seed)
    for part in ("counts", "findings"):
        for key, count in state[part].items():
            one[part][key] = one[part].get(key, 0) + count
    results["inputs"] = sum(one["inputs"] for batches in results["readers"].values() for one in batches)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def study(
    readers: Sequence[str] = tuple(READERS),
    inputs: int = 50_000,
    piece: float = 30.0,
    seconds: float = 0.0,
    seed: int | None = None,
    work: Path | None = None,
) -> None:
    """Read pieces of at most so many inputs and processor seconds, reader after reader, for so many seconds."""
    shared = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    base = work or shared / "tidelog-fuzz"
    from tidelog import __version__
    from tidelog._machine import this_machine

    guided = importlib.util.find_spec("atheris") is not None
    batch = {"tidelog": __version__, "source": source_checksum(), "guided by coverage": guided}
    results = {"command": COMMAND, "machine": this_machine(), "readers": {}, **known("fuzz_readers")}
    end = time.time() + seconds
    while True:
        for name in readers:
            used = [number for one in results["readers"].get(name, ()) for number in one["seeds"]]
            number = seed if seed is not None else max(used, default=0) + 1
            begun = time.time()
            state = run_piece(name, base, inputs, piece, number)
            add(results, name, state, time.time() - begun, number, batch)
            rate = state["inputs"] / max(0.1, state["processor"])
            print(
                f"{name}: {state['inputs']:,} inputs, {rate:.0f} a processor second, {state['repeats']:,} repeated, "
                f"{state['findings'] or 'nothing found'}; {results['inputs']:,} in all",
                flush=True,
            )
            if seconds and time.time() > end:
                return
        if time.time() > end:
            return
