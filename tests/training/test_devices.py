"""Members spread over several devices: the same learning as on one, no data between devices, and exact resume."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import tidelog as tl
from tests.training.logs import log, saved
from tests.training.runs import bc
from tidelog.errors import ConfigError

__all__ = ["log", "saved"]

FOUR = """
import json, sys
import jax
import tidelog as tl
from tests.training.runs import bc
from tidelog.training.learn import load_run

assert len(jax.devices()) == 4
log = tl.Log.load(sys.argv[1])


def metrics(run):
    return [[row["member"], *(value for name, value in sorted(row.items()) if "loss" in name)] for row in run.metrics]


def devices(run):
    trees = [jax.tree.leaves(learner.state) for learner in run._engine._learners]
    return sorted({device.id for leaves in trees for leaf in leaves for device in leaf.devices()})


def fit(**options):
    return tl.fit(bc(), log, 20, seeds=5, eval_every=5, progress=False, **options)


one, told = fit(), {}
for vmap in (True, False):
    run = fit(devices=4, vmap=vmap, out=f"run-{vmap}", save_seconds=0, keep_checkpoints=9)
    resumed = load_run(f"run-{vmap}", checkpoint=10)
    for _ in resumed.stream():
        pass
    told[str(vmap)] = {
        "devices": devices(run), "metrics": metrics(run), "groups": list(run._engine._placement.sizes),
        "resumed": metrics(resumed)[-5:] == metrics(run)[-5:],
    }
played = [tl.learn(tl.PPG(num_envs=2, rollout_steps=8, minibatches=2, hidden=(8,), policy_iterations=1,
          auxiliary_minibatch=2), "jax:CartPole-v1", 64, seeds=2, progress=False, vmap=True, **more)
          for more in ({}, {"devices": 2})]
told["played"] = [devices(run) for run in played], [metrics(run) for run in played]
print(json.dumps({"one": metrics(one), "first": devices(one), **told}))
"""


@pytest.mark.full
def test_members_on_four_devices_learn_as_on_one_and_resume_exactly(saved, tmp_path):
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-c", FOUR, str(saved)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["first"] == [0]
    for vmap, groups in (("True", [1, 1, 1, 2]), ("False", [1] * 5)):
        assert told[vmap]["devices"] == [0, 1, 2, 3]
        assert told[vmap]["groups"] == groups
        assert told[vmap]["resumed"], "a resumed run is equal to the last bit"
        np.testing.assert_allclose(told[vmap]["metrics"], told["one"], rtol=1e-4)
    devices, metrics = told["played"]
    assert devices == [[0], [0, 1]]
    np.testing.assert_allclose(*metrics, rtol=1e-3, atol=1e-5)


def test_what_cannot_be_spread_is_refused(log):
    with pytest.raises(ConfigError, match=r"devices = 99: this machine has \d+ \(cpu\). fix: use devices="):
        tl.fit(bc(), log, 5, seeds=2, devices=99, train=False)
    with pytest.raises(ConfigError, match="devices = 0: expected at least 1"):
        tl.fit(bc(), log, 5, devices=0, train=False)
    with pytest.raises(ConfigError, match="or a functional environment"):
        tl.learn(tl.PPG.preset("classic-control"), "treatment", 64, devices=1, train=False)
