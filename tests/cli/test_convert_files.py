"""`tidelog data convert` of several tables by several processes: a table to a shard, the log of all of them."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.cli.test_many_files import Jobs
from tests.data.visits import LENGTHS, visits
from tidelog.data.io.readers import open_log, read_log
from tidelog.sweeps.engines import named

MAP = """\
episode = "patient"
step = "hour"
observation = ["age", "sofa", "ward"]
action = "dose"
actions = 3
reward = "r"
terminated = "died"
truncated = "left"
propensity = "p"
action_mask = ["m0", "m1", "m2"]
vocabularies = {ward = ["er", "hall, east", "icu"]}
"""
WORDS = ["data", "convert", "--data", "days", "--columns", "map.toml", "--out", "days.tidelog"]


@pytest.fixture
def days(tmp_path, monkeypatch):
    """Three days of unequal length."""
    monkeypatch.chdir(tmp_path)
    Path("days").mkdir()
    Path("map.toml").write_text(MAP)
    ends = np.cumsum(LENGTHS)[[1, 8, 11]]
    for number, (first, after) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        visits()[first:after].write_csv(f"days/{number}.csv")
    return tmp_path


@pytest.fixture
def lost(monkeypatch):
    """Jobs run in this process, and the first attempt at each is lost."""
    monkeypatch.setattr(named, "engine_of", lambda *_: Jobs(lost=lambda job: job.attempt == 1))


def test_each_table_becomes_a_shard_of_their_log(days, lost, tidelog):
    done = tidelog(*WORDS, "--workers", 2)
    assert done.code == 0, done.err
    assert "written: days.tidelog with 3 shards" in done.out
    log, whole = open_log("days.tidelog"), read_log("days", "map.toml")
    assert log.fingerprint() == whole.fingerprint()
    parts = [read_log(str(days / "days" / f"{number}.csv"), "map.toml") for number in range(3)]
    assert log.report == tl.concat(parts).report
    assert sorted(os.listdir()) == ["days", "days.tidelog", "map.toml"]
    assert sorted(os.listdir("days.tidelog")) == [
        "manifest.json", "shard-0000.tidelog", "shard-0001.tidelog", "shard-0002.tidelog",
    ]  # fmt: skip
    done = tidelog("data", "inspect", "--data", "days.tidelog")
    assert "12 episodes, 39 steps" in done.out
    assert tidelog(*WORDS, "--workers", 2).code == 2, "it exists"
    assert tidelog(*WORDS, "--workers", 2, "--overwrite").code == 0
    assert sorted(os.listdir()) == ["days", "days.tidelog", "map.toml"]


def test_rows_without_episodes_are_numbered_over_all_files(days, tidelog):
    columns = MAP.split("\n", 2)[2].replace('truncated = "left"\n', "").replace('"died"', "true")
    Path("map.toml").write_text(columns)
    assert tidelog(*WORDS, "--workers", 1).code == 0
    log = open_log("days.tidelog", memory_map=True)
    assert log.fingerprint() == read_log("days", "map.toml").fingerprint()
    assert log.episode_ids.tolist() == list(range(39))


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_not_read_again(days, tidelog):
    whole = read_log("days", "map.toml").fingerprint()
    good = Path("days/1.csv").read_bytes()
    pl.read_csv("days/1.csv").drop("dose").write_csv("days/1.csv")
    done = tidelog(*WORDS, "--workers", 1)
    assert (done.code, Path("days.tidelog").exists()) == (2, False)
    assert "1 of 3 files could not be read, the first one is" in done.said
    assert "no column 'dose'" in done.said
    assert "shards of the others stay in days.tidelog.unfinished" in done.said
    before = Path("days.tidelog.unfinished/shard-0000.tidelog/manifest.json").stat().st_mtime_ns
    Path("days/1.csv").write_bytes(good)
    assert tidelog(*WORDS, "--workers", 1).code == 0
    assert Path("days.tidelog/shard-0000.tidelog/manifest.json").stat().st_mtime_ns == before
    assert open_log("days.tidelog").fingerprint() == whole


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("an episode goes on", "episode 'p1' is in .*0.csv and in .*1.csv .1 such.: expected each episode in one file"),
        ("clusters", "has clusters, and a cluster may be in several files"),
        (
            "vocabularies",
            "but .* in log 1 .*the same. fix: convert the files without --workers, .* or declare .*vocabularies=",
        ),
        ("a copy", "is in .*0.csv and in .*copy.csv .2 such.*or remove the file that is a copy"),
        ("a copy without names", "0.csv and .*copy.csv have the same rows: expected different files"),
        ("numbers and text", "identifiers of episodes are text in .*2.csv and numbers in .*n.csv"),
        ("empty", "1 of 4 files could not be read.*empty.csv"),
    ],
)
@pytest.mark.sample(every=3)
def test_files_that_are_not_parts_of_one_log_are_refused(change, expected, days, tidelog):
    first = pl.read_csv("days/0.csv")
    if change == "an episode goes on":
        more = first.filter(pl.col("patient") == "p1").with_columns(hour=pl.col("hour") + 10)
        pl.concat([pl.read_csv("days/1.csv"), more]).write_csv("days/1.csv")
    elif change == "clusters":
        Path("map.toml").write_text(f'{MAP}cluster = "patient"\n')
    elif change == "vocabularies":
        Path("map.toml").write_text(MAP.split("vocabularies")[0])
        first.with_columns(ward=pl.lit("icu")).write_csv("days/0.csv")
    elif change == "numbers and text":
        first.with_columns(patient=pl.col("patient").str.slice(1).cast(int)).write_csv("days/n.csv")
    elif change == "empty":
        first[:0].write_csv("days/empty.csv")
    else:
        shutil.copy("days/0.csv", "days/copy.csv")
    if change == "a copy without names":
        columns = MAP.split("\n", 2)[2].replace('truncated = "left"\n', "").replace('"died"', "true")
        Path("map.toml").write_text(columns)
    done = tidelog(*WORDS, "--workers", 1)
    assert (done.code, Path("days.tidelog").exists()) == (2, False), done.out

    assert re.search(expected, done.said), done.said
    assert "fix: " in done.said


def test_files_that_differ_are_refused_before_the_others_are_converted(days, tidelog, monkeypatch):
    engine = Jobs()
    monkeypatch.setattr(named, "engine_of", lambda *_: engine)
    Path("map.toml").write_text(MAP.split("vocabularies")[0])
    pl.read_csv("days/0.csv").with_columns(ward=pl.lit("icu")).write_csv("days/0.csv")
    done = tidelog(*WORDS, "--workers", 1)
    assert done.code == 2
    assert re.search(r"but .* in log 1 .*1.csv.: expected the same. fix: ", done.said), done.said
    assert [job.files for job in engine.jobs] == [[0], [1]], "the third one was not begun"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--out", "days.parquet", "--workers", 2], "convert several tables to one .tidelog folder"),
        (["--data", "days/0.csv", "--workers", 2], "convert several tables to one .tidelog folder"),
        (["--shards", 2, "--workers", 2], "where each file is a shard"),
        (["--shards", 13], "shards = 13: expected 1 to 12"),
        (["--shards", 2, "--out", "days.npz"], "has no shards"),
        (["--out", "days", "--workers", 2], "convert several tables"),
        (["--out", "mine.tidelog", "--workers", 2, "--overwrite"], "not a saved log, it is not replaced"),
        (["--columns", "absent.toml", "--workers", 2], "there is no mapping absent.toml"),
    ],
)
def test_what_cannot_be_is_refused(words, expected, days, tidelog):
    Path("mine.tidelog").mkdir()
    done = tidelog(*WORDS, *words) if "--data" not in words else tidelog(*WORDS[:2], *words, *WORDS[4:])
    assert done.code == 2, done.said
    assert expected in done.said
    assert sorted(os.listdir()) == ["days", "map.toml", "mine.tidelog"]


@pytest.mark.full
def test_another_command_does_not_go_on_in_its_folder(days, tidelog):
    pl.read_csv("days/2.csv").drop("dose").write_csv("days/2.csv")
    assert tidelog(*WORDS, "--workers", 1).code == 2
    Path("map.toml").write_text(MAP.replace('"left"', '"died"'))
    done = tidelog(*WORDS, "--workers", 1)
    assert (done.code, "was begun with another mapping" in done.said) == (2, True)
    Path("map.toml").write_text(MAP)
    Path("days/2.csv").unlink()
    Path("days/0.csv").rename("days/9.csv")
    done = tidelog(*WORDS, "--workers", 1)
    assert (done.code, "--overwrite to begin again" in done.said) == (2, True)
    assert tidelog(*WORDS, "--workers", 1, "--overwrite").code == 0
    assert len(open_log("days.tidelog").episode_ids) == 9
    assert sorted(os.listdir("days.tidelog")) == ["manifest.json", "shard-0000.tidelog", "shard-0001.tidelog"]


@pytest.mark.full
def test_processes_of_this_machine_write_what_one_does(days, tidelog):
    assert tidelog(*WORDS, "--workers", 2).code == 0
    assert open_log("days.tidelog").fingerprint() == read_log("days", "map.toml").fingerprint()
