"""Known mistakes of recommenders, each with a test that it does not happen here."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.recommenders import batch, compiled, described, fresh, small, unshown
from tests.algorithms.worlds import QUICK
from tests.data.clicks import ROLES, clicks
from tidelog.algorithms.optimisation import descend
from tidelog.policies.policy import named_arrays
from tidelog.recommend import recommender_bcq
from tidelog.recommend.networks import Items, Places, clipped_latents, decode_items
from tidelog.recommend.next_item import WindowStates, from_factors, item_facts, next_item_loss
from tidelog.recommend.read import read_interactions
from tidelog.recommend.recommender_bcq import GENERATORS, critic_inputs
from tidelog.runtime.ranking import NO_PLACE
from tidelog.training.loop import as_arrays

GENERATED = pytest.mark.parametrize("generator", GENERATORS)


def kind(generator):
    """Return one of two recommenders; all tests here share their programs."""
    return small(generator="vae", negative_weight=0.5) if generator == "vae" else small()


def moved(one, two):
    first, second = named_arrays(one), named_arrays(two)
    return {name for name in first if (first[name] != second[name]).any()}


def step(h, state, row):
    return compiled(recommender_bcq.step)(as_arrays(h), state, row)[0]


def values(h, state, seen):
    return compiled(recommender_bcq.values)(as_arrays(h), state, seen, jax.random.key(0))


@eqx.filter_jit
def rated(critic, states, vectors):
    return critic(states, vectors)


@GENERATED
@pytest.mark.sample("likelihood")
def test_table_and_reader_learn_the_same_with_and_without_the_rest(generator):
    """A generator that may move the vectors it reconstructs collapses them: cross-entropy alone moves them."""
    h, log = kind(generator), described()
    state, row = fresh(h, log), batch(h, log)
    key = jax.random.split(jax.random.fold_in(state.key, 0), 5)[0]
    _, slope = eqx.filter_jit(eqx.filter_value_and_grad(next_item_loss, has_aux=True))(
        state.next_item, as_arrays(h), row, state.facts, key
    )
    rate = jnp.float32(h.learning_rate)
    alone, _ = descend(h.optimiser, state.next_item, slope, state.opt_states.next_item, rate, None)
    stepped = step(h, state, row)
    for name, array in named_arrays(stepped.next_item).items():
        np.testing.assert_allclose(array, named_arrays(alone)[name], atol=2e-4)


@GENERATED
@pytest.mark.sample("likelihood")
def test_critics_learn_from_logged_items_and_their_rewards(generator):
    """Published ports train the critic on generated actions with the logged reward."""
    h, log = small(generator=generator, discount=0.0), described()
    state, row = fresh(h, log), batch(h, log)
    seen = compiled(critic_inputs)(as_arrays(h), state, row.data)
    np.testing.assert_array_equal(seen.vectors, np.asarray(seen.items.vectors)[row.data.chosen])
    loss, q = compiled(recommender_bcq.critic_loss)(state.critic, as_arrays(h), row, seen, row.data.reward, None)
    by_hand = rated(state.critic, seen.states, np.asarray(seen.items.vectors)[row.data.chosen])
    np.testing.assert_allclose(q, by_hand, atol=1e-6)
    errors = np.square(np.asarray(q) - np.asarray(row.data.reward)).sum(axis=0)
    assert float(loss) == pytest.approx(errors[np.asarray(row.valid)].mean(), rel=1e-5)


@GENERATED
@pytest.mark.sample("likelihood")
def test_targets_choose_among_items_that_are_allowed_and_never_padding(generator):
    h, log = small(generator=generator, exclude_seen=True), described()
    state, row = fresh(h, log), batch(h, log)
    seen = compiled(critic_inputs)(as_arrays(h), state, row.data)
    _, chosen = values(h, state, seen)
    chosen, items = np.asarray(chosen), np.asarray(row.data.items)
    assert chosen.min() >= 1
    assert chosen.max() <= len(log.items)
    for b in range(len(items)):
        for column in range(h.targets + 1):
            upto = items[b, : items.shape[1] - h.targets + column]
            assert chosen[b, column] not in upto


@pytest.mark.slow
@pytest.mark.full
def test_every_position_of_the_attention_reader_is_learnt_and_read():
    """A state after the last event uses the last position; its own position would stay random."""
    h, log = small(encoder="attention", targets=1, history=4, dropout=None), described()
    state = fresh(h, log)
    row = batch(h, log)
    _, slope = eqx.filter_value_and_grad(next_item_loss, has_aux=True)(state.next_item, h, row, state.facts, None)
    told = np.abs(slope.encoder.body.positions).max(axis=1)
    assert told.shape == (4,)
    assert told.min() > 1e-5
    last = eqx.tree_at(
        lambda one: one.encoder.body.positions, state.next_item, replace_fn=lambda p: p.at[-1].multiply(-2.0)
    )
    seen, other = (
        critic_inputs(h, state._replace(next_item=recall, target_encoder=recall.encoder), row.data).around.states
        for recall in (state.next_item, last)
    )
    assert np.abs(seen - other)[:, -1].max() > 1e-2


@pytest.mark.full
def test_items_are_drawn_as_often_as_is_said_among_a_million():
    counts = np.append(0, np.random.default_rng(0).zipf(1.3, 1_000_000).clip(max=10**6))
    known = item_facts(counts, None)
    parts = np.diff(np.asarray(known.cumulative, np.int64), prepend=0)
    said = np.exp(np.asarray(known.log_drawn, np.float64)[1:])
    assert parts.min() >= 1
    np.testing.assert_allclose(parts / parts.sum(), said, rtol=1e-4)
    wanted = (counts[1:] + 1.0) ** 0.75
    often = wanted > 1e-7 * wanted.sum()
    np.testing.assert_allclose(said[often], (wanted / wanted.sum())[often], rtol=5e-3)
    drawn = known.draw(jax.random.key(0), (10_000,))
    assert int(drawn.min()) >= 1
    assert int(drawn.max()) <= 1_000_000


def test_a_table_of_factors_has_a_direction_for_what_nobody_took():
    log = described()
    assert (log.counts[1:] == 0).any()
    rows = from_factors(log, 8, 0)
    assert np.linalg.norm(rows, axis=1).min() > 1e-3


def test_what_may_be_chosen_by_hand():
    barred, scores = np.array([[[0, 2, 0], [0, 2, 3]]]), np.zeros((1, 2, 5), np.float32)
    exclude = compiled(recommender_bcq.exclude_items)
    assert np.isfinite(exclude(scores, None))[0].tolist() == [[False, True, True, True, True]] * 2
    assert np.isfinite(exclude(scores, barred))[0].tolist() == [
        [False, True, False, True, True],  # after item 2
        [False, True, False, False, True],  # after item 3
    ]


def test_with_everything_taken_nothing_is_bootstrapped():
    h, log = small(exclude_seen=True), described()
    state, row = fresh(h, log), batch(h, log)
    seen = compiled(critic_inputs)(as_arrays(h), state, row.data)
    everything = np.broadcast_to(np.arange(seen.around.items.shape[2]) % 6 + 1, seen.around.items.shape)
    few = state._replace(facts=state.facts._replace(cumulative=np.asarray(state.facts.cumulative)[:6]))
    less = seen._replace(
        items=jax.tree.map(lambda leaf: np.asarray(leaf)[:7], seen.items),
        around=WindowStates(seen.around.states, everything, None),
    )
    value, chosen = values(h, few, less)
    assert float(np.abs(value)[:, -1].max()) == 0.0
    assert int(np.asarray(chosen)[:, -1].max()) == 0


def test_the_target_by_hand():
    """`r + discount * max over supported items of 3/4 min + 1/4 max`, no bootstrap where a session ended."""
    h, log = small(threshold=0.0, candidates=10, history=6), described()
    state, row = fresh(h, log), batch(h, log)
    seen = compiled(critic_inputs)(as_arrays(h), state, row.data)
    value, _ = values(h, state, seen)
    around, items = np.asarray(seen.target_around), np.asarray(seen.items.vectors)
    q = np.asarray(rated(state.target_critic, around[:, 1:, None], items[1:][None, None]))
    best = (0.75 * q.min(axis=0) + 0.25 * q.max(axis=0)).max(axis=-1)
    np.testing.assert_allclose(np.asarray(value)[:, 1:], best, atol=1e-5)
    target = compiled(recommender_bcq.target_value)(row.data, value)
    reward, discount = np.asarray(row.data.reward), np.asarray(row.data.discount)
    ended = discount == 0.0
    assert ended.any()
    np.testing.assert_allclose(target, reward + discount * best, atol=1e-5)
    np.testing.assert_allclose(np.asarray(target)[ended], reward[ended])


def test_threshold_1_is_the_likeliest_item():
    h, log = small(threshold=1.0, memory=0), described()
    state, row = fresh(h, log), batch(h, log)
    seen = compiled(critic_inputs)(as_arrays(h), state, row.data)
    _, chosen = values(h, state, seen)
    logits = np.asarray(seen.around.states) @ np.asarray(seen.items.vectors).T + np.asarray(seen.items.bias)
    np.testing.assert_array_equal(chosen, 1 + np.argmax(logits[..., 1:], axis=-1))


@GENERATED
@pytest.mark.full
def test_candidates_are_the_same_however_many_states_are_looked_at_at_once(generator, monkeypatch):
    h, log = small(generator=generator, candidates=3, threshold=0.0), described()
    state = fresh(h, log)
    items = state.next_item.table(None, None)
    states = jax.random.normal(jax.random.key(1), (7, h.size))
    places = Places(jnp.asarray([[1, 3]] * 7), jax.random.normal(jax.random.key(3), (7, 2)))
    for before, barred in ((None, None), (places, None), (places, jnp.zeros((7, 2), jnp.int32).at[2, 1].set(4))):
        asked = (h, state.generation, states, items, before, barred, jax.random.key(2))
        whole = h.generator(*asked)
        for name, number in {"CELLS": 66, "STATES": 3, "CHUNK": 4, "BLOCK": 2}.items():  # a few states at a time
            monkeypatch.setattr(recommender_bcq, name, number)
        parts = h.generator(*asked)
        monkeypatch.undo()
        np.testing.assert_array_equal(parts.items, whole.items)
        np.testing.assert_array_equal(parts.is_valid, whole.is_valid)
    assert 4 not in np.asarray(parts.items)[2]
    assert np.asarray(parts.items).min() >= 1


@pytest.mark.full
def test_candidates_in_a_large_catalogue_are_the_exact_most_likely_items(monkeypatch):
    """Items of equal blocks, earlier items more than once, states that nobody needs: as with all scores at once."""
    random, h = np.random.default_rng(0), small(candidates=20, threshold=0.01)
    popularity = random.normal(size=3_001) + 8.0 * (
        np.arange(3_001) < 60
    )  # likely ones also where they are not repeated
    items = Items(jnp.asarray(random.standard_normal((3_001, 8)), jnp.float32), jnp.asarray(popularity))
    states = jnp.asarray(random.standard_normal((150, 8)), jnp.float32)
    before = np.where(random.random((150, 12)) < 0.3, 0, random.integers(1, 90, (150, 12)))
    before[:, ::3] = before[:, 1:2]
    scores = np.where(before > 0, 8.0 + 4.0 * random.standard_normal((150, 12)), NO_PLACE).astype(np.float32)
    needed = jnp.asarray(random.random(150) < 0.6)

    def found(cells):
        monkeypatch.setattr(recommender_bcq, "CELLS", cells)
        places = Places(jnp.asarray(before, jnp.int32), jnp.asarray(scores))
        generate = eqx.filter_jit(lambda *of: h.generator(h, None, *of), compiler_options=QUICK)
        return generate(states, items, places, None, None, needed)

    whole, parts = found(10**9), found(10**5)
    np.testing.assert_array_equal(np.asarray(parts.items)[needed], np.asarray(whole.items)[needed])
    np.testing.assert_array_equal(np.asarray(parts.is_valid)[needed], np.asarray(whole.is_valid)[needed])
    assert not np.asarray(parts.is_valid)[~needed].any()
    assert (np.asarray(whole.items)[:, :1] == before).any(), "an earlier item is the most likely one"


@pytest.mark.full
@pytest.mark.parametrize("changes", [{"negative_weight": 0.5}, {"exclude_seen": True}])
def test_an_update_in_a_large_catalogue_is_the_update_in_a_small_one(changes, monkeypatch):
    """What is not computed there is what the update does not read."""
    h, log = small(threshold=0.05, **changes), described()
    state, row = fresh(h, log), batch(h, log)
    assert not bool(row.valid.all())
    critics = []
    for cells in (10**9, 1):
        monkeypatch.setattr(recommender_bcq, "CELLS", cells)
        critics.append(
            eqx.filter_jit(lambda *of: recommender_bcq.step(*of)[0], compiler_options=QUICK)(as_arrays(h), state, row)
        )
    for small_one, large_one in zip(*(jax.tree.leaves(one.critic) for one in critics), strict=True):
        np.testing.assert_allclose(small_one, large_one, atol=2e-6)


@GENERATED
@pytest.mark.full
def test_one_update_keeps_no_row_of_the_catalogue_for_every_state(generator):
    """The memory of a step among many items is bounded: 1,408 states of 100,000 would be 140 million marks."""
    h = small(generator=generator, batch_size=128, targets=10, history=10, full_softmax=0, target_samples=10)
    items, states = Items(jnp.zeros((100_001, 8)), jnp.zeros(100_001)), jnp.zeros((128 * 11, 8))
    imagination = fresh(h, described()).generation
    traced = jax.jit(lambda states, key: h.generator(h, imagination, states, items, None, None, key))
    used = traced.lower(states, jax.random.key(0)).compile().memory_analysis().temp_size_in_bytes
    assert used < 120e6


@pytest.mark.full
def test_imagined_candidates_snap_to_items_and_phi_0_is_the_generator():
    h, log = small(generator="vae", phi=0.0), described()
    state = fresh(h, log)
    items = state.next_item.table(None, None)
    states = jax.random.normal(jax.random.key(1), (5, h.size))
    allowed = jnp.ones((5, 11), bool).at[:, 0].set(False).at[:, 4].set(False)
    barred = jnp.full((5, 1), 4, jnp.int32)
    proposed = h.generator(h, state.generation, states, items, None, barred, jax.random.key(2))
    made = state.generation.generator.decode(
        states, clipped_latents(jax.random.key(2), (3, 5, h.latent_size), h.latent_clip)
    )
    nearest = 1 + jnp.argmax(jnp.where(allowed[:, 1:], made @ items.vectors[1:].T, -jnp.inf), axis=-1)
    np.testing.assert_array_equal(proposed.items, nearest.T)
    assert bool(proposed.is_valid.all())
    assert not (proposed.items == 4).any()


def test_what_was_shown_and_passed_over_is_worth_nothing_and_changes_nothing():
    h, log = small(negative_weight=0.5), described()
    state, row = fresh(h, log), batch(h, log)
    seen = compiled(critic_inputs)(as_arrays(h), state, row.data)
    value = np.arange(row.rows.shape[0] * 4.0, dtype=np.float32).reshape(-1, 4)
    found = compiled(recommender_bcq.negative_items)(as_arrays(h), state, row.data, seen, value, jax.random.key(0))
    np.testing.assert_allclose(found.target, h.discount * value[:, :-1])  # r = 0, s' = s
    valid = np.asarray(row.valid)
    np.testing.assert_allclose(np.asarray(found.weight)[valid], 0.5)
    near = np.argmax(np.asarray(found.vectors) @ np.asarray(seen.items.vectors)[1:].T, axis=-1) + 1
    slate, chosen = np.asarray(row.data.slate), np.asarray(row.data.chosen)
    assert all(item in shown for item, shown in zip(near[valid], slate[valid], strict=True))
    assert (near[valid] != chosen[valid]).all()


def test_drawn_negatives_are_weighed_as_if_drawn_by_popularity():
    h, log = small(negative_weight=1.0), unshown()
    state = fresh(h, log)
    drawn = state.facts.draw(jax.random.key(0), (4000,))
    often = np.bincount(drawn, minlength=11)[1:] / 4000
    log_share, log_drawn = np.asarray(state.facts.log_share)[1:], np.asarray(state.facts.log_drawn)[1:]
    # 5.5 standard errors: a right sampler fails for 7 in 100 million seeds
    np.testing.assert_allclose(often, np.exp(log_drawn), atol=0.03)
    ratio = np.exp(log_share - log_drawn)
    share = (log.counts[1:] + 1.0) / (log.counts[1:] + 1.0).sum()
    np.testing.assert_allclose(ratio * np.exp(log_drawn), share, rtol=1e-4)


def test_rewards_far_apart_do_not_move_the_likelihoods():
    h, log = small(), described()
    state, row = fresh(h, log), batch(h, log)
    rich = row._replace(data=row.data._replace(reward=1000.0 * row.data.reward))
    one, two = (step(h, state, each) for each in (row, rich))
    assert not moved(one.next_item, two.next_item)


@GENERATED
@pytest.mark.sample("likelihood")
def test_every_target_network_is_read_and_moves(generator):
    h, log = replace(kind(generator), phi=5.0), described()  # large enough to change the nearest items
    state, row = fresh(h, log), batch(h, log)
    stepped = step(h, state, row)

    def nudge(leaf):
        return np.asarray(leaf) + 0.3 * np.arange(leaf.size, dtype=np.float32).reshape(leaf.shape) % 1.0

    for name in [field for field in state._fields if field.startswith("target_")]:
        before = getattr(state, name)
        if before is None:
            continue
        assert moved(before, getattr(stepped, name)), f"{name} stands still"
        other = step(h, state._replace(**{name: jax.tree.map(nudge, before)}), row)
        assert moved(stepped.critic, other.critic), f"{name} is not read"


def test_metrics_have_each_critic_the_latents_and_the_loss_of_the_perturbation_held_out():
    """Rate 0 of the table keeps the inputs as they are; metrics are of the networks before the update."""
    h, log = replace(kind("vae"), learning_rate=0.0), described()
    state, row = fresh(h, log), batch(h, log)
    metrics = compiled(recommender_bcq.step)(as_arrays(h), state, row)[1].metrics
    inputs = compiled(critic_inputs)(as_arrays(h), state, row.data)
    counted = np.asarray(row.valid)
    q = np.asarray(rated(state.critic, inputs.states, inputs.vectors))
    mean, log_std = eqx.filter_jit(state.generation.generator.encode)(inputs.states, inputs.vectors)
    wanted = {
        "q_mean_1": q[0][counted].mean(),
        "q_mean_2": q[1][counted].mean(),
        "latent_mean": np.asarray(mean)[counted].mean(),
        "latent_deviation": np.exp(np.asarray(log_std))[counted].mean(),
    }
    for name, value in wanted.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    assert abs(wanted["q_mean_1"] - wanted["q_mean_2"]) > 1e-3
    np.testing.assert_allclose(metrics["q_mean"], q[:, counted].mean(), rtol=1e-5)
    held_out = compiled(recommender_bcq.losses)(as_arrays(h), state, row, jax.random.key(0))
    latent = clipped_latents(jax.random.split(state.key, 3)[2], (*counted.shape, h.latent_size), h.latent_clip)
    vectors = eqx.filter_jit(decode_items)(state.generation, inputs.states, latent, h.phi)
    first = np.asarray(rated(state.critic, inputs.states, vectors))[0]
    np.testing.assert_allclose(held_out["perturbation_loss"], -first[counted].mean(), rtol=1e-5)


def test_a_log_of_one_user_has_no_factors_and_random_directions():
    frame = clicks(users=1)
    rows = from_factors(read_interactions(frame, **ROLES), 8, 0)
    assert rows.shape == (frame["i"].n_unique(), 8)
    assert (np.linalg.norm(rows, axis=1) > 1e-3).all()
