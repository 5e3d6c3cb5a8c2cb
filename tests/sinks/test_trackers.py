"""Every tracker, by its real package and what that wrote: a run is shown once, whole, and with its verdict."""

import json
import sys

import pytest

from tests.sinks.readers import PACKAGES, expected, shown
from tests.training.runs import STEPS, bc, begin, finish, stop_at, untimed
from tidelog import ConfigError, load_run
from tidelog.errors import CheckpointError, install
from tidelog.sinks import TRACKER_RUNS, SinkWarning, open_sink, read_tracker_runs
from tidelog.training.run import publish

pytestmark = [
    pytest.mark.usefixtures("quiet", "installed"),
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy"),  # MLflow's own use of SQLAlchemy 2.1
]


@pytest.fixture
def installed(sink):
    for package in PACKAGES[sink]:
        pytest.importorskip(package, reason=f"needs the extra {sink}")


def close_to(metrics):
    return {name: [(step, pytest.approx(value, rel=1e-6)) for step, value in pairs] for name, pairs in metrics.items()}


def test_a_run_is_shown_with_its_parameters_and_curves(sink, word, origin, tmp_path):
    run = finish(begin(bc(), origin, tmp_path / "first", seeds=2, sinks=[open_sink(word, tmp_path / "first")]))
    (found,) = shown(sink, tmp_path)
    assert found.name.startswith("first")
    assert found.parameters["algorithm"] == "bc"
    assert found.parameters["learning_rate"] == "0.01"
    assert found.parameters["run.steps"] == str(STEPS)
    assert found.parameters["data.fingerprint"] == origin.fingerprint()
    assert found.metrics == close_to(expected(run.metrics))
    assert len(found.metrics["member-1/imitation_loss"]) == 3


@pytest.mark.sample("tensorboard")
def test_a_resumed_run_continues_and_no_step_is_written_twice(sink, word, origin, tmp_path):
    """Rows after the last checkpoint come again: the run was left before it saved them."""
    out = tmp_path / "run"
    stop_at(begin(bc(), origin, out, save_seconds=3600.0, sinks=[open_sink(word, out)]), 28)
    (found,) = shown(sink, tmp_path)
    assert [step for step, _ in found.metrics["member-0/imitation_loss"]] == [14, 28]
    again = load_run(out, sinks=[open_sink(word, out)])
    assert again.update == 0
    finish(again)
    (found,) = shown(sink, tmp_path)
    repeated = {name: values for name, values in found.metrics.items() if "/time/" not in name}  # times are the first
    assert repeated == close_to(expected(untimed(again.metrics)))


@pytest.mark.sample("tensorboard")
def test_a_run_that_was_trained_without_a_sink_is_sent_whole(sink, word, origin, tmp_path):
    out = tmp_path / "run"
    run = finish(begin(bc(), origin, out))
    finish(load_run(out, sinks=[open_sink(word, out)]))
    (found,) = shown(sink, tmp_path)
    assert found.metrics == close_to(expected(run.metrics))


@pytest.mark.sample("tensorboard")
def test_another_run_in_a_folder_of_the_same_name_is_another_one(sink, word, origin, tmp_path):
    for parent in ("one", "other"):
        (tmp_path / parent).mkdir()
        finish(begin(bc(), origin, tmp_path / parent / "run", sinks=[open_sink(word, tmp_path / parent / "run")]))
    found = list(shown(sink, tmp_path))
    assert len(found) == 2
    assert all(len(one.metrics["member-0/imitation_loss"]) == 3 for one in found)


@pytest.mark.sample("tensorboard")
def test_a_verdict_and_the_report_page_are_shown(sink, word, origin, tmp_path, verdict):
    out = tmp_path / "run"
    run = finish(begin(bc(), origin, out, sinks=[open_sink(word, out)]))
    page = tmp_path / "report.html"
    page.write_text("<p>a page</p>")
    publish(out, {"best": verdict}, [open_sink(word, out)], page)
    (found,) = shown(sink, tmp_path)
    assert found.metrics == close_to(expected(run.metrics))
    assert "verdict" in found.verdict
    assert "best" in found.verdict
    for text in ("better", "0.25", "0.125", "The policy is better than the behaviour policy."):
        assert text in found.verdict
    assert "null" not in found.verdict
    assert "<p>a page</p>" in found.page


@pytest.mark.sample("tensorboard")
def test_a_tracker_that_fails_ends_no_run_and_gets_what_it_lacks_later(sink, word, origin, tmp_path, monkeypatch):
    out = tmp_path / "run"
    made = open_sink(word, out)
    real = made._log

    def gone(row):
        if row["update"] > 14:
            raise RuntimeError("connection refused\nby somebody:else")
        real(row)

    monkeypatch.setattr(made, "_log", gone)
    with pytest.warns(SinkWarning) as warned:
        run = finish(begin(bc(), origin, out, sinks=[made]))
    assert run.finished
    (text,) = [str(one.message) for one in warned]
    key = f"{sink}:{made.target}"
    assert text == (
        f"the sink {key} failed after update 14: RuntimeError: connection refused. The run goes on without it, and "
        f"{out}/metrics.jsonl has every row. fix: repair the tracker, then `tidelog resume {out} --sink {key}` sends "
        "what it lacks"
    )
    finish(load_run(out, sinks=[open_sink(word, out)]))
    (found,) = shown(sink, tmp_path)
    assert found.metrics == close_to(expected(run.metrics))


@pytest.mark.sample("tensorboard")
def test_a_file_of_tracker_runs_that_is_damaged_is_refused(sink, word, origin, tmp_path):
    out = tmp_path / "run"
    finish(begin(bc(), origin, out, sinks=[open_sink(word, out)]))
    (known,) = read_tracker_runs(out).values()
    assert known.last == (STEPS, 0)
    (out / TRACKER_RUNS).write_text(json.dumps({sink: {"run": 3, "last": [0, 0]}}))
    with pytest.raises(CheckpointError, match=r"sinks\.json: .*fix: remove it; the sinks then begin new runs"):
        finish(load_run(out, sinks=[open_sink(word, out)]))


@pytest.mark.sample("tensorboard")
def test_a_package_that_is_not_installed_is_named_with_its_fix(sink, word, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, PACKAGES[sink][0], None)
    with pytest.raises(ConfigError, match=f"this needs the package {PACKAGES[sink][0]} .*") as raised:
        open_sink(word, tmp_path / "run")
    assert str(raised.value).endswith(f". fix: {install(sink)}")
    assert not (tmp_path / "run").exists()
