"""What real files need said: separators, headers, words for empty cells, formats of dates, rewards, masks of names."""

import bz2
import copy
import gzip
import importlib.util
import lzma
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tidelog import read_log
from tidelog.data.columns import Columns
from tidelog.data.formats import unusual_separator
from tidelog.data.inspect import describe_table
from tidelog.data.read import quarantine, validate
from tidelog.errors import ConfigError, LogError, install

ROWS = 40
MAPPING = {"observation": ["x", "ward"], "action": "a", "reward": "r", "terminated": True, "categorical": ["ward"]}
FRAME = pl.DataFrame(
    {
        "x": [f"{row / 4}" for row in range(ROWS)],
        "ward": ["north", "south"] * (ROWS // 2),
        "a": ["low", "high", "none", "low"] * (ROWS // 4),
        "r": [f"{row % 5}" for row in range(ROWS)],
    }
)
TEXT = FRAME.write_csv()


def notes(log):
    return " ".join(problem.found for problem in log.report.problems)


def packed(path, text):
    """Write text, compressed as the ending says."""
    data = text.encode()
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("inner.csv", data)
    elif path.suffix == ".zst":
        path.write_bytes(importlib.import_module("zstandard").ZstdCompressor().compress(data))
    else:
        pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[path.suffix]
        path.write_bytes(pack(data))
    return path


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".zip", ".zst"])
def test_compressed_tables_are_read(ending, tmp_path):
    if ending == ".zst" and importlib.util.find_spec("zstandard") is None:
        pytest.skip("zstandard is not installed")
    log = read_log(packed(tmp_path / f"a.csv{ending}", TEXT), MAPPING)
    assert log.fingerprint() == read_log(FRAME, MAPPING).fingerprint()
    (tmp_path / f"b.csv{ending}").write_bytes(b"no archive")
    with pytest.raises(LogError, match="truncated or damaged"):
        read_log(tmp_path / f"b.csv{ending}", MAPPING)


def test_an_archive_of_several_files_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.csv.zip", "w") as archive:
        archive.writestr("one.csv", TEXT)
        archive.writestr("two.csv", TEXT)
    with pytest.raises(LogError, match="2 files in the archive, expected one"):
        read_log(tmp_path / "a.csv.zip", MAPPING)


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_another_separator_is_seen_and_said(separator, tmp_path):
    (tmp_path / "a.csv").write_text(FRAME.write_csv(separator=separator))
    log = read_log(tmp_path / "a.csv", MAPPING)
    assert log.fingerprint() == read_log(FRAME, MAPPING).fingerprint()
    assert f"separated by {separator!r}" in notes(log)
    (tmp_path / "one.csv").write_text("x;y\n1\n2\n")  # one column, whose name holds a semicolon
    assert validate(tmp_path / "one.csv", {**MAPPING, "observation": "x;y"}).errors[0].column != "x;y"


@pytest.mark.parametrize("separator", ["~", "\x01", " ", "^"])
@pytest.mark.parametrize("ending", [".csv", ".txt"])
def test_a_separator_of_its_own(separator, ending, tmp_path):
    path = tmp_path / f"a{ending}"
    path.write_text(FRAME.write_csv(separator=separator))
    log = read_log(path, MAPPING | {"separator": separator})
    assert log.fingerprint() == read_log(FRAME, MAPPING).fingerprint()
    if ending == ".txt":
        with pytest.raises(LogError, match="for text, set separator in the mapping"):
            read_log(path, MAPPING)
        return
    described = describe_table(path)
    assert tomllib.loads(described.toml)["separator"] == separator
    assert any("divides the fields" in note for note in described.notes)


def test_lines_without_a_separator_are_one_column(tmp_path):
    for name, text in {"words": "note\na b c\nd e\n", "one": "x\n1\n2\n", "two": "a:b\n1:2\n"}.items():
        (tmp_path / f"{name}.csv").write_text(text)
        assert unusual_separator(tmp_path / f"{name}.csv") is None
    assert unusual_separator(FRAME) is None


def test_a_separator_is_for_text_alone(tmp_path):
    FRAME.write_parquet(tmp_path / "a.parquet")
    with pytest.raises(LogError, match="drop separator from the mapping"):
        read_log(tmp_path / "a.parquet", MAPPING | {"separator": ";"})
    for wrong in ("", ";;", "\n", '"', "é", 1):
        with pytest.raises(ConfigError, match="expected one character"):
            read_log(FRAME, MAPPING | {"separator": wrong})


def test_an_empty_reward_names_the_way_to_clone(tmp_path):
    frame = FRAME.with_columns(pl.when(pl.col("r") == "3").then(None).otherwise(pl.col("r")).alias("r"))
    with pytest.raises(LogError, match=r"to clone the decisions\s+only"):
        read_log(frame, MAPPING)
    kept = read_log(frame, {name: value for name, value in MAPPING.items() if name != "reward"} | {"reward": None})
    assert kept.steps == ROWS


def test_a_file_without_a_header(tmp_path):
    (tmp_path / "a.csv").write_text(FRAME.write_csv(include_header=False))
    mapping = {
        "observation": ["column_1", "column_2"], "categorical": ["column_2"], "action": "column_3",
        "reward": "column_4", "terminated": True, "header": False,
    }  # fmt: skip
    log, expected = read_log(tmp_path / "a.csv", mapping), read_log(FRAME, MAPPING)
    assert log.steps == ROWS
    np.testing.assert_array_equal(log.reward, expected.reward)
    np.testing.assert_array_equal(log.observation["numeric"], expected.observation["numeric"])
    (tmp_path / "b.csv").write_text(FRAME.write_csv(include_header=False) + "1,2\n")
    assert validate(tmp_path / "b.csv", mapping).errors[0].rows == (ROWS + 1,)
    FRAME.write_parquet(tmp_path / "a.parquet")
    with pytest.raises(LogError, match="header = false for a file with names"):
        read_log(tmp_path / "a.parquet", mapping)


def test_words_for_empty_cells(tmp_path):
    frame = FRAME.with_columns(x=pl.Series(["?", *FRAME["x"][1:-1], "-999"]))
    rule = {**MAPPING, "missing": {"x": "mean+flag"}}
    log = read_log(frame, {**rule, "na_values": ["?", "-999"]})
    flag = log.spec.observation["numeric"].names.index("x missing")
    np.testing.assert_array_equal(np.flatnonzero(log.observation["numeric"][:, flag]), [0, ROWS - 1])
    numbers = frame.with_columns(x=pl.Series([-999.0, *map(float, FRAME["x"][1:-1]), -999.0]))
    assert (read_log(numbers, {**rule, "na_values": "-999"}).observation["numeric"] == log.observation["numeric"]).all()
    assert "non-numeric text" in {one.check for one in validate(frame, rule).errors}


def test_a_format_of_dates():
    days = [f"{row % 28 + 1:02}.{row // 28 + 1:02}.2026 10:30" for row in range(ROWS)]
    frame = FRAME.with_columns(when=pl.Series(days), who=pl.lit("p"))
    mapping = {**MAPPING, "episode": "who", "time": "when"}
    backwards = frame.reverse()
    log = read_log(backwards, {**mapping, "date_format": "%d.%m.%Y %H:%M"})
    np.testing.assert_array_equal(log.reward, read_log(FRAME, MAPPING).reward)
    assert validate(backwards, mapping).errors
    wrong = validate(frame.with_columns(when=pl.Series(["31/12/2026", *days[1:]])),
                     {**mapping, "date_format": "%d.%m.%Y %H:%M"})  # fmt: skip
    assert (wrong.errors[0].rows, "%d.%m.%Y" in wrong.errors[0].expected) == ((1,), True)


def test_rewards_of_words_sums_and_limits():
    words = ["cured", "ill", "worse", "-1.5"] * (ROWS // 4)
    frame = FRAME.with_columns(r=pl.Series(words), cost=pl.Series([float(row % 3) for row in range(ROWS)]))
    worth = {**MAPPING, "reward_values": {"cured": 1.0, "ill": 0, "worse": -5}}
    values = np.tile(np.asarray([1.0, 0.0, -5.0, -1.5]), ROWS // 4)
    np.testing.assert_array_equal(read_log(frame, worth).reward, values)
    both = {**worth, "reward": ["r", "cost"], "reward_weights": [2.0, -0.5]}
    cost = np.arange(ROWS) % 3
    log = read_log(frame, both)
    assert log.spec.rewards is None
    np.testing.assert_allclose(log.reward, 2 * values - 0.5 * cost)
    np.testing.assert_allclose(
        read_log(frame, {**both, "reward_clip": [-2, 1]}).reward, np.clip(2 * values - 0.5 * cost, -2, 1)
    )
    error = validate(frame, {**MAPPING, "reward_values": {"cured": 1.0, "ill": 0}}).errors[0]
    assert (error.check, error.count, error.found) == ("non-numeric text", ROWS // 4, "'worse'")


@pytest.mark.parametrize(
    ("change", "message"),
    [({"reward_weights": [1.0, 2.0]}, "reward_weights has 2 numbers, reward 1 columns"),
     ({"reward_clip": [1, 0]}, "expected .low, high. with low <= high"), ({"reward_clip": [1]}, "expected .low, high."),
     ({"reward_values": {"a": "b"}}, "expected finite numbers"), ({"reward_values": 3}, "expected finite numbers"),
     ({"reward": None, "reward_clip": [0, 1]}, "reward_clip is set without reward"),
     ({"header": "no"}, "expected true or false"), ({"na_values": [1]}, "expected texts"),
     ({"date_format": "day"}, "expected a format such as"),
     ({"episode_gap": 0}, "episode_gap = 0: expected a number above 0"),
     ({"episode_gap": True}, "episode_gap = True: expected a number above 0")],
)  # fmt: skip
def test_impossible_settings_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        read_log(FRAME, {**MAPPING, **change})


@pytest.mark.parametrize("form", ["list", "json", "bars"])
def test_a_mask_of_names_of_actions(form):
    lists = [["low", "high", "none"] if row % 2 else ["low", "none", "rest"] for row in range(ROWS)]
    frame = FRAME.with_columns(a=pl.Series(["low", "high"] * (ROWS // 2)))
    cells = {"list": lists, "json": [str(one) for one in lists], "bars": ["|".join(one) for one in lists]}[form]
    frame = frame.with_columns(may=pl.Series(cells))
    log = read_log(frame, {**MAPPING, "action_mask": "may"})
    assert log.spec.action.names == ("high", "low", "none", "rest")
    odd = np.arange(ROWS) % 2 == 1
    expected = np.stack([odd, np.ones(ROWS, bool), np.ones(ROWS, bool), ~odd], axis=1)
    np.testing.assert_array_equal(log.transitions.mask, expected)
    declared = {**MAPPING, "action_mask": "may", "vocabularies": {"a": ["low", "high", "none"]}}
    assert validate(frame, declared).errors[0].count == ROWS // 2  # "rest" is unknown


def test_a_mask_of_the_codes_of_actions():
    lists = ["0,2" if row % 2 else "0,1,2" for row in range(ROWS)]
    frame = FRAME.with_columns(a=pl.Series([0, 2] * (ROWS // 2)), may=pl.Series(lists))
    log = read_log(frame, {**MAPPING, "action": "a", "actions": 3, "action_mask": "may"})
    np.testing.assert_array_equal(log.transitions.mask[:, 1], np.arange(ROWS) % 2 == 0)
    assert log.transitions.mask[:, [0, 2]].all()


@pytest.mark.parametrize("dates", [False, True])
def test_a_long_pause_ends_an_episode(dates):
    minutes = [0, 10, 20, 200, 210, 0, 300, 310]  # out of order within the file below
    who = ["a"] * 5 + ["b"] * 3
    times = [f"2026-01-01T{m // 60:02}:{m % 60:02}:00" for m in minutes] if dates else [float(60 * m) for m in minutes]
    frame = pl.DataFrame({"who": who, "t": times, "x": [float(row) for row in range(8)], "a": [0, 1] * 4})
    frame = frame[[4, 0, 5, 1, 7, 3, 6, 2]]
    mapping = {"observation": "x", "action": "a", "episode": "who", "time": "t", "actions": 2}
    log = read_log(frame, {**mapping, "episode_gap": 1800})
    parts = {str(one): log.observation["numeric"][log.position[log.episode == place], 0].tolist()
             for place, one in enumerate(log.episode_ids)}  # fmt: skip
    assert parts == {"a/0": [0, 1, 2], "a/1": [3, 4], "b/0": [5], "b/1": [6, 7]}
    owner = {str(one): cluster for one, cluster in zip(log.episode_ids, log.clusters.tolist(), strict=True)}
    assert owner["a/0"] == owner["a/1"] != owner["b/0"] == owner["b/1"]
    assert len(read_log(frame, {**mapping, "episode_gap": 100_000}).episode_ids) == 2
    exact = read_log(frame, {**mapping, "episode_gap": 180 * 60})  # the pause of "a" is no longer than that
    assert sorted(map(str, exact.episode_ids)) == ["a/0", "b/0", "b/1"]
    with pytest.raises(ConfigError, match="episode_gap is set without episode and time"):
        read_log(frame, {"observation": "x", "action": "a", "episode_gap": 3})


def test_a_mask_of_names_without_the_column_of_actions_is_one_missing_column():
    frame = FRAME.drop("a").with_columns(may=pl.Series(["low|high", "low|none"] * (ROWS // 2)))
    error = validate(frame, {**MAPPING, "action_mask": "may"}).errors[0]
    assert (error.check, error.column) == ("missing column", "a")


def test_without_a_module_for_zstandard_its_installation_is_the_fix(tmp_path, monkeypatch):
    (tmp_path / "a.csv.zst").write_bytes(b"anything")
    asked = []

    def absent(name):
        asked.append(name)
        raise ImportError(name)

    monkeypatch.setattr("tidelog.data.formats.importlib.import_module", absent)
    with pytest.raises(LogError, match=r"no module that reads \.zst") as refused:
        read_log(tmp_path / "a.csv.zst", MAPPING)
    (error,) = refused.value.report.errors
    assert error.fix == install("zst")
    assert asked == ["compression.zstd", "zstandard"]


def test_empty_rewards_have_the_reward_of_the_mapping():
    """An outcome on the last row of an episode only: the fix of the error is the mapping that reads it."""
    outcomes = [word for _ in range(ROWS // 2) for word in (None, "home")]
    frame = FRAME.with_columns(r=pl.Series(outcomes, dtype=pl.String))
    (error,) = validate(frame, {**MAPPING, "reward_values": {"home": 1.0}}).errors
    assert (error.check, error.count) == ("missing value", ROWS // 2)
    assert "set missing_reward = 0 in the mapping if they earned nothing" in error.fix
    log = read_log(frame, {**MAPPING, "reward_values": {"home": 1.0}, "missing_reward": 0})
    np.testing.assert_array_equal(log.reward, [0.0, 1.0] * (ROWS // 2))
    log = read_log(frame, {**MAPPING, "reward_values": {"home": 1.0, "": 0.25}})
    np.testing.assert_array_equal(log.reward, [0.25, 1.0] * (ROWS // 2))
    numbers = FRAME.with_columns(r=pl.Series([None, 2.0] * (ROWS // 2)))
    log = read_log(numbers, {**MAPPING, "reward_values": {"": 0.0}})
    np.testing.assert_array_equal(log.reward, [0.0, 2.0] * (ROWS // 2))


def test_times_in_another_format_are_one_error_with_its_fix():
    """Rows that cannot be ordered for their unreadable time are neither unordered nor episodes without an end."""
    days = pl.Series([f"{1 + row % 28:02}.12.2026" for row in range(ROWS)])
    mapping = {**MAPPING, "episode": "who", "time": "when"}
    report = validate(FRAME.with_columns(when=days, who=pl.lit("p")), mapping)
    (error,) = report.errors
    assert (error.check, error.column) == ("non-numeric text", "when")
    assert 'date_format = "%d.%m.%Y %H:%M"' in error.fix
    assert not {one.check for one in report.warnings} & {"no end flag", "no bootstrap target"}


def test_the_fix_of_an_empty_observation_is_a_rule_of_the_mapping():
    name = MAPPING["observation"] if isinstance(MAPPING["observation"], str) else MAPPING["observation"][0]
    frame = FRAME.with_columns(pl.when(pl.int_range(ROWS) == 3).then(None).otherwise(pl.col(name)).alias(name))
    (error,) = validate(frame, MAPPING).errors
    assert f'set missing = {{ "{name}" = "mean+flag" }} in the mapping' in error.fix
    assert read_log(frame, {**MAPPING, "missing": {name: "mean+flag"}}).steps == ROWS


def test_a_word_among_propensities_is_no_category():
    frame = FRAME.with_columns(p=pl.Series(["0.5"] * (ROWS - 2) + ["high", "high"]))
    (error,) = validate(frame, {**MAPPING, "propensity": "p"}).errors
    assert (error.found, error.fix) == ("'high'", "correct the cells")


def test_a_row_written_twice_is_to_be_removed():
    times = pl.Series([float(row) for row in range(ROWS)])
    frame = FRAME.with_columns(when=times, who=pl.lit("p"))
    twice = pl.concat([frame, frame[7:8]])
    error = validate(twice, {**MAPPING, "episode": "who", "time": "when"}).errors[0]
    assert (error.check, error.fix) == ("steps cannot be ordered", "remove copies, or set step= to their numbers")
    error = validate(FRAME.with_columns(pl.lit(0).alias("")), {**MAPPING, "weight": "nowhere"}).errors[0]
    assert error.fix == "correct the name in the mapping, or add the column to the file"


GAPS = FRAME.with_columns(
    a=pl.Series([None, " ", "", "?", *FRAME["a"][4:]]), r=pl.Series([*FRAME["r"][:7], "n/a", *FRAME["r"][8:]])
)
DROPS = {**MAPPING, "drop_rows_without": ["a", "r"], "na_values": ["?"]}


def test_rows_without_a_value_are_left_out_and_counted(tmp_path):
    """A trial without an assigned arm, or a survey without an answer, says nothing; the report counts such rows."""
    whole = read_log(FRAME.filter(~pl.int_range(ROWS).is_in([0, 1, 2, 3, 7])), MAPPING)
    GAPS.write_csv(tmp_path / "a.csv")
    GAPS.write_parquet(tmp_path / "a.parquet")
    GAPS[:5].write_csv(tmp_path / "b-1.csv")
    GAPS[5:].write_csv(tmp_path / "b-2.csv")
    for source in (GAPS, tmp_path / "a.csv", tmp_path / "a.parquet", tmp_path / "b-*.csv"):
        log = read_log(source, DROPS)
        assert log.fingerprint() == whole.fingerprint(), source
        note = next(one for one in log.report.notes if one.check == "rows left out")
        rows = "1, 2, 3, 4, 3" if str(source).endswith("b-*.csv") else "1, 2, 3, 4, 8"
        assert note.found == f"5 rows of 40 left out: empty is 'a' in 4, 'r' in 1; rows {rows}"
    none = read_log(FRAME, DROPS)
    assert "left out" not in notes(none)
    errors = {one.check for one in validate(GAPS, {**DROPS, "drop_rows_without": "a"}).errors}
    assert errors == {"missing value"}


def test_the_rows_after_those_left_out_keep_their_numbers(tmp_path):
    spoilt = GAPS.with_columns(x=pl.Series([*FRAME["x"][:9], "much", *FRAME["x"][10:]]))
    (problem,) = validate(spoilt, DROPS).errors
    assert problem.rows == (10,)
    spoilt.write_csv(tmp_path / "a.csv")
    report = quarantine(tmp_path / "a.csv", DROPS, tmp_path / "bad.csv", keep=tmp_path / "good.csv")
    assert report.errors[0].lines == (11,)
    assert pl.read_csv(tmp_path / "bad.csv", infer_schema=False)["x"].to_list() == ["much"]
    assert pl.read_csv(tmp_path / "good.csv").height == ROWS - 6


def test_an_episode_that_loses_rows_is_a_warning():
    episodes = GAPS.with_columns(e=pl.Series([0] * 4 + [1] * 8 + [2] * 28))
    log = read_log(episodes, {**DROPS, "episode": "e"})
    (problem,) = [one for one in log.report.warnings if one.check == "incomplete episodes"]
    assert problem.found == "1 episode with rows left out and others that remain: [1]"


# Mappings: from files, and the ways in which they are refused.


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"observaton": "a"}, "did you mean 'observation'"),
        ({"missing": "mean"}, "did you mean 'mean.flag'"),
        ({"missing": {"a": "mean"}}, "missing = 'mean' is unknown"),
        ({"missing": {"c": "mean+flag"}}, "missing names 'c', which the mapping does not use"),
        ({"missing": 3}, "expected columns mapped to rules"),
        ({"missing": {"a": 1}}, "expected columns mapped to rules"),
        ({"vocabularies": {"aa": ["x"]}}, "did you mean 'a'"),
        ({"vocabularies": {"a": ["x", "x"]}}, "expected different texts"),
        ({"vocabularies": {"a": []}}, "expected different texts"),
        ({"vocabularies": {"a": [1]}}, "expected different texts"),
        ({"vocabularies": {"a": "xy"}}, "expected columns mapped to lists"),
        ({"terminations": "stopp"}, "did you mean 'stop'"),
        ({"actions": 0}, "at least 1"),
        ({"actions": "3"}, "whole number"),
        ({"actions": [3, True]}, "whole number"),
        ({"bounds": (1, 0)}, "low <= high"),
        ({"bounds": (0, float("inf"))}, "finite"),
        ({"bounds": ([0, 0], [1, 1, 1])}, "equal length"),
        ({"bounds": 3}, "low, high"),
        ({"actions": 3, "bounds": (0, 1)}, "set only one of them"),
        ({"observation": []}, "expected at least one column"),
        ({"observation": 3}, "expected a column or a list of columns"),
        ({"episode": ["a", "b"]}, "expected the name of one column"),
        ({"terminated": False}, "expected the name of one column"),
        ({"next_observation": ["a"]}, "in the same order"),
        ({"next_action_mask": "m"}, "without action_mask"),
    ],
)
def test_mappings_that_cannot_be_meant(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Columns.from_mapping({"observation": ["a", "b"], "action": "c", **change})


def test_unknown_keys_of_the_class_are_refused_too() -> None:
    with pytest.raises(ConfigError, match="did you mean 'episode'"):
        Columns(observation="a", action="b", reward=None, epsiode="e")  # type: ignore[call-arg]
    mapping = Columns(observation=["a"], action="b", reward=None, bounds=[[0], [1]])
    assert mapping == Columns(observation=("a",), action="b", reward=None, bounds=((0,), (1,)))
    assert hash(mapping)
    assert copy.deepcopy(mapping) == mapping


def test_unreadable_mappings_are_refused(tmp_path: Path) -> None:
    for name, text in (("a.toml", "observation ="), ("a.json", "{"), ("b.json", "[]")):
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError, match=name):
            Columns.from_file(tmp_path / name)
    with pytest.raises(ConfigError, match=r"there is no mapping .*none\.toml"):
        Columns.from_file(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        Columns.from_file(tmp_path)
    with pytest.raises(ConfigError, match="action is not set"):
        Columns.from_mapping({"observation": "a"})
