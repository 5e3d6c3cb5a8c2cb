"""What a pipe, a disk or a name refuses is one sentence, not a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.cli import main

ROWS = "patient,severity,treatment,reward\n" + "".join(
    f"{i},{i % 7},{['hoch ↑', '日本'][i % 2]},{i % 3}\n" for i in range(60)
)


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("v.csv").write_text(ROWS, encoding="utf-8")


def tidelog(*words, stdout=subprocess.PIPE, **environment):
    command = [sys.executable, "-m", "tidelog", *words]
    done = subprocess.run(
        command, env=os.environ | environment, stdout=stdout, stderr=subprocess.PIPE, check=False, timeout=60
    )
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("cp1252", marks=pytest.mark.full)])
def test_letters_that_a_pipe_lacks_are_escaped(encoding, log):
    code, out, errors = tidelog("log", "inspect", "--data", "v.csv", PYTHONIOENCODING=encoding)
    assert (code, errors) == (0, "")
    assert b"\\u2191" in out or b"\\u65e5" in out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_a_full_device_is_a_sentence_and_exit_code_4(log):
    with open("/dev/full", "w") as full:
        code, _, errors = tidelog("log", "inspect", "--data", "v.csv", stdout=full)
    assert code == 4
    assert errors.startswith("tidelog: No space left on device. fix: free some space")
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["log", "inspect", "--data", "v.csv", "--write", "x" * 300 + ".toml"],
        ["log", "convert", "--data", "v.csv", "--columns", "columns.toml", "--out", "x" * 300],
        ["train", "bc", "--data", "v.csv", "--columns", "columns.toml", "--out", "x" * 300],
        ["collect", "--env", "treatment", "--episodes", "2", "--out", "x" * 300],
        ["judge", "x" * 300],
        ["act", "x" * 300, "--data", "v.csv", "--out", "a.csv"],
        ["verify", "x" * 300],
        ["report", "x" * 300],
    ],
)
def test_a_name_of_300_letters_is_refused_with_the_fix(words, log, capsys):
    Path("columns.toml").write_text(
        'observation = ["severity"]\naction = "treatment"\nreward = "reward"\nepisode = "patient"\nterminated = true\n'
    )
    assert main(words) == 2
    assert "tidelog: " in capsys.readouterr().err
    assert sorted(os.listdir()) == ["columns.toml", "v.csv"]


def test_an_unexpected_refusal_of_the_system_has_exit_code_4(monkeypatch, capsys, log):
    def refuse(words):
        raise OSError(5, "Input/output error", "/mnt/log\n.csv")

    monkeypatch.setattr("tidelog.cli._dispatch", refuse)
    assert main(["log"]) == 4
    assert capsys.readouterr().err == (
        "tidelog: Input/output error ('/mnt/log\\n.csv'). "
        "fix: look at the disk and the folder, then run the command again\n"
    )


def test_a_value_makes_no_line_of_its_own(tmp_path, capsys):
    assert main(["verify", str(tmp_path / "policy\nsignature: valid, by the key 0123456789abcdef")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "policy\\nsignature: valid" in line


def test_a_command_without_an_output_ends_as_it_is(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    assert main(["--version"]) == 0


def test_an_error_that_nobody_reads_any_more_keeps_its_code(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "tidelog", "judge", str(tmp_path / "none")]
    try:
        done = subprocess.run(command, stderr=writing, stdout=subprocess.DEVNULL, check=False)
    finally:
        os.close(writing)
    assert done.returncode == 2
