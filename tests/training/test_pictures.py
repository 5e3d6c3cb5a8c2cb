"""Learning from pictures end to end: two phases, stopped in the middle, go on bit-equal."""

import numpy as np
import pytest

import tidelog as tl
from benchmarks.vault import vault
from tests.training.runs import chunks_of, finish, stop_at
from tidelog import PPG
from tidelog.policies.policy import fingerprint
from tidelog.training.learn import learn

GRID = {
    "num_envs": 4, "rollout_steps": 8, "minibatches": 2, "auxiliary_minibatch": 4, "hidden": (),
    "convolutions": "small", "picture_width": 8, "policy_iterations": 2, "auxiliary_epochs": 2,
}  # fmt: skip


@pytest.mark.bits
@pytest.mark.full
def test_pictures_are_kept_as_bytes_and_a_run_that_sees_them_goes_on_bit_equal(tmp_path, monkeypatch):
    def begin(name):
        return learn(
            PPG(**GRID), vault(), 128, seeds=1, out=tmp_path / name, eval_every=64, save_seconds=0.0, train=False
        )

    whole = finish(begin("whole"))
    chunks_of(3, monkeypatch)
    run = stop_at(begin("cut"), 9)
    assert 9 <= run.update < 13
    again = finish(tl.load_run(tmp_path / "cut", env=vault()))
    assert [fingerprint(one) for one in again.learners()] == [fingerprint(one) for one in whole.learners()]
    (learner,) = whole.learners()
    seen = learner.segments["phase_buffer"].columns["observation"]["observation"]
    assert (seen.shape, seen.dtype) == ((8, 8, 16, 16, 3), np.uint8)
    action = whole.policy()({"observation": np.zeros((2, 16, 16, 3), np.uint8)})
    assert action.shape == (2,)
