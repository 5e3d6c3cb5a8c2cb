"""Inputs and outputs of the NumPy runtime, and its start-up cost."""

import numpy as np
import pytest

from tests.runtime.cases import policy
from tidelog import SpecError, load_policy, runtime
from tidelog.errors import CheckpointError
from tidelog.policies.export import random_observations

ROW = {"age": 3.0, "dose": 1.0, "pressure": 1.0, "ward": "b", "sex": "m"}


def test_many_rows_are_computed_in_parts(artefacts):
    plain = runtime.load(artefacts["iql, memory"])
    seen = random_observations(policy("iql, memory"), 5000)
    state = plain.initial_state(5000)
    plain(seen, state=state)
    few = {name: values[4090:4100] for name, values in seen.items()}
    part = plain.initial_state(10)
    plain(few, state=part)
    assert part.carry.any(), "acting moves the state on"
    np.testing.assert_allclose(state.carry[4090:4100], part.carry, atol=1e-6)


def test_what_does_not_fit_is_said_as_the_policy_on_jax_says_it(artefacts):
    plain, whole = runtime.load(artefacts["iql, memory"]), policy("iql, memory")
    for given in ({"agee": 1.0}, {"age": 1.0}, ROW | {"age": float("nan")}, ROW | {"ward": "x"}, np.zeros(3)):
        with pytest.raises(SpecError) as one:
            plain(given, state=plain.initial_state(1))
        with pytest.raises(SpecError) as two:
            whole(given, state=whole.initial_state(1))
        assert str(one.value) == str(two.value)
    with pytest.raises(SpecError, match="this policy is recurrent"):
        plain(ROW)
    with pytest.raises(SpecError, match="the recurrent state has 2 episodes for 1 observations"):
        plain(ROW, state=plain.initial_state(2))
    still = runtime.load(artefacts["bcq"])
    for call in (lambda: still.initial_state(1), lambda: still.probabilities(ROW), lambda: still.q_values(ROW)):
        with pytest.raises(SpecError):
            call()
    with pytest.raises(SpecError, match=r"seed = -1: expected a whole number from 0"):
        still.sample(ROW, -1)


def test_zips_and_folders_are_the_same_policy(artefacts, tmp_path):
    whole = policy("discrete bcq")
    seen = random_observations(whole, 20)
    for path in (tmp_path / "policy.zip", tmp_path / "policy"):
        whole.save(path)
        np.testing.assert_array_equal(load_policy(path)(seen), whole(seen))
        np.testing.assert_array_equal(runtime.load(path)(seen), whole(seen))
    first = (tmp_path / "policy.zip").read_bytes()
    whole.save(tmp_path / "policy.zip")
    assert (tmp_path / "policy.zip").read_bytes() == first
    (tmp_path / "notes.zip").write_bytes(b"mine")
    with pytest.raises(CheckpointError, match="exists and is not a saved policy"):
        whole.save(tmp_path / "notes.zip")
