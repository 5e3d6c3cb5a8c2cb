"""Commands on saved policies and logs start without JAX, which takes longer to import than all of their work."""

import subprocess
import sys

import pytest

DATA = ["--data", "visits.csv", "--columns", "columns.toml"]
CALL = """
import sys
from tidelog.cli import main
code = main(sys.argv[1:])
heavy = {"jax", "equinox", "optax", "scipy", "matplotlib", "sklearn"} & set(sys.modules)
if code == 0 and sys.argv[1] == "log":  # a log's propensities are tested, by SciPy's special functions (0.14 s)
    heavy -= {"scipy"}
raise SystemExit(f"imported {sorted(heavy)}" if heavy else code)
"""


@pytest.fixture(scope="module")
def policy(run):
    from tests.cli.conftest import call

    target = run.parent / "saved"
    assert call("export", run, "--out", target, "--no-onnx", "--quiet") == 0
    return target


@pytest.mark.parametrize(
    "words",
    [
        ["act", "POLICY", "--data", "visits.csv", "--out", "actions.csv"],
        pytest.param(["verify", "POLICY"], marks=pytest.mark.full),
        pytest.param(["log", "check", *DATA], marks=pytest.mark.full),
        pytest.param(["log", "inspect", "--data", "visits.csv"], marks=pytest.mark.full),
        pytest.param(["log", "convert", *DATA, "--out", "log.tidelog"], marks=pytest.mark.full),
        pytest.param(["serve", "--help"], marks=pytest.mark.full),
        pytest.param(["--help"], marks=pytest.mark.full),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_command_starts_without_jax(words, here, policy):
    words = [str(policy) if word == "POLICY" else word for word in words]
    done = subprocess.run([sys.executable, "-c", CALL, *words], cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
