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
