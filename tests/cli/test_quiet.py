"""`--quiet` on every command: its result and nothing else; and what a narrow terminal, a pipe and NO_COLOR show."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from tests.cli.conftest import SMALL
from tests.runtime.test_signing import pem
from tidelog.cli import COMMANDS

DATA = ["--data", "visits.csv", "--columns", "columns.toml"]
WALK = [*([name] for name in COMMANDS if name not in ("data", "train")), ["train", "iql"]]
WALK += [["data", name] for name in ("inspect", "validate", "convert")]
LISTS = ["--user", "patient", "--item", "treatment", "--time", "visit"]


@pytest.mark.parametrize("words", WALK, ids=" ".join)
def test_every_command_can_be_quiet_and_print_json(words, tidelog):
    said = tidelog(*words, "--help").out
    assert "--quiet" in said
    assert "--json" in said or words == ["serve"]  # which runs until it is stopped


@pytest.fixture
def quiet(tidelog):
    """Call a command with `--quiet`; the lines of its output, which is the whole of it."""

    def call(*words):
        done = tidelog(*words, "--quiet")
        assert (done.code, done.err) == (0, ""), done
        return done.out.splitlines()

    return call


def test_commands_on_logs_print_one_line(here, quiet):
    for command in ("validate", "inspect"):
        (line,) = quiet("data", command, *DATA)
        assert line.startswith("visits.csv: ")
    lines = quiet("data", "inspect", "--data", "visits.csv", "--write", "proposed.toml")
    assert [one.split(":")[0] for one in lines] == ["visits.csv", "written"]
    assert quiet("data", "convert", *DATA, "--out", "log.tidelog") == ["written: log.tidelog"]


def test_commands_on_policies_print_one_line(here, run, quiet):
    assert quiet("export", run, "--out", "policy", "--no-onnx") == ["exported: policy"]
    (line,) = quiet("act", "policy", "--data", "visits.csv", "--out", "actions.csv")
    assert re.fullmatch(r"[\d,]+ rows with their actions: actions.csv", line)
    assert quiet("verify", "policy") == ["policy: complete, not signed"]
    assert quiet("verify", "policy", "--chain", "--run", run) == ["policy: complete, not signed, complete chain"]
    assert quiet("report", run) == ["report: report.html"]


def test_a_signature_that_nobody_checked_is_said(here, run, quiet):
    private = pem(here / "key.pem", ed25519.Ed25519PrivateKey.generate())
    assert quiet("export", run, "--out", "policy", "--no-onnx", "--sign", private) == ["exported: policy"]
    assert quiet("verify", "policy") == ["policy: complete, signature not checked"]
    assert quiet("verify", "policy", "--key", "key.pub") == ["policy: complete, valid signature"]


def test_a_comparison_prints_its_tables_only(here, run, quiet, tidelog):
    run = shutil.copytree(run, here / "run")
    loud, said = tidelog("evaluate", run, *DATA).out, "\n".join(quiet("evaluate", run, *DATA))
    assert "trained on" in loud or "training episodes say" in loud
    assert "member 1" in said
    assert "trained on" not in said
    assert "training episodes say" not in said


def test_play_prints_its_result_only(here, quiet):
    assert quiet("collect", "--env", "CartPole-v1", "--episodes", 2, "--out", "log") == ["log"]


@pytest.mark.full
def test_lists_print_one_line(here, quiet):
    words = ["--data", "visits.csv", *LISTS]
    small = ["--hidden", 8, "--steps", 5, "--out", "lists"]
    assert quiet("train", "recommender-bcq", *words, *small) == ["run folder: lists"]
    (line,) = quiet("recommend", "lists", *words, "--out", "lists.csv", "--k", 2)
    assert re.fullmatch(r"lists of 2 items for [\d,]+ users: lists.csv", line)


def test_quiet_json_has_no_notes_beside_it(here, run, tidelog):
    done = tidelog("act", run, "--data", "visits.csv", "--out", "actions.csv", "--quiet", "--json")
    assert json.loads(done.out)["out"] == "actions.csv"
    assert "note" not in done.err


def on_terminal(folder, *words, **environment):
    """The bytes that a command writes to a terminal of 40 columns."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tidelog", *map(str, words)]
    environment = {**os.environ, "COLUMNS": "40", "TERM": "xterm", **environment}
    with os.fdopen(theirs, "wb") as end:
        process = subprocess.Popen(command, cwd=folder, stdout=end, stderr=end, env=environment)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        said += part
    os.close(ours)
    assert process.wait() == 0, said
    return said.decode()


@pytest.mark.full
@pytest.mark.parametrize("command", ["inspect", "validate", "evaluate", "train", "judge", "help"])
def test_a_narrow_terminal_without_colours(here, run, command):
    run = shutil.copytree(run, here / "run")  # a verdict and comparisons are written there
    words = {
        "inspect": ["data", "inspect", *DATA],
        "validate": ["data", "validate", *DATA],
        "evaluate": ["evaluate", run, *DATA],
        "train": ["train", "bc", *DATA, "--steps", 5, "--out", "new", *SMALL],
        "judge": ["judge", run, "--ledger", "off", "--replicates", 1000, *DATA],
        "help": ["act", "--help"],
    }[command]
    said = on_terminal(here, *words, NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*m", re.sub(r"\x1b\[[0-2]?m", "", said)), "colours"  # bold and plain may be
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said).replace("\r", "\n")
    wide = [line for line in shown.splitlines() if len(line) > 40 and " " in line.strip()[:40] and command != "help"]
    assert not [line for line in wide if not re.search(r"tidelog |--|/", line)], wide
