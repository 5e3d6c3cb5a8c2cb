"""Devices that share the batches of a learner: what passes between them, exact resume, and what is refused."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import tidelog as tl
from tests.training.logs import log
from tests.training.runs import bc
from tests.training.shared_batches import NAMES, SAMPLE, simulated
from tidelog.errors import ConfigError
from tidelog.training.options import Options

__all__ = ["log"]

COLLECTIVES = """
import json, sys
from tests.training.shared_batches import NAMES, collectives, compiled_text, run_of, weight_bytes

told = {}
for name in sys.argv[1:]:
    run = run_of(name, devices={"batch": 2})
    told[name] = list(collectives(compiled_text(run))), weight_bytes(run)
spread = run_of("iql", seeds=8, devices=8, vmap=True)
told["members"] = list(collectives(compiled_text(spread))), len(spread._engine._learners)
print(json.dumps(told))
"""
BOTH = """
import json
import jax
import tidelog as tl
from benchmarks.bits import log_of
from tests.training.shared_batches import run_of
from tidelog.training.learn import load_run

def ended(run):
    for _ in run.stream():
        pass
    return run

def metrics(run):
    return [[row["member"], *(value for name, value in sorted(row.items()) if "loss" in name)] for row in run.metrics]

def devices(run):
    return [sorted(device.id for device in learner.update.devices()) for learner in run._engine._learners]

told = {}
both = {"members": 2, "batch": 2}
for name, kind, loss, seeds, spread in (("both", "iql", "actor", 3, both), ("members", "bc", "imitation", 5, 4)):
    options = {"seeds": seeds, "eval_every": 5}
    told[name] = {"one": metrics(ended(run_of(kind, **options)))}
    for vmap in (True, False):
        out = f"{name}-{vmap}"
        run = ended(run_of(kind, **options, devices=spread, vmap=vmap, out=out, save_seconds=0, keep_checkpoints=9,
                           best_metric=f"held_out/{loss}_loss"))
        resumed = ended(load_run(out, checkpoint=10, log=log_of("discrete")))
        told[name][str(vmap)] = {
            "metrics": metrics(run), "devices": devices(run), "groups": list(run._engine._placement.sizes),
            "resumed": metrics(resumed)[-seeds:] == metrics(run)[-seeds:],
            "policy": [len(leaf.devices()) for leaf in jax.tree.leaves(run.best_policy().params)],
        }
played = [tl.learn(tl.PPG(num_envs=2, rollout_steps=8, minibatches=2, hidden=(8,), policy_iterations=1,
          auxiliary_minibatch=2), "jax:CartPole-v1", 64, seeds=2, progress=False, vmap=True, **more)
          for more in ({}, {"devices": 2})]
told["played"] = [devices(run) for run in played], [metrics(run) for run in played]
print(json.dumps(told))
"""
PICTURES = """
import json
import numpy as np
import tidelog as tl
from tests.training.shared_batches import collectives, compiled_text

rng = np.random.default_rng(0)
columns = {"observation": rng.integers(0, 256, (80, 64, 64, 3)).astype(np.uint8), "action": rng.integers(0, 3, 80)}
log = tl.Log.from_arrays(**columns, reward=rng.standard_normal(80), terminated=np.arange(80) % 5 == 4)
algorithm = tl.BC(hidden=(16,), embedding=4, convolutions="impala", batch_size=68)
options = {"held_out": 0.1, "eval_every": 3, "progress": False}
run = tl.fit(algorithm, log, 3, devices={"batch": 2}, train=False, **options)
told = {"passed": list(collectives(compiled_text(run)))}
for name, one in (("shared", run.train()), ("alone", tl.fit(algorithm, log, 3, **options))):
    told[name] = [row[loss] for row in one.metrics for loss in ("imitation_loss", "held_out/imitation_loss")]
print(json.dumps(told))
"""
OF_CORES = """
import sys
import jax
import tidelog as tl
from benchmarks.bits import log_of

if "started" in sys.argv:
    jax.devices()
try:
    if "again" in sys.argv:
        run = tl.load_run("run", log=log_of("discrete"))
    else:
        options = {"devices": {"batch": 2}, "progress": False, "out": "run"}
        run = tl.fit(tl.BC(hidden=(8,), batch_size=8), log_of("discrete"), 2, **options)
    print(jax.device_count(), run.update)
except tl.ConfigError as error:
    print(error)
"""
COMMAND = """
import jax
from tidelog.cli import main

words = "ppo --env jax:CartPole-v1 --steps 256 --num-envs 8 --rollout-steps 16 --hidden 8 --out run"
main(["train", *words.split(), "--devices", "batch=2"])
print(jax.device_count())
"""


def on_devices(count, script, *words, cwd=None):
    """The last line of a script that sees so many simulated devices; None: as many as it asks for."""
    command = [sys.executable, "-c", script, *words]
    done = subprocess.run(command, cwd=cwd, env=simulated(count), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "names", [pytest.param(SAMPLE, marks=pytest.mark.full), pytest.param(NAMES, marks=pytest.mark.slow)]
)
def test_gradients_and_sums_alone_pass_between_devices(names):
    told = json.loads(on_devices(8, COLLECTIVES, *names))
    assert told.pop("members") == [[], 8], "groups of members send nothing"
    for name, (found, weights) in told.items():
        gathered = [size for kind, size in found if kind == "all-gather"]
        assert gathered == ([4 * 16] if name.endswith("prioritised") else []), f"{name}: priorities alone are gathered"
        assert {kind for kind, _ in found} <= {"all-reduce", "all-gather"}, (name, found)
        added = sum(size for kind, size in found if kind == "all-reduce")
        assert 0 < added <= weights / 3 + 512, f"{name}: at most the gradients, and a few sums ({added}, {weights})"


@pytest.mark.full
def test_members_and_batches_over_four_devices_learn_as_on_one_and_resume_exactly(tmp_path):
    told = json.loads(on_devices(4, BOTH, cwd=tmp_path))
    places, metrics = told.pop("played")
    assert places == [[[0]], [[0], [1]]]
    np.testing.assert_allclose(*metrics, rtol=1e-3, atol=1e-5)
    for name, vmap, devices in (
        ("both", "True", [[0, 1], [2, 3]]),
        ("both", "False", [[0, 1], [2, 3], [0, 1]]),
        ("members", "True", [[0], [1], [2], [3]]),
        ("members", "False", [[0], [1], [2], [3], [0]]),
    ):
        found = told[name][vmap]
        assert found["devices"] == devices
        assert found["resumed"], "a resumed run is equal to the last bit"
        np.testing.assert_allclose(found["metrics"], told[name]["one"], rtol=1e-3)
        assert set(found["policy"]) == {1}, "a policy is on one device"
    assert told["members"]["True"]["groups"] == [1, 1, 1, 2]
    assert told["members"]["False"]["groups"] == [1] * 5


@pytest.mark.slow
@pytest.mark.full
def test_devices_compute_the_stacks_of_their_own_pictures():
    told = json.loads(on_devices(2, PICTURES))
    assert {kind for kind, _ in told["passed"]} == {"all-reduce"}, "neither pictures nor features pass"
    np.testing.assert_allclose(told["shared"], told["alone"], rtol=1e-3)


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="a device of CPU has a core of its own: needs two")
def test_a_run_makes_devices_of_cores_unless_jax_has_started(tmp_path):
    assert on_devices(None, OF_CORES, cwd=tmp_path) == "2 2"
    assert on_devices(None, OF_CORES, "again", cwd=tmp_path) == "2 2"
    (tmp_path / "other").mkdir()
    assert on_devices(None, COMMAND, cwd=tmp_path / "other") == "2", "settings that suit an environment start JAX"
    refused = on_devices(None, OF_CORES, "started", cwd=tmp_path)
    assert "this machine has 1 (cpu)" in refused
    assert "jax.config.update('jax_num_cpu_devices', 2)" in refused


def test_the_axes_have_one_form():
    def devices(value):
        return Options(steps=1, seeds=(0,), eval_every=1, devices=value).devices

    assert devices({"batch": 2}) == {"members": 1, "batch": 2}
    assert devices({"members": 3, "batch": 1}) == devices({"members": 3}) == devices(3) == 3
    for wrong, message in (
        ({"data": 2}, "expected a number, or numbers of members and batch"),
        ({}, "fix: use devices={'members': 4, 'batch': 2}"),
        ({"batch": 0}, "expected at least 1"),
        ({"batch": 1.5}, "expected a whole number"),
        ("2", "expected a whole number"),
    ):
        with pytest.raises(ConfigError, match=message):
            devices(wrong)


def test_what_cannot_be_spread_or_shared_is_refused(log, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"devices = 99: this machine has \d+ \(cpu\). fix: use devices="):
        tl.fit(bc(), log, 5, seeds=2, devices=99, train=False)
    with pytest.raises(ConfigError, match="devices = 0: expected at least 1"):
        tl.fit(bc(), log, 5, devices=0, train=False)
    monkeypatch.setattr("jax.local_devices", lambda: [*jax.devices()] * 4)
    with pytest.raises(
        ConfigError, match=r"3 devices cannot share .* 32 samples.* fix: use batches of 30 or 33 samples"
    ):
        tl.fit(bc(), log, 5, devices={"batch": 3}, out=tmp_path / "run", train=False)
    with pytest.raises(ConfigError, match=r"devices = {'members': 4, 'batch': 2}: this machine has 4 \(cpu\)"):
        tl.fit(bc(), log, 5, devices={"members": 4, "batch": 2}, out=tmp_path / "run", train=False)
    with pytest.raises(ConfigError, match="or a functional environment"):
        tl.learn(tl.PPG.preset("classic-control"), "treatment", 64, devices={"batch": 2}, train=False)
    assert not (tmp_path / "run").exists()
