"""All table sources agree, and say the same rows, on the same underlying log."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tests.data.visits import NEXT, mapping, visits, with_next
from tidelog.data.columns import Columns
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


def test_a_column_named_twice_is_seen_twice() -> None:
    frame = pl.DataFrame({"o": [1.0, 2.0, 3.0], "p": [4, 5, 6], "a": [0, 1, 0]})
    log = read_log(frame, Columns(observation=["o", "p", "o"], action="a", reward=None))
    np.testing.assert_array_equal(log.observation["numeric"], [[1, 4, 1], [2, 5, 2], [3, 6, 3]])
