"""Recommender BCQ: batch-constrained Q-learning over a catalogue; the state is a history, the action an item.

Fujimoto, Meger, Precup 2019, arXiv:1812.02900, and Fujimoto, Conti, Ghavamzadeh, Pineau 2019, arXiv:1910.01708; the
reader of histories after Kang and McAuley 2018, arXiv:1808.09781.

| step | loss (per event) | reads |
|---|---|---|
| table and reader | `-log P(item given history)`, over all items or a corrected sample | |
| generator (vae) | `mean (decode(s, z) - v)**2 + kl_weight KL(z given s, v)`, v of the item | **new** table, reader |
| critics | `sum_e loss(Q_e(s, v) - r - discount max_i between_e Qtarget_e(s', v_i))`, v **logged** | old targets |
| | `v_i` are items: the likeliest above `threshold`, or nearest to generated vectors | **new** table, generator |
| perturbation (vae) | `-Q_1(s, perturb(s, decode(s, z)))` | **new** generator and Q_1 |
| targets | reader, perturbation, critics move by `target_rate` of their gap | **new** networks |

The phase `pretrain` takes only the first step, `main` all of them. Cross-entropy alone moves the table and the reader:
a generator asked to reconstruct vectors that it may move would collapse them, and so nothing else has a gradient there.

With `negative_weight`, items that were shown and passed over (or, without slates, drawn ones, weighed as if drawn by
popularity, so that Q does not learn what is popular) are worth 0 and change nothing: `r = 0, s' = s`.

Deliberate differences from published ports: critics learn from logged items only, because a logged reward says nothing
of a generated one; candidates are items, not points between them; padding is no item.

Letters: `B` batch, `T` targets, `D` item vector size, `N` items, `E` ensemble, `P` states, `K` items found.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tidelog.algorithms.core import fields
from tidelog.algorithms.core.contract import Feedback, Phase, StoreSpec
from tidelog.algorithms.core.hyperparameters import hyper, number, own, static
from tidelog.algorithms.core.optimisation import (
    Schedule,
    Transformation,
    constant,
    gradient_step,
    polyak_update,
)
from tidelog.algorithms.core.running_statistics import counted
from tidelog.algorithms.core.sampling import Batch, Sampler
from tidelog.errors import ConfigError, SpecError
from tidelog.losses.td import PointLoss, squared
from tidelog.recommend import ranking as listing
from tidelog.recommend.candidate_generation import GENERATORS, Propose, likeliest
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
from tidelog.recommend.ranking import PolicyParams, Weighed
from tidelog.recommend.state import State, begin, sees_users
from tidelog.recommend.windows import Visit, Windows
from tidelog.types import Catalogue, Histories, Spec

# The updates.


def pretrain_step(config: RecommenderBCQ, state: State, batch: Batch) -> tuple[State, Feedback]:
    """One update of table and reader; the target reader is the reader."""
    state, metrics = recalled(config, state, batch, jax.random.fold_in(state.key, state.step))
    stepped = state._replace(target_reader=state.recall.reader, step=state.step + 1)
    return stepped, Feedback(metrics)


def recalled(config: RecommenderBCQ, state: State, batch: Batch, key: jax.Array) -> tuple[State, dict[str, jax.Array]]:
    """The state with table and reader moved."""
    rate = config.learning_rate * config.schedule(progress(state))
    recall, opt_state, _, metrics = gradient_step(
        recall_loss, state.recall, state.opt_states.recall, rate, config, batch, state.known, key
    )
    return state._replace(recall=recall, opt_states=state.opt_states._replace(recall=opt_state)), metrics


def step(config: RecommenderBCQ, state: State, batch: Batch) -> tuple[State, Feedback]:
    """One update of table and reader (if `joint`), generator, critics, perturbation and targets, in this order."""
    visit: Visit = batch.data
    keys = jax.random.split(jax.random.fold_in(state.key, state.step), 5)
    due = (state.step + 1) % config.policy_delay == 0
    state, metrics = recalled(config, state, batch, keys[0]) if config.joint else (state, {})
    if state.rewards is not None:
        state = state._replace(rewards=counted(state.rewards, batch))
    seen = scene(state.recall, state.target_reader, state.known, visit)
    if state.imagination is not None:
        state, made = generated(config, state, batch, seen, keys[1])
        metrics = metrics | made
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
        state, made = perturbed(config, state, batch, seen, keys[4], due)
        metrics = metrics | made
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
    """The state with its targets moved by `rate` of their gaps, and one update further."""
    perturbation = state.imagination and polyak_update(state.target_perturbation, state.imagination.perturbation, rate)
    return state._replace(
        target_reader=polyak_update(state.target_reader, state.recall.reader, rate),
        target_critic=polyak_update(state.target_critic, state.critic, rate),
        target_perturbation=perturbation,
        step=state.step + 1,
    )


def pretrain_losses(config: RecommenderBCQ, state: State, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """The cross-entropy without a step, nothing silenced."""
    loss, _ = recall_loss(state.recall, config, batch, state.known, None)
    return {"imitation_loss": loss}


def losses(config: RecommenderBCQ, state: State, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """All losses of the networks as they stand, without a step, on noise that the state fixes."""
    keys = jax.random.split(state.key, 3)
    seen = scene(state.recall, state.target_reader, state.known, batch.data)
    value, _ = values(config, state, batch, seen, keys[0])
    loss, _ = critic_loss(state.critic, config, batch, seen, target_value(config, state, batch.data, value), None)
    found = pretrain_losses(config, state, batch, key) | {"critic_loss": loss}
    if state.imagination is not None:
        noise = jax.random.normal(keys[1], (*batch.data.reward.shape, config.latent_size))
        found["generator_loss"], _ = generator_loss(state.imagination.generator, config, batch, seen, noise)
    return found


@hyper
class RecommenderBCQ:
    """Batch-constrained Q-learning over a catalogue: ranks items that the log supports by what they lead to."""

    generator: Propose = static(likeliest, choices=GENERATORS, help="finds the items that Q may choose among")
    threshold: float = number(0.3, least=0.0, most=1.0, help="likelihood: least, relative to the likeliest item")
    candidates: int = static(20, least=1, help="likelihood: the likeliest items that are rated in targets")
    phi: float = number(0.05, least=0.0, help="vae: how far the perturbation moves a vector of length 1")
    kl_weight: float = number(0.5, least=0.0, help="vae: weight of the divergence beside the reconstruction")
    latent: int | None = static(None, least=1, help="vae: size of the latents; none: twice the vectors' size")
    latent_clip: float = number(0.5, least=0.0, help="vae: generated latents are cut here")
    target_samples: int = static(10, least=1, help="vae: candidates in targets")
    samples: int = static(20, least=1, help="vae: candidates when ranking")
    mix: float = number(0.75, least=0.0, most=1.0, help="weight of the smallest critic in targets; rest: the largest")
    policy_delay: int = static(1, least=1, help="critic updates for one of perturbation and targets")
    discount: float = fields.discount(0.99)
    target_rate: float = fields.target_rate(0.001, "targets move")
    critics: int = fields.critics(2)
    critic_loss: PointLoss = fields.critic_loss(squared)
    q_weight: float | None = number(None, least=0.0, help="of Q in the score; none: chosen on the held-out period")
    exclude_seen: bool = static(False, help="targets choose nothing that the history holds")
    negative_weight: float | None = number(None, least=0.0, help="of an item shown and not taken, or drawn; none: off")
    normalise_rewards: bool = static(True, help="targets: rewards over their standard deviation so far")
    encoder: MakeBody = static(recurrent, choices=READERS, help="reads histories: mean, gru or attention (SASRec)")
    size: int = static(64, least=1, help="of item vectors and states")
    history: int = static(50, least=1, help="how many items back a state reaches")
    targets: int = static(10, least=1, help="events of a window that are learnt from; at most `history`")
    profile: bool = static(True, help="the reader is told who the user is, where the log describes users")
    layers: int = static(2, least=1, help="attention: blocks")
    heads: int = static(1, least=1, help="attention: heads of a block")
    dropout: float | None = fields.dropout(0.2)
    content: bool = static(False, help="a tower over item features, so that new items can be ranked")
    tower_hidden: tuple[int, ...] = fields.widths((128,), "the tower's hidden layers")
    begin: Begin = static(at_random, choices=BEGINNINGS, help="where the items' vectors begin")
    full_softmax: int = static(
        20_000, least=0, help="the largest catalogue whose items all stand in each cross-entropy"
    )
    sampled_items: int = static(1_024, least=1, help="items drawn for each cross-entropy of a larger one")
    pretrain: int = static(2_000, least=0, help="updates of table and reader alone before the main phase")
    joint: bool = static(True, help="table and reader go on learning in the main phase")
    batch_size: int = fields.batch_size(128)
    learning_rate: float = fields.learning_rate(1e-3)
    critic_learning_rate: float = fields.learning_rate(1e-3)
    generator_learning_rate: float = fields.learning_rate(1e-3)
    perturbation_learning_rate: float = fields.learning_rate(1e-3)
    schedule: Schedule = fields.schedule(constant)
    optimiser: Transformation = fields.optimiser("adam")
    gradient_clip: float | None = fields.gradient_clip(None, "each network's gradient")
    hidden: tuple[int, ...] = fields.widths((128, 128), "the critics' hidden layers")
    generator_hidden: tuple[int, ...] = fields.widths((256, 256), "the generator's")
    perturbation_hidden: tuple[int, ...] = fields.widths((128, 128), "the perturbation's")
    item_vectors: Begin | None = own("makes rows [N, size] of the table from the interactions, `size` and a seed")

    takes: ClassVar[tuple[type, ...]] = (Catalogue,)
    target_sources: ClassVar[dict[str, str]] = {  # what target networks follow that no part of that name holds
        "target_reader": "recall.reader",
        "target_perturbation": "imagination.perturbation",
    }
    watched: ClassVar[tuple[str, ...]] = tuple(  # a run warns where one of them collapses; a fresh reader may narrow
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
                f"RecommenderBCQ.targets = {self.targets} and RecommenderBCQ.history = {self.history}: of a window at "
                "most as many events can be learnt from as a history holds"
            )
        if self.size % self.heads:
            raise ConfigError(f"RecommenderBCQ.size = {self.size} cannot be shared by heads = {self.heads}")

    def stores(self, spec: Spec) -> dict[str, StoreSpec]:
        """The interactions, with what was shown and who users are where that is learnt from."""
        if self.content and not spec.action.features:  # type: ignore[union-attr]
            raise SpecError("content=True reads item features, and these interactions have none: item_features=...")
        slates = () if self.negative_weight is None else ("slate",)
        users = ("user",) if sees_users(self, spec) else ()
        return {"log": StoreSpec(("reward", "terminated", *slates, *users), targets=self.targets)}

    def phases(self) -> tuple[Phase, ...]:
        """Telling the next item alone, so many updates; then everything."""
        draw = Sampler("log", self.batch_size, Windows(self.history, self.targets, self.discount))
        first = Phase(
            "pretrain", draw, pretrain_step, pretrain_losses, lambda config, visit: 0 if visit else config.pretrain
        )
        return (first, Phase("main", draw, step, losses))

    def init(self, spec: Spec, key: jax.Array, updates: int) -> State:
        """Fresh networks for a run of `updates` steps."""
        return begin(self, spec, key, updates)

    def furnish(self, state: State, log: Interactions, seed: int) -> State:
        """A fresh state with what the log it learns from knows of its items: popularity, features, first vectors."""
        known = facts(log.counts, log.item_features if self.content else None)
        rows = (self.item_vectors or self.begin)(log, self.size, seed)
        recall = state.recall if rows is None else recall_from(state.recall, rows)
        return state._replace(known=known, recall=recall)

    def policy_params(self, state: State) -> PolicyParams:
        """Table and reader, the first critic, what proposes items, and how much Q counts."""
        features, critic = state.known.features, state.critic.members[0]
        return PolicyParams(state.recall, critic, state.imagination, state.latents, features, state.weight)

    def weighted(self, state: State, weight: float) -> State:
        """The state with this weight of Q in the score, unless one was given."""
        return state if self.q_weight is not None else state._replace(weight=jnp.float32(weight))

    def start(self, params: PolicyParams, batch: int) -> None:
        """Nothing is carried: the history says all."""

    def distribution(self, params: PolicyParams, observation: Any, mask: Any = None, carry: Any = None) -> None:
        """A list has no distribution over actions."""

    def q_values(self, params: PolicyParams, observation: Any) -> None:
        """Items are rated by `weigh`."""

    def act(
        self, params: PolicyParams, observation: Any, *, mask: Any = None, carry: Any = None, key: Any = None
    ) -> Any:
        """Raise SpecError: items are ranked."""
        raise SpecError("a policy over a catalogue ranks items: call policy.recommend(histories, k)")

    # Ranking: what `policy.recommend` calls.

    def all_items(self, params: PolicyParams) -> jax.Array:
        """Rows [N + 1, D + 1] to search among."""
        return listing.all_items(params)

    def seek(self, params: PolicyParams, seen: Histories, key: jax.Array | None = None) -> jax.Array:
        """Queries [B, 1 + n, D + 1] after histories: what is likely, then n ideas of the generator's."""
        return listing.seek(self, params, seen, key)

    def weigh(
        self, params: PolicyParams, seen: Histories, found: jax.Array, logits: jax.Array, ideas: jax.Array
    ) -> Weighed:
        """What found items [B, K] are worth after histories; `logits` [B, K] -inf for none, `ideas` [B, K] bool."""
        return listing.weigh(self, params, seen, found, logits, ideas)

    def recipe(self, params: PolicyParams) -> dict[str, Any]:
        """How lists are made, for policies without JAX."""
        return listing.recipe_of(self, params)
