"""A saved log is the same log, and a damaged one is refused by the name of the damaged file."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.data.visits import NEXT, mapping, visits, with_next
from tidelog._files import Kind
from tidelog.data.log import Log
from tidelog.data.read import read_log
from tidelog.data.statistics import Scaler, Sketch
from tidelog.data.storage import LOG, write_array
from tidelog.errors import CheckpointError, LogError, SpecError
from tidelog.recommend.interactions import INTERACTIONS, Interactions
from tidelog.recommend.read import read_interactions
from tidelog.types import Spec


@pytest.fixture
def log() -> Log:
    return read_log(with_next(visits()), mapping(next_observation=NEXT, extra=["age", "ward"], time="hour"))


def test_an_existing_target_is_refused_and_left_alone(log: Log, tmp_path: Path) -> None:
    log.save(tmp_path / "a")
    other = log.take_episodes([0])
    with pytest.raises(LogError, match="exists"):
        other.save(tmp_path / "a")
    assert Log.load(tmp_path / "a").steps == log.steps
    other.save(tmp_path / "a", overwrite=True)
    assert Log.load(tmp_path / "a").steps == 3
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    with pytest.raises(LogError, match="not a tidelog log"):
        log.save(tmp_path / "mine", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "mine"]


@pytest.mark.parametrize("memory_map", [False, True])
@pytest.mark.parametrize("damage", ["cut", "missing", "longer"])
@pytest.mark.sample(every=3)
def test_damaged_columns_are_named(log: Log, tmp_path: Path, damage: str, memory_map: bool) -> None:
    log.save(tmp_path / "a")
    for file in sorted((tmp_path / "a").glob("*.npy")):
        content = file.read_bytes()
        file.unlink()
        if damage != "missing":
            file.write_bytes(content[:-1] if damage == "cut" else content + b"\0")
        with pytest.raises(LogError, match=file.name):
            Log.load(tmp_path / "a", memory_map=memory_map)
        file.write_bytes(content)
    assert Log.load(tmp_path / "a", memory_map=memory_map).fingerprint() == log.fingerprint()


def test_one_changed_bit_is_noticed(log: Log, tmp_path: Path) -> None:
    log.save(tmp_path / "a")
    for file in sorted((tmp_path / "a").iterdir()):
        content = bytearray(file.read_bytes())
        content[-20] ^= 1
        original = file.read_bytes()
        file.write_bytes(bytes(content))
        with pytest.raises(LogError, match=file.name):
            Log.load(tmp_path / "a")
        file.write_bytes(original)


def test_foreign_folders_and_other_versions_are_refused(log: Log, tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"manifest\.json"):
        Log.load(tmp_path / "nothing")
    log.save(tmp_path / "a")
    file = tmp_path / "a" / "manifest.json"
    manifest = json.loads(file.read_text())
    for change, said in (
        ({"schema": 3}, r"schema\s+version 3"),
        ({"kind": "x"}, r"its\s+kind\s+is\s+'x'"),
        ({"spec": {}}, r"checksum\s+differs"),
    ):
        file.write_text(json.dumps({**manifest, **change}))
        with pytest.raises(LogError, match=said):
            Log.load(tmp_path / "a")
    file.write_text(json.dumps(manifest)[:-50])
    with pytest.raises(LogError, match=r"is\s+incomplete"):
        Log.load(tmp_path / "a")


# Folders with right checksums and wrong contents, as anyone can write them.

Arrays = dict[str, np.ndarray]
Change = Callable[[dict[str, Any], Arrays], None]


def rewritten(folder: Path, kind: Kind, change: Change) -> Path:
    """The same folder after a change of its manifest and of its arrays by column, with the checksums of the change."""
    body = kind.manifest(folder)
    names = {entry["column"]: entry["file"] for entry in body["columns"]}
    arrays = {name: np.load(folder / file) for name, file in names.items()}
    del body["files"], body["kind"], body["schema"]
    change(body, arrays)
    for one in body["columns"] if isinstance(body["columns"], list) else []:
        if isinstance(one, dict) and "shape" in one and isinstance(one["shape"], list):
            values = arrays[one["column"]]
            one |= {"dtype": values.dtype.str, "shape": list(values.shape)}
    kind.write(folder, {names[name]: partial(write_array, values) for name, values in arrays.items()}, body)
    return folder


def put(name: str, place: Any, value: Any) -> Change:
    def change(body: dict[str, Any], arrays: Arrays) -> None:
        arrays[name][place] = value

    return change


def cast(name: str, kind: str) -> Change:
    return lambda body, arrays: arrays.update({name: arrays[name].astype(kind)})


def cut(name: str) -> Change:
    return lambda body, arrays: arrays.update({name: arrays[name][:-1]})


def manifest(**changes: Any) -> Change:
    return lambda body, arrays: body.update(changes)


def entry(**changes: Any) -> Change:
    return lambda body, arrays: body["columns"][0].update(changes)


def fewer_observations(body: dict[str, Any], arrays: Arrays) -> None:
    for name in ("observation/numeric", "observation/categorical", "action_mask"):
        arrays[name] = arrays[name][:-1]


FATAL = {"level": "fatal", "check": "x", "column": None, "rows": [], "count": 0, "found": "", "expected": "", "fix": ""}
STRUCTURE = {
    "flags as numbers": cast("terminated", "u1"), "positions as floats": cast("position", "f4"),
    "actions as floats": cast("action", "f4"), "observations as codes": cast("observation/numeric", "i4"),
    "codes as floats": cast("observation/categorical", "f4"), "fewer flags": cut("truncated"),
    "fewer observations": cut("observation/numeric"), "fewer masks": cut("action_mask"),
    "fewer extras": cut("extra/age"),
    "no columns": manifest(columns=[]), "columns of another type": manifest(columns={"a": 1}),
    "columns that are no entries": manifest(columns=[1]), "no spec": manifest(spec=None),
    "another space": manifest(spec={"observation": {}, "action": {"kind": "Path"}, "rewards": None, "masked": False}),
    "no report": manifest(report=[]),
    "a report in surrogates": manifest(report={"\ud800": 1, "source": "", "rows": 1, "problems": []}),
    "a key in surrogates": manifest(**{"\ud800": 1}),
    "another level": manifest(report={"source": "", "rows": 1, "problems": [FATAL]}),
    "a unit of another type": manifest(reward_unit=3), "an unknown key": entry(place=1),
    "a shape of text": entry(shape="3"),
    "a path": entry(file="/etc/passwd"), "a folder above": entry(file="../x.npy"),
    "a folder below": entry(file="x/y.npy"),
}  # fmt: skip
CONTENTS = {
    "an episode skipped": put("episode", slice(3, None), 5), "an episode that returns": put("episode", -1, 0),
    "a step skipped": put("step", 1, 7), "a position beyond the end": put("next_position", -1, 10**6),
    "a negative position": put("position", 1, -1), "an early end": put("terminated", 0, True),
    "an action out of range": put("action", 2, 3), "a negative action": put("action", 2, -1),
    "a code out of range": put("observation/categorical", (1, 0), 99),
    "NaN": put("observation/numeric", (1, 0), np.nan),
    "an infinite reward": put("reward", 1, np.inf), "a propensity of 0": put("propensity", 1, 0.0),
    "one observation fewer everywhere": fewer_observations,
    "an action masked out": put("action_mask", (0, slice(None)), False),
}  # fmt: skip


@pytest.mark.parametrize("case", [*STRUCTURE, *CONTENTS])
@pytest.mark.sample(every=5)
def test_wrong_contents_with_right_checksums_are_refused(case: str, log: Log, tmp_path: Path) -> None:
    log.save(tmp_path / "a")
    rewritten(tmp_path / "a", LOG, lambda body, arrays: None)
    assert Log.load(tmp_path / "a").fingerprint() == log.fingerprint()
    rewritten(tmp_path / "a", LOG, (STRUCTURE | CONTENTS)[case])
    for memory_map in (False, True) if case in STRUCTURE else (False,):
        with pytest.raises(LogError) as caught:
            Log.load(tmp_path / "a", memory_map=memory_map)
        assert caught.value.report.errors[0].check == "unreadable file"


@pytest.mark.parametrize("name", ["/etc/passwd", "../a.npy", "b/c.npy", "..", "", "a\0b"])
def test_a_manifest_names_only_files_of_its_folder(name: str) -> None:
    facts: dict[str, Any] = {"bytes": 3, "sha256": "x"}
    assert LOG.read(LOG.text({}, {"a.npy": facts}), "manifest")["files"] == {"a.npy": facts}
    wrong = [{"bytes": "3", "sha256": "x"}, {"bytes": 3}, None, {"bytes": True, "sha256": "x"}]
    for files in ({name: facts}, *({"a.npy": one} for one in wrong)):
        with pytest.raises(LogError, match="expected names of files"):
            LOG.read(LOG.text({}, files), "manifest")


EVENTS = pl.DataFrame({"u": [1, 1, 1, 2, 2], "i": ["a", "b", "a", "c", "b"], "t": [1.0, 2, 3, 1, 2]})
NAMES = {"events": ["event"], "feature_names": ["f"], "session_gap": None, "profile": None}
WRONG = {
    "an item of 0": put("item", 0, 0), "an item too many": put("item", 0, 4), "a user too many": put("user", -1, 2),
    "a user that returns": put("user", 1, 1), "an event too many": put("event", 0, 2),
    "a falling time": put("time", 2, 0),
    "NaN": put("reward", 0, np.nan), "an id twice": put("items", 0, "b"), "fewer rewards": cut("reward"),
    "features of other items": cut("item_features"), "items as floats": cast("item", "f4"), "names": manifest(names=[]),
    "no kinds of events": manifest(names={**NAMES, "events": []}), "a path": entry(file="/etc/passwd"),
    "a gap of text": manifest(names={**NAMES, "session_gap": "1"}),
    "another profile": manifest(names={**NAMES, "profile": {"columns": ["x"], "words": [], "mean": [], "spread": []}}),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.sample(every=4)
def test_wrong_interactions_with_right_checksums_are_refused(case: str, tmp_path: Path) -> None:
    features = pl.DataFrame({"i": ["a", "b", "c"], "f": [1.0, 2.0, 3.0]})
    log = read_interactions(EVENTS, user="u", item="i", time="t", item_features=features)
    log.save(tmp_path / "a")
    rewritten(tmp_path / "a", INTERACTIONS, lambda body, arrays: None)
    assert Interactions.load(tmp_path / "a").fingerprint() == log.fingerprint()
    rewritten(tmp_path / "a", INTERACTIONS, WRONG[case])
    with pytest.raises(LogError) as caught:
        Interactions.load(tmp_path / "a")
    assert caught.value.report.errors[0].check == "unreadable file"


SCALES = {"observation": {"x": {"mean": [0.0], "std": [1.0]}}, "reward_scale": 1.0, "reward_shift": [0.5, 1.0],
          "reward_steps": 1, "starts_at_mean": False}  # fmt: skip
SKETCH = {"episodes": 2, "rewards": True, "smallest": "00" * 7 + "01" + "00" * 7 + "02"}
WRONG_SCALES: list[dict[str, Any]] = [
    {"reward_scale": "\ud800"}, {"\ud800": 1}, {"observation": {"\ud800": {"\ud801": 1}}},
    {"observation": []}, {"observation": {"x": {"mean": [0.0]}}}, {"reward_scale": "1"}, {"reward_shift": None},
    {"observation": {"x": {"mean": [0.0], "std": [0.0]}}}, {"observation": {"x": {"mean": [1e39], "std": [1.0]}}},
    {"observation": {"x": {"mean": [0.0, 1.0], "std": [1.0]}}}, {"more": 1}, {"reward_scale": float("nan")},
    {"reward_scale": 0.0}, {"reward_shift": ["1"]}, {"reward_steps": -1}, {"reward_steps": 0.5}, {"starts_at_mean": 1},
]  # fmt: skip
WRONG_SKETCHES: list[dict[str, Any]] = [
    {"smallest": "\ud800"}, {"\ud800": 1},
    {"episodes": "2"}, {"episodes": 1}, {"episodes": 0}, {"smallest": "zz"}, {"smallest": "00"}, {"smallest": ""},
    {"smallest": "00" * 7 + "02" + "00" * 7 + "01"}, {"rewards": 1}, {"more": 1},
]  # fmt: skip


@pytest.mark.parametrize(
    ("read", "sound", "changes"),
    [(Scaler.from_json, SCALES, WRONG_SCALES), (Sketch.from_json, SKETCH, WRONG_SKETCHES)],
)
def test_json_that_this_program_wrote_is_read_with_its_types(
    read: Callable[[Any], Any], sound: dict[str, Any], changes: list[dict[str, Any]]
) -> None:
    assert read(sound).to_json() == sound
    for wrong in [*({**sound, **change} for change in changes), None, [], "x", 1]:
        with pytest.raises(CheckpointError):
            read(wrong)


def test_every_field_of_a_spec_has_its_type(log: Log) -> None:
    sound = log.spec.to_json()
    assert Spec.from_json(sound) == log.spec
    leaves = sound["observation"]
    wrong: list[Any] = [
        {**sound, "\ud800": 1, "rewards": "\ud800"},
        None,
        [],
        "x",
        {},
        {**sound, "rewards": "1"},
        {**sound, "masked": 1},
        {**sound, "elapsed_unit": 1},
        {**sound, "observation": {}},
    ]
    for value in (None, -1, "x", [1.5], {"a": 1}, [[]]):
        wrong += [{**sound, "action": {**sound["action"], field: value}} for field in sound["action"]]
        pairs = [(name, leaf, field) for name, leaf in leaves.items() for field in leaf if field != "vocabularies"]
        wrong += [{**sound, "observation": {**leaves, name: {**leaf, field: value}}} for name, leaf, field in pairs]
    for data in wrong:
        with pytest.raises(SpecError):
            Spec.from_json(data)
