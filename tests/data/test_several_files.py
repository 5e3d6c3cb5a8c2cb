"""Several files are one log and one report: rows keep their file, and files that differ are named."""

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tidelog as tl
from tests.data.clicks import ROLES, clicks
from tests.data.test_checks import put
from tests.data.visits import mapping, visits
from tests.shared import shared
from tidelog.data.inspect import describe_table
from tidelog.data.raw import Report
from tidelog.data.read import quarantine, read_log, validate
from tidelog.errors import ConfigError, LogError
from tidelog.recommend.read import reopen_any

ENDINGS = (".csv", ".csv.gz", ".parquet", ".jsonl", ".arrow")
CUT = 14  # within the seventh episode


def write(frame: pl.DataFrame, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = path.suffix if path.suffix != ".gz" else ".csv"
    if path.name.endswith(".csv.gz"):
        path.write_bytes(gzip.compress(frame.write_csv().encode()))
    else:
        {".csv": frame.write_csv, ".parquet": frame.write_parquet, ".jsonl": frame.write_ndjson,
         ".arrow": frame.write_ipc}[kind](path)  # fmt: skip
    return path


def parts(folder: Path, ending: str = ".csv", *frames: pl.DataFrame) -> list[Path]:
    """Two files whose rows are those of `visits()`; the second begins within an episode."""
    frames = frames or (visits()[:CUT], visits()[CUT:])
    return [write(frame, folder / f"2026-{i}" / f"part-{i}{ending}") for i, frame in enumerate(frames)]


@pytest.mark.parametrize("ending", ENDINGS)
def test_files_folders_and_globs_are_the_log_of_the_whole(ending: str, tmp_path: Path) -> None:
    paths = parts(tmp_path, ending)
    whole = read_log(visits(), mapping())
    sources: list[Any] = [
        paths,
        [str(path) for path in reversed(paths)],
        (path.parent for path in paths),
        tmp_path / "2026-*" / f"part-*{ending}",
        [f"{tmp_path}/2026-[0]/*", paths[1]],
        f"{tmp_path}/2026-*",
    ]
    for source in (list(one) if not isinstance(one, str | Path | list) else one for one in sources):
        log = read_log(source, mapping())
        assert log.fingerprint() == whole.fingerprint()
        assert log.origin is not None
        assert log.origin["source"] == [str(path) for path in paths]
        note = next(one for one in log.report.notes if one.check == "several files")
        assert f"2 files, in the order of their names: {paths[0]}, {paths[1]}" in note.found


def test_a_file_that_is_named_twice_is_read_once_and_said(tmp_path: Path) -> None:
    paths = parts(tmp_path)
    log = read_log([*paths, f"{tmp_path}/*/part-1.csv"], mapping())
    assert log.steps == visits().height
    assert "1 named twice are read once" in log.report.text().replace("\n    ", " ")


@pytest.mark.parametrize("ending", ENDINGS)
def test_problems_name_the_file_and_the_row_in_it(ending: str, tmp_path: Path) -> None:
    frame = put("p", (3, 0), (CUT + 2, 0), (CUT + 9, 0))(put("age", (CUT + 2, "old"))(visits()))
    paths = parts(tmp_path, ending, frame[:CUT], frame[CUT:])
    report = validate(paths, mapping())
    problem = next(one for one in report.errors if one.column == "p")
    assert problem.rows == (3, 2, 9)
    assert problem.files == (str(paths[0]), str(paths[1]), str(paths[1]))
    text = report.text().replace("\n    ", " ")
    lines = [" (line 4)", " (lines 3, 10)"] if ".csv" in ending else ["", ""]
    assert f"in 'p', 3 rows: 3 in {paths[0]}{lines[0]}; 2, 9 in {paths[1]}{lines[1]}" in text
    assert Report.from_json(json.loads(json.dumps(report.to_json()))) == report
    assert quarantine(paths, mapping(), tmp_path / "bad.csv") == report
    bad = pl.read_csv(tmp_path / "bad.csv", infer_schema=False)
    assert bad["quarantine_file"].to_list() == [str(paths[0]), str(paths[1]), str(paths[1])]
    assert bad["quarantine_row"].to_list() == ["3", "2", "9"]
    assert bad["quarantine_problems"][1] == "non-numeric text in 'age'; propensity out of range in 'p'"
    assert bad["patient"].to_list() == frame["patient"][[2, CUT + 1, CUT + 8]].to_list()


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_column_that_a_file_lacks_is_named_with_both_files(ending: str, tmp_path: Path) -> None:
    paths = parts(tmp_path, ending, visits()[:CUT], visits()[CUT:].drop("sofa"))
    problem = next(one for one in validate(paths, mapping()).errors if one.check == "files differ")
    assert (problem.column, problem.found) == ("sofa", f"no column 'sofa' in {paths[1]}; {paths[0]} has it")
    other = mapping(observation=["age", "ward"])
    log = read_log(paths, other)  # a column without a role may differ
    assert log.fingerprint() == read_log(visits().drop("sofa"), other).fingerprint()
    put("p", (1, 0))(visits()[CUT:].drop("sofa")).write_csv(tmp_path / "2026-1" / "part-1.csv")
    if ending == ".csv":
        quarantine(paths, other, tmp_path / "bad.csv")
        assert pl.read_csv(tmp_path / "bad.csv", infer_schema=False)["sofa"].to_list() == [None]


@pytest.mark.parametrize("ending", [".parquet", ".jsonl", ".arrow"])
def test_a_column_whose_type_differs_is_named_with_both_files(ending: str, tmp_path: Path) -> None:
    frame = visits()
    paths = parts(tmp_path, ending, frame[:CUT], frame[CUT:].with_columns(pl.col("hour").cast(pl.String)))
    problem = next(one for one in validate(paths, mapping()).errors if one.check == "files differ")
    assert (problem.column, problem.found) == ("hour", f"Int64 in {paths[0]}, but String in {paths[1]}")
    assert not [one for one in validate(paths, mapping(step=None)).errors if one.check == "files differ"]


def test_types_that_one_type_holds_exactly_are_one_type(tmp_path: Path) -> None:
    frame = visits()
    first = frame[:CUT].with_columns(pl.col("hour").cast(pl.Int8), pl.lit(None).alias("note"))
    second = frame[CUT:].with_columns(pl.col("ward").cast(pl.Categorical), pl.lit("x").alias("note"))
    log = read_log(parts(tmp_path, ".parquet", first, second), mapping())
    assert log.fingerprint() == read_log(frame, mapping()).fingerprint()
    whole = frame.with_columns(pl.col("hour").cast(pl.Float64))
    paths = parts(tmp_path / "x", ".parquet", frame[:CUT], whole[CUT:])  # 2**53 + 1 is no fraction: not joined
    assert [one.check for one in validate(paths, mapping()).errors] == ["files differ"]
    lines = parts(tmp_path / "y", ".jsonl", frame[:CUT], whole[CUT:].with_columns(pl.col("hour") + 0.5))
    assert validate(lines, mapping()).ok  # as within one file of JSON lines


def test_a_damaged_file_is_named_where_it_is_first_read(tmp_path: Path) -> None:
    paths = parts(tmp_path, ".arrow", visits()[:CUT], visits()[CUT:])
    content = bytearray(paths[1].read_bytes())
    content[200:-400] = b"\xff" * (len(content) - 600)
    paths[1].write_bytes(bytes(content))
    report = validate(paths, mapping())
    assert not report.ok
    assert str(paths[1]) in report.text().replace("\n", "").replace(" ", "") or str(paths[1]) in report.source


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("logs/*.parquet", "no file matches this glob"),
        ("logs/*.txt", "none of the 1 names that match is a table"),
        (["logs/a.csv", "logs/gone.csv"], "does not exist"),
        (["logs/a.csv", "logs/notes.txt"], "not a table"),
        (["logs/a.csv", pl.DataFrame()], "a DataFrame in the list"),
        ([], "an empty list"),
        ("deep", "no table directly in the folder"),
        ("lake", "Delta Lake"),
        ("ice", "Iceberg"),
    ],
)
def test_sources_that_name_no_log_are_refused_with_the_fix(
    source: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("logs/a.csv", "deep/one/a.parquet", "lake/a.parquet", "ice/a.parquet"):
        write(visits(), Path(path))
    Path("logs/notes.txt").write_text("x")
    Path("lake/_delta_log").mkdir()
    Path("ice/metadata").mkdir()
    Path("ice/metadata/v1.metadata.json").write_text("{}")
    report = validate(source, mapping())
    assert said in report.errors[0].found, report.text()
    assert report.errors[0].fix
    with pytest.raises(LogError):
        read_log(source, mapping())


def test_what_is_not_read_in_a_folder_is_said(tmp_path: Path) -> None:
    folder = write(visits()[:CUT], tmp_path / "a.csv").parent
    for name in ("b.xlsx", "_SUCCESS", ".a.csv.crc"):
        (folder / name).write_text("x")
    report = read_log(folder, mapping()).report
    assert [one.found for one in report.notes if one.check == "converted"] == [f"not read: {folder / 'b.xlsx'}"]


def test_an_episode_that_goes_on_in_another_file_without_a_step_is_said(tmp_path: Path) -> None:
    paths = parts(tmp_path)
    assert not [one for one in read_log(paths, mapping()).report.warnings if "several" in one.check]
    log = read_log(paths, mapping(step=None))
    (problem,) = [one for one in log.report.warnings if one.check == "episode in several files"]
    assert (problem.count, problem.rows, problem.files) == (1, (1,), (str(paths[1]),))
    assert log.fingerprint() == read_log(visits(), mapping(step=None)).fingerprint()


def test_several_files_without_a_mapping_are_described(tmp_path: Path) -> None:
    paths = parts(tmp_path, ".parquet")
    described = describe_table(paths)
    assert described.rows == visits().height
    assert described.proposed == describe_table(visits()).proposed
    assert f"tidelog log check --data {paths[0]} {paths[1]} --columns" in described.text()
    with pytest.raises(ConfigError, match="without a mapping"):
        read_log(paths)


def test_interactions_are_read_from_several_files_and_read_again(tmp_path: Path) -> None:
    frame = clicks()
    paths = parts(tmp_path, ".csv", frame[:30], frame[30:])
    features = pl.DataFrame({"i": [f"i{n}" for n in range(9)], "cost": range(9)})
    items = parts(tmp_path / "items", ".csv", features[:4], features[4:])
    log = tl.read_interactions(f"{tmp_path}/2026-*/*.csv", item_features=items, **ROLES)
    whole = tl.read_interactions(frame, item_features=features, **ROLES)
    assert log.fingerprint() == whole.fingerprint()
    assert log.origin is not None
    assert reopen_any(json.loads(json.dumps(dict(log.origin)))).fingerprint() == log.fingerprint()
    write(put("u", (2, ""))(frame[30:]), paths[1])
    report = tl.check(paths, **ROLES)
    assert (report.errors[0].rows, report.errors[0].files) == ((2,), (str(paths[1]),))
    write(frame[30:].drop("kind"), paths[1])
    found = [one for one in tl.check(paths, **ROLES).errors if one.check == "files differ"]
    assert [one.column for one in found] == ["kind"]
    write(features[4:].with_columns(new=pl.lit(1)), items[1])
    notes = tl.read_interactions(frame, item_features=items, **ROLES).report.notes
    assert any("no column 'new'" in one.found for one in notes)
    write(features[4:].drop("i"), items[1])
    report = tl.check(frame, item_features=items, **ROLES)
    assert ("files differ", "i") in [(one.check, one.column) for one in report.errors]


RATINGS = pl.DataFrame({"userId": [1, 1, 2] * 20, "movieId": range(60), "rating": [3, 4] * 30, "at": range(60)})
MOVIES = pl.DataFrame({"movieId": range(50), "title": [f"t{i}" for i in range(50)]})


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".jsonl"])
def test_different_tables_are_refused_at_every_entrance(ending: str, tmp_path: Path) -> None:
    """A folder of ratings and films became 124,003 rows of the one column that both have."""
    for i in range(2):
        write(RATINGS[30 * i : 30 * i + 30], tmp_path / f"ratings-{i}{ending}")
    write(MOVIES, tmp_path / f"movies{ending}")
    roles = {"user": "userId", "item": "movieId", "time": "at"}
    columns = {"observation": "rating", "action": "movieId", "reward": None, "terminated": True}
    for source in (tmp_path, f"{tmp_path}/*{ending}", [str(path) for path in tmp_path.iterdir()]):
        errors = [validate(source, columns).errors, tl.check(source, **roles).errors]
        for read in (
            describe_table,
            lambda one: read_log(one, columns),
            lambda one: tl.read_interactions(one, **roles),
        ):
            with pytest.raises(LogError, match="different tables") as caught:
                read(source)
            errors.append(caught.value.report.errors)  # type: ignore[union-attr]
        for (error,) in errors:
            assert error.check == "files differ"
            assert error.found.startswith(
                f"2 different tables: {tmp_path}/ratings-0{ending} and 1 more (60 rows) with "
            )
            assert f"{tmp_path}/movies{ending} (50 rows) with movieId, title" in error.found
            assert f"such as '{tmp_path}/ratings-*{ending}', which has the" in error.fix
    for read in (describe_table, lambda one: read_log(one, columns), lambda one: tl.read_interactions(one, **roles)):
        read(f"{tmp_path}/ratings-*{ending}")
    shared_by_both = {"observation": "movieId", "action": "movieId", "reward": None, "terminated": True}
    assert read_log(tmp_path, shared_by_both).steps == 110  # what is named is in all files
    bad = tmp_path / "bad.csv"
    assert [one.check for one in quarantine(tmp_path, columns, bad).errors] == ["files differ"]
    assert not bad.exists()


def test_a_folder_of_folders_of_tables_names_the_one_with_the_most(tmp_path: Path) -> None:
    write(MOVIES, tmp_path / "meta" / "episodes" / "chunk-0" / "file-0.parquet")
    write(MOVIES[:1], tmp_path / "meta" / "tasks.parquet")
    for i in range(2):
        write(RATINGS, tmp_path / "data" / "part" / f"chunk-{i}" / "file.parquet")
    with pytest.raises(LogError, match="below it: 2 in data, 2 in meta") as caught:
        describe_table(tmp_path)
    pattern = f"{tmp_path}/data/**/*.parquet"
    assert f"'{pattern}'" in caught.value.report.errors[0].fix  # type: ignore[union-attr]
    assert describe_table(pattern).rows == 120
    with pytest.raises(LogError, match="2 different tables") as caught:
        describe_table(f"{tmp_path}/**/*.parquet")
    assert f"such as '{tmp_path}/data/part/**/*.parquet', which" in caught.value.report.errors[0].fix  # type: ignore[union-attr]


def test_several_files_without_headers_are_one_table(tmp_path: Path) -> None:
    for i in range(2):
        visits()[20 * i : 20 * i + 20].write_csv(tmp_path / f"{i}.csv", include_header=False)
    described = describe_table(tmp_path)
    assert (described.rows, len(described.fields)) == (visits().height, visits().width)
    assert "header = false" in described.toml


def test_the_shared_folders_of_different_tables() -> None:
    for name in ("different_tables", "lerobot_like/**/*.parquet"):
        source = shared("cases/learn/different_tables").parent / name
        with pytest.raises(LogError, match="different tables"):
            describe_table(source)
