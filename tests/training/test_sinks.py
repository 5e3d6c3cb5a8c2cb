"""Where metrics go besides the run folder: a sink of one's own (trackers: tests/sinks); and the live line."""

import io
import json
import re
import time

import pytest
from rich import console

from tests.training.runs import bc, begin, finish, iql
from tidelog import IQL
from tidelog.errors import CheckpointError
from tidelog.sinks import read_rows
from tidelog.training import metrics
from tidelog.training import run as runs
from tidelog.training.metrics import Progress, TrainingProgress


def test_a_sink_of_ones_own_gets_every_row_and_is_closed_when_the_run_ends_or_fails(origin):
    class Kept(list):
        write, closed = list.append, 0

        def close(self):
            self.closed += 1

    class Broken(Kept):
        def write(self, row):
            raise OSError("gone")

    kept, broken = Kept(), Broken()
    run = finish(begin(bc(), origin, seeds=2, sinks=[kept]))
    assert kept == run.metrics
    assert kept.closed == 1
    with pytest.raises(OSError, match="gone"):
        finish(begin(bc(), origin, sinks=[broken]))
    assert broken.closed == 1


def test_quick_work_writes_no_line_where_there_is_no_terminal(capfd):
    with Progress("bc") as screen:
        screen.show(TrainingProgress("compiling", 0, 10))
    assert capfd.readouterr() == ("", "")


def test_long_work_writes_lines_with_the_time_where_there_is_no_terminal(capfd, monkeypatch):
    monkeypatch.setattr(metrics, "QUIET_SECONDS", 0.05)
    with Progress("bc") as screen:
        screen.note("the log was converted")
        screen.show(TrainingProgress("training", 500, 1000, 250.0, 61.0, {"loss": 0.5}))
        time.sleep(0.3)  # nothing new happens, and it still shows that it goes on
        screen.update("propensities", 0.4)
        time.sleep(0.2)
    out, err = capfd.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0] == "note: the log was converted"
    assert re.fullmatch(r"\d\d:\d\d:\d\d  bc  500 / 1,000 updates  250/s  1:01 left  loss 0.5", lines[1])
    assert lines[2].endswith("1:01 left  loss 0.5")
    assert lines[-1].endswith("bc  propensities  40%")


def test_the_expected_duration_is_said_once_the_rate_is_measured(capfd, monkeypatch, origin):
    monkeypatch.setattr(runs, "SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(runs, "LONG_SECONDS", 0.0)
    begin(bc(), origin).train()
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("note: about")]
    assert "validations whose time is not known yet" in said[0]
    assert len(said) == 2, "again with the time of the validations, once it is measured"
    assert re.fullmatch(r"note: about \d+ seconds for \d+ updates at [\d,]+/s on this machine", said[1])
    monkeypatch.setattr(runs, "LONG_SECONDS", 1e9)
    begin(bc(), origin).train()
    assert "note: about" not in capfd.readouterr().err


def test_the_screen_says_that_it_compiles_and_then_how_far_it_is(monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(
        console, "Console", lambda stderr, real=console.Console: real(file=terminal, force_terminal=True, width=120)
    )
    with Progress("bc", show=True) as screen:
        screen.show(TrainingProgress("compiling", 0, 1000))
        time.sleep(0.2)
        assert "bc  0 / 1,000 updates  compiling ..." in terminal.getvalue()
        screen.show(TrainingProgress("training", 500, 1000, 250.0, 3661.0, {"loss": 0.123456, "entropy": 2.0}))
        time.sleep(0.2)
    assert "bc  500 / 1,000 updates  250/s  1:01:01 left  loss 0.1235  entropy 2" in terminal.getvalue()


@pytest.mark.parametrize("line", [b'{"update": 1', b"\xff\xfe"])
def test_a_damaged_line_is_refused_with_its_number_and_a_cut_last_one_is_left_out(line, tmp_path):
    path = tmp_path / "metrics.jsonl"
    first = b'{"update": 0, "member": 0, "seed": 0}\n'
    path.write_bytes(first + line)
    assert read_rows(path) == [json.loads(first)]
    path.write_bytes(first + line + b"\n" + first)
    with pytest.raises(CheckpointError, match=r"metrics.jsonl, line 2 is damaged \("):
        read_rows(path, len(first) + 1)
    with pytest.warns(UserWarning, match=r"line 2 is damaged .* after the last checkpoint"):
        assert read_rows(path, len(first)) == [json.loads(first)]


def test_the_live_line_begins_with_the_metrics_that_the_user_named(origin, monkeypatch):
    own = {"gain": lambda policy: 0.5}
    for module, named in (("tidelog.algorithms.iql", ["actor_loss"]), ("mine", ["advantage_mean", "advantage_std"])):
        monkeypatch.setattr(IQL, "__module__", module)
        run = begin(iql(), origin, steps=6, eval_every=2, evaluate=own, best_metric="max:held_out/value_loss")
        lines = [list(now.metrics) for now in run.stream() if now.doing == "training" and now.update > 2]
        assert lines
        for names in lines:
            assert names[: 2 + len(named)] == ["held_out/value_loss", "gain", *named]
            assert {"actor_loss", "critic_loss"} < set(names)
        assert "last held_out/value_loss" in run._repr_html_()
