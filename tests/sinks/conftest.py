"""One log for all tests of sinks, and trackers that write into a folder of the test's own and reach no network."""

import warnings
from types import SimpleNamespace

import pytest

from tests.training.logs import log, origin, saved
from tidelog.sinks import SINKS

__all__ = ["log", "origin", "saved"]

SUMMARY = {
    "decision": "better",
    "acting": "sample",
    "advice": "Use it.",
    "date": "2026-01-01",
    "caveat": "",
    "difference": 0.25,
    "low": 0.125,
    "high": None,
    "level": 0.95,
    "episodes": 40,
}


@pytest.fixture
def verdict():
    """What a tracker reads of a verdict."""
    return SimpleNamespace(summary=dict(SUMMARY), paragraph="The policy is better than the behaviour policy.")


@pytest.fixture(scope="session")
def mlflow_base(tmp_path_factory):
    """A database of MLflow without runs: it takes seconds to make one."""
    mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow")
    pytest.importorskip("alembic", reason="needs the extra mlflow")
    path = tmp_path_factory.mktemp("mlflow") / "empty.db"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own use of SQLAlchemy 2.1
        mlflow.MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def word(sink, tmp_path, request):
    """The sink's name; MLflow begins with an empty database of the test's own."""
    if sink == "mlflow":
        (tmp_path / "mlflow.db").write_bytes(request.getfixturevalue("mlflow_base").read_bytes())
    return sink


@pytest.fixture
def quiet(monkeypatch, tmp_path):
    """No telemetry, no account, no folder outside the test's."""
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
    }.items():
        monkeypatch.setenv(name, value)


def pytest_generate_tests(metafunc):
    if "sink" in metafunc.fixturenames:
        metafunc.parametrize("sink", SINKS)
