"""One log for all tests of sinks, and trackers that write into a folder of the test's own and reach no network."""

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
    return SimpleNamespace(summary=dict(SUMMARY), paragraph="The policy is better than the logger.")


@pytest.fixture(scope="session", autouse=True)
def trackio_folder(tmp_path_factory):
    """trackio reads the variable once, when it is imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACKIO_DIR", str(tmp_path_factory.mktemp("trackio")))
        yield


@pytest.fixture
def word(sink, tmp_path):
    """The sink's name, with a project of the test's own where all tests share a database."""
    return f"trackio:{tmp_path.name}" if sink == "trackio" else sink


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
