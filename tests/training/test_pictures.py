"""Learning from pictures end to end: two phases, stopped in the middle, go on bit-equal."""

import importlib.util

import numpy as np
import pytest

import tidelog as tl
from tests.training.runs import chunks_of, finish, stop_at
from tidelog import PPG
from tidelog.envs.procgen import INSTALL
from tidelog.policies.named_arrays import fingerprint
from tidelog.training.learn import learn

SMALL = {"policy_iterations": 2, "auxiliary_epochs": 2, "minibatches": 4}
GRID = {
    "environments": 4, "rollout_steps": 8, "minibatches": 2, "auxiliary_minibatch": 4, "hidden": (),
    "convolutions": "small", "picture_width": 8, **{k: SMALL[k] for k in ("policy_iterations", "auxiliary_epochs")},
}  # fmt: skip
LACKING = [name for name in ("procgen", "gym3") if importlib.util.find_spec(name) is None]


def goes_on_bit_equal(algorithm, env, stops, steps, tmp_path, monkeypatch):
    """Whether a run stopped at each of these updates ends like one that was not stopped; returns the latter."""

    def begin(name):
        return learn(
            algorithm, env, steps, seeds=1, out=tmp_path / name, every=steps // 2, save_seconds=0.0, train=False
        )

    whole = finish(begin("whole"))
    chunks_of(3, monkeypatch)
    for stop in stops:
        run = stop_at(begin(f"cut {stop}"), stop)
        assert stop <= run.update < stop + 4
        again = finish(tl.load(tmp_path / f"cut {stop}"))
        assert [fingerprint(one) for one in again.learners()] == [fingerprint(one) for one in whole.learners()]
    return whole


@pytest.mark.bits
@pytest.mark.full
def test_pictures_are_kept_as_bytes_and_a_run_that_sees_them_goes_on_bit_equal(tmp_path, monkeypatch):
    run = goes_on_bit_equal(PPG(**GRID), "vault", [9], 128, tmp_path, monkeypatch)
    (learner,) = run.learners()
    seen = learner.segments["phase_buffer"].columns["observation"]["observation"]
    assert (seen.shape, seen.dtype) == ((8, 8, 16, 16, 3), np.uint8)
    action = run.policy()({"observation": np.zeros((2, 16, 16, 3), np.uint8)})
    assert action.shape == (2,)


@pytest.mark.slow
@pytest.mark.skipif(bool(LACKING), reason=f"{', '.join(LACKING)} not installed: {INSTALL}")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the package leaves a file open
def test_two_phases_of_coinrun_go_on_bit_equal_from_the_middle(tmp_path, monkeypatch):
    settings = {"environments": 16, "rollout_steps": 64, "hidden": (), "convolutions": "impala", **SMALL}
    algorithm = PPG(**settings)
    stops = [6, 8 + 9]  # in the second round; in the first auxiliary phase
    run = goes_on_bit_equal(algorithm, "procgen/coinrun-easy", stops, 4 * 16 * 64, tmp_path, monkeypatch)
    assert run.update == 2 * (2 * 4 + 2 * 16 * 2 // 4)
    assert run.notes() == []
    assert all(np.isfinite(value) for row in run.metrics for value in row.values() if isinstance(value, float))
