"""The same answers everywhere: NumPy and ONNX against JAX, for every kind of policy."""

import json
import math
import sys

import numpy as np
import pytest

from tests.runtime.cases import CASES, ONNX, WITHOUT, policy
from tidelog import RecommenderBCQ, runtime
from tidelog.algorithms.names import ALGORITHMS
from tidelog.algorithms.part import PolicyPart
from tidelog.errors import ExportError, SpecError
from tidelog.policies import export as artefact
from tidelog.policies.export import LoggedObservations, export, random_masks, random_observations, recheck
from tidelog.runtime.artefact import WEIGHTS, SavedPolicy, write
from tidelog.types import Continuous, Discrete

SAME_NODES = ("iql, choice, several rewards, mixed", "discrete bcq, memory", "iql, box", "ppg, choice", "bc, point",
              "td3-bc", "rebrac", "cql")  # fmt: skip


def test_every_algorithm_is_among_the_cases():
    of_acts = {type(algorithm) for algorithm, _, _ in CASES.values()}
    own = {one for one in ALGORITHMS.values() if one.__module__.startswith("tidelog.")}  # examples register theirs
    assert of_acts | {RecommenderBCQ} == {*own, PolicyPart}


@pytest.mark.sample("iql, choice, several rewards, mixed", "iql, box", "bc, point", "discrete bcq", "ppg, choice")
@pytest.mark.parametrize("name", CASES)
def test_numpy_and_onnx_answer_as_jax_does(name, tmp_path):
    """Tracing is slow: ONNX where the nodes differ."""
    whole, traced = policy(name), ONNX and name not in SAME_NODES
    kept = LoggedObservations(random_observations(whole, 256, seed=7), random_masks(whole, 256, seed=8))
    record = export(whole, tmp_path / "policy.zip", onnx=traced, logged=kept)
    assert record["rows"] == {"random": 256, "logged": 256}
    for reader in ("numpy", "onnx") if traced else ("numpy",):
        for seen in ("random", "logged"):
            assert record[reader][seen]["difference"] < 2e-5, (reader, seen)
            assert record[reader][seen]["apart"] <= record["bound"]["apart"], (reader, seen)
    assert SavedPolicy(tmp_path / "policy.zip").manifest["parity"] == json.loads(json.dumps(record))


@pytest.mark.parametrize("name", [name for name in CASES if "iql, choice" in name or name == "discrete bcq"])
def test_actions_are_rated_alike(name, artefacts):
    seen = random_observations(policy(name), 64)
    np.testing.assert_allclose(
        runtime.load(artefacts[name]).q_values(seen), policy(name).q_values(seen), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", ["iql, box", "bcq", "iql, choice, several rewards, mixed", "discrete bcq"])
def test_chosen_actions_have_the_value_of_the_smallest_critic(name, artefacts):
    """Of BCQ that of the first critic, the only one of a policy."""
    whole, plain, box = policy(name), runtime.load(artefacts[name]), not isinstance(policy(name).spec.action, Discrete)
    seen = random_observations(whole, 64)
    action = whole.act(seen, seed=1)[0]
    found = whole.q_values(seen, action)
    if box:
        leaves, critic = whole.scaler.observation(seen), whole.params.critic
        members = getattr(critic, "members", (critic,))
        rated = [np.asarray(member(leaves, whole.spec.action.to_unit(action))) for member in members]
        wanted = np.min(rated, axis=0)
    else:
        wanted = np.take_along_axis(whole.q_values(seen), action[:, None], axis=1)[:, 0]
        labels = [whole.spec.action.names[code] for code in action]
        np.testing.assert_array_equal(whole.q_values(seen, labels), found)
        np.testing.assert_allclose(plain.q_values(seen, action), found, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    one = {leaf: values[0] for leaf, values in seen.items()}
    np.testing.assert_allclose(whole.q_values(one, action[0]), found[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["discrete bcq", "discrete bcq, memory"])
def test_the_logits_of_the_imitator_say_which_actions_are_supported(name):
    whole = policy(name)
    seen, threshold = random_observations(whole, 64), whole.algorithm.threshold
    state = whole.initial_state(64) if whole.is_recurrent else None
    logits = whole.imitation_logits(seen, state)
    supported = logits - logits.max(axis=1, keepdims=True) >= math.log(threshold)
    chances = whole.probabilities(seen, state=state)
    assert ((chances > 0) <= supported).all()
    assert supported.sum() > 64
    if whole.algorithm.epsilon:
        np.testing.assert_array_equal(chances > 0, supported)


@pytest.mark.parametrize(
    ("name", "call", "words"),
    [
        ("iql, box", lambda one, seen: one.q_values(seen), r"no Q-values of all actions\. fix: use q_values\(obs"),
        ("iql, memory", lambda one, seen: one.q_values(seen, [0]), r"recurrent networks has no Q-values"),
        ("ppg, choice", lambda one, seen: one.q_values(seen, [0]), r"no Q-values\. fix: use a policy with a critic"),
        ("iql, choice", lambda one, seen: one.imitation_logits(seen), r"no imitator\. fix: use a discrete BCQ policy"),
        ("iql, choice", lambda one, seen: one.q_values(seen, [7]), "action"),
    ],
)
def test_values_that_a_policy_does_not_have_are_refused(name, call, words):
    with pytest.raises(SpecError, match=words):
        call(policy(name), random_observations(policy(name), 1))


def test_a_policy_without_jax_says_who_has_its_values(artefacts):
    seen = random_observations(policy("iql, box"), 1)
    with pytest.raises(SpecError, match=r"without JAX\. fix: use tl\.load_policy\(path\)\.q_values\(obs"):
        runtime.load(artefacts["iql, box"]).q_values(seen, [[0.0, 0.0]])
    with pytest.raises(SpecError, match=r"no imitator\. fix: use a discrete BCQ policy of tl\.load_policy"):
        runtime.load(artefacts["discrete bcq"]).imitation_logits(seen)


def test_a_reader_that_differs_is_not_exported(tmp_path, monkeypatch):
    """With a bound of 0, rounding is too large."""
    tight = {kind: artefact.Bound(0.0, 0.0) for kind in artefact.BOUNDS}
    monkeypatch.setattr(artefact, "BOUNDS", tight)
    with pytest.raises(ExportError, match=r"numpy differs from JAX by .*, allowed"):
        export(policy("iql, box"), tmp_path / "policy", onnx=False)
    assert list(tmp_path.iterdir()) == []


def test_an_artefact_is_held_to_its_own_bound(tmp_path):
    path = tmp_path / "policy"
    export(policy("iql, box"), path, onnx=False)
    assert recheck(path)["numpy"]["holds"]
    saved = SavedPolicy(path)
    stated = saved.manifest["parity"] | {"bound": {"difference": 1e-12, "apart": 0.0}}
    rewritten(path, saved, parity=stated)
    with pytest.raises(ExportError, match=r"numpy differs from JAX by .*, allowed \{.difference.: 1e-12"):
        recheck(path)


def rewritten(path, saved, **changes):
    kept = {name: value for name, value in saved.manifest.items() if name not in ("kind", "schema", "files")}
    write(path, {WEIGHTS: saved.read(WEIGHTS)}, kept | changes)


@pytest.mark.parametrize("name", ["iql, choice", "iql, choice, several rewards, mixed", "discrete bcq", "ppg, choice"])
def test_samples_come_as_often_as_jax_says(name, artefacts):
    whole, plain = policy(name), runtime.load(artefacts[name])
    one = random_observations(whole, 1)
    mask = [[True, True, False, True, True]]
    count = 20_000
    many = {leaf: np.repeat(values, count, axis=0) for leaf, values in one.items()}
    drawn, chance = plain.sample_with_propensity(many, 5, np.repeat(mask, count, axis=0))
    wanted = whole.probabilities(one, mask)[0]
    # at least 4.2 standard errors: a right sampler fails for at most 4 in 100,000 seeds
    np.testing.assert_allclose(np.bincount(drawn.codes, minlength=5) / count, wanted, atol=0.015)
    np.testing.assert_allclose(chance, wanted[drawn.codes], atol=1e-5)
    np.testing.assert_array_equal(plain.sample(many, 5, np.repeat(mask, count, axis=0)), drawn)
    assert wanted[2] == 0


def test_samples_of_a_box_have_the_density_that_jax_gives(artefacts):
    for name in ("iql, box", "ppg, box"):
        seen = random_observations(policy(name), 500)
        drawn, density = runtime.load(artefacts[name]).sample_with_propensity(seen, 1)
        wanted = np.exp(policy(name).log_probability(seen, drawn))
        np.testing.assert_allclose(density, wanted, rtol=1e-3)
        assert np.ptp(drawn, axis=0).min() > 0.5
    mixed = runtime.load(artefacts["iql, box, spread by state, mixed"])
    drawn, density = mixed.sample_with_propensity(seen, 1)
    assert density is None
    # 3.9 standard errors: a right mixture fails for 8 in 100,000 seeds
    assert (drawn == mixed(seen)).all(axis=1).mean() == pytest.approx(0.7, abs=0.08)


def test_candidates_are_drawn_anew_within_the_bounds(artefacts):
    plain = runtime.load(artefacts["bcq"])
    seen = random_observations(policy("bcq"), 100)
    one, two = plain.sample(seen, 0), plain.sample(seen, 1)
    assert (one != two).any()
    np.testing.assert_array_equal(one, plain.sample(seen, 0))
    assert (one >= [-1.0, -2.0]).all()
    assert (one <= [1.0, 6.0]).all()


@pytest.mark.skipif(not ONNX, reason=WITHOUT)
def test_the_file_alone_is_enough_for_onnxruntime(tmp_path):
    """Raw columns with NaN for a missing value, no mask, no noise: the calls of another program."""
    import onnxruntime

    whole = policy("iql, choice")
    path = tmp_path / "policy.onnx"
    export(whole, path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options)
    told = json.loads(session.get_modelmeta().custom_metadata_map["tidelog"])
    assert [one["name"] for one in told["inputs"] if not one["optional"]] == ["categorical", "numeric"]
    columns = np.asarray([[1.0, np.nan, 2.0], [0.0, 1.0, np.nan]], np.float32)
    codes = np.asarray([[0, 1], [2, 0]], np.int32)
    action, chances = session.run(["action", "probabilities"], {"categorical": codes, "numeric": columns})
    rows = [
        {"age": 1.0, "dose": math.nan, "pressure": 2.0, "ward": "a", "sex": "m"},
        {"age": 0.0, "dose": 1.0, "pressure": 0.5, "ward": "c", "sex": "f"},  # 0.5 is the fill
    ]
    for i, row in enumerate(rows):
        assert action[i] == whole(row).codes
        np.testing.assert_allclose(chances[i], whole.probabilities(row), atol=1e-6)
    with pytest.raises(ExportError, match=r"exists, nothing was written\. fix: choose another path"):
        export(whole, path)


def numbers_changed(content, factor):
    """Return an ONNX file whose weights are larger by this factor."""
    import onnx

    model = onnx.load_from_string(content)
    for one in model.graph.initializer:
        values = onnx.numpy_helper.to_array(one)
        if values.dtype == np.float32 and values.ndim == 2:
            one.CopyFrom(onnx.numpy_helper.from_array(factor * values, one.name))
    return model.SerializeToString()


@pytest.mark.skipif(not ONNX, reason=WITHOUT)
@pytest.mark.sample("iql, memory")
@pytest.mark.parametrize("name", ["iql, memory", "bcq, memory", "ppg, dials", "discrete bcq, pictures"])
def test_an_onnx_file_of_other_numbers_is_not_exported(name, tmp_path, monkeypatch):
    """Also where the policy samples, and the file has no default of its noise."""
    whole = policy(name).with_acting("sample")
    assert export(whole, tmp_path / "good.zip")["onnx"]["holds"]
    write_onnx = artefact.onnx_file

    def other(policy):
        content, facts = write_onnx(policy)
        return numbers_changed(content, 0.5), facts

    monkeypatch.setattr(artefact, "onnx_file", other)
    with pytest.raises(ExportError, match=r"onnx differs from JAX by .*, allowed"):
        export(whole, tmp_path / "policy.zip")
    assert [one.name for one in tmp_path.iterdir()] == ["good.zip"]


@pytest.mark.skipif(not ONNX, reason=WITHOUT)
def test_bytes_that_onnxruntime_cannot_run_are_an_error_that_names_the_file(monkeypatch):
    with pytest.raises(ExportError, match=r"a/policy\.onnx: onnxruntime cannot run it: .*fix: export the policy again"):
        artefact.onnx_answers(policy("bc, point"), b"no model", "a/policy.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ExportError, match=r"checking an ONNX file needs onnxruntime \(.*fix: pip install"):
        artefact.onnx_answers(policy("bc, point"), b"", "a/policy.onnx")


def test_an_action_stays_within_bounds_that_leave_no_choice():
    space = Continuous((2.0, -1.0), (2.0, 1.0))
    np.testing.assert_array_equal(space.executed(np.asarray([[1.0, 3.0], [-1.0, 0.5]], np.float32)), [[2, 1], [2, 0.5]])
