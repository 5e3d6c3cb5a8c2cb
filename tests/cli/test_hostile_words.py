"""Words of users and files that would change a terminal, a table or a page are shown as they are."""

import json
import os
import re
import shutil
import sys
import tomllib

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.training.runs import bc, write_record
from tidelog._text import printable
from tidelog.cli.flags import print_line, table
from tidelog.data.inspect import describe_table
from tidelog.training.metrics import Progress

HOSTILE = "\x1b[2J\x1b]0;owned\x07[red]bold[/red] \x9b31m \u202eexe.txt\x00"
SHOWN = r"\u001b[2J\u001b]0;owned\u0007[red]bold[/red] \u009b31m \u202eexe.txt\u0000"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def test_control_characters_are_shown():
    assert printable(HOSTILE) == SHOWN
    assert json.loads(printable(json.dumps(HOSTILE + "\x7f", ensure_ascii=False))) == HOSTILE + "\x7f"
    assert printable(os.fsdecode(b"a\xff.csv")) == r"a\udcff.csv"
    assert printable("two\nlines\tand ä, 漢字, 🙂") == "two\nlines\tand ä, 漢字, 🙂"


@pytest.mark.parametrize("write", [
    lambda: print_line(HOSTILE),
    lambda: table(HOSTILE, ["name", HOSTILE], [[HOSTILE, "1"]]),
])  # fmt: skip
def test_no_sink_of_the_commands_obeys_them(write, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    write()
    out = capsys.readouterr().out
    assert SHOWN in out
    assert not CONTROL.search(out)


def test_notes_and_progress_show_them(capfd):
    with Progress(HOSTILE, None) as screen:
        screen.note(HOSTILE)
    err = capfd.readouterr().err
    assert f"{SHOWN}" in err
    assert not CONTROL.search(err)


def test_a_log_with_hostile_words_goes_through_the_commands(tmp_path, tidelog, monkeypatch):
    """Column names, words, actions and the name of an evaluator; the report escapes markup."""
    monkeypatch.chdir(tmp_path)
    name, words = "a[/]\x1b[31m", ["<script>alert(1)</script>", "=cmd|'/c calc'!A1", "\x1b[2J"]
    rows = np.arange(60)
    frame = pl.DataFrame({
        "episode": rows // 3, name: rows / 60, "word": [words[at % 3] for at in rows],
        "action": [f"[b]{at % 2}\x1b[0m" for at in rows], "reward": rows % 2, "terminated": rows % 3 == 2,
    })  # fmt: skip
    frame.write_parquet("log.parquet")
    inspected = tidelog("log", "inspect", "--data", "log.parquet")
    assert inspected.code == 0, inspected.err
    log = tl.read_log("log.parquet", tl.Columns(
        episode="episode", observation=[name, "word"], categorical=["word"], action="action", reward="reward",
        terminated="terminated",
    ))  # fmt: skip
    log.save("log")
    evaluate = {"[/oops]\x1b[2J": lambda policy: 1.0}
    tl.fit(bc(), log, 4, eval_every=2, out="run", evaluate=evaluate, held_out=0.3, progress=False)
    done = [inspected, tidelog("log", "inspect", "--data", "log")]
    done += [tidelog("judge", "run", "--sample", "--replicates", 1000), tidelog("report", "run")]
    for one in done[1:]:
        assert one.code == 0, one.err
    for one in done:
        assert not CONTROL.search(one.out + one.err), one.out
    page = (tmp_path / "report.html").read_text()
    assert "<script>alert" not in page
    assert "\x1b" not in page


@pytest.mark.full
def test_a_file_whose_name_is_no_utf8_goes_through_the_commands(tmp_path, tidelog, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = np.arange(60)
    frame = pl.DataFrame({"e": rows // 3, "o": rows / 60, "a": rows % 2, "r": rows % 2, "d": rows % 3 == 2})
    frame.write_csv("plain.csv")
    name = os.fsdecode(b"log\xff.csv")
    shutil.copy("plain.csv", name)
    mapping = 'episode = "e"\nobservation = ["o"]\naction = "a"\nreward = "r"\nterminated = "d"\n'
    (tmp_path / "log.toml").write_text(mapping)
    log = ["--data", name, "--columns", "log.toml"]
    for words in (
        ["log", "check", *log],
        ["log", "inspect", "--data", name, "--html", "page.html", "--write", "proposal.toml"],
        ["log", "convert", *log, "--out", "log.npz"],
        ["train", "bc", "--data", "log.npz", "--steps", 2, "--out", "run", "--hidden", 4],
        ["train", "bc", "--data", "plain.csv", "--columns", "log.toml", "--steps", 2, "--out", "named", "--hidden", 4],
        ["act", "named", "--data", name, "--out", "acts.csv"],
    ):
        done = tidelog(*words)
        assert done.code == 0, (words, done.said)
        assert not CONTROL.search(done.out + done.err)
    done = tidelog("train", "bc", *log, "--steps", 2, "--out", "other", "--hidden", 4)
    assert (done.code, (tmp_path / "other").exists()) == (2, False)
    assert r"log\udcff.csv has bytes that are no UTF-8" in done.said


@pytest.mark.parametrize("name", ['a"]\nother = "b', "\x1b[2J", "\\u0000", "'''", '"""', "\u2028line", "a = [", "\x7f"])
def test_a_mapping_that_is_written_holds_the_names_of_columns_and_nothing_else(name, tmp_path):
    rows = np.arange(60)
    frame = pl.DataFrame({"episode": rows // 3, name: rows / 60, "action": rows % 2, "reward": rows * 0.5})
    frame.write_parquet(tmp_path / "log.parquet")
    mapping = tomllib.loads(describe_table(tmp_path / "log.parquet").toml)
    assert mapping["observation"] == [name]
    assert (mapping["episode"], mapping["action"], mapping["reward"]) == ("episode", "action", "reward")


def test_a_run_record_imports_no_module(tmp_path, tidelog, monkeypatch):
    """A module's name in a record is a word; only --env imports it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ward_of_others.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    log = tl.collect("treatment", episodes=40, seed=0)
    log.save("log.tidelog")
    tl.fit(bc(), tl.Log.load("log.tidelog"), 2, out="run", evaluate={"treatment": 5}, eval_every=2, progress=False)
    path = tmp_path / "run" / "run.json"
    text = path.read_text()
    assert '"treatment"' in text
    write_record(path.parent, json.loads(text.replace('"treatment"', '"ward_of_others:Ward-v0"')))
    for words in (("resume", "run", "--steps", "4"), ("report", "run"), ("judge", "run", "--sample")):
        done = tidelog(*words)
        assert "imported" not in done.said
        assert "Traceback" not in done.err
        assert "checksum" not in done.said
    assert "ward_of_others" not in sys.modules
