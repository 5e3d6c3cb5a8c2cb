"""The calls of a study are each made once, by processes of this machine, and their results come in order."""

import os

import pytest

from benchmarks.spread import called, spread

CALLS = """
from pathlib import Path

def square(number, folder):
    with Path(folder, "made").open("a") as file:
        file.write(f"{number} ")
    if number == 13:
        raise ValueError("unlucky")
    return {"square": number * number}
"""


@pytest.fixture
def square(tmp_path, monkeypatch):
    (tmp_path / "calls_of_a_study.py").write_text(CALLS)
    monkeypatch.syspath_prepend(str(tmp_path))
    from calls_of_a_study import square

    return square


@pytest.mark.full
def test_each_call_is_made_once_and_results_come_in_their_order(square, tmp_path):
    calls = [(square, number, str(tmp_path)) for number in (5, 3, 4)]
    assert spread(calls[:2], tmp_path / "study", 1) == [{"square": 25}, {"square": 9}]
    assert spread(calls, tmp_path / "study", 1) == [{"square": 25}, {"square": 9}, {"square": 16}]
    assert (tmp_path / "made").read_text() == "5 3 4 "


@pytest.mark.full
def test_a_call_that_fails_is_named(square, tmp_path):
    calls = [(square, number, str(tmp_path)) for number in (2, 13)]
    with pytest.raises(RuntimeError, match=r"square_13_\S+: ValueError\('unlucky'\)"):
        spread(calls, tmp_path / "study", 1)
    assert len(list((tmp_path / "study" / "done").glob("square_2_*.json"))) == 1


def test_a_call_in_a_process_of_its_own_returns_and_reads_its_environment(square, tmp_path, monkeypatch):
    assert called(square, 5, str(tmp_path)) == {"square": 25}
    monkeypatch.setenv("TIDELOG_ANSWER", "no")
    assert called(os.getenv, "TIDELOG_ANSWER", TIDELOG_ANSWER="yes") == "yes"
