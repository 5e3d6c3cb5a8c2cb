"""A user's script passes mypy --strict and runs; the mistakes that a checker should see are seen."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.typing import user_script

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCRIPT = HERE / "user_script.py"
MISTAKES = """
import tidelog as tl
from tidelog import runtime

log = tl.read_log("visits.csv", "columns.toml")
tl.IQL(temprature=3.0)
tl.IQL(temperature="high")
tl.fit(tl.BC(), log, step=3)
tl.fit(tl.BC(), "visits.csv", steps=3)
policy = tl.fit(tl.BC(), log, steps=3).policy()
tl.judge(policy, log, smple=True)
verdict = tl.judge(policy, log)
text: int = verdict.advice
verdict.decison
tl.judge([policy, policy], log).paragraph
tl.judge(policy, log).better
tl.Limits(levle=0.9)
tl.read_log("visits.csv", epsiode="visit")
log.split("half")
policy.save(3)
runtime.load("policy.zip").recommend([[]], k=3)
policy.recommend([[]], k="three")
"""


def check(path: Path) -> subprocess.CompletedProcess[str]:
    """Check a file with mypy --strict, by the rules of this checkout."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.full
def test_a_users_script_passes_the_strict_checker() -> None:
    done = check(SCRIPT)
    assert done.returncode == 0, done.stdout


@pytest.mark.full
def test_mistakes_of_a_user_are_seen(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(MISTAKES)
    found = {int(line) for line in re.findall(r"wrong\.py:(\d+): error", check(wrong).stdout)}
    right = ("policy =", "verdict =")
    lines = MISTAKES.splitlines()
    first = lines.index("tl.IQL(temprature=3.0)")
    assert found == {number for number, line in enumerate(lines, 1) if number > first and not line.startswith(right)}


@pytest.mark.full
def test_a_users_script_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decision = user_script.main(tmp_path, steps=5)
    assert decision in ("better", "worse", "no difference shown", "unsupported")
    assert decision in capsys.readouterr().out
