"""Random valid tables, every way to spoil them, and what the door must do: a log or a report, and nothing else."""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tidelog.data.inspect import describe_table, inspect_log
from tidelog.data.log import Log
from tidelog.data.read import read_log, validate
from tidelog.errors import LogError, TidelogError
from tidelog.report.data_page import data_page

Random = np.random.Generator
Mapping = dict[str, Any]
TABLES = (".csv", ".csv.gz", ".tsv", ".parquet", ".jsonl", ".arrow")
BINARY = (".parquet", ".arrow")  # read by Rust, which may end the process: damaged ones go to a process of their own


def table(rng: Random) -> tuple[pl.DataFrame, Mapping]:
    """A table that is a valid log, and its mapping; which roles and kinds it has is drawn."""
    lengths = rng.integers(1, 6, rng.integers(1, 8))
    rows, ends = int(lengths.sum()), np.cumsum(lengths) - 1
    last = np.isin(np.arange(rows), ends)
    names = [f"o{place}" for place in range(rng.integers(1, 4))]
    columns: dict[str, Any] = {name: rng.normal(size=rows) for name in names}
    columns |= {"ward": rng.choice(["icu", "er, east", 'the "hall"', "ü"], rows), "code": rng.integers(0, 5, rows)}
    mapping: Mapping = {"observation": [*names, "ward", "code"], "categorical": ["code"], "reward": "r", "episode": "e"}
    columns |= {"r": rng.normal(size=rows).round(3), "e": np.repeat(rng.permutation(len(lengths)), lengths)}
    columns["d"] = (last & (rng.random(rows) < 0.5)).astype(int)
    columns["s"] = np.arange(rows) - np.repeat(ends + 1 - lengths, lengths)
    columns |= {"p": rng.uniform(0.1, 1, rows).round(4), "t": np.arange(rows) * 60.0, "w": rng.random(rows)}
    mapping |= {"terminated": "d", "step": "s"}
    mapping |= {
        role: name for role, name in (("propensity", "p"), ("time", "t"), ("weight", "w")) if rng.random() < 0.5
    }
    actions, declared = _actions(rng, rows)
    mapping |= declared
    if rng.random() < 0.5:
        following = {f"next_{name}": np.roll(columns[name], -1) for name in mapping["observation"]}
        columns |= following
        mapping["next_observation"] = list(following)
    if mapping["action"] == "a" and "actions" in mapping and rng.random() < 0.5:
        masks = {f"m{place}": ((actions["a"] == place) | (rng.random(rows) < 0.6)).astype(int) for place in range(4)}
        columns |= masks
        mapping["action_mask"] = list(masks)
    return pl.DataFrame(columns | actions), mapping


def _actions(rng: Random, rows: int) -> tuple[dict[str, Any], Mapping]:
    kind = rng.choice(["declared", "words", "multi", "continuous"])
    if kind == "words":
        return {"a": rng.choice(["left", "right"], rows)}, {"action": "a"}
    if kind == "multi":
        return {"a0": rng.integers(0, 3, rows), "a1": rng.integers(0, 2, rows)}, {
            "action": ["a0", "a1"], "actions": [3, 2]}  # fmt: skip
    if kind == "continuous":
        return {"a": rng.uniform(-1, 1, rows)}, {"action": "a", "bounds": [-1, 1]}
    return {"a": rng.integers(0, 4, rows)}, {"action": "a", "actions": 4}


def write(frame: pl.DataFrame, path: Path) -> Path:
    """Write a table in the format of the path's ending."""
    text = frame if path.name.endswith(BINARY) else _flat(frame)
    if path.name.endswith(".csv.gz"):
        path.write_bytes(gzip.compress(text.write_csv().encode()))
    elif path.suffix == ".parquet":
        frame.write_parquet(path)
    elif path.suffix == ".arrow":
        frame.write_ipc(path)
    elif path.suffix == ".jsonl":
        text.write_ndjson(path)
    else:
        text.write_csv(path, separator="\t" if path.suffix == ".tsv" else ",")
    return path


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    """What can be written as text."""
    frame = frame.with_columns(pl.col(pl.Binary).cast(pl.String, strict=False), pl.col(pl.Duration).to_physical())
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    return frame.with_columns(
        pl.Series(name, [None if cell is None else str(cell.to_list()) for cell in frame[name]]) for name in lists
    )


ODD = ("", "NA", "nan", "inf", "-inf", "1e400", "1e39", "-1", "0.5", "7", "99999999999999999999", "x", "0x1f", "١٢",
       "True", "2020-02-30", "2020-01-01", "\x00", '"', "a,b", " 1 ", "1,0,1", "[]", "{}", "-0", "1_000", "é\ud800"[:1],
       "=1+1", "null")  # fmt: skip
TYPES = (pl.Int8, pl.Int64, pl.UInt32, pl.Float32, pl.Boolean, pl.String, pl.Date, pl.Datetime("ms"), pl.Categorical,
         pl.Duration("us"), pl.Binary, pl.Decimal(12, 2), pl.Time, pl.List(pl.Float64), pl.Null)  # fmt: skip


def _column(rng: Random, frame: pl.DataFrame) -> str:
    return str(rng.choice(frame.columns)) if frame.width else ""


def flip_cells(rng: Random, frame: pl.DataFrame) -> pl.DataFrame:
    name = _column(rng, frame)
    if not frame.height or frame[name].dtype.is_nested() or frame[name].dtype in (pl.Binary, pl.Null):
        return frame
    cells = frame[name].cast(pl.String, strict=False).to_list()
    for row in rng.integers(0, len(cells), rng.integers(1, 3)):
        cells[row] = None if rng.random() < 0.1 else str(rng.choice(ODD))
    return frame.with_columns(pl.Series(name, cells, pl.String))


def fill_column(rng: Random, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.lit(str(rng.choice(ODD))).alias(_column(rng, frame)))


def drop_column(rng: Random, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.drop(_column(rng, frame)) if frame.width > 1 else frame


def swap_columns(rng: Random, frame: pl.DataFrame) -> pl.DataFrame:
    one, other = _column(rng, frame), _column(rng, frame)
    return frame if one == other else frame.rename({one: other, other: one})


def shuffle_rows(rng: Random, frame: pl.DataFrame) -> pl.DataFrame:
    return frame[rng.permutation(frame.height)] if frame.height else frame


def repeat_rows(rng: Random, frame: pl.DataFrame) -> pl.DataFrame:
    return frame[rng.integers(0, frame.height, frame.height)] if frame.height else frame


def cut_rows(rng: Random, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.head(int(rng.integers(0, frame.height + 1)))


def wrong_type(rng: Random, frame: pl.DataFrame) -> pl.DataFrame:
    name, kind = _column(rng, frame), TYPES[rng.integers(len(TYPES))]
    try:
        return frame.with_columns(frame[name].cast(kind, strict=False))
    except pl.exceptions.PolarsError:
        return frame


def scale_column(rng: Random, frame: pl.DataFrame) -> pl.DataFrame:
    name = _column(rng, frame)
    factor = float(rng.choice([1e-300, -1.0, 1e10, 1e30, 1e300]))
    return frame.with_columns(pl.col(name) * factor) if frame[name].dtype.is_float() else frame


TABLE_DAMAGE: dict[str, Callable[[Random, pl.DataFrame], pl.DataFrame]] = {
    one.__name__: one
    for one in (flip_cells, fill_column, drop_column, swap_columns, shuffle_rows, repeat_rows, cut_rows, wrong_type,
                scale_column)
}  # fmt: skip


def flip_bytes(rng: Random, content: bytes) -> bytes:
    flipped = bytearray(content)
    for place in rng.integers(0, len(content), rng.integers(1, 4)) if content else ():
        flipped[place] = rng.integers(256)
    return bytes(flipped)


def write_number(rng: Random, content: bytes) -> bytes:
    """A count or a size of the file becomes very large or negative."""
    number = int(rng.choice([-1, -300, 1 << 31, 1 << 40, 1 << 61])).to_bytes(8, "little", signed=True)
    place = int(rng.integers(0, len(content) + 1)) & ~7
    return content[:place] + number + content[place + 8 :]


def cut_bytes(rng: Random, content: bytes) -> bytes:
    return content[: rng.integers(0, len(content) + 1)]


def insert_bytes(rng: Random, content: bytes) -> bytes:
    place = int(rng.integers(0, len(content) + 1))
    return content[:place] + rng.bytes(int(rng.integers(1, 9))) + content[place:]


def move_bytes(rng: Random, content: bytes) -> bytes:
    first, second = sorted(rng.integers(0, len(content) + 1, 2))
    return content[second:] + content[first:second] + content[:first]


def other_encoding(rng: Random, content: bytes) -> bytes:
    kind = str(rng.choice(["utf-16", "utf-32", "latin-1", "cp1252", "utf-8-sig", "utf-16-le"]))
    return content.decode("utf-8", "replace").encode(kind, "replace")


BYTE_DAMAGE: dict[str, Callable[[Random, bytes], bytes]] = {
    one.__name__: one for one in (flip_bytes, write_number, cut_bytes, insert_bytes, move_bytes, other_encoding)
}


def outcome(path: Path, mapping: Mapping | None, thorough: bool = False) -> str:
    """`valid` or `caught`; AssertionError where report and log disagree, any other exception is the door's fault."""
    report = validate(path, mapping)
    json.dumps(report.to_json())
    if thorough:
        _describe(path, mapping)
    try:
        log = read_log(path) if mapping is None else read_log(path, mapping)
    except LogError as error:
        if report.ok or error.report != report:
            raise AssertionError(f"refused, but the report says\n{report.text()}") from error
        return "caught"
    if not report.ok:
        raise AssertionError(f"read, but the report says\n{report.text()}")
    if thorough:
        inspect_log(log).text()
        data_page(report, log)
    return "valid" if log.fingerprint() and log.statistics().steps == log.steps else "empty"


def _describe(path: Path, mapping: Mapping | None) -> None:
    if mapping is not None:
        try:
            described = describe_table(path)
        except TidelogError:
            return
        described.text()
        data_page(described.as_report(), None, described)


def opened(path: Path, memory_map: bool, fingerprint: str) -> str:
    """The same for a saved log with this fingerprint."""
    try:
        log = Log.load(path, memory_map)
    except TidelogError:
        return "caught"
    return "valid" if memory_map or log.fingerprint() == fingerprint else "another log"


class Elsewhere:
    """`outcome` in a process of its own; a process that ends is an outcome too, and the next has a new one."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def outcome(self, path: Path, mapping: Mapping | None, thorough: bool = False) -> str:
        if self.process is None:
            words = [sys.executable, "-m", "tests.data.damage"]
            self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.DEVNULL, text=True)  # fmt: skip
        print(json.dumps([str(path), mapping, thorough]), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline() if self.process.stdout else ""
        if answer:
            return str(json.loads(answer))
        code = self.process.wait()
        self.close()
        return f"the process ended with {code}"

    def close(self) -> None:
        if self.process is not None:
            for stream in (self.process.stdin, self.process.stdout):
                if stream is not None:
                    stream.close()
            self.process.wait()
            self.process = None


def serve() -> None:
    """Answer questions of `Elsewhere`, one a line."""
    for line in sys.stdin:
        path, mapping, thorough = json.loads(line)
        try:
            answer = outcome(Path(path), mapping, thorough)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
