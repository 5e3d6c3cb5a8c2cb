"""One log of actions with parts through fit, act, saving, NumPy, ONNX and HTTP."""

import importlib.util
import json

import numpy as np
import polars as pl
import pytest

from tests.runtime.cases import ONNX, WITHOUT
from tidelog import BC, BCQ, IQL, DiscreteBCQ, Log, SpecError, fit, load_policy, runtime
from tidelog.policies.batch_inference import act_on_arrays, act_on_table
from tidelog.policies.export import export, onnx_answers, onnx_file
from tidelog.types import flat_leaves

SMALL = {"hidden": (16,), "batch_size": 64}
RATES = dict.fromkeys(("actor_learning_rate", "critic_learning_rate", "value_learning_rate"), 0.01)
LEARNERS = {
    "bc": BC(**SMALL, learning_rate=0.01),
    "iql": IQL(**SMALL, **RATES),
    "bcq": BCQ(**SMALL, generator_hidden=(32,), perturbation_hidden=(8,), generator_learning_rate=0.01, samples=20),
}
NAMES = ["move/steer", "move/gear", "lights", "horn"]


def decisions(rows=400, seed=0):
    """Gear and horn follow the first number, steering the second; the reward is for the right gear."""
    rng = np.random.default_rng(seed)
    seen = rng.standard_normal((rows, 2)).astype(np.float32)
    gear = np.where(rng.random(rows) < 0.8, (seen[:, 0] > 0) * 2, rng.integers(0, 3, rows))
    steer = np.clip(0.5 * seen[:, 1:] + 0.2 * rng.standard_normal((rows, 1)), -0.9, 0.9).astype(np.float32)
    move = {"steer": steer, "gear": gear}
    horn = np.where((seen[:, 0] > 0) ^ (rng.random(rows) < 0.1), "on", "off")
    action = {"move": move, "lights": rng.integers(0, 2, (rows, 2)), "horn": horn}
    reward = (gear == (seen[:, 0] > 0) * 2).astype(np.float32)
    return {"observation": seen, "action": action, "reward": reward, "terminated": True,
            "bounds": {"move": {"steer": (-1.0, 1.0)}}}  # fmt: skip


@pytest.fixture(scope="module")
def log():
    return Log.from_arrays(**decisions())


@pytest.fixture(scope="module", params=LEARNERS)
def policy(request, log):
    return fit(LEARNERS[request.param], log, steps=300, progress=False).policy()


@pytest.fixture(scope="module")
def saved(policy, tmp_path_factory):
    path = tmp_path_factory.mktemp("parts") / "policy.zip"
    export(policy, path, onnx=False)
    return path


def flat(action):
    return dict(flat_leaves(action))


def test_the_answer_is_the_mapping_of_the_log_and_what_was_learnt(policy, log):
    seen = log.observation["observation"]
    action, _ = policy.act(seen)
    assert list(flat(action)) == NAMES
    assert [flat(action)[name].shape for name in NAMES] == [(400, 1), (400,), (400, 2), (400,)]
    assert [flat(action)[name].dtype.kind for name in NAMES] == ["f", "i", "i", "i"]
    if isinstance(policy.algorithm, BCQ):  # acts among the candidates, and the reward is for the gear alone
        assert (action["move"]["gear"] == 2 * (seen[:, 0] > 0)).mean() > 0.8
        return
    right = np.asarray(seen[:, 0] > 0)
    assert (action["move"]["gear"] == right * 2).mean() > 0.9
    assert (policy(seen)["horn"].labels == np.where(right, "on", "off")).mean() > 0.9
    assert np.corrcoef(action["move"]["steer"][:, 0], seen[:, 1])[0, 1] > 0.8
    one = policy([1.0, 0.5])
    assert (int(one["move"]["gear"]), str(one["horn"])) == (2, "on")


def test_likelihoods_of_parts_add_and_are_those_of_samples(policy, log):
    seen, rows = log.observation["observation"][:50], log.spec.action
    action, propensity = policy.act(seen, seed=1)
    if isinstance(policy.algorithm, BCQ):
        assert propensity is None
        assert policy.log_probability(seen, action) is None
        return
    np.testing.assert_allclose(propensity, np.exp(policy.log_probability(seen, action)), rtol=1e-5)
    np.testing.assert_allclose(propensity, np.exp(policy.log_probability(seen, rows.pack(action))), rtol=1e-5)
    every = {"gear": 3, "horn": 2, "light": 2, "other": 2}
    total = np.zeros(50)
    for gear, horn, light, other in np.ndindex(*every.values()):
        one = {"move": {"steer": action["move"]["steer"], "gear": np.full(50, gear)}, "horn": np.full(50, horn)}
        total += np.exp(policy.log_probability(seen, {**one, "lights": np.tile([light, other], (50, 1))}))
    steps = [{**action, "move": {**action["move"], "steer": np.full((50, 1), x)}} for x in np.linspace(-4.0, 4.0, 401)]
    area = 0.02 * sum(np.exp(policy.log_probability(seen, step)) for step in steps)
    density = propensity / area  # of the steering alone
    np.testing.assert_allclose(total, density, rtol=1e-3)


def test_every_runtime_gives_the_same_mapping(policy, saved, log):
    seen = log.observation["observation"][:64]
    plain, loaded = runtime.load(saved), load_policy(saved)
    expected, _ = policy.act(seen)
    for name, part in flat(loaded.act(seen)[0]).items():
        np.testing.assert_array_equal(part, flat(expected)[name])  # to the bit
    for name, part in flat(plain.act(seen)[0]).items():
        assert part.dtype == flat(expected)[name].dtype
        np.testing.assert_allclose(part, flat(expected)[name], atol=1e-5)
    action, propensity = plain.act(seen, seed=3)
    assert (propensity is None) == isinstance(policy.algorithm, BCQ)
    if propensity is not None:
        np.testing.assert_allclose(propensity, np.exp(policy.log_probability(seen, action)), rtol=2e-4)


def test_samples_of_parts_are_independent_without_jax_too(policy, saved):
    if isinstance(policy.algorithm, BCQ):
        return  # candidates have no parts of their own
    action, _ = runtime.load(saved).act(np.tile(np.float32([0.5, 0.2]), (5000, 1)), seed=0)
    parts = [action["move"]["steer"][:, 0], *(action["move"]["gear"] == code for code in range(3)), *action["lights"].T]
    parts.append(action["horn"])
    among = np.corrcoef([np.asarray(part, float) for part in parts])
    among[1:4, 1:4] = 0.0  # codes of one choice exclude each other
    assert np.abs(among[~np.eye(len(among), dtype=bool)]).max() < 0.07


@pytest.mark.skipif(importlib.util.find_spec("starlette") is None, reason="the extra [serve] is not installed")
def test_http_answers_as_numpy_to_the_bit(saved, log):
    from tidelog.serving.app import ActEndpoint

    plain, seen = runtime.load(saved), log.observation["observation"][:8]
    served = ActEndpoint(plain, 100)

    def answer(**body):
        return json.loads(json.dumps(served.compute(served.read(json.dumps(body).encode()))))

    action, propensity = plain.act(seen, seed=5)
    several = answer(observations=seen.tolist(), seed=5)
    assert several["propensities"] == (None if propensity is None else propensity.tolist())
    for row in range(8):
        codes = several["codes"][row]
        assert codes == {
            "move": {"steer": action["move"]["steer"][row].tolist(), "gear": int(action["move"]["gear"][row])},
            "lights": action["lights"][row].tolist(),
            "horn": int(action["horn"][row]),
        }
        assert several["actions"][row] == {**codes, "horn": ("off", "on")[codes["horn"]]}
    one, mode = answer(observation=seen[0].tolist()), plain.act(seen[0])[0]
    assert one["code"]["move"]["steer"] == mode["move"]["steer"].tolist()
    assert one["action"]["horn"] == ("off", "on")[int(mode["horn"])]


def test_tables_and_archives_get_a_column_or_an_array_a_part(policy, log, tmp_path):
    seen = log.observation["observation"][:6]
    action = flat(policy.act(seen)[0])
    table = act_on_table(policy, pl.DataFrame({f"observation_{i}": seen[:, i] for i in range(2)}))
    assert table.columns[2:] == [f"action_{name}" for name in NAMES]
    np.testing.assert_array_equal(table["action_move/steer"].to_numpy(), action["move/steer"][:, 0])
    np.testing.assert_array_equal(table["action_lights"].to_numpy(), action["lights"])
    assert table["action_horn"].to_list() == [("off", "on")[code] for code in action["horn"]]
    np.savez(tmp_path / "rows.npz", observation=seen)
    arrays, _ = act_on_arrays(policy, tmp_path / "rows.npz")
    for name in NAMES:
        np.testing.assert_array_equal(arrays[f"action/{name}"], action[name])


@pytest.mark.full
@pytest.mark.skipif(not ONNX, reason=WITHOUT)
def test_onnx_has_one_output_a_part(policy, log):
    if isinstance(policy.algorithm, IQL):
        return  # the nodes of BC
    content, facts = onnx_file(policy)
    assert facts["outputs"] == [f"action/{name}" for name in NAMES]
    (noise,) = (one["content"] for one in facts["inputs"] if one["name"] == "noise")
    kinds = "1 standard normal, then 3 standard Gumbel, then 4 standard Gumbel, then 2 standard Gumbel"
    assert noise == (kinds if isinstance(policy.algorithm, BC) else "standard normal clipped at 0.5")
    seen = {"observation": log.observation["observation"][:64]}
    rows = onnx_answers(policy, content, "the file")(seen, None)["action"][0]
    expected = log.spec.action.pack(policy.act(seen)[0])
    np.testing.assert_allclose(rows, expected, atol=1e-5)
    np.testing.assert_array_equal(rows[:, 1:], expected[:, 1:])


def test_what_cannot_learn_from_parts_says_what_can(log):
    with pytest.raises(SpecError, match=r"DiscreteBCQ requires Discrete actions, but.* Hybrid.*bc, bcq, iql"):
        fit(DiscreteBCQ(**SMALL), log, steps=1)
