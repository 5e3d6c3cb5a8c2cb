"""Recommender BCQ: batch-constrained Q-learning over a catalogue; the state is a history, the action an item.

Fujimoto, Meger, Precup 2019, arXiv:1812.02900, and Fujimoto, Conti, Ghavamzadeh, Pineau 2019, arXiv:1910.01708; the
history encoder (`reader`) after Kang and McAuley 2018, arXiv:1808.09781.

| step | loss (per event) | reads |
|---|---|---|
| table and reader | `-log P(item | history)`, over all items or a corrected sample | |
| generator (vae) | `mean (decode(s, z) - v)**2 + kl_weight KL(z | s, v)`, v of the item | **new** table, reader |
| critics | `sum_e loss(Q_e(s, v) - r - discount max_i between_e Qtarget_e(s', v_i))`, v **logged** | old targets |
| | `v_i` are items: the most likely above `threshold`, or nearest to generated vectors | **new** table, generator |
| perturbation (vae) | `-Q_1(s, perturb(s, decode(s, z)))` | **new** generator and Q_1 |
| targets | Polyak update of reader, perturbation, critics by `target_rate` | **new** networks |

The phase `pretrain` does only the first step, `main` all of them. Only the cross-entropy trains the table and the
reader: a generator whose reconstruction loss could move the vectors would collapse them. No other loss has a gradient
there.

With `negative_weight`, items that were shown but not selected have value 0 and change nothing: `r = 0, s' = s`.
Without slates they are sampled items, weighted as if sampled by popularity, so Q does not learn popularity.

Deliberate differences from published ports: critics learn from logged items only, because a logged reward is not the
reward of a generated item; candidates are items, not points between them; padding is not an item.

Letters: `B` batch, `T` targets, `D` item vector size, `N` items, `E` ensemble, `P` states, `K` items found.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tidelog.algorithms.core import fields
from tidelog.algorithms.core.contract import Feedback, Phase, StoreSpec
from tidelog.algorithms.core.hyperparameters import hyperparameters, number, own, static
from tidelog.algorithms.core.optimisation import (
    Schedule,
    Transformation,
    constant,
    gradient_step,
    polyak_update,
)
from tidelog.algorithms.core.registry import register
from tidelog.algorithms.core.running_statistics import add_batch
from tidelog.algorithms.core.sampling import Batch, Sampler
from tidelog.errors import ConfigError, SpecError
from tidelog.losses.td import PointLoss, squared
from tidelog.recommend import ranking as listing
from tidelog.recommend.candidate_generation import GENERATORS, Propose, most_likely
from tidelog.recommend.critic_inputs import passed_over, scene
from tidelog.recommend.interactions.log import Interactions
from tidelog.recommend.item_critic import critic_loss, target_value, values
from tidelog.recommend.item_generator import generated, generator_loss, perturbed, progress
from tidelog.recommend.networks.sequence import READERS, MakeBody, recurrent
from tidelog.recommend.next_item import (
    BEGINNINGS,
    Begin,
    at_random,
    facts,
    recall_from,
    recall_loss,
    variety,
)
from tidelog.recommend.ranking import ItemScores, PolicyParams
from tidelog.recommend.state import State, begin, sees_users
from tidelog.recommend.windows import Visit, Windows
from tidelog.types import Catalogue, Histories, Spec

# The updates.


def pretrain_step(config: RecommenderBCQ, state: State, batch: Batch) -> tuple[State, Feedback]:
    """Do one update of table and reader; the target reader is the reader."""
    state, metrics = recalled(config, state, batch, jax.random.fold_in(state.key, state.step))
    stepped = state._replace(target_reader=state.recall.reader, step=state.step + 1)
    return stepped, Feedback(metrics)


def recalled(config: RecommenderBCQ, state: State, batch: Batch, key: jax.Array) -> tuple[State, dict[str, jax.Array]]:
    """Return the state with updated table and reader."""
    rate = config.learning_rate * config.schedule(progress(state))
    recall, opt_state, _, metrics = gradient_step(
        recall_loss, state.recall, state.opt_states.recall, rate, config, batch, state.known, key
    )
    return state._replace(recall=recall, opt_states=state.opt_states._replace(recall=opt_state)), metrics


def step(config: RecommenderBCQ, state: State, batch: Batch) -> tuple[State, Feedback]:
    """Do one update of table and reader (if `joint`), generator, critics, perturbation and targets, in this order."""
    visit: Visit = batch.data
    keys = jax.random.split(jax.random.fold_in(state.key, state.step), 5)
    due = (state.step + 1) % config.policy_delay == 0
    state, metrics = recalled(config, state, batch, keys[0]) if config.joint else (state, {})
    if state.rewards is not None:
        state = state._replace(rewards=add_batch(state.rewards, batch))
    seen = scene(state.recall, state.target_reader, state.known, visit)
    if state.imagination is not None:
        state, extra = generated(config, state, batch, seen, keys[1])
        metrics = metrics | extra
    value, chosen = values(config, state, batch, seen, keys[2])
    target = target_value(config, state, visit, value)
    negatives = None
    if config.negative_weight is not None:
        negatives = passed_over(config, state, visit, seen, value, keys[3])
    rate = config.critic_learning_rate * config.schedule(progress(state))
    critic, opt_state, q_loss, q = gradient_step(
        critic_loss, state.critic, state.opt_states.critic, rate, config, batch, seen, target, negatives
    )
    state = state._replace(critic=critic, opt_states=state.opt_states._replace(critic=opt_state))
    if state.imagination is not None:
        state, extra = perturbed(config, state, batch, seen, keys[4], due)
        metrics = metrics | extra
    coverage, entropy = variety(chosen[:, 1:], batch.valid, len(state.known.cumulative))
    metrics = metrics | {
        "critic_loss": q_loss,
        "td_error": batch.average(jnp.mean(jnp.abs(q - target), axis=0)),
        "q_mean": batch.average(jnp.mean(q, axis=0)),
        "target_q": batch.average(target),
        "coverage": coverage,
        "entropy": entropy,
    }
    return followed(config, state, jnp.where(due, config.target_rate, 0.0)), Feedback(metrics)


def followed(config: RecommenderBCQ, state: State, rate: jax.Array) -> State:
    """Return the state with targets moved by `rate` of their gaps, one update later."""
    perturbation = state.imagination and polyak_update(state.target_perturbation, state.imagination.perturbation, rate)
    return state._replace(
        target_reader=polyak_update(state.target_reader, state.recall.reader, rate),
        target_critic=polyak_update(state.target_critic, state.critic, rate),
        target_perturbation=perturbation,
        step=state.step + 1,
    )


def pretrain_losses(config: RecommenderBCQ, state: State, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """Return the cross-entropy without an update and without dropout."""
    loss, _ = recall_loss(state.recall, config, batch, state.known, None)
    return {"imitation_loss": loss}


def losses(config: RecommenderBCQ, state: State, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """Return all losses of the current networks, without an update, with noise from the state's key."""
    keys = jax.random.split(state.key, 3)
    seen = scene(state.recall, state.target_reader, state.known, batch.data)
    value, _ = values(config, state, batch, seen, keys[0])
    loss, _ = critic_loss(state.critic, config, batch, seen, target_value(config, state, batch.data, value), None)
    results = pretrain_losses(config, state, batch, key) | {"critic_loss": loss}
    if state.imagination is not None:
        noise = jax.random.normal(keys[1], (*batch.data.reward.shape, config.latent_size))
        results["generator_loss"], _ = generator_loss(state.imagination.generator, config, batch, seen, noise)
    return results


@register("recommender-bcq")
@hyperparameters
class RecommenderBCQ:
    """Batch-constrained Q-learning over a catalogue: ranks items that the log supports by their value."""

    generator: Propose = static(most_likely, choices=GENERATORS, help="candidate generator for Q")
    threshold: float = number(
        0.3, least=0.0, most=1.0, help="likelihood: smallest probability relative to the most likely item"
    )
    candidates: int = static(20, least=1, help="likelihood: number of most likely items in targets")
    phi: float = number(0.05, least=0.0, help="vae: largest perturbation of a vector of length 1")
    kl_weight: float = number(0.5, least=0.0, help="vae: weight of the KL divergence in the generator's loss")
    latent: int | None = static(None, least=1, help="vae: size of the latents; none: twice the vectors' size")
    latent_clip: float = number(0.5, least=0.0, help="vae: limit of generated latents")
    target_samples: int = static(10, least=1, help="vae: candidates in targets")
    samples: int = static(20, least=1, help="vae: candidates when ranking")
    mix: float = number(0.75, least=0.0, most=1.0, help="weight of the smallest critic in targets; rest: the largest")
    policy_delay: int = static(1, least=1, help="critic updates per update of perturbation and targets")
    discount: float = fields.discount(0.99)
    target_rate: float = fields.target_rate(0.001, "targets move per update")
    critics: int = fields.critics(2)
    critic_loss: PointLoss = fields.critic_loss(squared)
    q_weight: float | None = number(
        None, least=0.0, help="weight of Q in the score; none: chosen on the held-out period"
    )
    exclude_seen: bool = static(False, help="targets exclude items of the history")
    negative_weight: float | None = number(
        None, least=0.0, help="weight of negative items: shown but not selected, or sampled; none: off"
    )
    normalise_rewards: bool = static(True, help="divide rewards in targets by their standard deviation so far")
    encoder: MakeBody = static(recurrent, choices=READERS, help="history encoder: mean, gru or attention (SASRec)")
    size: int = static(64, least=1, help="size of item vectors and states")
    history: int = static(50, least=1, help="events of the history in a state")
    targets: int = static(10, least=1, help="training targets of a window; at most `history`")
    profile: bool = static(True, help="use user features in the history encoder, where the log has them")
    layers: int = static(2, least=1, help="attention: blocks")
    heads: int = static(1, least=1, help="attention: heads of a block")
    dropout: float | None = fields.dropout(0.2)
    content: bool = static(False, help="a tower over item features; it can rank new items")
    tower_hidden: tuple[int, ...] = fields.widths((128,), "the tower's hidden layers")
    begin: Begin = static(at_random, choices=BEGINNINGS, help="initial item vectors")
    full_softmax: int = static(20_000, least=0, help="largest catalogue with a full cross-entropy over all items")
    sampled_items: int = static(1_024, least=1, help="sampled items of a cross-entropy over a larger catalogue")
    pretrain: int = static(2_000, least=0, help="updates of table and reader alone before the main phase")
    joint: bool = static(True, help="the main phase also trains table and reader")
    batch_size: int = fields.batch_size(128)
    learning_rate: float = fields.learning_rate(1e-3)
    critic_learning_rate: float = fields.learning_rate(1e-3)
    generator_learning_rate: float = fields.learning_rate(1e-3)
    perturbation_learning_rate: float = fields.learning_rate(1e-3)
    schedule: Schedule = fields.schedule(constant)
    optimiser: Transformation = fields.optimiser("adam")
    gradient_clip: float | None = fields.gradient_clip(None, "each network's gradient")
    hidden: tuple[int, ...] = fields.widths((128, 128), "the critics' hidden layers")
    generator_hidden: tuple[int, ...] = fields.widths((256, 256), "the generator's hidden layers")
    perturbation_hidden: tuple[int, ...] = fields.widths((128, 128), "the perturbation's hidden layers")
    item_vectors: Begin | None = own(
        "function of interactions, `size` and a seed that returns the table's rows [N, size]"
    )

    takes: ClassVar[tuple[type, ...]] = (Catalogue,)
    target_sources: ClassVar[dict[str, str]] = {  # sources of target networks under another name
        "target_reader": "recall.reader",
        "target_perturbation": "imagination.perturbation",
    }
    watched_metrics: ClassVar[tuple[str, ...]] = tuple(  # a run warns where one of them collapses after the pretraining
        f"{where}/{what}" for where in ("main", "held_out") for what in ("coverage", "entropy")
    )

    @property
    def latent_size(self) -> int:
        """L."""
        return self.latent or 2 * self.size

    def check(self) -> None:
        """Raise ConfigError where two fields contradict each other."""
        if self.targets > self.history:
            raise ConfigError(
                f"RecommenderBCQ.targets = {self.targets} and RecommenderBCQ.history = {self.history}: "
                "targets must be at most history. fix: increase history or decrease targets"
            )
        if self.size % self.heads:
            raise ConfigError(
                f"RecommenderBCQ.size = {self.size} is not a multiple of heads = {self.heads}. fix: choose a multiple"
            )

    def stores(self, spec: Spec) -> dict[str, StoreSpec]:
        """Return the interactions, with slates and user features where they are used."""
        if self.content and not spec.action.features:  # type: ignore[union-attr]
            raise SpecError(
                "content=True requires item features, and these interactions have none. fix: item_features=..."
            )
        slates = () if self.negative_weight is None else ("slate",)
        users = ("user",) if sees_users(self, spec) else ()
        return {"log": StoreSpec(("reward", "terminated", *slates, *users), targets=self.targets)}

    def phases(self) -> tuple[Phase, ...]:
        """Return the pretraining phase of `pretrain` updates, then the main phase."""
        draw = Sampler("log", self.batch_size, Windows(self.history, self.targets, self.discount))
        first = Phase(
            "pretrain", draw, pretrain_step, pretrain_losses, lambda config, visit: 0 if visit else config.pretrain
        )
        return (first, Phase("main", draw, step, losses))

    def init(self, spec: Spec, key: jax.Array, updates: int) -> State:
        """Return new networks for a run of `updates` updates."""
        return begin(self, spec, key, updates)

    def with_item_facts(self, state: State, log: Interactions, seed: int) -> State:
        """Return a new state with the log's facts of its items: popularity, features, initial vectors."""
        known = facts(log.counts, log.item_features if self.content else None)
        rows = (self.item_vectors or self.begin)(log, self.size, seed)
        recall = state.recall if rows is None else recall_from(state.recall, rows)
        return state._replace(known=known, recall=recall)

    def policy_params(self, state: State) -> PolicyParams:
        """Return table and reader, the first critic, the candidate networks, and the weight of Q."""
        features, critic = state.known.features, state.critic.members[0]
        return PolicyParams(state.recall, critic, state.imagination, state.latents, features, state.weight)

    def with_q_weight(self, state: State, weight: float) -> State:
        """Return the state with this weight of Q in the score, unless `q_weight` is set."""
        return state if self.q_weight is not None else state._replace(weight=jnp.float32(weight))

    def act(
        self, params: PolicyParams, observation: Any, *, mask: Any = None, carry: Any = None, key: Any = None
    ) -> Any:
        """Raise SpecError: items are ranked, not chosen."""
        raise SpecError(
            "a policy over a catalogue ranks items and has no act(). fix: call policy.recommend(histories, k)"
        )

    # Ranking, for `policy.recommend`.

    def all_items(self, params: PolicyParams) -> jax.Array:
        """Return the item vectors [N + 1, D + 1] for the search."""
        return listing.all_items(params)

    def queries(self, params: PolicyParams, seen: Histories, key: jax.Array | None = None) -> jax.Array:
        """Return queries [B, 1 + n, D + 1] for histories: likelihood, then n generated vectors."""
        return listing.queries(self, params, seen, key)

    def score_items(
        self, params: PolicyParams, seen: Histories, found: jax.Array, logits: jax.Array, ideas: jax.Array
    ) -> ItemScores:
        """Return scores of found items [B, K] for histories; `logits` [B, K] -inf for none, `ideas` [B, K] bool."""
        return listing.score_items(self, params, seen, found, logits, ideas)

    def recipe(self, params: PolicyParams) -> dict[str, Any]:
        """Return the computation of lists, for policies without JAX."""
        return listing.recipe_of(self, params)
