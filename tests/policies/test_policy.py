"""The policy object: inputs, outputs, and saving."""

import json
import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest

import tidelog as tl
from tests.training.runs import bc, begin, finish, iql
from tidelog import ConfigError, Log, SpecError
from tidelog.errors import CheckpointError
from tidelog.networks.actors import Categorical
from tidelog.policies.policy import fingerprint, named_arrays
from tidelog.support import allow

LOW, HIGH = -2.0, 6.0
NAMES = ["severity", "strain", "toxicity", "hour", "kidneys"]


@pytest.fixture
def clinic(trained):
    return trained


@pytest.fixture(scope="module")
def rater(log):
    """A policy with critics, untrained."""
    return begin(iql(), log).policy()


@pytest.fixture(scope="module")
def steering():
    """A policy on arrays with one action within [-2, 6], that aims where it is told."""
    rng = np.random.default_rng(0)
    seen = rng.uniform(-1, 1, (256, 2)).astype(np.float32)
    action = (2.0 + 3.0 * seen[:, :1] + 0.3 * rng.standard_normal((256, 1))).astype(np.float32)
    log = Log.from_arrays(observation=seen, action=action, reward=None, terminated=True, bounds=(LOW, HIGH))
    return finish(begin(bc(learning_rate=0.03), log, steps=300, eval_every=300, held_out=0.0)).policy()


@pytest.fixture(scope="module")
def rows(log):
    """All observations of the log, as a table of numbers and categories."""
    seen = log.transitions.observation
    words = np.asarray(log.spec.observation["categorical"].vocabularies[0])
    return pl.DataFrame(seen["numeric"], schema=NAMES[:4]).with_columns(kidneys=words[seen["categorical"][:, 0]])


def some(count, seed=0):
    """Random observations of the clinic's spec."""
    rng = np.random.default_rng(seed)
    numeric = rng.uniform(0, 4, (count, 4)).astype(np.float32)
    return {"numeric": numeric, "categorical": rng.integers(0, 2, (count, 1)).astype(np.int32)}


def test_every_form_of_the_same_observations_gets_the_same_actions(clinic, rows, log):
    wanted = clinic(log.transitions.observation)
    assert wanted.shape == (log.steps,)
    assert len(set(wanted.tolist())) > 1
    shuffled = rows.select(reversed(rows.columns)).with_columns(other=pl.lit("x"))
    forms = [rows, shuffled, pd.DataFrame(rows.to_dict(as_series=False)), rows.to_dict(as_series=False), rows.to_dict()]
    for form in forms:
        np.testing.assert_array_equal(clinic(form), wanted)
    one = rows.row(0, named=True)
    assert clinic(one) == wanted[0]
    assert clinic(one).shape == ()
    assert clinic({name: leaf[0] for name, leaf in log.transitions.observation.items()}) == wanted[0]


def test_words_and_codes_mean_the_same_under_the_leafs_name(clinic):
    seen = some(8)
    words = np.asarray(["healthy", "impaired"])[seen["categorical"]]
    np.testing.assert_array_equal(clinic.probabilities(seen), clinic.probabilities(seen | {"categorical": words}))
    np.testing.assert_array_equal(
        clinic.probabilities(seen), clinic.probabilities(seen | {"categorical": seen["categorical"][:, 0]})
    )


def test_lists_and_arrays_do_where_there_is_one_leaf(steering):
    one = steering([0.5, 0.25])
    assert one.shape == (1,)
    assert one.dtype == np.float32
    assert steering([[0.5, 0.25], [-0.5, 0.0]]).shape == (2, 1)
    np.testing.assert_array_equal(steering(np.asarray([[0.5, 0.25]])), one[None])
    assert one[0] == pytest.approx(2.0 + 3.0 * 0.5, abs=0.5)  # 0 of 30 other seeds fail


@pytest.mark.sample("3")
@pytest.mark.parametrize("count", [1, 3, 1025, 20_000])
def test_rows_do_not_depend_on_the_batch_they_come_in(count, clinic, steering, rater):
    seen = some(20_000)
    part = {name: leaf[:count] for name, leaf in seen.items()}
    whole = clinic.probabilities(seen)
    np.testing.assert_allclose(clinic.probabilities(part), whole[:count], rtol=1e-5)
    np.testing.assert_array_equal(clinic(part), clinic(seen)[:count])
    np.testing.assert_allclose(rater.q_values(part), rater.q_values(seen)[:count], rtol=1e-4, atol=1e-6)
    numbers = seen["numeric"][:, :2]
    np.testing.assert_allclose(steering(numbers[:count]), steering(numbers)[:count], rtol=1e-5, atol=1e-5)
    for row in (0, count - 1):
        single = {name: leaf[row] for name, leaf in seen.items()}
        np.testing.assert_allclose(clinic.probabilities(single), whole[row], rtol=1e-5)
    assert clinic.sample(part).shape == (count,)


ONE = dict.fromkeys(NAMES[:4], 1.0) | {"kidneys": "healthy"}
WRONG = {
    "a name": ({"severty": 1.0}, "unknown feature 'severty': did you mean 'severity'"),
    "too few": ({"severity": 1.0, "strain": 0.0}, "hour, kidneys: expected 5 features. fix: give every"),
    "a word": (ONE | {"kidneys": "helthy"}, "'kidneys' is 'helthy' in row 0, unknown in the log: did you"),
    "text": (ONE | {"hour": "x"}, "'hour' has the type .*: expected numbers"),
    "NaN": (ONE | {"severity": np.nan}, "'severity' is missing or infinite in row 0"),
    "lengths": (ONE | {"hour": [1.0, 2.0]}, r"features have shapes .*'hour': \[2\].*: expected one value per row"),
    "an array": (np.zeros((2, 5)), "the observation needs numeric, categorical. fix: pass a mapping or a data frame"),
    "leaf rows": ({"numeric": np.zeros((2, 4)), "categorical": np.zeros((3, 1), int)}, "different numbers of rows"),
    "leaf width": ({"numeric": np.zeros((2, 3)), "categorical": [[0], [0]]}, r"has shape \[2, 3\]: expected \[4\]"),
    "leaf forms": ({"numeric": np.zeros(4), "categorical": [[0]]}, "one observation and some are batches"),
    "a code": ({"numeric": np.zeros((2, 4)), "categorical": [[0], [2]]}, "is 2 in row 1: expected codes 0 to 1"),
    "no rows": ({"numeric": np.zeros((0, 4)), "categorical": np.zeros((0, 1), int)}, "the batch has 0 rows"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_observations_that_do_not_fit_are_named(wrong, clinic):
    observation, message = WRONG[wrong]
    with pytest.raises(SpecError, match=message):
        clinic(observation)


@pytest.mark.parametrize("library", [pl.DataFrame, pd.DataFrame])
def test_frames_that_do_not_fit_are_named(library, clinic, rows):
    frame = rows[:3].to_dict(as_series=False)
    with pytest.raises(SpecError, match=r"missing features strain: expected 5 features\. fix: did you mean 'strian'"):
        clinic(library({("strian" if name == "strain" else name): column for name, column in frame.items()}))
    with pytest.raises(SpecError, match="'hour' is missing or infinite in row 1"):
        clinic(library(frame | {"hour": [0.0, None, 8.0]}))
    with pytest.raises(SpecError, match=r"'kidneys' is '.*' in row 2, unknown in the log"):
        clinic(library(frame | {"kidneys": ["healthy", "impaired", None]}))


@pytest.mark.parametrize(("observation", "message"), [
    ([1.0, 2.0, 3.0], r"has shape \[3\]: expected \[2\] or \[B, 2\]"), ([[1.0], [1.0, 2.0]], "different lengths"),
    ([1e300, 0.0], "missing or infinite in row 0"), (["a", "b"], "expected numbers"), ("ab", r"has shape \[\]"),
    ({"observation": [0.0, float("inf")]}, "missing or infinite"), ({"seen": [0.0, 0.0]}, "unknown feature 'seen'"),
])  # fmt: skip
def test_arrays_that_do_not_fit_are_refused(observation, message, steering):
    with pytest.raises(SpecError, match=message):
        steering(observation)


def test_forbidden_actions_are_never_chosen(clinic):
    seen, rng = some(500), np.random.default_rng(3)
    mask = rng.random((500, 6)) < 0.4
    mask[np.arange(500), rng.integers(0, 6, 500)] = True
    each = np.arange(500)
    for chosen in (clinic(seen, mask), clinic.sample(seen, 1, mask), clinic.sample(seen, 2, mask.astype(int))):
        assert mask[each, chosen.codes].all()
    assert not mask[each, clinic(seen).codes].all()
    chances = clinic.probabilities(seen, mask)
    assert (chances[~mask] == 0).all()
    np.testing.assert_allclose(chances.sum(1), 1.0, rtol=1e-5)
    chosen = clinic(seen, mask)
    np.testing.assert_allclose(
        np.exp(clinic.log_probability(seen, chosen, mask)), chances[each, chosen.codes], rtol=1e-4
    )
    one = {name: leaf[0] for name, leaf in seen.items()}
    assert clinic(one, mask[0]) == chosen[0]


def test_masks_that_do_not_fit_are_refused(clinic, steering):
    seen = some(2)
    for mask, message in (
        (np.ones((2, 5)), r"mask has shape \[2, 5\]: expected \[2, 6\] \(or \[6\] for one\)"),
        (np.ones(6), r"mask has shape \[1, 6\]"),
        ([[1] * 6, [0] * 6], "the mask of row 1 allows no action"),
        ([["yes"] * 6] * 2, "mask has the type .*: expected true and false"),
        ([[1], [1, 0]], "'mask' has rows of different lengths"),
    ):
        with pytest.raises(SpecError, match=message):
            clinic(seen, mask)
    with pytest.raises(SpecError, match="and these are not discrete"):
        steering([0.0, 0.0], mask=[True])


def test_samples_are_decided_by_the_seed(clinic, steering):
    seen, numbers = some(64), some(64)["numeric"][:, :2]
    for policy, observation in ((clinic, seen), (steering, numbers)):
        np.testing.assert_array_equal(policy.sample(observation, 5), policy.sample(observation, 5))
        assert (policy.sample(observation, 5) != policy.sample(observation, 6)).any()
        np.testing.assert_array_equal(policy(observation), policy(observation))
    same = {name: np.repeat(leaf[:1], 20_000, axis=0) for name, leaf in seen.items()}
    drawn = clinic.sample(same, 0)
    assert (drawn[:3000] != drawn[16384:19384]).any(), "a second chunk of rows must not repeat the first"
    share = np.bincount(drawn.codes, minlength=6) / 20_000
    # at least 5.6 standard errors: a right sampler fails for at most 3 in 100 million seeds
    np.testing.assert_allclose(share, clinic.probabilities(same)[0], atol=0.02)


def test_continuous_samples_stay_within_the_bounds(steering):
    edge = np.tile([[1.3, 0.0]], (50_000, 1))
    drawn, density = steering.sample_with_propensity(edge, 0)
    assert drawn.min() >= LOW
    assert drawn.max() == HIGH  # 1 of 40 other seeds fails: the policy hardly comes near
    np.testing.assert_allclose(density, np.exp(steering.log_probability(edge, drawn)), rtol=1e-5)


def test_the_density_is_in_the_actions_own_units(steering):
    grid = np.linspace(-40.0, 44.0, 20_001)[:, None]
    for seen in ([0.0, 0.0], [0.5, -1.0]):
        density = np.exp(steering.log_probability(np.tile(seen, (len(grid), 1)), grid))
        assert np.trapezoid(density, grid[:, 0]) == pytest.approx(1.0, abs=1e-4)
        mean = np.trapezoid(density * grid[:, 0], grid[:, 0])
        assert mean == pytest.approx(steering(seen)[0], abs=1e-3)


@pytest.mark.parametrize("action", [6, -1, 0.5, np.nan, "low", [1], [[1], [1]]])
def test_actions_that_there_are_not_have_no_probability(action, clinic):
    given = action if isinstance(action, list) else [action, 0]
    with pytest.raises(SpecError, match="action"):
        clinic.log_probability(some(2), given)


@pytest.mark.parametrize("action", [[0.0, 0.0], [[0.0, 0.0]] * 2, [[np.nan], [0.0]], [["x"], [0.0]]])
def test_continuous_actions_that_do_not_fit_are_refused(action, steering):
    with pytest.raises(SpecError, match="action"):
        steering.log_probability(np.zeros((2, 2)), action)


def test_what_a_policy_cannot_say_it_says(clinic, steering, rater):
    with pytest.raises(SpecError, match=r"Continuous actions have no list of probabilities\. fix: use log_probability"):
        steering.probabilities([0.0, 0.0])
    with pytest.raises(SpecError, match="BC with Discrete actions has no Q-values"):
        clinic.q_values(some(1))
    assert rater.q_values(some(3)).shape == (3, 6)
    assert rater.q_values({name: leaf[0] for name, leaf in some(1).items()}).shape == (6,)


@pytest.mark.bits
def test_a_saved_policy_is_the_same_to_the_last_bit(clinic, steering, rater, tmp_path):
    seen = some(100)
    for name, policy in {"clinic": clinic, "steering": steering, "rater": rater}.items():
        again = tl.load_policy(policy.save(tmp_path / name))
        observation = seen["numeric"][:, :2] if name == "steering" else seen
        assert fingerprint(again.params) == fingerprint(policy.params)
        assert again.spec == policy.spec
        assert again.origin == policy.origin
        np.testing.assert_array_equal(again(observation), policy(observation))
        np.testing.assert_array_equal(again.sample(observation, 3), policy.sample(observation, 3))
        chosen = policy(observation)
        np.testing.assert_array_equal(
            again.log_probability(observation, chosen), policy.log_probability(observation, chosen)
        )
    assert {path.name for path in (tmp_path / "clinic").iterdir()} == {"manifest.json", "weights.safetensors"}
    steering.save(tmp_path / "clinic")
    assert tl.load_policy(tmp_path / "clinic").spec == steering.spec


def rewrite(change):
    def apply(folder):
        path = folder / "manifest.json"
        path.write_text(json.dumps(change(json.loads(path.read_text()))))

    return apply


def cut(folder):
    weights = folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])


@pytest.mark.parametrize(("damage", "message"), [
    (rewrite(lambda content: content | {"schema": 5}), "has schema version 5, this tidelog reads 4. fix: "),
    (rewrite(lambda content: content | {"kind": "log"}), "is not the manifest of a tidelog policy: its kind is 'log'"),
    (cut, "weights.safetensors has .* bytes: expected .*"),
    (lambda folder: (folder / "weights.safetensors").unlink(), "weights.safetensors is missing"),
    (lambda folder: (folder / "manifest.json").unlink(), "is not a tidelog policy: it has no manifest.json"),
    (shutil.rmtree, "does not exist. fix: check the path of the policy"),
])  # fmt: skip
def test_a_damaged_policy_is_refused(damage, message, clinic, tmp_path):
    damage(clinic.save(tmp_path / "policy"))
    with pytest.raises(CheckpointError, match=message):
        tl.load_policy(tmp_path / "policy")


class Stubborn(eqx.Module):
    """A custom actor that prefers the last action for every observation."""

    logits: jax.Array

    def __call__(self, observation, *, mask=None, dropout=None, key=None):
        return Categorical(allow(jnp.tile(self.logits, (observation["numeric"].shape[0], 1)), mask))


def test_modules_of_ones_own_need_their_algorithm_again(log, tmp_path):
    own = bc(actor_network=lambda spec, key: Stubborn(jnp.arange(6.0)))
    policy = begin(own, log).policy()
    assert set(policy(some(4)).codes) == {5}
    policy.save(tmp_path / "own")
    with pytest.raises(
        ConfigError, match=r"your own function, and files cannot hold functions\. fix: pass the algorithm again"
    ):
        tl.load_policy(tmp_path / "own")
    again = tl.load_policy(tmp_path / "own", own)
    assert set(again(some(4), [[True] * 5 + [False]] * 4).codes) == {4}
    with pytest.raises(CheckpointError, match=r"arrays: expected .* for this algorithm"):
        tl.load_policy(tmp_path / "own", bc())


def test_a_policy_does_not_change_while_its_run_goes_on(log):
    run = begin(bc(learning_rate=0.1), log)
    before = run.policy()
    kept = named_arrays(before.params)
    finish(run)
    for name, array in named_arrays(before.params).items():
        np.testing.assert_array_equal(array, kept[name])
    assert fingerprint(run.policy().params) != fingerprint(before.params)
