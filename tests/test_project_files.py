"""What a repository shows beside its code says what the project is: citation, reports, checks before a commit."""

import re
import tomllib
from pathlib import Path

import pytest

import tidelog as tl

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_citation_names_this_version_and_this_licence() -> None:
    citation = yaml.safe_load(text("CITATION.cff"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert (citation["title"], citation["version"]) == (PROJECT["name"], tl.__version__)
    assert citation["license"] == PROJECT["license"]
    assert set(citation["keywords"]) <= set(PROJECT["keywords"])


def test_checks_before_a_commit_and_in_nox_are_those_of_ci() -> None:
    ci = text(".ci/run")
    hooks = [hook for repo in yaml.safe_load(text(".pre-commit-config.yaml"))["repos"] for hook in repo["hooks"]]
    assert [hook["entry"].removesuffix(" --fix").split()[0] for hook in hooks] == ["ruff", "ruff", "mypy"]
    for hook in hooks:
        assert re.search(rf"^{' '.join(hook['entry'].split()[:2])}", ci, re.M), hook["id"]
    nox = text("noxfile.py")
    sessions = re.findall(r'\["(ruff|mypy)"(?:, "(\S+)")?(?:, "(\S+)")?(?:, "(\S+)")?\]', nox)
    assert [" ".join(filter(None, words)) for words in sessions] == [
        line.split(" #")[0] for line in re.findall(r"^(?:ruff|mypy).*", ci, re.M)
    ]
    for extra in ("test", "docs"):
        assert f'".[{extra}]"' in nox
        assert f'".[{extra}]"' in ci


def test_a_host_of_the_site_builds_what_ci_builds() -> None:
    host = yaml.safe_load(text(".readthedocs.yaml"))
    assert host["version"] == 2
    assert host["sphinx"] == {"configuration": "docs/conf.py", "fail_on_warning": True}
    assert (ROOT / "docs/conf.py").is_file()
    assert f"Programming Language :: Python :: {host['build']['tools']['python']}" in PROJECT["classifiers"]
    (install,) = host["python"]["install"]
    assert (install["method"], install["path"]) == ("pip", ".")
    assert set(install["extra_requirements"]) <= set(PROJECT["optional-dependencies"])


# What runs on GitHub is what runs here, on the Pythons that the package says it supports.


WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").glob("*.yml")}


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
