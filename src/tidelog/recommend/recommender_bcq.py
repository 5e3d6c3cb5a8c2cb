"""Recommender BCQ: batch-constrained Q-learning over a catalogue; the state is a history, the action an item.

Fujimoto, Meger, Precup 2019, arXiv:1812.02900, and Fujimoto, Conti, Ghavamzadeh, Pineau 2019, arXiv:1910.01708; the
history encoder after Kang and McAuley 2018, arXiv:1808.09781; repeated items and counted
successors of the last item: `networks.py`.

| step | loss (per event) | reads |
|---|---|---|
| table, encoder, repeats | `-log P(item | history)`, over all items or a corrected sample, and earlier events | |
| | with `user_embedding` the encoder also adds a vector of the user to the state | |
| generator (vae) | `mean (decode(s, z) - v)**2 + kl_weight KL(z | s, v)`, v of the item | **new** table, encoder |
| critics | `sum_e loss(Q_e(s, v) - r - discount max_i between_e Qtarget_e(s', v_i))`, v **logged** | old targets |
| | `v_i` are items: the most likely above `threshold`, or nearest to generated vectors | **new** table, generator |
| perturbation (vae) | `-Q_1(s, perturb(s, decode(s, z)))` | **new** generator and Q_1 |
| targets | Polyak update of encoder, perturbation, critics by `tau` | **new** networks |

The phase `pretrain` does only the first step, `main` all of them; before the first update of `main` the weight of Q
is 0. Only the cross-entropy trains the table and the
encoder: a generator whose reconstruction loss could move the vectors would collapse them. No other loss has a gradient
there.

Use the generator `likelihood`; `vae` is the published form, for comparisons: fewer of its candidates are supported.

With `negative_weight`, items that were shown but not selected have value 0 and change nothing: `r = 0, s' = s`.
Without slates they are sampled items, weighted as if sampled by popularity, so Q does not learn popularity.

Deliberate differences from published ports: critics learn from logged items only, because a logged reward is not the
reward of a generated item; candidates are items, not points between them; padding is not an item.

Letters: `B` batch, `T` targets, `D` item vector size, `N` items, `E` ensemble, `P` states, `C` candidates, `L` latent
size, `H` history length, `S` items of a slate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms import hyperparameters as fields
from tidelog.algorithms.contract import Feedback, Phase, StoreSpec
from tidelog.algorithms.hyperparameters import MAIN, field, own
from tidelog.algorithms.optimisation import (
    Schedule,
    Transformation,
    constant,
    copied,
    gradient_step,
    init_opt_state,
    norm,
    norms,
    polyak_update,
    tree_where,
)
from tidelog.algorithms.sampling import Batch, Sampler
from tidelog.algorithms.short_form import algorithm
from tidelog.data.statistics import RewardScaling
from tidelog.errors import ConfigError, SpecError
from tidelog.losses.td import PointLoss, between, ensemble_error, squared
from tidelog.losses.vae import mean_over_latents, normal_divergence, reconstruction_error
from tidelog.networks.layers import host_generator, normal, split_keys, zeros
from tidelog.recommend import ranking
from tidelog.recommend.interactions import Interactions
from tidelog.recommend.networks import (
    HISTORY_ENCODERS,
    Correction,
    HistoryEncoder,
    ItemCritics,
    ItemGeneration,
    ItemGenerator,
    Items,
    ItemTable,
    MakeBody,
    Pair,
    Places,
    Repeats,
    SuccessorCounts,
    Successors,
    UserTable,
    clipped_latents,
    decode_items,
    put_user_rows,
    recurrent,
    rows_in_batch,
    take_user_rows,
    with_places,
    without_repeats,
)
from tidelog.recommend.next_item import (
    INITIAL_VECTORS,
    HistoryWindows,
    InitialVectors,
    ItemFacts,
    NextItemModel,
    Windows,
    WindowStates,
    at_random,
    item_facts,
    item_logits,
    next_item_loss,
    read_windows,
    targets_of,
    with_item_vectors,
)
from tidelog.recommend.ranking import RankingParams
from tidelog.support import supported
from tidelog.types import Catalogue, Spec, same_shape

# Candidates of the recommender's targets: items that the log supports in a state; how varied the chosen ones are.
#
# Q is never computed between items or for excluded items. The candidates are the most likely items, or those nearest to
# generated vectors.
#
# In a large catalogue the most likely items are found in blocks of items: the best items of a state are in the blocks
# with the largest maxima, so only those blocks are sorted. An earlier event can only raise the score of its own item,
# so the scores of the catalogue and of the earlier items are computed apart. The result is exact; of items with equal
# scores at the limit, any may be chosen.
#
# Letters: `P` states, `C` candidates, `D` item vector size, `N` items, `L` earlier events, `K` blocks of items.

CELLS = 1 << 23  # item scores in memory at once
STATES, CHUNK, BLOCK = 128, 4_096, 32  # of a large catalogue: states and items of one matrix product, items of a block


class Candidates(NamedTuple):
    """Candidates of states."""

    items: jax.Array  # [P, C] int32
    is_valid: jax.Array  # [P, C] bool


Propose: TypeAlias = Callable[..., Candidates]  # (config, generation, states, items, places, excluded, key, needed)


def most_likely(
    config: Any,
    generation: None,
    states: jax.Array,
    items: Items,
    places: Places | None,
    excluded: jax.Array | None,
    key: jax.Array,
    needed: jax.Array | None = None,
) -> Candidates:
    """Return the `candidates` most likely items, above the threshold: states [P, D], excluded [P, L] (0: none).

    States that are not `needed` [P] have no candidates in a large catalogue.
    """
    number = len(items.bias)
    count = min(config.candidates, number - 1)

    def top(state: jax.Array, places: Places | None, excluded: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        logits = exclude_items(with_places(item_logits(state, items), places), excluded)
        best: tuple[jax.Array, jax.Array] = jax.lax.top_k(logits, count)
        return best

    if excluded is None and len(states) * number > CELLS:
        blocks = in_blocks(items)
        logits, found = map_states(lambda *of: top_of_blocks(blocks, count, *of), None, needed, states, places)
    else:
        logits, found = map_states(top, number, needed, states, places, excluded)
    valid = (found > 0) & jnp.isfinite(logits)
    return Candidates(found.astype(jnp.int32), supported(jnp.where(valid, logits, -1e30), config.threshold, valid))


def in_blocks(items: Items) -> Items:
    """Return items as blocks: vectors [K, BLOCK, D], bias [K, BLOCK]; -inf for no item and after the last one."""
    number, size = items.vectors.shape
    more = -number % min(CHUNK, number + -number % BLOCK)
    bias = jnp.pad(items.bias, (0, more), constant_values=-jnp.inf).at[0].set(-jnp.inf)
    return Items(jnp.pad(items.vectors, ((0, more), (0, 0))).reshape(-1, BLOCK, size), bias.reshape(-1, BLOCK))


def top_of_blocks(blocks: Items, count: int, states: jax.Array, places: Places | None) -> tuple[jax.Array, jax.Array]:
    """Return logits and indices [P, count] of the most likely items of blocks, with the scores of earlier events."""
    number, _, size = blocks.vectors.shape
    step = min(CHUNK // BLOCK, number)

    def maxima(carry: None, chunk: Items) -> tuple[None, jax.Array]:
        logits = chunk.vectors.reshape(-1, size) @ states.T + chunk.bias.reshape(-1, 1)
        return carry, jnp.max(logits.reshape(step, BLOCK, -1), axis=1)

    chunks = jax.tree.map(lambda part: part.reshape(-1, step, *part.shape[1:]), blocks)
    _, largest = jax.lax.scan(maxima, None, chunks)
    _, best = jax.lax.top_k(largest.reshape(number, -1).T, min(count, number))  # [P, C]
    found = (best[..., None] * BLOCK + jnp.arange(BLOCK)).reshape(len(states), -1)
    logits = jnp.einsum("pckd,pd->pck", blocks.vectors[best], states) + blocks.bias[best]
    logits, position = jax.lax.top_k(logits.reshape(len(states), -1), count)
    found = jnp.take_along_axis(found, position, axis=1)
    if places is None:
        return logits, found
    repeated = repeated_scores(blocks, states, places)
    logits = jnp.where(jnp.any(found[..., None] == places.items[:, None], axis=-1), -jnp.inf, logits)
    logits, found = (jnp.concatenate(pair, axis=1) for pair in ((logits, repeated), (found, places.items)))
    logits, position = jax.lax.top_k(logits, count)
    return logits, jnp.take_along_axis(found, position, axis=1)


def repeated_scores(blocks: Items, states: jax.Array, places: Places) -> jax.Array:
    """Return the scores [P, L] of earlier items over all their places; -inf for no item and for an item once more."""
    block, within = places.items // BLOCK, places.items % BLOCK
    logits = jnp.einsum("pld,pd->pl", blocks.vectors[block, within], states) + blocks.bias[block, within]
    number = jnp.arange(places.items.shape[1])
    same = places.items[:, :, None] == places.items[:, None]  # [P, L, L]
    first = jnp.min(jnp.where(same, number[:, None], len(number)), axis=1)  # the item's first place
    top = jnp.max(places.scores, axis=-1, keepdims=True)
    weight = jnp.exp(places.scores - top)
    total = jnp.zeros_like(weight).at[jnp.arange(len(weight))[:, None], first].add(weight)
    scores = jnp.logaddexp(logits, top + jnp.log(total))
    return jnp.where((places.items > 0) & (first == number), scores, -jnp.inf)


def generated_candidates(
    config: Any,
    generation: ItemGeneration,
    states: jax.Array,
    items: Items,
    places: Places | None,
    excluded: jax.Array | None,
    key: jax.Array,
    needed: jax.Array | None = None,
) -> Candidates:
    """Return the items nearest to `target_samples` vectors from the generator, moved by the perturbation.

    States that are not `needed` [P] have no candidates in a large catalogue.
    """
    shape = (config.target_samples, len(states), config.latent_size)
    latents = jnp.swapaxes(clipped_latents(key, shape, config.latent_clip), 0, 1)

    def nearest(state: jax.Array, latent: jax.Array, excluded: jax.Array | None) -> Candidates:
        vectors = decode_items(generation, state[..., None, :], latent, config.phi)
        near = exclude_items(vectors @ items.vectors.T, None if excluded is None else excluded[..., None, :])
        return Candidates(jnp.argmax(near, axis=-1).astype(jnp.int32), jnp.isfinite(jnp.max(near, axis=-1)))

    cells = config.target_samples * len(items.bias)
    return map_states(nearest, cells, needed, states, latents, excluded)  # type: ignore[no-any-return]


def exclude_items(scores: jax.Array, excluded: jax.Array | None) -> jax.Array:
    """Return scores [..., N + 1] with -inf for no item and for excluded ones [..., H] (0: none)."""
    scores = scores.at[..., 0].set(-jnp.inf)
    if excluded is None:
        return scores
    excluded = jnp.broadcast_to(excluded, (*scores.shape[:-1], excluded.shape[-1]))
    return jnp.put_along_axis(scores, excluded, -jnp.inf, axis=-1, inplace=False)


def map_states(
    function: Callable[..., Any], cells: int | None, needed: jax.Array | None, states: jax.Array, *more: Any
) -> Any:
    """Call `function` on states [P, D] and their arrays, in batches that bound the memory, at `cells` per state.

    In batches, only the `needed` [P] states are computed; the others have zeros. Without `cells` a batch has `STATES`.
    """
    number = len(states)
    if cells is not None and number * cells <= CELLS:
        return function(states, *more)
    size = STATES if cells is None else max(1, CELLS // cells)
    count = number if needed is None else jnp.sum(needed)
    order = jnp.arange(number) if needed is None else jnp.argsort(~needed, stable=True)
    order = jnp.pad(order, (0, -number % size))

    def batch(position: jax.Array) -> tuple[jax.Array, Any]:
        rows = jax.lax.dynamic_slice(order, (position * size,), (size,))
        counted = position * size + jnp.arange(size) < count
        return jnp.where(counted, rows, number), function(*jax.tree.map(lambda part: part[rows], (states, *more)))

    def add(position: jax.Array, results: Any) -> Any:
        rows, found = batch(position)
        return jax.tree.map(lambda all_of, some: all_of.at[rows].set(some, mode="drop"), results, found)

    shapes = jax.eval_shape(batch, 0)[1]
    none = jax.tree.map(lambda part: jnp.zeros((number, *part.shape[1:]), part.dtype), shapes)
    return jax.lax.fori_loop(0, (count + size - 1) // size, add, none)


GENERATORS: Mapping[str, Propose] = {"likelihood": most_likely, "vae": generated_candidates}


def coverage_and_entropy(items: jax.Array, counted: jax.Array | None, catalogue: int) -> tuple[jax.Array, jax.Array]:
    """Return the number of different counted items as a share of the possible number, and their entropy in nats."""
    counts = jnp.ones_like(items, bool) if counted is None else counted
    often = jnp.zeros(catalogue + 1).at[items.reshape(-1)].add(counts.reshape(-1).astype(jnp.float32)).at[0].set(0.0)
    total = jnp.maximum(jnp.sum(often), 1.0)
    entropy = -jnp.sum(jax.scipy.special.xlogy(often / total, often / total))
    return jnp.sum(often > 0) / jnp.minimum(total, catalogue), entropy


SUCCESSORS = 20  # counted successors of an item in a large catalogue


class RankingOptStates(NamedTuple):
    """The optimiser states, one for each network; None for an absent network."""

    next_item: Any
    critic: Any
    generator: Any
    perturbation: Any


class RankingState(NamedTuple):
    """Everything that a resumed run needs."""

    next_item: NextItemModel
    target_encoder: HistoryEncoder
    critic: ItemCritics
    target_critic: ItemCritics
    generation: Any  # an ItemGeneration; None: candidates are the most likely items
    target_perturbation: Any  # a Correction, where there is a generator
    latents: jax.Array | None  # [n, L]: latents of acting
    facts: ItemFacts
    weight: jax.Array  # weight of Q in the score
    opt_states: RankingOptStates
    step: jax.Array  # int32: updates taken
    q_updates: jax.Array  # int32: updates of the critics; before the first one the weight of Q is 0
    updates: jax.Array  # int32: updates planned, for the schedule
    key: jax.Array


# Table and encoder.


def progress(state: RankingState) -> jax.Array:
    """Return the completed share of the run."""
    share: jax.Array = state.step / jnp.maximum(state.updates, 1)
    return share


def next_item_step(
    config: RecommenderBCQ, state: RankingState, batch: Batch, key: jax.Array
) -> tuple[RankingState, dict[str, jax.Array]]:
    """Return the state with updated table and encoder.

    Of the table of users only the rows of the batch are read, differentiated and updated, and only their moments: the
    others wait, as in PyTorch's SparseAdam. The count of updates, which corrects the moments' bias, is that of all.
    """
    rate, users = config.learning_rate * config.schedule(progress(state)), state.next_item.users
    whole = part = (state.next_item, state.opt_states.next_item)
    if users is not None:
        rows, places = rows_in_batch(batch.data.user_index, len(users.weight))
        batch = batch._replace(data=batch.data._replace(user_index=places))
        part = take_user_rows(whole, rows)
    *changed, _, metrics, gradient = gradient_step(next_item_loss, *part, rate, config, batch, state.facts, key)
    next_item, opt_state = changed if users is None else put_user_rows(whole, tuple(changed), rows)
    state = state._replace(next_item=next_item, opt_states=state.opt_states._replace(next_item=opt_state))
    return state, metrics | debug_norms(config, "next_item", next_item, gradient)


def debug_norms(config: RecommenderBCQ, name: str, network: Any, gradient: Any) -> dict[str, jax.Array]:
    """Return the norms of one network and its gradient, if `debug_metrics` asks for them."""
    return norms({name: network}, {name: gradient}) if config.debug_metrics else {}


# Critics.


class CriticInputs(NamedTuple):
    """Inputs of one update: the states before each target, and all states of the windows, also after the last one."""

    states: jax.Array  # [B, T, D]
    around: WindowStates  # [B, A, ...]
    target_around: jax.Array  # [B, A, D]: from the target history encoder
    items: Items  # all
    vectors: jax.Array  # [B, T, D]: of the logged items


def critic_inputs(
    config: RecommenderBCQ, state: RankingState, windows: HistoryWindows, counted: jax.Array | None = None
) -> CriticInputs:
    """Return the inputs, without gradient to the table or a history encoder; `counted` as in `read_windows`."""
    next_item, facts = state.next_item, state.facts
    items = next_item.table(None, facts.features)
    around = read_windows(next_item, facts, config, windows, around=True, counted=counted)
    target = next_item._replace(encoder=state.target_encoder, repeats=None, successors=None)
    inputs = CriticInputs(
        states=windows.before(around.states),
        around=around,
        target_around=read_windows(target, facts, config, windows, around=True).states,
        items=items,
        vectors=items.vectors[windows.chosen],
    )
    result: CriticInputs = jax.tree.map(jax.lax.stop_gradient, inputs)
    return result


def needed_states(config: RecommenderBCQ, batch: Batch) -> jax.Array:
    """Mark the states of the windows [B, A] whose value the update reads.

    They are those after valid targets, unless the session ended there, and with negatives also those before.
    """
    windows: HistoryWindows = batch.data
    valid = jnp.ones(windows.chosen.shape, bool) if batch.valid is None else batch.valid
    after = valid & (windows.discount > 0.0)
    before = valid if config.negative_weight is not None else jnp.zeros_like(valid)
    if windows.after is not None:  # one state before a basket, and one after it
        before, after = (jnp.any(one, axis=1, keepdims=True) for one in (before, after))
    none = jnp.zeros_like(before[:, :1])
    return jnp.concatenate([before, none], axis=1) | jnp.concatenate([none, after], axis=1)


def values(
    config: RecommenderBCQ, state: RankingState, inputs: CriticInputs, key: jax.Array, needed: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Return the value of the best supported item in every state of the windows [B, A], and this item.

    In a large catalogue states that are not `needed` [B, A] have 0.
    """
    (states, seen, places), shape = inputs.around, inputs.target_around.shape[:2]
    seen, states, target_states = (part.reshape(-1, part.shape[-1]) for part in (seen, states, inputs.target_around))
    if places is not None:
        places = Places(*(part.reshape(len(states), -1) for part in places))
        if config.exclude_seen:  # excluded items cannot be repeated
            places = without_repeats(places, 0 if state.next_item.repeats is None else seen.shape[-1])
    generation = state.generation and ItemGeneration(state.generation.generator, state.target_perturbation)
    excluded = seen if config.exclude_seen else None
    needed = None if needed is None else needed.reshape(-1)
    found = config.generator(config, generation, states, inputs.items, places, excluded, key, needed)
    q = between(state.target_critic.among(target_states, inputs.items.vectors, found.items), config.mix)
    best = jnp.argmax(jnp.where(found.is_valid, q, -jnp.inf), axis=-1)[:, None]
    some = jnp.any(found.is_valid, axis=-1)
    value = jnp.where(some, jnp.take_along_axis(q, best, axis=-1)[:, 0], 0.0)  # no supported item: 0, as at the end
    chosen = jnp.where(some, jnp.take_along_axis(found.items, best, axis=-1)[:, 0], 0)
    return value.reshape(shape), chosen.reshape(shape)


def target_value(windows: HistoryWindows, value: jax.Array) -> jax.Array:
    """`r + discount V(s')` [B, T]."""
    following = windows.following(value)
    same_shape(reward=windows.reward, discount=windows.discount, value=following)
    return windows.reward + windows.discount * following


class Negatives(NamedTuple):
    """Items [B, T] that were not selected, and their weights."""

    vectors: jax.Array  # [B, T, D]
    target: jax.Array  # [B, T]
    weight: jax.Array  # [B, T]


def importance(log_wanted: jax.Array, log_drawn: jax.Array) -> jax.Array:
    """Importance weights of mean 1 for items drawn from another distribution: log-probabilities [...] -> [...]."""
    same_shape(log_wanted=log_wanted, log_drawn=log_drawn)
    return jax.nn.softmax((log_wanted - log_drawn).reshape(-1)).reshape(log_drawn.shape) * log_drawn.size


def negative_items(
    config: RecommenderBCQ,
    state: RankingState,
    windows: HistoryWindows,
    inputs: CriticInputs,
    value: jax.Array,
    key: jax.Array,
) -> Negatives:
    """Return one item per step that was shown but not selected, or a random one; with `r = 0, s' = s`."""
    target = config.discount * windows.before(value)
    if windows.slate is None:
        items = state.facts.draw(key, windows.chosen.shape)
        weight = importance(state.facts.log_share[items], state.facts.log_drawn[items])
        valid = items != windows.chosen
    else:
        ignored = (windows.slate > 0) & (windows.slate != windows.chosen[..., None])
        valid = jnp.any(ignored, axis=-1)
        position = jax.random.categorical(key, jnp.where(ignored | ~valid[..., None], 0.0, -jnp.inf))
        items = jnp.take_along_axis(windows.slate, position[..., None], axis=-1)[..., 0]
        weight = jnp.ones_like(target)
    weight = jnp.where(valid, config.negative_weight * weight, 0.0)  # type: ignore[operator]
    return Negatives(inputs.items.vectors[items], target, weight)


def critic_loss(
    critic: ItemCritics,
    config: RecommenderBCQ,
    batch: Batch,
    inputs: CriticInputs,
    target: jax.Array,
    negatives: Negatives | None,
) -> tuple[jax.Array, jax.Array]:
    """Return the critics' error on logged items against the target [B, T] and on negatives; also Q [E, B, T]."""
    q = critic(inputs.states, inputs.vectors)
    error = ensemble_error(q, target, config.critic_loss)
    if negatives is not None:
        off = ensemble_error(critic(inputs.states, negatives.vectors), negatives.target, config.critic_loss)
        error = error + negatives.weight * off
    return batch.mean(error), q


# Generator and perturbation.


def generator_loss(
    generator: ItemGenerator, config: RecommenderBCQ, batch: Batch, inputs: CriticInputs, noise: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the reconstruction error of the logged items' vectors plus the latents' divergence; also both alone."""
    mean, log_std = generator.encode(inputs.states, inputs.vectors)
    error = reconstruction_error(generator.decode(inputs.states, mean + jnp.exp(log_std) * noise), inputs.vectors)
    divergence = mean_over_latents(normal_divergence(mean, log_std))
    metrics = {
        "reconstruction_loss": batch.average(error),
        "kl_loss": batch.average(divergence),
        "latent_mean": batch.average(jnp.mean(mean, axis=-1)),
        "latent_deviation": batch.average(jnp.mean(jnp.exp(log_std), axis=-1)),
    }
    return batch.mean(error + config.kl_weight * divergence), metrics


def generator_step(
    config: RecommenderBCQ, state: RankingState, batch: Batch, inputs: CriticInputs, key: jax.Array
) -> tuple[RankingState, dict[str, jax.Array]]:
    """Return the state with an updated generator."""
    noise = normal(key, (*batch.data.reward.shape, config.latent_size))
    rate = config.generator_learning_rate * config.schedule(progress(state))
    generator, opt_state, loss, metrics, gradient = gradient_step(
        generator_loss, state.generation.generator, state.opt_states.generator, rate, config, batch, inputs, noise
    )  # fmt: skip
    generation = state.generation._replace(generator=generator)
    updated = state._replace(generation=generation, opt_states=state.opt_states._replace(generator=opt_state))
    return updated, metrics | {"generator_loss": loss} | debug_norms(config, "generator", generator, gradient)


def perturbation_loss(
    perturbation: Correction,
    config: RecommenderBCQ,
    batch: Batch,
    inputs: CriticInputs,
    generator: ItemGenerator,
    critic: Pair,
    latent: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Return the negative first critic of generated, perturbed vectors; also the vectors."""
    vectors = decode_items(ItemGeneration(generator, perturbation), inputs.states, latent, config.phi)
    return -batch.mean(critic(inputs.states, vectors)[..., 0]), vectors


def perturbation_step(
    config: RecommenderBCQ, state: RankingState, batch: Batch, inputs: CriticInputs, key: jax.Array, due: jax.Array
) -> tuple[RankingState, dict[str, jax.Array]]:
    """Return the state with an updated perturbation, where an update is due."""
    generator, before = state.generation
    latent = clipped_latents(key, (*batch.data.reward.shape, config.latent_size), config.latent_clip)
    rate = config.perturbation_learning_rate * config.schedule(progress(state))
    critic, opt_state = state.critic.members[0], state.opt_states.perturbation
    *after, loss, vectors, gradient = gradient_step(
        perturbation_loss, before, opt_state, rate, config, batch, inputs, generator, critic, latent
    )
    perturbation, opt_state = tree_where(due, (before, opt_state), tuple(after))
    updated = state._replace(
        generation=ItemGeneration(generator, perturbation),
        opt_states=state.opt_states._replace(perturbation=opt_state),
    )
    distance = batch.average(jnp.linalg.norm(vectors - inputs.vectors, axis=-1))
    debug = debug_norms(config, "perturbation", perturbation, gradient)
    return updated, {"perturbation_loss": loss, "distance_to_log": distance} | debug


# The updates.


def pretrain_step(config: RecommenderBCQ, state: RankingState, batch: Batch) -> tuple[RankingState, Feedback]:
    """Do one update of table and encoder; the target encoder is the encoder."""
    state, metrics = next_item_step(config, state, batch, jax.random.fold_in(state.key, state.step))
    stepped = state._replace(target_encoder=state.next_item.encoder, step=state.step + 1)
    return stepped, Feedback(metrics)


def step(config: RecommenderBCQ, state: RankingState, batch: Batch) -> tuple[RankingState, Feedback]:
    """Do one update of table and encoder (if `joint`), generator, critics, perturbation and targets, in this order."""
    windows: HistoryWindows = batch.data
    keys = jax.random.split(jax.random.fold_in(state.key, state.step), 5)
    due = (state.step + 1) % config.policy_delay == 0
    state, metrics = next_item_step(config, state, batch, keys[0]) if config.joint else (state, {})
    inputs = critic_inputs(config, state, windows, targets_of(batch))
    if state.generation is not None:
        state, extra = generator_step(config, state, batch, inputs, keys[1])
        metrics = metrics | extra
    value, chosen = values(config, state, inputs, keys[2], needed_states(config, batch))
    target = target_value(windows, value)
    negatives = None
    if config.negative_weight is not None:
        negatives = negative_items(config, state, windows, inputs, value, keys[3])
    rate = config.critic_learning_rate * config.schedule(progress(state))
    critic, opt_state, q_loss, q, gradient = gradient_step(
        critic_loss, state.critic, state.opt_states.critic, rate, config, batch, inputs, target, negatives
    )
    state = state._replace(critic=critic, opt_states=state.opt_states._replace(critic=opt_state))
    if state.generation is not None:
        state, extra = perturbation_step(config, state, batch, inputs, keys[4], due)
        metrics = metrics | extra
    coverage, entropy = coverage_and_entropy(windows.following(chosen), batch.valid, len(state.facts.cumulative))
    metrics = metrics | {
        "critic_loss": q_loss,
        "td_error": batch.average(jnp.mean(jnp.abs(q - target), axis=0)),
        "q_mean": batch.average(jnp.mean(q, axis=0)),
        **{f"q_mean_{number}": batch.average(one) for number, one in enumerate(q, 1)},
        "target_q": batch.average(target),
        "coverage": coverage,
        "entropy": entropy,
    }
    metrics |= debug_norms(config, "critic", critic, gradient)
    if config.debug_metrics:
        metrics["gradient_norm"] = norm([value for name, value in metrics.items() if name.startswith("gradient_norm_")])
    return update_targets(config, state, jnp.where(due, config.tau, 0.0)), Feedback(metrics)


def update_targets(config: RecommenderBCQ, state: RankingState, rate: jax.Array) -> RankingState:
    """Return the state with targets moved by `rate` of their gaps, one update of the main phase later."""
    perturbation = state.generation and polyak_update(state.target_perturbation, state.generation.perturbation, rate)
    return state._replace(
        target_encoder=polyak_update(state.target_encoder, state.next_item.encoder, rate),
        target_critic=polyak_update(state.target_critic, state.critic, rate),
        target_perturbation=perturbation,
        step=state.step + 1,
        q_updates=state.q_updates + 1,
    )


def pretrain_losses(config: RecommenderBCQ, state: RankingState, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """Return the cross-entropy without an update and without dropout."""
    loss, _ = next_item_loss(state.next_item, config, batch, state.facts, None)
    return {"imitation_loss": loss}


def losses(config: RecommenderBCQ, state: RankingState, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """Return all losses of the current networks, without an update, with noise from the state's key."""
    keys = jax.random.split(state.key, 3)
    inputs = critic_inputs(config, state, batch.data)
    value, _ = values(config, state, inputs, keys[0], needed_states(config, batch))
    loss, _ = critic_loss(state.critic, config, batch, inputs, target_value(batch.data, value), None)
    results = pretrain_losses(config, state, batch, key) | {"critic_loss": loss}
    if state.generation is not None:
        generator, perturbation = state.generation
        noise = normal(keys[1], (*batch.data.reward.shape, config.latent_size))
        results["generator_loss"], _ = generator_loss(generator, config, batch, inputs, noise)
        latent = clipped_latents(keys[2], noise.shape, config.latent_clip)
        critic = state.critic.members[0]
        results["perturbation_loss"], _ = perturbation_loss(
            perturbation, config, batch, inputs, generator, critic, latent
        )
    return results


@algorithm("recommender-bcq")
class RecommenderBCQ:
    """Batch-constrained Q-learning over a catalogue: ranks items that the log supports by their value.

    Example:
        >>> users, items = np.repeat(range(40), 25), np.mod(7 * np.arange(1_000), 12)
        >>> table = pl.DataFrame({"user": users, "item": items, "time": np.tile(range(25), 40)})
        >>> log = tl.read_interactions(table, user="user", item="item", time="time")
        >>> policy = tl.fit(tl.RecommenderBCQ(history=10, size=8), log, steps=5).policy()
        >>> policy.recommend([[3, 10, 5]], k=2).items.shape
        (1, 2)
    """

    generator: Propose = field(most_likely, choices=GENERATORS, help="candidate generator for Q", group=MAIN)
    threshold: float = field(
        0.3, least=0.0, most=1.0, help="likelihood: smallest probability relative to the most likely item"
    )
    candidates: int = field(20, least=1, help="likelihood: number of most likely items in targets")
    phi: float = field(0.05, least=0.0, help="vae: largest perturbation of a vector of length 1")
    kl_weight: float = field(0.5, least=0.0, help="vae: weight of the KL divergence in the generator's loss")
    latent: int | None = field(None, least=1, help="vae: size of the latents; none: twice the vectors' size")
    latent_clip: float = field(0.5, least=0.0, help="vae: limit of generated latents")
    target_samples: int = field(10, least=1, help="vae: candidates in targets")
    samples: int = field(20, least=1, help="vae: candidates when ranking")
    mix: float = field(0.75, least=0.0, most=1.0, help="weight of the smallest critic in targets; rest: the largest")
    policy_delay: int = field(1, least=1, help="critic updates per update of perturbation and targets")
    discount: float = fields.discount(0.99)
    tau: float = fields.tau(0.001, "targets move per update")
    num_critics: int = fields.num_critics(2)
    critic_loss: PointLoss = fields.critic_loss(squared)
    q_weight: float | None = field(
        None, least=0.0, help="weight of Q in the score; none: 0 unless the held-out period shows a gain"
    )
    exclude_seen: bool = field(False, help="targets exclude items of the history")
    negative_weight: float | None = field(
        None, least=0.0, help="weight of negative items: shown but not selected, or sampled; none: off"
    )
    reward_scaling: RewardScaling = fields.reward_scaling("return-deviation")
    encoder: MakeBody = field(
        recurrent, choices=HISTORY_ENCODERS, help="history encoder: mean, gru or attention (SASRec)", group=MAIN
    )
    size: int = field(64, least=1, help="size of item vectors and states", group=MAIN)
    history: int = field(50, least=1, help="events that the history encoder reads")
    memory: int = field(200, least=0, help="earlier events whose items have a score for being repeated; 0: none")
    successors: int | None = field(
        None, least=0, help="counted successors of the last item in the likelihood; none: 20 above `full_softmax` items"
    )
    targets: int = field(10, least=1, help="training targets of a window; at most `history`")
    profile: bool = field(True, help="use user features in the history encoder, where the log has them")
    user_embedding: bool = field(False, help="a vector for each user of the log; users without events share one")
    user_dropout: float = field(
        0.5, least=0.0, most=1.0, help="user embedding: share of the training windows read as an unknown user's"
    )
    layers: int = field(2, least=1, help="attention: blocks")
    heads: int = field(1, least=1, help="attention: heads of a block")
    dropout: float | None = fields.dropout(0.2)
    content: bool = field(False, help="a tower over item features; it can rank new items")
    tower_hidden: tuple[int, ...] = fields.widths((128,), "the tower's hidden layers", group="network")
    begin: InitialVectors = field(at_random, choices=INITIAL_VECTORS, help="initial item vectors")
    full_softmax: int = field(20_000, least=0, help="largest catalogue with a full cross-entropy over all items")
    sampled_items: int = field(1_024, least=1, help="sampled items of a cross-entropy over a larger catalogue")
    pretrain_share: float = field(
        0.1, least=0.0, most=1.0, leaf=False, help="share of the steps that train table and encoder alone, first"
    )
    joint: bool = field(True, help="the main phase also trains table and encoder")
    batch_size: int = fields.batch_size(128)
    learning_rate: float = fields.learning_rate(1e-3, "table and encoder")
    critic_learning_rate: float = fields.learning_rate(1e-3, "the critics")
    generator_learning_rate: float = fields.learning_rate(1e-3, "the generator")
    perturbation_learning_rate: float = fields.learning_rate(1e-3, "the perturbation")
    schedule: Schedule = fields.schedule(constant)
    optimiser: Transformation = fields.optimiser("adam")
    gradient_clip: float | None = fields.gradient_clip(None, "each network's gradient")
    debug_metrics: bool = fields.debug_metrics(False)
    hidden: tuple[int, ...] = fields.widths((128, 128), "the critics' hidden layers", group="network")
    generator_hidden: tuple[int, ...] = fields.widths((256, 256), "the generator's hidden layers", group="network")
    perturbation_hidden: tuple[int, ...] = fields.widths(
        (128, 128), "the perturbation's hidden layers", group="network"
    )
    item_vectors: InitialVectors | None = own(
        "function of interactions, `size` and a seed that returns the table's rows [N, size]"
    )

    takes: ClassVar[tuple[type, ...]] = (Catalogue,)
    target_sources: ClassVar[dict[str, str]] = {  # sources of target networks under another name
        "target_encoder": "next_item.encoder",
        "target_perturbation": "generation.perturbation",
    }
    watched_metrics: ClassVar[tuple[str, ...]] = tuple(  # a run warns where one of them collapses after the pretraining
        f"{where}/{what}" for where in ("main", "held_out") for what in ("coverage", "entropy")
    )
    divergence_fix: ClassVar[str] = "lower the learning rates; use a discount below 1 if sessions never end"

    @property
    def absolute_rewards(self) -> bool:
        """Whether a reward of 0 has a meaning, so that none is subtracted: items that were not selected have it."""
        return self.negative_weight is not None

    @property
    def latent_size(self) -> int:
        """L."""
        return self.latent or 2 * self.size

    @property
    def reach(self) -> int:
        """The number of earlier events that a list depends on."""
        return max(self.history, self.memory)

    def counted_successors(self, items: int) -> int:
        """Return the number of counted successors of an item in a catalogue of `items`."""
        default = SUCCESSORS if items > self.full_softmax else 0
        return default if self.successors is None else self.successors

    def check(self) -> None:
        """Raise ConfigError where two fields contradict each other."""
        if self.targets > self.history:
            raise ConfigError(
                f"RecommenderBCQ.targets = {self.targets} and RecommenderBCQ.history = {self.history}: "
                "targets must be at most history",
                fix="increase history (--history) or decrease targets (--targets)",
            )
        if self.pretrain_share == 1.0 and self.q_weight:
            raise ConfigError(
                f"RecommenderBCQ.pretrain_share = 1 leaves no update for Q, but q_weight = {self.q_weight:g} uses Q",
                fix="lower pretrain_share, or drop q_weight",
            )
        if self.size % self.heads:
            raise ConfigError(
                f"RecommenderBCQ.size = {self.size} is not a multiple of heads = {self.heads}", fix="choose a multiple"
            )

    def stores(self, spec: Spec) -> dict[str, StoreSpec]:
        """Return the interactions, with slates and user features where they are used."""
        if self.content and not spec.action.features:  # type: ignore[union-attr]
            raise SpecError(
                "content=True requires item features, and these interactions have none", fix="item_features=..."
            )
        slates = () if self.negative_weight is None else ("slate",)
        users = ("user",) if self._reads_users(spec) else ()
        ids = ("user_id",) if self.user_embedding else ()
        return {"log": StoreSpec(("reward", "terminated", *slates, *users, *ids), targets=self.targets)}

    def spec_of(self, log: Interactions) -> Spec:
        """Return the spec of the interactions, with the ids of their users where each has a vector."""
        return log.spec_with_users if self.user_embedding else log.spec

    def phases(self) -> tuple[Phase, ...]:
        """Return the pretraining phase, of `pretrain_share` of the run's updates, then the main phase."""
        draw = Sampler("log", self.batch_size, Windows(self.reach, self.targets, self.discount))
        first = Phase("pretrain", draw, pretrain_step, pretrain_losses, share=lambda config: config.pretrain_share)
        return (first, Phase("main", draw, step, losses))

    def init(self, spec: Spec, key: jax.Array, updates: int) -> RankingState:
        """Return new networks for a run of `updates` updates; targets start as copies.

        `with_item_facts` adds the log's facts of its items.
        """
        random, (latent_key, state_key) = host_generator(key), split_keys(key, 2)
        catalogue: Any = spec.action
        history: Any = spec.observation["history"]
        user: Any = spec.observation["user"] if self._reads_users(spec) else None
        size, features = self.size, len(catalogue.features) or None
        table = ItemTable.create(random, catalogue.n, size, features if self.content else None, self.tower_hidden)
        encoder = HistoryEncoder.create(
            random,
            self.encoder,
            size,
            kinds=len(history.events),
            length=self.history,
            layers=self.layers,
            heads=self.heads,
            features=0 if user is None else len(user.columns),
        )
        critic = ItemCritics(tuple(Pair.create(random, size, size, self.hidden, 1) for _ in range(self.num_critics)))
        generation = latents = None
        if self.generator is not most_likely:
            inward = Pair.create(random, size, size, self.generator_hidden, 2 * self.latent_size)
            outward = Pair.create(random, size, self.latent_size, self.generator_hidden, size)
            correction = Correction(Pair.create(random, size, size, self.perturbation_hidden, size))
            generation = ItemGeneration(ItemGenerator(inward, outward), correction)
            latents = clipped_latents(latent_key, (self.samples, self.latent_size), self.latent_clip)
        repeats = Repeats.create(size, len(history.events)) if self.memory else None
        known: Any = spec.observation["user_id"] if self.user_embedding else None
        users = None if known is None else UserTable(zeros(len(known.ids) + 1, size))
        after = counted = None
        if most := self.counted_successors(catalogue.n):
            after = Successors.create(size, len(history.events), catalogue.n)
            counted = SuccessorCounts.none(catalogue.n, most)
        next_item = NextItemModel(table, encoder, repeats, users, after)
        none = np.zeros((catalogue.n + 1, features), np.float32) if self.content and features is not None else None
        networks = (next_item, critic, *(generation or (None, None)))
        return RankingState(
            next_item=next_item,
            target_encoder=copied(encoder),
            critic=critic,
            target_critic=copied(critic),
            generation=generation,
            target_perturbation=None if generation is None else copied(generation.perturbation),
            latents=latents,
            facts=item_facts(np.zeros(catalogue.n + 1), none, successors=counted),
            weight=jnp.float32(0.0 if self.q_weight is None else self.q_weight),
            opt_states=RankingOptStates(
                *(None if one is None else init_opt_state(self.optimiser, one) for one in networks)
            ),
            step=jnp.int32(0),
            q_updates=jnp.int32(0),
            updates=jnp.int32(updates),
            key=state_key,
        )

    def _reads_users(self, spec: Spec) -> bool:
        """Return whether the history encoder reads user features."""
        return self.profile and "user" in spec.observation

    def with_item_facts(self, state: RankingState, log: Interactions, seed: int) -> RankingState:
        """Return a new state with the log's facts of its items: popularity, features, initial vectors."""
        most = self.counted_successors(len(log.items))
        counted = SuccessorCounts.of(log, most) if most else None
        facts = item_facts(log.counts, log.item_features if self.content else None, log.repeat_share, counted)
        rows = (self.item_vectors or self.begin)(log, self.size, seed)
        next_item = state.next_item if rows is None else with_item_vectors(state.next_item, rows)
        return state._replace(facts=facts, next_item=next_item)

    def policy_params(self, state: RankingState) -> RankingParams:
        """Return table and encoder, the first critic, the candidate networks, and the weight of Q.

        Without updates of Q its weight is 0.
        """
        facts, critic = state.facts, state.critic.members[0]
        weight, updates = jnp.where(state.q_updates > 0, state.weight, 0.0), state.q_updates
        return RankingParams(
            state.next_item, critic, state.generation, state.latents, facts.features, weight, updates,
            facts.repeat_share, facts.successors,
        )  # fmt: skip

    def with_q_weight(self, state: RankingState, weight: float) -> RankingState:
        """Return the state with this weight of Q in the score, unless `q_weight` is set."""
        return state if self.q_weight is not None else state._replace(weight=jnp.float32(weight))

    def collapse_advice(self, name: str, row: Mapping[str, Any]) -> str:
        """Return what fewer different items mean; for lists, nothing about Q if its weight is 0."""
        fix = "lower the weight of Q or its learning rate, or raise the threshold"
        if name.startswith("held_out/") and row.get("q_weight") == 0.0:
            fix = "lower the learning rate; the weight of Q is 0, so likelihood alone orders the lists"
        return f"fewer and fewer items are recommended. fix: {fix}"

    def policy_metrics(self, params: RankingParams) -> dict[str, float]:
        """Return the number of updates of Q, and its weight in the score."""
        return {"q_updates": float(params.q_updates), "q_weight": float(params.weight)}

    def run_notes(self) -> list[str]:
        """Return a note if a run with these settings leaves no update for Q."""
        if self.pretrain_share < 1.0:
            return []
        return ["pretrain_share = 1 leaves no update for Q: its weight is 0, and lists are in order of likelihood"]

    def policy_notes(self, params: RankingParams, origin: Mapping[str, Any]) -> list[str]:
        """Return a note if the lists of this policy do not depend on Q, and why; and one if it holds ids of users.

        `origin` tells whether its run held out a period, and whether the policy is that of the best report.
        """
        notes = []
        best, held_out = origin.get("best_report") and origin.get("chosen_by"), origin.get("held_out_share")
        chosen_elsewhere = "refit" in origin  # a refit has the weight that the held-out period of another run chose
        if params.q_updates == 0 and best and self.pretrain_share < 1.0:
            notes.append(
                f"the report with the best {best} is from before the first update of Q: its weight is 0, and lists "
                "are in order of likelihood; no later report was better"
            )
        elif params.q_updates == 0:
            notes.append("Q has had no update: its weight is 0, and lists are in order of likelihood")
        elif self.q_weight is None and params.weight == 0 and held_out == 0 and not chosen_elsewhere:
            notes.append(
                "Q is not used: no period was held out, so lists with Q were not compared with likelihood, and its "
                "weight is 0; hold out a period (--held-out 0.1) or set q_weight (--q-weight)"
            )
        elif self.q_weight is None and params.weight == 0:
            notes.append(
                "Q adds nothing here; likelihood alone orders the lists: no gain over likelihood was shown on a "
                "held-out period, so its weight is 0"
            )
        if params.next_item.users is not None:
            count = len(params.next_item.users.weight) - 1
            notes.append(f"the policy holds the ids of all {count:,} users of its log: share its file accordingly")
        return notes

    def act(
        self, params: RankingParams, observation: Any, *, mask: Any = None, carry: Any = None, key: Any = None
    ) -> Any:
        """Raise SpecError: items are ranked, not chosen."""
        raise SpecError(
            "a policy over a catalogue ranks items and has no act()", fix="call policy.recommend(histories, k)"
        )

    with_new_items = ranking.with_new_items  # for `policy.recommend`
    all_items = ranking.all_items
    queries = ranking.queries
    places = ranking.places
    score_items = ranking.score_items
    recipe = ranking.recipe
