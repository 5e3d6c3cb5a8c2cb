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


def errors_of(checker: str, folder: Path, **texts: str) -> tuple[dict[str, set[int]], str]:
    """The lines of each file in which a strict checker finds errors, and what it says; the files are alone."""
    pytest.importorskip(checker)
    source = Path(tl.__file__).parents[1]
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    files = sorted(str(path) for path in folder.glob("*.py"))
    if checker == "mypy":
        command = ["--strict", "--config-file", str(ROOT / "pyproject.toml"), *files]
    else:
        settings = {"typeCheckingMode": "strict", "include": ["*.py"], "extraPaths": [str(source)]}
        (folder / "pyrightconfig.json").write_text(json.dumps(settings))
        command = ["--project", str(folder), "--pythonpath", sys.executable]
    done = subprocess.run(
        [sys.executable, "-m", checker, *command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = re.findall(r"(\w+)\.py:(\d+):(?:\d+ -)? error", done.stdout)
    return {name: {int(line) for file, line in found if file == name} for name in texts}, done.stdout


@pytest.mark.full
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_users_script_passes_the_strict_checkers_and_mistakes_are_seen(checker: str, tmp_path: Path) -> None:
    found, said = errors_of(checker, tmp_path, script=SCRIPT.read_text(), mistakes=MISTAKES)
    assert not found["script"], said
    right = ("policy =", "verdict =")
    lines = MISTAKES.splitlines()
    first = lines.index("tl.IQL(temprature=3.0)")
    wrong = {number for number, line in enumerate(lines, 1) if number > first and not line.startswith(right)}
    assert found["mistakes"] == wrong, said


@pytest.mark.full
def test_a_users_script_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decision = user_script.main(tmp_path, steps=5)
    assert decision in ("better", "worse", "no difference shown", "unsupported")
    assert decision in capsys.readouterr().out
