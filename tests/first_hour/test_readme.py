"""The README's commands and its Python, exactly as written and in order, in a fresh folder."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tidelog import load_policy

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README.read_text(), re.S | re.M)
ROW = {"severity": 3, "strain": 1, "toxicity": 0, "hour": 8, "kidneys": "impaired"}


def commands(block: str) -> list[list[str]]:
    """The commands of tidelog in a block, one list of words each; installations and the tests are left out."""
    words = [shlex.split(part, comments=True) for line in block.splitlines() for part in line.split("&&")]
    return [one[1:] for one in words if one and one[0] == "tidelog"]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess:
    """A command of one reader, whose looks add up from the demo on; XLA compiles for speed, as for readers."""
    reader = {**os.environ, "TIDELOG_STATE": str(folder / "state"), "XLA_FLAGS": ""}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=reader, capture_output=True, text=True, check=False, timeout=900
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A fresh folder in which the first block has run: `tidelog demo`."""
    place = tmp_path_factory.mktemp("readme")
    (words,) = commands(BLOCKS[0][1])
    done = run(place, "-m", "tidelog", *words)
    assert done.returncode == 0, done.stderr
    return place


@pytest.mark.full
def test_every_command_works_as_written_and_in_order(folder):
    *steps, serve = commands(BLOCKS[1][1])
    assert [words[0] for words in steps] == ["log", "log", "train", "train", "judge", "act", "report", "export"]
    for words in steps:
        done = run(folder, "-m", "tidelog", *words)
        assert done.returncode == 0, f"tidelog {shlex.join(words)}\n{done.stdout}\n{done.stderr}"
        if words[0] == "judge":
            assert done.stdout.startswith("Use "), done.stdout
            assert "judged once before" not in done.stdout, "the demo's looks are not looks of the reader"
    for name in ("columns.toml", "actions.csv", "report.html", "runs/iql/policy.zip"):
        assert (folder / name).stat().st_size > 0
    command = [sys.executable, "-m", "tidelog", *serve, "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = re.search(r"http://\S+", server.stdout.readline())[0]
            answer = _ask(address, {"observation": ROW})
            labels = load_policy(folder / "runs/iql/policy.zip").spec.action.names
            assert labels[answer["code"]] == answer["action"]
        finally:
            server.send_signal(signal.SIGINT)


def _ask(address: str, body: dict) -> dict:
    request = urllib.request.Request(f"{address}/act", json.dumps(body).encode(), {"Content-Type": "application/json"})
    for _ in range(50):
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read())
        except urllib.error.URLError:
            time.sleep(0.2)
    raise TimeoutError(address)


@pytest.mark.full
def test_the_python_runs_as_pasted(folder):
    ((_, code),) = [block for block in BLOCKS if block[0] == "python"]
    done = run(folder, "-W", "error::tidelog.runtime.way_of_acting.ActingWarning", "-c", code)
    assert done.returncode == 0, done.stderr
    assert (folder / "policy" / "manifest.json").exists()
