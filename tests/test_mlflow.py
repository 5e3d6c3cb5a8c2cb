"""The MLflow flavour by MLflow itself: models that were saved, logged, registered, loaded and served."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import warnings

import numpy as np
import pandas as pd
import pytest
import yaml

from tests.runtime.cases import listing, policy
from tests.sinks.conftest import quiet
from tidelog import ConfigError, SpecError
from tidelog import mlflow as flavour
from tidelog.errors import CheckpointError
from tidelog.policies.policy import fingerprint

mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow")
pyfunc = pytest.importorskip("mlflow.pyfunc", reason="needs the extra mlflow")
__all__ = ["quiet"]

pytestmark = [
    pytest.mark.usefixtures("quiet"),
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy"),  # MLflow's own use of SQLAlchemy 2.1
    pytest.mark.filterwarnings("ignore:Operation with range is deprecated"),  # MLflow's own use of pandas 3
]
ROWS = 6


def frame():
    """Observations by column, one with a missing number."""
    generator = np.random.default_rng(0)
    numbers = {name: generator.normal(size=ROWS) for name in ("age", "dose", "pressure")}
    numbers["dose"][2] = np.nan
    words = {"ward": generator.choice(["a", "b", "c"], ROWS), "sex": generator.choice(["f", "m"], ROWS)}
    return pd.DataFrame({**{name: words[name].astype(object) for name in words}, **numbers})


@pytest.mark.sample("iql, choice")
@pytest.mark.parametrize("name", ["iql, choice", "iql, box", "ppg, dials", "bc, point"])
def test_a_loaded_model_acts_as_the_policy_does(name, tmp_path):
    one = policy(name)
    flavour.save_model(one, tmp_path / "model")
    model = pyfunc.load_model(str(tmp_path / "model"))
    actions, expected = model.predict(frame()), np.asarray(one(frame()))
    assert actions.shape == expected.shape
    if actions.dtype.kind == "f":
        np.testing.assert_allclose(actions, expected, rtol=1e-4, atol=1e-5)
    else:
        assert actions.tolist() == expected.tolist()
    assert fingerprint(flavour.load_model(str(tmp_path / "model")).params) == fingerprint(one.params)


def test_a_model_says_what_it_takes_and_gives(tmp_path):
    flavour.save_model(policy("iql, choice").with_acting("sample"), tmp_path / "model", metadata={"owner": "me"})
    info = mlflow.models.get_model_info(str(tmp_path / "model"))
    inputs = {one["name"]: (one["type"], one["required"]) for one in info.signature.inputs.to_dict()}
    assert inputs == {
        "ward": ("string", True),
        "sex": ("string", True),
        "age": ("double", True),
        "dose": ("double", False),
        "pressure": ("double", False),
    }
    assert list(info.signature.outputs.to_dict()[0]["tensor-spec"]["shape"]) == [-1]
    assert info.metadata["owner"] == "me"
    assert info.metadata["acting"] == "sample"
    assert info.metadata["verdict"].startswith("no verdict")
    content = yaml.safe_load((tmp_path / "model/MLmodel").read_text())
    assert content["flavors"]["python_function"]["loader_module"] == "tidelog.mlflow"
    assert set(content["flavors"]) == {"tidelog", "python_function"}
    assert "tidelog==" in (tmp_path / "model/requirements.txt").read_text()


def test_a_model_that_samples_samples(tmp_path):
    flavour.save_model(policy("iql, choice").with_acting("sample"), tmp_path / "model")
    model = pyfunc.load_model(str(tmp_path / "model"))
    assert len({tuple(model.predict(frame())) for _ in range(20)}) > 1


def test_arrays_and_pictures_are_tensors_by_name(tmp_path):
    one = policy("discrete bcq, pictures")
    flavour.save_model(one, tmp_path / "model")
    model = pyfunc.load_model(str(tmp_path / "model"))
    generator = np.random.default_rng(1)
    seen = {"picture": generator.integers(0, 255, (4, 9, 8, 2), np.uint8), "x": np.ones((4, 2), np.float32)}
    assert model.predict(seen).tolist() == one(seen).tolist()
    assert [tuple(one.shape) for one in model.metadata.signature.inputs.inputs] == [(-1, 9, 8, 2), (-1, 2)]


@pytest.mark.parametrize("name", ["iql, memory", "lists, mean"])
def test_policies_that_need_more_than_a_row_are_refused(name, tmp_path):
    one = listing(name) if name.startswith("lists") else policy(name)
    with pytest.raises(SpecError, match=r"fix: use `tidelog serve`"):
        flavour.save_model(one, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_changed_model_is_refused(tmp_path):
    flavour.save_model(policy("iql, choice"), tmp_path / "model")
    weights = tmp_path / "model/data/policy/weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    for load in (pyfunc.load_model, flavour.load_model):
        with pytest.raises(CheckpointError, match="checksum"):
            load(str(tmp_path / "model"))


def test_without_the_package_the_fix_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow.pyfunc", None)
    with pytest.raises(ConfigError, match=r"this needs the package mlflow.pyfunc .*fix: "):
        flavour.save_model(policy("iql, choice"), tmp_path / "model")


@pytest.mark.full
def test_a_model_is_logged_in_a_run_and_registered(tmp_path):
    pytest.importorskip("alembic", reason="needs the extra mlflow")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of MLflow's own stores
        mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
        with mlflow.start_run():
            info = flavour.log_model(policy("iql, choice"), registered_model_name="treatment")
        for uri in (info.model_uri, "models:/treatment/1"):
            actions = pyfunc.load_model(uri).predict(frame())
            assert actions.tolist() == policy("iql, choice")(frame()).tolist()


def test_a_loaded_model_needs_no_jax(tmp_path):
    flavour.save_model(policy("iql, choice"), tmp_path / "model")
    script = """
import sys
from tidelog import mlflow
model = mlflow._load_pyfunc(sys.argv[1])
seen = {"ward": ["a"], "sex": ["f"], "age": [1.0], "dose": [2.0], "pressure": [3.0]}
print(model.predict(seen).tolist(), "jax" in sys.modules)
"""
    words = [sys.executable, "-W", "error", "-c", script, str(tmp_path / "model/data/policy")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    seen = {"ward": ["a"], "sex": ["f"], "age": [1.0], "dose": [2.0], "pressure": [3.0]}
    assert done.stdout.strip() == f"{policy('iql, choice')(seen).tolist()} False"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.full
def test_mlflow_serves_a_model(tmp_path):
    flavour.save_model(policy("iql, choice"), tmp_path / "model")
    port = free_port()
    program = shutil.which("mlflow", path=os.path.dirname(sys.executable)) or shutil.which("mlflow")
    command = [program, "models", "serve", "-m", str(tmp_path / "model"), "-p", str(port), "--env-manager", "local"]
    with open(tmp_path / "said.txt", "w") as said:
        server = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
        try:
            body = json.dumps({"dataframe_split": json.loads(frame().to_json(orient="split", index=False))}).encode()
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/invocations", body, {"Content-Type": "application/json"}
            )
            deadline = time.monotonic() + 120
            while True:
                try:
                    with urllib.request.urlopen(request, timeout=30) as answer:
                        actions = json.load(answer)["predictions"]
                    break
                except (urllib.error.URLError, ConnectionError):
                    assert server.poll() is None, (tmp_path / "said.txt").read_text()
                    assert time.monotonic() < deadline, (tmp_path / "said.txt").read_text()
                    time.sleep(0.5)
        finally:
            os.killpg(server.pid, 15)
            server.wait(30)
    assert actions == policy("iql, choice")(frame()).tolist()
