"""JSON lines and Arrow: they agree with the other tables, and broken lines are named."""

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.data.visits import MASKS, NEXT, mapping, visits, with_next
from tidelog.data.formats import LINE_ENDINGS, TABLES
from tidelog.data.read import read_log, validate
from tidelog.errors import LogError

FRAME = with_next(visits())
MAPPING = mapping(next_observation=NEXT, extra=["sofa"])
EXPECTED = read_log(FRAME, MAPPING)


def lines(frame: pl.DataFrame = FRAME) -> bytes:
    return "\n".join(json.dumps(row) for row in frame.to_dicts()).encode()


def packed(path: Path) -> Path:
    path.write_bytes(gzip.compress(lines()))
    return path


def plain(path: Path) -> Path:
    path.write_bytes(b"\xef\xbb\xbf" + lines().replace(b"\n", b"\r\n\r\n") + b"\n")
    return path


def arrow(path: Path) -> Path:
    FRAME.write_ipc(path)
    return path


def stream(path: Path) -> Path:
    FRAME.write_ipc_stream(path)
    return path


@pytest.mark.parametrize(
    ("write", "name"),
    [(plain, "a.jsonl"), (plain, "a.ndjson"), (packed, "a.jsonl.gz"), (arrow, "a.arrow"), (arrow, "a.feather"),
     (arrow, "a.ipc"), (stream, "a.arrow")],
)  # fmt: skip
def test_they_agree_with_the_table(write: Any, name: str, tmp_path: Path) -> None:
    assert read_log(write(tmp_path / name), MAPPING).fingerprint() == EXPECTED.fingerprint()


def test_inner_objects_become_columns_with_dots(tmp_path: Path) -> None:
    rows = [
        {"patient": row["patient"], "hour": row["hour"], "seen": {"age": row["age"], "lab": {"sofa": row["sofa"]}},
         "ward": row["ward"], "dose": row["dose"], "r": row["r"], "died": bool(row["died"]), "left": row["left"],
         "p": row["p"], "allowed": [row[name] for name in MASKS]}
        for row in visits().to_dicts()
    ]  # fmt: skip
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    log = read_log(path, mapping(observation=["seen.age", "seen.lab.sofa", "ward"], action_mask="allowed"))
    flat = read_log(visits(), mapping())
    assert log.spec.observation["numeric"].names == ("seen.age", "seen.lab.sofa")
    for name, values in log.columns().items():
        assert values.tobytes() == flat.columns()[name].tobytes(), name


def test_keys_that_lack_are_missing_and_odd_kinds_are_found_at_their_lines(tmp_path: Path) -> None:
    rows = visits().to_dicts()
    del rows[3]["age"]
    rows[5]["r"] = "much"
    rows[7]["sofa"] = [1, 2]
    rows[8]["p"] = float("nan")
    rows[9]["hour"] = 10**400
    path = tmp_path / "a.jsonl"
    path.write_text("\n\n".join(map(json.dumps, rows)))
    found = {(one.check, one.column): one.rows for one in validate(path, mapping()).errors}
    assert found[("missing value", "age")] == (7,)
    assert found[("non-numeric text", "r")] == (11,)
    assert found[("non-numeric text", "sofa")] == (15,)
    assert found[("NaN or infinity", "p")] == (17,)
    assert found[("NaN or infinity", "hour")] == (19,)


@pytest.mark.parametrize(
    ("broken", "rows"),
    [
        (lines()[:-20], (39,)),
        (lines().replace(b"\n", b"\n[1, 2]\n", 1), (2,)),
        (lines().replace(b'"hour"', b"hour", 2), (1, 2)),
        (b'{"a.b": 1, "a": {"b": 2}}', (1,)),
        (b'{"a": ' + b"[" * 100_000 + b"\n", (1,)),
        (b"\xff\xfe" + "{}".encode("utf-16-le"), ()),
        (b"\n \n", ()),
        (b"{}", ()),
        (b'{"a": "\\ud800"}', ()),
    ],
)
def test_broken_lines_are_a_report(broken: bytes, rows: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(broken)
    problem = validate(path, mapping()).errors[0]
    assert (problem.check, problem.rows) == ("unreadable file", rows)
    with pytest.raises(LogError, match="unreadable file"):
        read_log(path, mapping())


def test_every_kind_of_text_may_be_packed_in_every_way():
    packed = {f"{ending}{pack}" for ending in (".csv", ".tsv", ".jsonl", ".ndjson", ".dsjson", ".json")
              for pack in ("", ".gz", ".bz2", ".xz", ".zip", ".zst")}  # fmt: skip
    assert packed <= set(TABLES)
    assert {ending for ending in packed if TABLES[ending].settings == ("explode",)} == set(LINE_ENDINGS)
