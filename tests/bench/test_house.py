"""The figures of the house: each is counted, and the aims are of figures that exist."""

import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from benchmarks import house
from benchmarks.__main__ import main, parser_of, run, studies
from benchmarks.house import AIMS, ROOT, figures
from benchmarks.keep import source
from benchmarks.walks import walks

WALKS = {"read_log": 10, "fit": 25, "judge": 31, "POST /act": 7}  # files: a change may lower them


def test_every_figure_is_counted_and_every_aim_has_its_figure():
    counted = figures()
    assert set(AIMS) <= set(counted)
    assert all(value > 0 for name, value in counted.items() if name != "class names twice")
    assert counted["class names twice"] == 0


@pytest.mark.full
def test_data_pass_no_more_files_than_before(tmp_path):
    longer = {name: sorted(files) for name, files in walks(tmp_path).items() if len(files) > WALKS[name]}
    assert not longer


def test_one_runner_lists_every_study_and_runs_the_one_that_is_named(capsys, monkeypatch):
    monkeypatch.setattr(house, "figures", lambda: {"source lines": 7})
    claims = studies()
    assert {"speed", "calibration", "kills", "house"} <= set(claims)
    assert not {"keep", "peers_torch", "spread", "peer_judges"} & set(claims)
    assert all(claims.values())
    assert main(["hose"]) == 2
    assert "fix: `python -m benchmarks house`" in capsys.readouterr().err
    assert main(["house"]) == 0
    assert re.search("source lines +7 ", capsys.readouterr().out)


def some_study(
    kind: Literal["few", "many"], /, *worlds: str, logs: int = 4, folder: Path | None = None,
    names: Sequence[str] = ("bc", "iql"), seeds: Sequence[int] = (), tiny: bool = False,
) -> list[Any]:  # fmt: skip
    return [kind, worlds, logs, folder, names, seeds, tiny]


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["few"], ["few", (), 4, None, ("bc", "iql"), (), False]),
        (["many", "a", "b", "--tiny", "--logs", "9"], ["many", ("a", "b"), 9, None, ("bc", "iql"), (), True]),
        (["few", "--folder", "x", "--names", "iql"], ["few", (), 4, Path("x"), ["iql"], (), False]),
        (["few", "--seeds", "3", "4"], ["few", (), 4, None, ("bc", "iql"), [3, 4], False]),
    ],
)
def test_the_options_of_a_study_are_those_of_its_signature(words, given):
    assert run(some_study, "some", "A claim.", words) == given


@pytest.mark.parametrize("words", [[], ["none"], ["few", "--names", "ppg"], ["few", "--logs", "x"], ["few", "--log2"]])
def test_words_that_a_study_does_not_know_end_with_code_2(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        run(some_study, "some", "A claim.", words)
    assert "usage: python -m benchmarks some" in capsys.readouterr().err


@pytest.mark.full
def test_every_study_has_a_command_line(capsys):
    for name in studies():
        study = importlib.import_module(f"benchmarks.{name}").study
        assert f"python -m benchmarks {name}" in parser_of(study, name).format_help()


def test_every_study_that_a_page_names_exists():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    named = {name for page in pages for name in re.findall(r"python -m\s+benchmarks (\w+)", page.read_text())}
    assert named - set(studies()) == {"NAME"}


def test_a_result_says_its_command_or_the_program_of_the_history():
    here, gone = ({"command": f"python -m benchmarks {name}"} for name in ("speed", "a_look_of_once"))
    assert source(here) == "Command: `python -m benchmarks speed`."
    assert source(gone) == "Measured by `benchmarks/a_look_of_once.py` in the history."
    assert source(here, gone) == f"{source(here)} {source(gone)}"
