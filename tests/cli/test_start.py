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


def test_a_saved_policy_acts_as_its_run(here, run, policy, tidelog):
    import polars as pl

    for source in (run, policy):
        done = tidelog(
            "act", source, "--data", "visits.csv", "--out", f"{source.name}.csv", "--mode", "--probabilities"
        )
        assert done.code == 0, done.err
    ours, theirs = (pl.read_csv(f"{source.name}.csv") for source in (run, policy))
    assert ours["action"].to_list() == theirs["action"].to_list()
    chances = [name for name in ours.columns if name.startswith("probability_")]
    assert len(chances) == 6
    assert max(abs(ours[name] - theirs[name]).max() for name in chances) < 1e-5
