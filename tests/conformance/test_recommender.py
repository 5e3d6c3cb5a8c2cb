"""The recommender through the common loop: every field has an effect, runs resume exactly, seeds are independent."""

import dataclasses
from functools import cache

import equinox as eqx
import jax
import numpy as np
import pytest

import tidelog as tl
from tests.algorithms.recommenders import SMALL, after, batch, compiled, described, fresh, policy, small, unshown
from tests.conformance.cases import check_field, differ, finite, same
from tidelog import ConfigError, RecommenderBCQ, SpecError
from tidelog.algorithms.contract import Algorithm, Ranking
from tidelog.recommend import recommender_bcq
from tidelog.recommend.held_out import LISTS, QWeightSelection
from tidelog.recommend.recommender_bcq import critic_inputs
from tidelog.runtime.ranking import Ranker
from tidelog.training.loop import as_arrays
from tidelog.types import HistoryArrays


def scaled(h, log):
    """The scaled rewards of a run."""
    return jax.numpy.array(tl.fit(h, log, 1, train=False).record.scaler.reward_shift)


@cache
def learnt(h, log):
    """The state after two updates."""
    return after(h, log)


@cache
def stepped(h, log):
    """The state after one update."""
    return after(h, log, 1)


@cache
def chosen(h, log):
    """The candidates and values of an initial state's targets."""
    state, row = fresh(h, log), batch(h, log)
    seen = critic_inputs(h, state, row.data)
    return recommender_bcq.values(h, state, seen, jax.random.key(0))


def rated(h, log):
    """The error of an initial state's critics."""
    return _rated(h, fresh(h, log), batch(h, log))


@eqx.filter_jit
def _rated(h, state, row):
    seen = critic_inputs(h, state, row.data)
    return recommender_bcq.critic_loss(state.critic, h, row, seen, row.data.reward, None)[0]


@cache
def built(h, log):
    """The initial state."""
    return fresh(h, log)


@cache
def told(h, log):
    """The state after two updates of the first phase."""
    return after(h, log, phase=0)


@cache
def reported(h, log):
    """The metrics of one update of the main phase."""
    return compiled(h.phases()[1].step)(as_arrays(h), fresh(h, log), batch(h, log))[1].metrics


@cache
def ideas(h, log):
    """The queries of the initial policy."""
    params = h.policy_params(fresh(h, log))
    steps = np.ones((2, h.history), np.int32)
    return h.queries(params, HistoryArrays(steps, steps, np.ones((2, 6), np.float32)))


@cache
def gathered(h, log):
    """A batch."""
    return batch(h, log).data


def planned(h, log):
    """The share of the first phase."""
    return np.asarray(h.phases()[0].share(h))


def own_vectors(log, size, seed):
    """Custom item vectors."""
    return np.random.default_rng(7).standard_normal((len(log.items), size))


VAE = {"generator": "vae", "negative_weight": 0.5}
EFFECTS = {  # field: (another value, affected result, other required settings)
    "generator": ("vae", built),
    "threshold": (1.0, learnt, {"threshold": 0.01}),
    "candidates": (1, chosen, {"threshold": 0.01}),
    "phi": (5.0, learnt, VAE),
    "kl_weight": (5.0, learnt, VAE),
    "latent": (None, built, VAE),
    "latent_clip": (0.01, learnt, VAE),
    "target_samples": (9, chosen, VAE),
    "samples": (2, ideas, VAE),
    "mix": (0.0, learnt),
    "policy_delay": (2, stepped),
    "discount": (0.5, learnt),
    "tau": (0.9, learnt),
    "num_critics": (3, built),
    "critic_loss": ("huber", rated),
    "q_weight": (1.5, built),
    "exclude_seen": (True, chosen, {"threshold": 0.01}),
    "negative_weight": (5.0, learnt, VAE),
    "reward_scaling": ("minus-one", scaled),
    "encoder": ("mean", built),
    "size": (4, built),
    "history": (5, built, {"encoder": "attention", "targets": 3}),
    "memory": (12, gathered),
    "successors": (3, built),
    "targets": (2, gathered),
    "profile": (False, built),
    "user_embedding": (True, built),
    "user_dropout": (1.0, told, {"user_embedding": True}),
    "layers": (1, built, {"encoder": "attention"}),
    "heads": (2, told, {"encoder": "attention", "dropout": None}),
    "dropout": (0.6, learnt),
    "content": (True, built),
    "tower_hidden": ((4,), built, {"content": True}),
    "begin": ("factors", built),
    "full_softmax": (5, told),
    "sampled_items": (2, told, {"full_softmax": 5}),
    "pretrain_share": (0.5, planned),
    "joint": (False, stepped),
    "batch_size": (3, gathered),
    "learning_rate": (0.05, learnt),
    "critic_learning_rate": (0.05, learnt),
    "generator_learning_rate": (0.05, learnt, VAE),
    "perturbation_learning_rate": (0.05, learnt, VAE),
    "schedule": ("linear", told),
    "optimiser": ("rmsprop", told),
    "gradient_clip": (0.01, told, {"optimiser": "rmsprop"}),
    "debug_metrics": (True, reported, VAE),
    "hidden": ((4,), built),
    "generator_hidden": ((4,), built, VAE),
    "perturbation_hidden": ((4,), built, VAE),
    "item_vectors": (own_vectors, built),
}


def tiered(field):
    """A case of the default tier if it needs no program of its own, otherwise of the full one."""
    _, show, *settings = EFFECTS[field]
    quick = show in (built, planned) or (show is learnt and not settings and field not in ("threshold", "dropout"))
    return field if quick else pytest.param(field, marks=pytest.mark.full)


@pytest.mark.parametrize("field", [tiered(field) for field in EFFECTS])
def test_every_field_has_an_effect(field):
    value, show, others = (*EFFECTS[field], {})[:3]
    one, two = small(**others), small(**(others | {field: value}))
    assert getattr(one, field) != getattr(two, field)
    assert differ(show(two, described()), show(one, described()), by=2e-5)


def test_the_table_names_every_field():
    assert set(EFFECTS) == {field.name for field in dataclasses.fields(RecommenderBCQ)}
    assert set(SMALL) <= set(EFFECTS)


def test_wrong_values_are_refused_by_name_and_right_ones_survive_a_file():
    for field, effect in EFFECTS.items():
        value, _, others = (*effect, {})[:3]
        check_field(RecommenderBCQ, field, value, SMALL | others)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"targets": 60}, "targets = 60"),
        ({"size": 10, "heads": 3}, "is not a multiple of heads"),
        ({"pretran_share": 0.5}, "pretrain_share"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        RecommenderBCQ(**wrong)


@pytest.mark.full
def test_norms_are_of_each_network_and_of_all_together():
    h, log = small(debug_metrics=True, **VAE), described()
    state, metrics = fresh(h, log), reported(h, log)
    names = ("next_item", "generator", "critic", "perturbation")
    assert {name for name in metrics if "norm" in name} == {
        "gradient_norm", *(f"{kind}_norm_{name}" for kind in ("gradient", "weight") for name in names)
    }  # fmt: skip
    parts = [float(metrics[f"gradient_norm_{name}"]) for name in names]
    assert min(parts) > 0.0
    np.testing.assert_allclose(metrics["gradient_norm"], np.sqrt(np.square(parts).sum()), rtol=1e-6)
    keys = jax.random.split(jax.random.fold_in(state.key, state.step), 5)
    loss = eqx.filter_jit(eqx.filter_grad(lambda one: recommender_bcq.next_item_loss(
        one, h, batch(h, log), state.facts, keys[0])[0]))  # fmt: skip
    gradient = jax.tree.leaves(eqx.filter(loss(state.next_item), eqx.is_inexact_array))
    size = np.sqrt(sum(np.square(np.asarray(leaf, float)).sum() for leaf in gradient))
    np.testing.assert_allclose(parts[0], size, rtol=1e-4)


def test_it_keeps_both_contracts():
    assert isinstance(small(), Algorithm)
    assert isinstance(small(), Ranking)


@pytest.mark.slow
@pytest.mark.full
def test_compiled_is_what_is_not_compiled():
    h, log = small(**VAE), described()
    step = h.phases()[1].step
    one = compiled(step)(as_arrays(h), fresh(h, log), batch(h, log))
    two = step(as_arrays(h), fresh(h, log), batch(h, log))
    same(one, two, rtol=1e-3, atol=1e-4)
    assert finite(one)


@pytest.mark.full
def test_losses_without_a_step_are_finite_and_need_no_key():
    h, log = small(**VAE), described()
    for phase in h.phases():
        found = phase.losses(h, fresh(h, log), batch(h, log), jax.random.key(0))
        assert found
        assert all(value.shape == () and np.isfinite(value) for value in found.values())
        same(found, phase.losses(h, fresh(h, log), batch(h, log), jax.random.key(1)))


# Through the common loop.


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of two seeds, both phases, with held-out lists."""
    folder = tmp_path_factory.mktemp("runs")
    log = described()
    log.save(folder / "log")
    run = tl.fit(small(), tl.Interactions.load(folder / "log"), steps=6, seeds=2, out=folder / "run", held_out=0.4,
                 eval_every=3, save_seconds=0.0)  # fmt: skip
    return folder, run


def test_reports_hold_both_phases_and_the_held_out_lists(whole):
    first, *_, last = whole[1].metrics
    assert "pretrain/imitation_loss" in first
    wanted = {"main/critic_loss", "main/coverage", "main/entropy", "held_out/ndcg@10", "held_out/reward@10",
              "held_out/coverage", "held_out/q_weight", "held_out/main/critic_loss"}  # fmt: skip
    assert wanted <= set(last)
    assert set(LISTS) <= set(last)


def test_the_weight_of_q_is_chosen_on_the_held_out_period_and_saved(whole):
    folder, run = whole
    for seed in range(2):
        found = float(run.policy(seed=seed).params.weight)
        assert found == run.metrics[-2 + seed]["held_out/q_weight"]
        assert float(tl.load_run(folder / "run").policy(seed=seed).params.weight) == found


def test_the_chosen_weight_is_not_worse_than_0():
    h, log = small(), described()
    state = after(h, log)
    q_weight_selection = QWeightSelection(log.split(share=0.4).test)
    weight, measured = q_weight_selection.measure(policy(h, log, state))
    alone = q_weight_selection.measure(policy(small(q_weight=0.0), log, state))[1]["held_out/reward_ndcg@10"]
    assert measured["held_out/reward_ndcg@10"] >= alone
    assert q_weight_selection.measure(policy(small(q_weight=0.7), log, state))[0] == 0.7
    assert weight == measured["held_out/q_weight"]


def test_the_weight_of_q_is_chosen_with_what_is_known_of_users(monkeypatch):
    log, asked = described().split(share=0.4).test, []
    found = Ranker.find
    monkeypatch.setattr(Ranker, "find", lambda self, *given: asked.append(given[0].users) or found(self, *given))
    QWeightSelection(log).measure(policy(small(), log))
    np.testing.assert_array_equal(asked[0], log.user_features[log.user[log.targets]])


def test_it_refuses_logs_of_decisions_and_others_refuse_interactions():
    with pytest.raises(
        SpecError, match=r"IQL requires .*Catalogue actions. fix: use an algorithm that supports them: recommender-bcq"
    ):
        tl.fit(tl.IQL(), described(), steps=1)
    log = tl.Log.from_arrays(observation=np.zeros((4, 1)), action=np.array([0, 1, 0, 1]), reward=np.arange(4.0))
    with pytest.raises(SpecError, match="requires Catalogue actions"):
        tl.fit(small(), log, steps=1)
    plain = dataclasses.replace(unshown(), item_features=None, feature_names=())
    with pytest.raises(SpecError, match=r"have none\. fix: item_features"):
        tl.fit(small(content=True), plain, steps=1)
    with pytest.raises(ConfigError, match=r"item vectors are .*: expected finite \[10, 8\]"):
        tl.fit(small(item_vectors=lambda log, size, seed: np.zeros((3, size))), described(), steps=1)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"scale": "standard"}, "no observations to scale"), ({"split_seed": 1}, "split by time"),
     ({"evaluate": {"CartPole-v1": 1}}, "a policy of lists cannot act in them"), ({"held_out": 1.5}, "held_out")],
)  # fmt: skip
def test_settings_that_would_have_no_effect_are_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        tl.fit(small(), described(), steps=1, **options)


def test_new_items_are_ranked_by_their_features():
    """The tenth item has no events: with a tower it has its own position, without one only a random one."""
    h, log = small(content=True), described()
    found = policy(h, log).recommend([["i1"]], 9, exclude_seen=True)
    assert "i9" in found.items
    table, features = h.policy_params(fresh(h, log)).next_item.table, fresh(h, log).facts.features
    vectors = np.asarray(eqx.filter_jit(lambda table: table(None, features))(table).vectors)
    assert np.abs((vectors[10] - vectors[1:10]).sum(axis=1)).min() > 0.0
