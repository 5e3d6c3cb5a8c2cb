"""What `benchmarks/fuzz_readers.py` reads: for each reader a seed, which writes small valid files, and the reading."""

import atexit
import gzip
import io
import json
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import polars as pl
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

import tidelog as tl
from benchmarks.fuzz_mutations import SEEDS, Files, files_in, write_files
from tests.ope.cases import QUICK
from tests.ope.noise import noise, random_policies
from tidelog._files import parse_json, read_text
from tidelog.cli.flags import read_config
from tidelog.cli.train import flags_of
from tidelog.data.raw import Report
from tidelog.data.read import read_log, validate
from tidelog.data.statistics import Scaler, Sketch
from tidelog.errors import LogError, SpecError, TidelogError
from tidelog.ope.ledger import Ledger
from tidelog.ope.propensities import read_propensities
from tidelog.ope.verdict import read_verdicts, store_verdict
from tidelog.policies.export import export
from tidelog.policies.policy import load_policy, remember
from tidelog.recommend.interactions import text
from tidelog.recommend.read import check, read_interactions
from tidelog.report.runs import read_runs
from tidelog.runtime.artefact import SavedPolicy
from tidelog.runtime.load import load
from tidelog.serving.app import ActEndpoint, RecommendEndpoint, RequestError
from tidelog.sinks import read_rows, read_tracker_runs
from tidelog.sweeps.plan import RungDecision, Status, append_decision, read_status, trial_folder, write_status
from tidelog.training.record import Checkpoints, Record, provenance_of, read_member
from tidelog.training.run import policy_of_run
from tidelog.types import Spec

Seed = Callable[[Path], None]
Read = Callable[[Path], bool]
judged_log = cache(noise)
MAPPING = {
    "observation": ["o", "w"], "action": "a", "reward": "r", "episode": "e", "step": "s", "terminated": "d",
    "propensity": "p", "time": "t", "missing": "mean+flag",
}  # fmt: skip
ROLES = {"user": "e", "item": "w", "time": "t", "event": "a", "propensity": "p", "slate": "l"}
FRAME = pl.DataFrame({
    "e": [1, 1, 1, 2, 2, 3], "s": [0, 1, 2, 0, 1, 0], "o": [0.5, None, 1.5, 2.0, -1.0, 3.0],
    "w": ["icu", "er", "icu", "er", "home", "icu"], "a": [0, 1, 2, 0, 1, 1], "r": [0.0, 1.0, 0.5, 0.0, 2.0, 1.0],
    "d": [0, 0, 1, 0, 1, 0], "p": [0.5, 0.25, 1.0, 0.5, 0.3, 0.2], "t": [1.0, 2.0, 3.0, 1.0, 2.0, 1.0],
    "l": ["icu|er", "er|home", "icu", "er", "home|icu", "icu"],
})  # fmt: skip
CSV = FRAME.write_csv().encode()


class Contradiction(Exception):
    """The report of a file and what reading it gave differ."""


class Reader(NamedTuple):
    """Files that a seed writes into a folder, and the function that reads the folder; True if the files are valid."""

    seed: Seed
    read: Read


# Seeds.


def written(contents: dict[str, bytes | str]) -> Seed:
    """Files with these contents."""
    files: Files = {name: text.encode() if isinstance(text, str) else text for name, text in contents.items()}
    return lambda folder: write_files(files, folder)


def bytes_of(write: Callable[[io.BytesIO], Any]) -> bytes:
    """What a function writes into a file."""
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def arrays(**columns: Any) -> Seed:
    """An archive of NumPy's."""
    return lambda folder: np.savez(folder / "log.npz", **columns)


def datasets(name: str, columns: dict[str, Any], packed: str = "") -> Seed:
    """A file of HDF5, one of its data sets in packed pieces."""

    def seed(folder: Path) -> None:
        with h5py.File(folder / name, "w") as file:
            for path, values in columns.items():
                how = {"chunks": (2,), "compression": "gzip"} if path == packed else {}
                file.create_dataset(path, data=values, **how)

    return seed


def seed_minari(folder: Path) -> None:
    box = {"type": "Box", "dtype": "float32", "shape": [2], "low": [-1.0, -1.0], "high": [1.0, 1.0]}
    code = {"type": "Discrete", "dtype": "int64", "start": 0, "n": 3}
    about = {
        "total_episodes": 2, "total_steps": 4, "data_format": "hdf5", "jpeg_encoding": True, "dataset_id": "x/y-v0",
        "minari_version": "0.5.4", "action_space": json.dumps(code),
        "observation_space": json.dumps({"type": "Dict", "subspaces": {"x": box, "c": code}}),
    }  # fmt: skip
    (folder / "metadata.json").write_text(json.dumps(about))
    episode = {
        "observations/x": np.zeros((3, 2), np.float32), "observations/c": np.asarray([0, 1, 2]),
        "actions": np.asarray([0, 1]), "rewards": np.asarray([1.0, 2.0]), "terminations": np.asarray([False, True]),
        "truncations": np.zeros(2, bool), "infos/propensity": np.full(3, 0.5),
    }  # fmt: skip
    columns = {f"episode_{number}/{name}": values for number in range(2) for name, values in episode.items()}
    datasets("main_data.hdf5", columns)(folder)


def demonstrations() -> dict[str, Any]:
    """Two episodes of robomimic."""
    one = {
        "obs/x": np.zeros((3, 2), np.float32), "next_obs/x": np.zeros((3, 2), np.float32),
        "actions": np.zeros((3, 1), np.float32), "rewards": np.asarray([0.0, 0.0, 1.0]), "dones": np.asarray([0, 0, 1]),
    }  # fmt: skip
    return {f"data/demo_{number}/{name}": values for number in range(2) for name, values in one.items()}


FEATURES = pl.DataFrame({"w": ["icu", "er", "home"], "f": [1.0, 2.0, 3.0], "k": ["x|y", "y", "x"]})
seed_interactions = written({"log.csv": CSV, "f.csv": FEATURES.write_csv()})


def seed_saved_interactions(folder: Path) -> None:
    read_interactions(FRAME, **ROLES, item_features=FEATURES).save(folder / "log")


@cache
def trained_run() -> Path:
    """The folder of a small run, which every seed of a run copies from."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    log = tl.Log.from_arrays(
        observation=np.arange(80.0, dtype=np.float32).reshape(40, 2), action=np.arange(40) % 2,
        reward=np.arange(40.0, dtype=np.float32), episode=np.repeat(range(10), 4), terminated=np.arange(40) % 4 == 3,
    )  # fmt: skip
    log.save(folder / "log")
    tl.fit(tl.BC(hidden=(4,)), tl.Log.load(folder / "log"), steps=2, out=folder / "run", progress=False)
    return folder / "run"


def trained_policy() -> tl.Policy:
    """The policy of that run."""
    return tl.load_run(trained_run()).policy()


def seed_record(folder: Path) -> None:
    for name in ("run.json", "metrics.jsonl"):
        shutil.copy(trained_run() / name, folder / name)
    (folder / "sinks.json").write_text(json.dumps({"mlflow": {"run": "x1", "last": [2, 0]}}))


def seed_checkpoint(folder: Path) -> None:
    last = sorted((trained_run() / "checkpoints").iterdir())[-1]
    shutil.copytree(last, folder / "checkpoints" / last.name)


def saved_policy(name: str) -> Seed:
    return lambda folder: trained_policy().save(folder / name)


def seed_signed(folder: Path) -> None:
    """A policy with its origin, as a zip that is signed, and the signer's public key."""
    private, policy = ed25519.Ed25519PrivateKey.generate(), trained_policy()
    plain, pem = serialization.NoEncryption(), serialization.Encoding.PEM
    origin = provenance_of(trained_run(), Record.read(trained_run()), policy)
    with tempfile.TemporaryDirectory() as made:
        key = Path(made) / "key.pem"
        key.write_bytes(private.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
        for name in ("policy", "policy.zip"):
            export(policy, folder / name, onnx=False, provenance=origin, key=key)
    public = private.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (folder / "key.pem").write_bytes(public)


def seed_sweep(folder: Path) -> None:
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


def verdicts_on_noise(count: int, ledger: Any = False) -> list[Any]:
    """Verdicts on random policies, from a log of noise."""
    return [tl.judge(one, noise(), limits=QUICK, ledger=ledger, progress=False) for one in random_policies(count)]


def seed_judged(folder: Path) -> None:
    """The run without its checkpoint, and the files that judging and playing write beside it."""
    seed_record(folder)
    store_verdict(verdicts_on_noise(1)[0], folder, "bc")
    (folder / "evaluations").mkdir()
    played = {"env": "treatment", "sampled": False, "returns": [[1.0, 2.0]]}
    (folder / "evaluations" / "one.json").write_text(json.dumps(played))


def seed_declared(folder: Path) -> None:
    seed_record(folder)
    seed_checkpoint(folder)
    policy = trained_policy()
    policy.declare("sample", verdicts_on_noise(1)[0].summary)
    remember(folder, policy)


def seed_ledger(folder: Path) -> None:
    verdicts_on_noise(2, folder / "looks.jsonl")


def seed_json(folder: Path) -> None:
    log = read_log(FRAME, MAPPING)
    fitted: dict[str, Any] = {"scaler": Scaler.fit(log), "sketch": Sketch.of(log)}
    for name, part in {"spec": log.spec, "report": log.report, **fitted}.items():
        (folder / f"{name}.json").write_text(json.dumps(part.to_json()))


def seed_bodies(*requests: dict[str, Any]) -> Seed:
    """Bodies of requests."""
    return written({f"{number}.json": json.dumps(request) for number, request in enumerate(requests)})


# Readers.


def reported(source: Any, mapping: Any) -> bool:
    """Whether the report has no error; Contradiction unless reading agrees with it."""
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


def log_file(name: str, mapping: Any = None) -> Read:
    return lambda folder: reported(folder / name, mapping)


def read_mapping(folder: Path) -> bool:
    first, second = (reported(folder / "log.csv", folder / name) for name in ("m.toml", "m.json"))
    return first and second


def read_saved_log(folder: Path) -> bool:
    try:
        tl.Log.load(folder / "log", memory_map=True)
    except TidelogError:
        return False
    log = tl.Log.load(folder / "log")
    log.statistics()
    log.fingerprint()
    _ = log.reach, log.clusters, [len(one) for one in log.episodes], log.transitions[:3].next_observation
    return True


def read_interaction_table(folder: Path) -> bool:
    roles = {**ROLES, "item_features": folder / "f.csv"}
    report = check(folder / "log.csv", **roles)
    json.dumps(report.to_json())
    return report.ok and len(read_interactions(folder / "log.csv", **roles)) > 0


def read_saved_interactions(folder: Path) -> bool:
    log = tl.Interactions.load(folder / "log")
    text(log)
    _ = log.spec, log.histories(np.arange(len(log)), 4), log.fingerprint()
    return True


def policy_file(name: str, opened: Callable[[Path], Any] = load) -> Read:
    def read(folder: Path) -> bool:
        policy = opened(folder / name)
        repr(policy)
        policy.act({"observation": np.zeros((1, 2), np.float32)})
        return True

    return read


def read_record(folder: Path) -> bool:
    record = Record.read(folder)
    record.algorithms()
    read_rows(folder / "metrics.jsonl")
    read_tracker_runs(folder)
    return True


@cache
def table_logs() -> tuple[Any, Any]:
    """The log of the table, and one whose episodes have one step."""
    steps = {name: value for name, value in MAPPING.items() if name not in ("episode", "step", "time", "terminated")}
    return read_log(FRAME, MAPPING), read_log(FRAME, steps)


def read_propensity_files(folder: Path) -> bool:
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
    sweep = tl.Sweep(folder)
    sweep.plan.rungs()
    sweep.rows()
    return read_status(trial_folder(folder, 0)) == Status("standing", 2)


def read_config_file(folder: Path) -> bool:
    return bool(read_config(str(folder / "train.toml"), flags_of(tl.BC)))


@cache
def endpoint(lists: bool) -> Any:
    """What answers requests, for a policy that is trained in this process."""
    if lists:
        log: Any = read_interactions(FRAME, user="e", item="w", time="t")
        algorithm: Any = tl.RecommenderBCQ(size=4, history=4, targets=2)
    else:
        log, algorithm = read_log(FRAME, MAPPING), tl.BC(hidden=(4,))
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "policy"
        tl.fit(algorithm, log, 1, held_out=0.0, progress=False).policy().save(path)
        policy = load(path)
    return RecommendEndpoint(policy, 8) if lists else ActEndpoint(policy, 8)


def answer(lists: bool) -> Read:
    def read(folder: Path) -> bool:
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
    read_member(folder, 0)
    Checkpoints(folder / "checkpoints", 1).memory()
    return True


def read_judged(folder: Path) -> bool:
    verdicts = read_verdicts(folder / "verdicts")
    (saved,) = read_runs([folder])
    _ = saved.update, saved.done, saved.unit
    for verdict in saved.verdicts:
        _ = verdict.before, verdict.date, verdict.together, verdict.policy, verdict.episodes
    return bool(verdicts)


def read_declared(folder: Path) -> bool:
    _ = policy_of_run(folder).acting
    return True


def read_ledger(folder: Path) -> bool:
    ledger = Ledger.of(judged_log(), folder / "looks.jsonl")
    looks = ledger.looks
    ledger.check()
    ledger.record_look([{"name": "x", "algorithm": "x", "identity": "x"}], {})
    return len(looks) == 2


def read_json(folder: Path) -> bool:
    for name, kind in {"spec": Spec, "report": Report, "scaler": Scaler, "sketch": Sketch}.items():
        try:
            data = parse_json(read_text(folder / f"{name}.json"))
        except (OSError, ValueError):
            return False
        kind.from_json(data).to_json()  # type: ignore[attr-defined]
    return True


TOML = [f"{key} = {json.dumps(value)}" for key, value in MAPPING.items()]
TOML += ["actions = 3", "vocabularies = { w = ['er', 'home', 'icu'] }"]
CONFIG = ('data = ["log.csv"]', "steps = 100", "seeds = 2", "learning-rate = 3e-4", "hidden = [32, 32]", 'out = "run"',
          "overwrite = true")  # fmt: skip
ROWS = FRAME.select(episode=pl.int_range(pl.len()), estimated_propensity=pl.lit(0.5))
READERS: dict[str, Reader] = {
    "csv": Reader(written({"log.csv": CSV}), log_file("log.csv", MAPPING)),
    "csv.gz": Reader(written({"log.csv.gz": gzip.compress(CSV)}), log_file("log.csv.gz", MAPPING)),
    "jsonl": Reader(written({"log.jsonl": FRAME.write_ndjson()}), log_file("log.jsonl", MAPPING)),
    "parquet": Reader(written({"log.parquet": bytes_of(FRAME.write_parquet)}), log_file("log.parquet", MAPPING)),
    "arrow": Reader(written({"log.arrow": bytes_of(FRAME.write_ipc)}), log_file("log.arrow", MAPPING)),
    "npz": Reader(arrays(**{
        "observation/x": np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32),
        "observation/c": np.arange(6) % 3, "action": np.arange(6) % 2, "reward": np.ones(6, np.float32),
        "episode": np.arange(6) // 3, "terminated": np.arange(6) % 3 == 2, "action_mask": np.ones((6, 2), bool),
        "actions": np.asarray(2),
    }), log_file("log.npz")),
    "ogbench": Reader(arrays(
        observations=np.zeros((6, 2), np.float32), actions=np.zeros((6, 1), np.float32),
        terminals=np.arange(6) % 3 == 2, rewards=np.ones(6), masks=np.ones(6),
    ), log_file("log.npz")),
    "d4rl": Reader(datasets("log.hdf5", {
        "observations": np.zeros((6, 2), np.float32), "actions": np.zeros((6, 1), np.float32),
        "terminals": np.arange(6) == 2, "timeouts": np.arange(6) == 5, "rewards": np.arange(6.0),
    }, "rewards"), log_file("log.hdf5")),
    "minari": Reader(seed_minari, lambda folder: reported(folder, None)),
    "robomimic": Reader(datasets("log.hdf5", demonstrations()), log_file("log.hdf5")),
    "document": Reader(written({"log.json": json.dumps(FRAME.to_dicts())}), log_file("log.json", MAPPING)),
    "mapping": Reader(written({
        "log.csv": CSV, "m.toml": "\n".join(TOML), "m.json": json.dumps({**MAPPING, "actions": 3, "bounds": None}),
    }), read_mapping),
    "log": Reader(lambda folder: read_log(FRAME, {**MAPPING, "extra": ["l"]}).save(folder / "log"), read_saved_log),
    "interactions": Reader(seed_interactions, read_interaction_table),
    "saved interactions": Reader(seed_saved_interactions, read_saved_interactions),
    "policy": Reader(saved_policy("policy"), policy_file("policy")),
    "policy zip": Reader(saved_policy("policy.zip"), policy_file("policy.zip")),
    "run": Reader(seed_record, read_record),
    "checkpoint": Reader(seed_checkpoint, read_checkpoint),
    "json": Reader(seed_json, read_json),
    "policy, jax": Reader(saved_policy("policy"), policy_file("policy", load_policy)),
    "judged run": Reader(seed_judged, read_judged),
    "acting.json": Reader(seed_declared, read_declared),
    "ledger": Reader(seed_ledger, read_ledger),
    "propensities": Reader(written({
        "p.csv": FRAME.select(episode="e", step="s", propensity="p").write_csv(),
        "rows.parquet": bytes_of(ROWS.write_parquet),
    }), read_propensity_files),
    "signed policy": Reader(seed_signed, read_signed),
    "sweep": Reader(seed_sweep, read_sweep),
    "train.toml": Reader(written({"train.toml": "\n".join(CONFIG)}), read_config_file),
    "http act": Reader(seed_bodies(
        {"observation": {"o": 0.5, "w": "icu"}, "seed": 3},
        {"observations": [{"o": 1.5, "w": "er"}, {"o": None, "w": "home"}], "masks": [[True, True, False], [1, 1, 1]]},
    ), answer(lists=False)),
    "http recommend": Reader(seed_bodies(
        {"history": ["icu", "er"], "k": 2, "exclude_seen": False, "explain": True},
        {"histories": [["icu"], []], "k": 1, "exclude": ["er"], "candidates": ["er", "home"], "unknown": "skip"},
    ), answer(lists=True)),
}  # fmt: skip
