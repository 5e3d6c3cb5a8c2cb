"""Every command that is printed can be pasted into a shell, also for folders with a space and quotes in their names."""

import io
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import tidelog as tl
from tests.cli.conftest import toy
from tidelog._text import wrapped
from tidelog.cli import demo, policies
from tidelog.data.read import read_log
from tidelog.runtime.artefact import SavedPolicy
from tidelog.training.learn import load_run

NAME = 'it\'s a "log" $(x)'


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a table and its mapping below a folder with an odd name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "2000")
    Path(NAME).mkdir()
    toy(tmp_path / NAME, x=np.arange(60) / 60, y=-np.arange(60) / 60)
    return tmp_path


def commands_in(text):
    """The words of every printed command, in backticks or alone on its line after an optional `next:`."""
    found = re.findall(r"`(tidelog [a-z][^`]*)`", text)
    found += re.findall(r"^(?:next: |then: |try: | +)?(tidelog [a-z].*?)(?:   .*)?$", text, re.MULTILINE)
    return [shlex.split(one) for one in found]


def check(text):
    """Return the commands, of which at least one has the odd name, each time within one word."""
    commands = commands_in(text)
    assert any(word.startswith(f"{NAME}/") for command in commands for word in command), text
    for command in commands:
        assert not any(word.startswith(("it", "a", '"log"')) and "log" in word and NAME not in word for word in command)
    return commands


def test_every_printed_command_is_quoted(here, tidelog, monkeypatch):
    table, run = f"{NAME}/log.csv", f"{NAME}/run"
    check(tidelog("log", "inspect", "--data", table).out)
    check(tidelog("log", "inspect", "--data", table, "--write", f"{NAME}/proposed.toml").out)
    check(tidelog("log", "check", "--data", table).err)
    check(tidelog("train", "recommender-bcq", "--data", table).err)
    trained = tidelog("train", "bc", "--data", table, "--columns", f"{NAME}/columns.toml", "--steps", 2, "--hidden", 4,
                      "--out", run)  # fmt: skip
    assert trained.code == 0, trained.err
    assert ["tidelog", "act", run] in [command[:3] for command in check(trained.out)]
    with pytest.raises(tl.errors.CheckpointError) as error:
        SavedPolicy(run)
    check(str(error.value))
    for options in ({}, {"memory_map": True}):
        with pytest.raises(tl.ConfigError) as error:
            read_log(table, None, **options)
        check(str(error.value))
    monkeypatch.setattr(policies, "Catalogue", object)  # as if the run ranked items
    with pytest.raises(tl.ConfigError) as error:
        policies.refuse_lists(Path(run), load_run(run).record, "act")
    check(str(error.value))
    monkeypatch.setattr(demo, "_learn", lambda *_: None)
    for name in ("_judge", "_play", "_compare", "_export"):
        monkeypatch.setattr(demo, name, lambda *_: {})
    check(tidelog("demo", "--out", f"{NAME}/demo", "--patients", 20).out)


def test_commands_and_paths_stay_whole_in_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    command = "next: tidelog act runs/iql --data " + "folder/" * 20 + "new.csv --out actions.csv"
    assert wrapped(command, terminal) == command
    path = "/".join(["folder"] * 30)
    assert path in wrapped(f"the report is in {path} and can be opened", terminal).split()
