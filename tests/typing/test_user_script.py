"""A user's script passes mypy and pyright, both strict, and runs; the mistakes that a checker should see are seen."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tidelog as tl
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
tl.fit(tl.BC(), log, steps=3, held_uot=0.2)
tl.fit(tl.BC(), log, steps=3, held_out="half")
tl.fit(tl.BC(), log, steps=3, log_out="x")
tl.learn(tl.PPG(), "treatment", steps=3, devices="all")
policy = tl.fit(tl.BC(), log, steps=3).policy()
tl.judge(policy, log, smple=True)
verdict = tl.judge(policy, log)
text: int = verdict.advice
verdict.decison
tl.judge([policy, policy], log).paragraph
tl.judge(policy, log).better
tl.Limits(levle=0.9)
tl.read_log("visits.csv", epsiode="visit")
tl.check("visits.csv", colums="columns.toml")
tl.sweep([tl.BC()], log, 3, evaluate={"mine": print})
log.split("half")
policy.save(3)
runtime.load("policy.zip").recommend([[]], k=3)
policy.recommend([[]], k="three")
"""


def errors_of(checker: str, text: str, folder: Path) -> tuple[set[int], str]:
    """The lines in which a strict checker finds errors, and what it says; the file is alone in its folder."""
    pytest.importorskip(checker)
    file, source = folder / "script.py", Path(tl.__file__).parents[1]
    file.write_text(text)
    if checker == "mypy":
        command = ["--strict", "--config-file", str(ROOT / "pyproject.toml")]
    else:
        settings = {"typeCheckingMode": "strict", "include": ["script.py"], "extraPaths": [str(source)]}
        (folder / "pyrightconfig.json").write_text(json.dumps(settings))
        command = ["--project", str(folder), "--pythonpath", sys.executable]
    done = subprocess.run(
        [sys.executable, "-m", checker, *command, *([str(file)] if checker == "mypy" else [])],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return {int(line) for line in re.findall(r"script\.py:(\d+):(?:\d+ -)? error", done.stdout)}, done.stdout


@pytest.mark.full
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_users_script_passes_the_strict_checkers(checker: str, tmp_path: Path) -> None:
    found, said = errors_of(checker, SCRIPT.read_text(), tmp_path)
    assert not found, said
    assert ("no issues found" if checker == "mypy" else "0 errors") in said


@pytest.mark.full
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_mistakes_of_a_user_are_seen(checker: str, tmp_path: Path) -> None:
    found, said = errors_of(checker, MISTAKES, tmp_path)
    right = ("policy =", "verdict =")
    lines = MISTAKES.splitlines()
    first = lines.index("tl.IQL(temprature=3.0)")
    assert found == {number for number, line in enumerate(lines, 1) if number > first and not line.startswith(right)}, (
        said
    )


@pytest.mark.full
def test_a_users_script_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decision = user_script.main(tmp_path, steps=5)
    assert decision in ("better", "worse", "no difference shown", "unsupported")
    assert decision in capsys.readouterr().out
