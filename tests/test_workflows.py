"""What runs on GitHub is what runs here, on the Pythons that the package says it supports; the citation is of it."""

import re
import tomllib
from pathlib import Path

import pytest

import tidelog as tl

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").glob("*.yml")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def steps(workflow: str, job: str) -> list[dict]:
    return WORKFLOWS[workflow]["jobs"][job]["steps"]


def commands() -> list[tuple[str, str]]:
    """Every `run:` block with the workflow that it is in."""
    jobs = [(name, job) for name, workflow in WORKFLOWS.items() for job in workflow["jobs"].values()]
    return [(name, step["run"]) for name, job in jobs for step in job["steps"] if "run" in step]


def test_ci_runs_the_whole_check_on_every_python_that_is_promised() -> None:
    matrix = WORKFLOWS["ci"]["jobs"]["check"]["strategy"]["matrix"]
    promised = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert PROJECT["requires-python"] == f">={matrix['python'][0]}"
    assert matrix["python"] == promised
    ends = [promised[0], promised[-1]]
    others = {row["os"] for row in matrix["include"]}
    assert {system: [row["python"] for row in matrix["include"] if row["os"] == system] for system in others} == {
        "ubuntu-24.04-arm": ends,
        "macos-latest": ends,
    }
    assert "bash .ci/run" in [step.get("run") for step in steps("ci", "check")]


def test_the_citation_names_this_version_and_this_licence() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["title"], citation["version"]) == (PROJECT["name"], tl.__version__)
    assert citation["license"] == PROJECT["license"]


def test_no_text_from_outside_becomes_part_of_a_command() -> None:
    assert len(commands()) > 5
    assert [found for found in commands() if "${{" in found[1]] == []


def test_only_a_pushed_tag_is_published_and_only_after_the_checks() -> None:
    publish = WORKFLOWS["release"]["jobs"]["publish"]
    assert publish["needs"] == "build"
    assert publish["if"] == "github.event_name == 'push' && github.ref_type == 'tag'"
    assert {name for name, job in WORKFLOWS["release"]["jobs"].items() if "permissions" in job} == {"publish"}
    assert all(workflow["permissions"] == {"contents": "read"} for workflow in WORKFLOWS.values())
    (audit,) = [command for name, command in commands() if name == "release" and "pip_audit" in command]
    assert "cyclonedx-py environment" in audit
    assert [command for name, command in commands() if name == "release" and "smoke" in command] == [
        "bash .ci/smoke dist/*.whl",
        "bash .ci/smoke dist/*.tar.gz",
    ]
