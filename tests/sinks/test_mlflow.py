"""Runs in MLflow, by its own client, in a SQLite database."""

import json

import pytest

from tests.training.runs import bc, begin, finish, stop_at
from tidelog import ConfigError, load_run
from tidelog.sinks import MLflow
from tidelog.training.run import publish

mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow")
pytest.importorskip("alembic", reason="needs the extra mlflow")
pytestmark = [
    pytest.mark.usefixtures("quiet"),
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy"),  # MLflow's own use of SQLAlchemy 2.1
]


@pytest.fixture
def uri(mlflow_base, tmp_path):
    (tmp_path / "runs.db").write_bytes(mlflow_base.read_bytes())
    return f"sqlite:///{tmp_path}/runs.db"


def runs_in(uri):
    client = mlflow.MlflowClient(uri)
    found = client.get_experiment_by_name("tidelog")
    return [] if found is None else client.search_runs([found.experiment_id])


def metrics_in(uri, run):
    """Every metric of a run in the order in which it was written: pairs of step and value."""
    client = mlflow.MlflowClient(uri)
    return {
        key: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, key)]
        for key in client.get_run(run.info.run_id).data.metrics
    }


def artefacts(uri, run):
    return {one.path for one in mlflow.MlflowClient(uri).list_artifacts(run.info.run_id)}


@pytest.mark.full
def test_a_population_names_the_settings_of_each(uri, origin):
    finish(begin([bc(), bc(learning_rate=0.25)], origin, sinks=[MLflow(uri, experiment="tidelog")]))
    (found,) = runs_in(uri)
    assert found.info.run_name == "bc"
    rates = [found.data.params[f"config-{place}.learning_rate"] for place in (0, 1)]
    assert rates == ["0.01", "0.25"]


def test_a_server_that_does_not_answer_is_an_error_before_training(origin, tmp_path):
    run = begin(bc(), origin, tmp_path / "run", sinks=[MLflow("http://someone:secret@127.0.0.1:9")])
    with pytest.raises(ConfigError, match=r"the sink mlflow:http://127\.0\.0\.1:9 cannot be opened") as raised:
        finish(run)
    assert "fix: check its address" in str(raised.value)
    assert "secret" not in str(raised.value)
    assert run.update == 0


def test_a_run_that_the_server_has_lost_names_the_file_that_holds_it(uri, origin, tmp_path):
    out = tmp_path / "run"
    finish(begin(bc(), origin, out, sinks=[MLflow(uri)]))
    known = json.loads((out / "sinks.json").read_text())
    known[f"mlflow:{uri}"]["run"] = "0" * 32
    (out / "sinks.json").write_text(json.dumps(known))
    with pytest.raises(ConfigError, match=r"not found.*fix: .*remove .*sinks\.json for a new run there"):
        finish(load_run(out, sinks=[MLflow(uri)]))
    (out / "sinks.json").unlink()
    finish(load_run(out, sinks=[MLflow(uri)]))
    assert len(runs_in(uri)) == 2


def test_a_verdict_is_tags_and_the_page_an_artefact(uri, origin, tmp_path, verdict):
    finish(begin(bc(), origin, tmp_path / "run", sinks=[MLflow(uri)]))
    page = tmp_path / "report.html"
    page.write_text("<p>a page</p>")
    publish(tmp_path / "run", {"best": verdict}, [MLflow(uri)], page)
    (found,) = runs_in(uri)
    tags = {name: value for name, value in found.data.tags.items() if name.startswith("verdict")}
    assert tags == {
        "verdict.best": "better",
        "verdict.best.acting": "sample",
        "verdict.best.advice": "Use it.",
        "verdict.best.date": "2026-01-01",
        "verdict.best.difference": "0.25",
        "verdict.best.low": "0.125",
        "verdict.best.level": "0.95",
        "verdict.best.episodes": "40",
        "verdict.best.paragraph": "The policy is better than the behaviour policy.",
    }
    assert found.info.status == "FINISHED"
    assert "report.html" in artefacts(uri, found)
    assert mlflow.MlflowClient(uri).search_runs([found.info.experiment_id], "tags.`verdict.best` = 'better'")


@pytest.mark.full
def test_a_verdict_on_a_run_that_was_left_leaves_it_so(uri, origin, tmp_path, verdict):
    stop_at(begin(bc(), origin, tmp_path / "run", sinks=[MLflow(uri)]), 14)
    publish(tmp_path / "run", verdict, [MLflow(uri)])
    (found,) = runs_in(uri)
    assert found.data.tags["verdict.policy"] == "better"
    assert found.info.status == "KILLED"
    finish(load_run(tmp_path / "run", sinks=[MLflow(uri)]))
    (found,) = runs_in(uri)
    assert found.info.status == "FINISHED"


def test_names_that_mlflow_refuses_are_changed(uri, origin, tmp_path):
    run = finish(begin(bc(), origin, evaluate={"mine (%)": lambda policy: 0.5}, sinks=[MLflow(uri)]))
    (found,) = runs_in(uri)
    assert len(run.metrics) == len(metrics_in(uri, found)["member-0/mine ___"]) == 3
