"""All table sources agree, and say the same rows, on the same underlying log."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tests.data.visits import MASKS, NEXT, mapping, visits, with_next
from tidelog.data.columns import Columns
from tidelog.data.log import Log
from tidelog.data.read import read_log, validate

FRAME = with_next(visits()).with_columns(t=pl.lit("2020-02-01 10:00:00").str.to_datetime() + pl.duration(hours="hour"))
MAPPING = mapping(next_observation=NEXT, time="t", extra=["sofa"])
EXPECTED = read_log(FRAME, MAPPING)


def csv(tmp_path: Path) -> Any:
    FRAME.write_csv(tmp_path / "a.csv")
    return tmp_path / "a.csv"


def csv_as_spreadsheets_write_it(tmp_path: Path) -> Any:
    text = FRAME.write_csv(quote_style="always").replace("\n", "\r\n")
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    return str(tmp_path / "a.csv")


def csv_with_unnamed_index(tmp_path: Path) -> Any:
    FRAME.with_row_index("").write_csv(tmp_path / "a.csv")
    return tmp_path / "a.csv"


def zipped(tmp_path: Path) -> Any:
    (tmp_path / "a.CSV.gz").write_bytes(gzip.compress(FRAME.write_csv().encode()))
    return tmp_path / "a.CSV.gz"


def tsv(tmp_path: Path) -> Any:
    FRAME.write_csv(tmp_path / "a.tsv", separator="\t")
    return tmp_path / "a.tsv"


def parquet(tmp_path: Path) -> Any:
    FRAME.write_parquet(tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def pandas(tmp_path: Path) -> Any:
    return pd.DataFrame(FRAME.to_dict(as_series=False))


def pandas_nullable(tmp_path: Path) -> Any:
    frame = pd.DataFrame(FRAME.to_dict(as_series=False))
    return frame.astype({"hour": "Int64", "ward": "category", "died": "boolean", "patient": object, "age": "Float64"})


def lazy(tmp_path: Path) -> Any:
    return FRAME.lazy()


@pytest.mark.parametrize(
    "source",
    [csv, csv_as_spreadsheets_write_it, csv_with_unnamed_index, zipped, tsv, parquet, pandas, pandas_nullable, lazy],
)
def test_all_tables_agree(source: Any, tmp_path: Path) -> None:
    log = read_log(source(tmp_path), MAPPING)
    assert log.spec == EXPECTED.spec
    assert log.fingerprint() == EXPECTED.fingerprint()


def arrays() -> dict[str, Any]:
    table = FRAME.to_dict()
    return {
        "observation": {"numeric": FRAME["age", "sofa"].to_numpy(),
                        "categorical": FRAME["ward"].to_numpy().astype(str)},
        "next_observation": {"numeric": FRAME["next_age", "next_sofa"].to_numpy(),
                             "categorical": FRAME["next_ward"].to_numpy().astype(str)},
        "action": table["dose"].to_numpy(), "actions": 3, "reward": table["r"].to_numpy(),
        "episode": FRAME["patient"].to_numpy().astype(str), "step": table["hour"].to_numpy(),
        "terminated": table["died"].to_numpy(), "truncated": table["left"].to_numpy(),
        "propensity": table["p"].to_numpy(), "action_mask": FRAME[MASKS].to_numpy().astype(bool),
        "time": table["t"].to_numpy(),
    }  # fmt: skip


def flat(given: dict[str, Any]) -> dict[str, Any]:
    leaves = {
        f"{role}/{name}": leaf for role in ("observation", "next_observation") for name, leaf in given[role].items()
    }
    return leaves | {name: value for name, value in given.items() if not isinstance(value, dict)}


def test_arrays_and_npz_agree_with_the_tables(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **flat(arrays()))
    logs = [Log.from_arrays(**arrays()), read_log(tmp_path / "a.npz")]
    logs[0].save(tmp_path / "a.tidelog")
    assert validate(tmp_path / "a.npz").ok
    for log in (*logs, Log.load(tmp_path / "a.tidelog")):
        for name, values in log.columns().items():
            np.testing.assert_array_equal(values, EXPECTED.columns()[name], err_msg=name)
        assert log.spec.observation["categorical"].vocabularies == EXPECTED.spec.observation["categorical"].vocabularies


def test_masks_may_be_one_column(tmp_path: Path) -> None:
    rows = FRAME[MASKS].rows()
    forms = {
        "text": pl.Series([",".join(map(str, row)) for row in rows]),
        "brackets": pl.Series([str(list(row)) for row in rows]),
        "list": pl.Series([list(row) for row in rows]),
        "words": pl.Series([" ".join(str(bool(flag)) for flag in row) for row in rows]),
    }
    frame = FRAME.with_columns(**forms)
    for name in forms:
        assert read_log(frame, mapping(action_mask=name)).fingerprint() == read_log(frame, mapping()).fingerprint()


def test_lists_of_numbers_become_dimensions() -> None:
    frame = pl.DataFrame({"o": [[1.0, 2.0], [3.0, 4.0]], "a": [[0.5], [0.7]], "r": [1, 2]})
    log = read_log(frame, {"observation": "o", "action": "a", "reward": "r"})
    assert log.spec.observation["numeric"].names == ("o[0]", "o[1]")
    np.testing.assert_array_equal(log.observation["numeric"], [[1, 2], [3, 4]])
    np.testing.assert_array_equal(log.action, np.array([[0.5], [0.7]], np.float32))


@pytest.mark.parametrize(
    ("actions", "settings", "expected"),
    [
        (["0", "1", "2", "1"], {}, "Discrete(n=3, names=())"),
        (["0", "1", "2", "1"], {"actions": 5}, "Discrete(n=5, names=())"),
        (["0.0", "1.0", "2.0", "1.0"], {"actions": 5}, "Discrete(n=5, names=())"),
        (["0", "1", "2", "1"], {"bounds": (0, 3)}, "Continuous(low=(0.0,), high=(3.0,), names=('a',))"),
        (["0.5", "1", "2", "1"], {}, "Continuous(low=(0.5,), high=(2.0,), names=('a',))"),
        (["up", "down", "up", "left"], {}, "Discrete(n=3, names=('down', 'left', 'up'))"),
    ],
)
def test_the_kind_of_one_action_column(actions: list[str], settings: dict[str, Any], expected: str) -> None:
    frame = pl.DataFrame({"o": [1.0, 2, 3, 4], "a": actions})
    log = read_log(frame, Columns(observation="o", action="a", reward=None, **settings))
    assert repr(log.spec.action) == expected


def test_several_action_columns() -> None:
    frame = pl.DataFrame({"o": [1.0, 2, 3, 4], "a": [0, 1, 2, 1], "b": [0, 1, 0, 1]})
    several = Columns(observation="o", action=["a", "b"], reward=None, actions=[3, 2])
    assert repr(read_log(frame, several).spec.action) == "MultiDiscrete(sizes=(3, 2))"
    vector = Columns(observation="o", action=["a", "b"], reward=None, bounds=([0, 0], [2, 1]))
    assert repr(read_log(frame, vector).spec.action) == "Continuous(low=(0.0, 0.0), high=(2.0, 1.0), names=('a', 'b'))"


def test_declared_categories_keep_their_words_and_numbers_stay_numbers() -> None:
    frame = pl.DataFrame({"code": [10, 2, 10], "flag": ["True", "False", "True"], "a": [0, 1, 0]})
    log = read_log(frame, Columns(observation=["code", "flag"], action="a", reward=None, categorical="code"))
    assert log.spec.observation["categorical"].vocabularies == (("10", "2"),)
    np.testing.assert_array_equal(log.observation["numeric"][:, 0], [1, 0, 1])


def test_a_name_that_stands_twice_matters_only_where_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",,o,a\n1,1,2,0\n2,2,3,1\n")
    assert validate(path, Columns(observation="o", action="a", reward=None)).ok
    frame = pd.DataFrame([[1, 2, 0], [3, 4, 1]], columns=["o", "o", "a"])
    report = validate(frame, Columns(observation="o", action="a", reward=None))
    assert [problem.check for problem in report.errors] == ["duplicate column name"]


def test_time_zones_are_told_apart() -> None:
    times = ["2020-01-01 01:00:00+01:00", "2020-01-01T00:00:01Z", "2020-01-01 00:00:02", "1577836803"]
    for column in (times[:3], [str(1577836800 + second) for second in range(3)]):
        frame = pl.DataFrame({"t": column, "e": [1, 1, 1], "o": [1.0, 2, 3], "a": [0, 1, 0]})
        log = read_log(frame, Columns(observation="o", action="a", reward=None, episode="e", time="t"))
        seconds = log.time.astype("datetime64[s]").astype(int) if log.time.dtype.kind == "M" else log.time
        np.testing.assert_array_equal(seconds, 1577836800 + np.arange(3))
    aware = FRAME["t"].dt.replace_time_zone("Europe/Berlin")
    log = read_log(FRAME.with_columns(t=aware), MAPPING)
    np.testing.assert_array_equal(log.time, EXPECTED.time - np.timedelta64(1, "h"))
    assert not validate(pl.DataFrame({"t": times, "o": [1.0, 2, 3, 4], "a": [0, 1, 0, 1]}),
                        Columns(observation="o", action="a", reward=None, time="t")).ok  # fmt: skip


def test_a_column_named_twice_is_seen_twice() -> None:
    frame = pl.DataFrame({"o": [1.0, 2.0, 3.0], "p": [4, 5, 6], "a": [0, 1, 0]})
    log = read_log(frame, Columns(observation=["o", "p", "o"], action="a", reward=None))
    np.testing.assert_array_equal(log.observation["numeric"], [[1, 4, 1], [2, 5, 2], [3, 6, 3]])


def test_episodes_that_come_again_are_put_together() -> None:
    frame = pl.DataFrame({"e": [5, 5, 3, 5, 3], "t": [0, 2, 0, 1, 1], "o": [0.0, 2, 3, 1, 4], "a": [0, 1, 0, 1, 0]})
    log = read_log(frame, Columns(observation="o", action="a", reward=None, episode="e", step="t"))
    np.testing.assert_array_equal(log.observation["numeric"][:, 0], np.arange(5))
    assert log.episode_ids.tolist() == [5, 3]
    assert log.step.tolist() == [0, 1, 2, 0, 1]
