"""`tidelog report`: the file that it writes, what it says, and what it refuses."""

import webbrowser

import pytest

from tests.report.crafted import put, verdict


def test_a_report_is_written_and_named(here, run, tidelog):
    done = tidelog("report", run)
    assert done.code == 0
    assert done.out.startswith("report: report.html (")
    text = (here / "report.html").read_text(encoding="utf-8")
    assert "Not judged yet" in text
    assert "severity" in text
    assert tidelog("report", run, "--out", "report.html").code == 0


@pytest.mark.full
def test_runs_side_by_side(here, run, tidelog):
    words = ["train", "bc", "--data", "visits.csv", "--columns", "columns.toml", "--out", "wide", "--hidden", 16]
    assert tidelog(*words, "--steps", 4, "--eval-every", 2).code == 0
    put(here / "wide", "now", verdict("worse"))
    assert tidelog("report", run, "wide", "--out", "both.html").code == 0
    text = (here / "both.html").read_text(encoding="utf-8")
    assert "banner worse" in text
    assert "Common settings that differ" in text


def test_a_log_that_moved_is_given(here, run, tidelog):
    words = ["--data", "visits.csv", "--columns", "columns.toml"]
    assert tidelog("report", run, *words, "--out", "a.html").code == 0
    (here / "other.csv").write_text("\n".join((here / "visits.csv").read_text().split("\n")[:-9]) + "\n")
    done = tidelog("report", run, "--data", "other.csv", "--columns", "columns.toml", "--out", "b.html")
    assert (done.code, (here / "b.html").exists()) == (2, False)
    assert "no run of the report learnt from this log" in done.said


@pytest.mark.parametrize("found", [True, False])
def test_it_is_shown_if_that_is_asked(found, here, run, tidelog, monkeypatch):
    asked = []
    monkeypatch.setattr(webbrowser, "open", lambda address: asked.append(address) or found)
    done = tidelog("report", run, "--open")
    assert asked == [(here / "report.html").as_uri()]
    assert ("no browser was found" in done.out) != found
