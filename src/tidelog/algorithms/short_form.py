"""The contract of an offline algorithm: an initial state, a loss and an action; everything else is filled in.

A class without `phases` writes

- `takes`: the supported kinds of action space;
- `init(spec, key)`: a NamedTuple of networks; a field `target_x` is the target network of the field `x`, or None where
  the network is its own target; a field that no loss trains is a constant;
- `loss(state, batch, key)`: the losses by the fields that they train, and metrics. A loss of several fields together
  has a tuple of their names. Metrics are of the networks before the last step; a dictionary of metrics under the name
  of a loss is of the networks before that step. The metric `priority` [B] is the new priority of each sample;
- how to act: nothing where the state has an `actor`; else `act(params, observation, key=None)`, or
  `distribution(params, observation)`, or both. `mask` and `carry` are passed to who asks for them.

The state then also has `opt_states` (by field), `step`, `updates` (planned, for schedules) and `key`. One update is
`gradient_steps`, one step for each loss in turn, then `follow_targets`; the losses in `delayed`, and with "targets" the
target networks, move in every `policy_delay`-th update only. A class with its own `update(state, batch, key)` calls
these functions as it needs. `loss_names` are other names of losses among the metrics than `NAME_loss`. `columns` are
the columns of the log that the loss reads beyond observations and actions, and "next_action" for the logged action in
the next observation; without rewards samples are decisions, with rewards n-step transitions. Held-out losses are those
of `loss` without dropout, and its metrics whose names end in `_loss`.

The hyper-parameters in `DEFAULTS` are read where the class has them; for the network of a loss also
`NAME_learning_rate` and `NAME_schedule`. A class with `reward_weights` learns from several rewards.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections import namedtuple
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar, dataclass_transform

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from tidelog.algorithms.contract import Feedback, Phase, StoreSpec, check_components, check_discounts, one_reward
from tidelog.algorithms.hyperparameters import hyperparameters
from tidelog.algorithms.optimisation import (
    clipped,
    constant,
    copied,
    descend,
    init_opt_state,
    norms,
    polyak_update,
    tree_where,
)
from tidelog.algorithms.sampling import Batch, LoggedAction, NStep, Sampler, Window, ordered, shifted
from tidelog.errors import ConfigError, SpecError, unknown_name
from tidelog.losses.imitation import pick
from tidelog.networks import recipe
from tidelog.networks.actors import choose, initial_state, sampled
from tidelog.networks.critics import smallest_values
from tidelog.networks.encoder import EncoderConfig
from tidelog.networks.layers import fold_in, host_generator, scalar
from tidelog.networks.pictures import by_size
from tidelog.schema import RENAMED
from tidelog.types import Act, Image, Observation, Spec

TARGET = "target_"
TARGETS = "targets"  # in `delayed`: all target networks
NEXT_ACTION = "next_action"  # in `columns`: the logged action after the summed steps
DEFAULTS = {
    "batch_size": 256,
    "discount": 0.99,
    "discounts": None,  # one for each of several rewards, in place of `discount`
    "n_step": 1,
    "returns": "n-step",  # others are computed along windows
    "learning_rate": 3e-4,
    "schedule": constant,
    "optimiser": optax.scale_by_adam,
    "gradient_clip": None,
    "debug_metrics": False,  # norms of gradients and networks among the metrics
    "tau": 0.005,
    "target_update_period": None,  # updates between two updates of the targets
    "copy_period": None,  # updates between two copies into the targets, in place of their updates
    "policy_delay": 1,  # updates for one of the losses, or targets, that the class names in `delayed`
    "recurrent_size": None,
    "window": 16,
    "burn_in": 0,
    "priority_exponent": None,
    "priority_correction": 0.4,
    "reward_weights": None,
    "epsilon": None,
    "embedding": 32,
    "convolutions": by_size,
    "picture_shift": 0,  # pixels by which an update's pictures move at random
}
ADDED = ("opt_states", "step", "updates", "key")  # fields of the state
SHIFTS = 2**30  # folded into the key of an update: its pictures' shifts have their own key
# children of a run's key: 1 is that of samples (training/loop.py), 2 that of collection and of BCQ's latents for acting
TRAINING_KEY, OWN_KEYS = 3, 4  # of the updates, and from here on of networks of one's own

Loss = str | tuple[str, ...]  # the field or fields that a loss trains


def check_class(cls: type[Any]) -> None:
    """Raise ConfigError where a class lacks a method of the contract that has no default."""
    has = _methods(cls)
    takes = getattr(cls, "takes", ())
    lacks = ["init"] * ("init" not in has)
    lacks += ["loss (or phases)"] * (not has & {"loss", "phases"})
    lacks += [name for name in ("stores", "policy_params") if "phases" in has and not hasattr(cls, name)]
    lacks += ["act (or distribution)"] * ("phases" in has and not has & {"act", "distribution"})
    if lacks:
        raise ConfigError(f"algorithm: {cls.__name__} has no {' and no '.join(lacks)}", fix="write these methods")
    if not isinstance(takes, tuple) or not takes or not all(isinstance(one, type) for one in takes):
        raise ConfigError(
            f"algorithm: {cls.__name__}.takes = {takes!r}",
            "the supported kinds of action space",
            "takes = (tl.types.Continuous,)",
        )
    if getattr(cls, "delayed", ()) and not hasattr(cls, "policy_delay"):
        raise ConfigError(f"algorithm: {cls.__name__}.delayed without policy_delay", fix="policy_delay: int = 2")
    for name in ("target_rate", "products"):  # what the update read in earlier versions
        if hasattr(cls, name):
            raise ConfigError(f"algorithm: {cls.__name__}.{name} has no effect", fix=f"rename it to {RENAMED[name]}")


def _methods(cls: type[Any]) -> set[str]:
    return {method for method in ("init", "loss", "update", "phases", "act", "distribution") if hasattr(cls, method)}


def complete(name: str, cls: type[Any]) -> type[Any]:
    """Give a class the methods of the contract that it does not have."""
    has = _methods(cls)
    if "phases" not in has:
        _complete_learning(name, cls, by_actor=not has & {"act", "distribution"})
    _complete_acting(cls)
    return cls


def setting(config: Any, name: str) -> Any:
    """Return a hyper-parameter of the class, or the default where the class has none of that name."""
    return getattr(config, name, DEFAULTS[name])


def discount_of(algorithm: Any) -> float | tuple[float, ...]:
    """Return the discount per step of an algorithm's values, or one for each reward."""
    discounts: tuple[float, ...] | None = setting(algorithm, "discounts")
    return float(setting(algorithm, "discount")) if discounts is None else discounts


class NetworkMaker:
    """Makes the networks of an algorithm in turn, with its sizes; a function of the user comes first."""

    def __init__(self, config: Any, spec: Spec, key: jax.Array) -> None:
        encoder = (setting(config, name) for name in ("convolutions", "recurrent_size"))
        self.options: dict[str, Any] = {
            "hidden": config.hidden,
            "encoder_config": EncoderConfig(setting(config, "embedding"), config.hidden[0], *encoder),
        }
        self.options |= {name: getattr(config, name) for name in ("layer_norm", "activation") if hasattr(config, name)}
        self.spec, self.key, self.generator, self.made = spec, key, host_generator(key), 0

    def __call__(self, kind: Any, own: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Return `kind.create(...)` with these options, or `own(spec, key)` where there is one."""
        if own is None:
            return kind.create(self.generator, self.spec, **{**self.options, **options})
        self.made += 1
        return own(self.spec, fold_in(self.key, OWN_KEYS - 1 + self.made))


# Learning.


def gradient_steps(
    config: Any, state: Any, batch: Batch, key: jax.Array, names: Sequence[Loss] | None = None
) -> tuple[Any, dict[str, jax.Array]]:
    """Do one gradient step for each named loss in turn (all by default); return the state and the metrics.

    The gradient of a loss is with respect to the field of its name alone; everything else is constant in it. The second
    loss is computed with the networks that the first one has already changed.
    """
    metrics: dict[str, jax.Array] = {}
    raw: dict[str, Any] = {}  # gradients
    losses = named_losses(config, state, batch, key)[0]
    unknown = [str(name) for name in getattr(config, "delayed", ()) if name not in (*losses, TARGETS)]
    if unknown:
        known = [str(name) for name in (*losses, TARGETS)]
        raise unknown_name(f"{type(config).__name__}.delayed", "loss", unknown[0], known)
    for name in losses if names is None else names:
        fields = (name,) if isinstance(name, str) else name
        networks = tuple(getattr(state, field) for field in fields)
        (value, more), gradients = eqx.filter_value_and_grad(_loss_of, has_aux=True)(
            networks, fields, name, config, state, batch, key
        )
        raw |= zip(fields, gradients, strict=True)
        gradients = clipped(gradients, setting(config, "gradient_clip"))
        rate, opt_states, due = _learning_rate(config, name, state), dict(state.opt_states), _due(config, state, name)
        for field, network, gradient in zip(fields, networks, gradients, strict=True):
            before = network, opt_states[field]
            moved = descend(setting(config, "optimiser"), network, gradient, opt_states[field], rate, None)
            network, opt_states[field] = moved if due is None else tree_where(due, before, moved)
            state = state._replace(**{field: network})
        state = state._replace(opt_states=opt_states)
        metrics |= {_metric(config, name): value} | more
    if setting(config, "debug_metrics"):
        metrics |= norms({field: getattr(state, field) for field in raw}, raw)
    return state, metrics


def _due(config: Any, state: Any, name: Loss) -> jax.Array | None:
    """Whether a loss, or the targets, moves in this update; None: always."""
    if name not in getattr(config, "delayed", ()):
        return None
    due: jax.Array = (state.step + 1) % setting(config, "policy_delay") == 0
    return due


def follow_targets(config: Any, state: Any) -> Any:
    """Move every target network by `tau` of its gap to its network.

    With `target_update_period` they move every so many updates, with `copy_period` they are copied.
    """
    rate, period, copies = (setting(config, name) for name in ("tau", "target_update_period", "copy_period"))
    if copies is not None:
        rate = jnp.where((state.step + 1) % copies == 0, 1.0, 0.0)
    elif period is not None:
        rate = jnp.where((state.step + 1) % period == 0, rate, 0.0)
    due = _due(config, state, TARGETS)
    rate = rate if due is None else jnp.where(due, rate, 0.0)
    targets = {field: getattr(state, field) for field in state._fields if field.startswith(TARGET)}
    moved = {
        field: polyak_update(target, getattr(state, field.removeprefix(TARGET)), rate)
        for field, target in targets.items()
        if target is not None
    }
    return state._replace(**moved)


def named_losses(config: Any, state: Any, batch: Batch, key: jax.Array) -> tuple[dict[Loss, jax.Array], dict[str, Any]]:
    """Return losses by the fields that they train, and metrics; TypeError or ConfigError where they are malformed."""
    losses, metrics = config.loss(state, batch, key)
    for name, loss in losses.items():
        for field in (name,) if isinstance(name, str) else name:
            if field not in state.opt_states:
                raise ConfigError(
                    f"{type(config).__name__}.loss returns '{field}', but the state has no network of this name",
                    fix=f"name losses after the networks they train: {', '.join(state.opt_states)}",
                )
        if jnp.shape(loss) != ():
            raise TypeError(
                f"{type(config).__name__}.loss: '{name}' has shape {jnp.shape(loss)}, expected one number. "
                "fix: use batch.mean(errors), with one error per sample"
            )
    return losses, metrics


def _loss_of(
    networks: tuple[Any, ...], fields: tuple[str, ...], name: Loss, config: Any, state: Any, batch: Batch, key: Any
) -> tuple[jax.Array, dict[str, jax.Array]]:
    state = state._replace(**dict(zip(fields, networks, strict=True)))
    losses, metrics = named_losses(config, state, batch, key)
    of_a_loss: dict[Loss, Any] = {name: value for name, value in metrics.items() if isinstance(value, dict)}
    rest = {metric: value for metric, value in metrics.items() if metric not in of_a_loss}
    return losses[name], rest | of_a_loss.get(name, {})


def _metric(config: Any, name: Loss) -> str:
    """Return the name of a loss among the metrics."""
    usual = f"{name if isinstance(name, str) else '_'.join(name)}_loss"
    names: Any = getattr(config, "loss_names", {})
    return str(names.get(name, usual))


def _learning_rate(config: Any, name: Loss, state: Any) -> Any:
    rate = getattr(config, f"{name}_learning_rate", setting(config, "learning_rate"))
    schedule = getattr(config, f"{name}_schedule", setting(config, "schedule"))
    return rate * schedule(state.step / jnp.maximum(state.updates, 1))


def step(config: Any, state: Any, batch: Batch) -> tuple[Any, Feedback]:
    """Do one update of an algorithm."""
    key = jax.random.fold_in(state.key, state.step)
    if setting(config, "picture_shift"):
        batch = shifted(batch, jax.random.fold_in(key, SHIFTS), config.picture_shift)
    updated, metrics = config.update(state, batch, key)
    priority = metrics.pop("priority", None)
    return updated._replace(step=state.step + 1), Feedback(dict(metrics), priority)


def held_out_losses(config: Any, state: Any, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """Return the losses of the current networks, without update and dropout; random numbers are the same each time."""
    if getattr(config, "dropout", None) is not None:
        config = copy.copy(config)
        object.__setattr__(config, "dropout", None)
    losses, metrics = named_losses(config, state, batch, state.key)
    flat: dict[str, Any] = {}
    for name, value in metrics.items():  # those of one loss are under its name
        flat |= value if isinstance(value, dict) else {name: value}
    parts = {name: value for name, value in flat.items() if name.endswith("_loss")}
    return {_metric(config, name): loss for name, loss in losses.items()} | parts


def sampler(config: Any) -> Sampler:
    """Return the sampler of an algorithm: rows or windows of them, uniform or by priority."""
    order = ordered(setting(config, "priority_exponent"), setting(config, "priority_correction"))
    discount = setting(config, "discounts") or setting(config, "discount")
    columns = _columns(config)
    n_step = NStep(setting(config, "n_step"), discount, NEXT_ACTION in columns)
    unit: Any = n_step if columns else LoggedAction()
    if setting(config, "recurrent_size") is not None or setting(config, "returns") != "n-step":
        unit = Window(unit, setting(config, "window"), setting(config, "burn_in"))
    return Sampler("log", setting(config, "batch_size"), unit, order)


def _columns(config: Any) -> tuple[str, ...]:
    return getattr(config, "columns", ("reward", "terminated"))


def _complete_learning(name: str, cls: type[Any], by_actor: bool) -> None:
    initial = cls.init
    masks_known = by_actor or "mask" in _arguments(cls, "act", "distribution")

    def stores(self: Any, spec: Spec) -> dict[str, StoreSpec]:
        """Return the log with the columns that the loss reads."""
        if hasattr(self, "reward_weights"):
            check_components(self.reward_weights, spec)
            check_discounts(setting(self, "discounts"), spec)
        elif _columns(self):
            one_reward(cls.__name__, spec)
        if setting(self, "picture_shift") and not any(isinstance(leaf, Image) for leaf in spec.observation.values()):
            found = f"{cls.__name__}.picture_shift = {self.picture_shift}, and the observations have no pictures"
            raise SpecError(found, fix="set picture_shift=0")
        return {"log": StoreSpec(_columns(self))}

    def phases(self: Any) -> tuple[Phase, ...]:
        """Return one phase over the log."""
        return (Phase(name, sampler(self), step, held_out_losses),)

    def init(self: Any, spec: Spec, key: jax.Array, updates: int = 0) -> Any:
        """Return the algorithm's networks with new optimiser states."""
        if spec.masked and not masks_known:
            raise SpecError(
                f"{cls.__name__} does not read masks, but this log has a mask of allowed actions",
                fix=f"give {cls.__name__}.act an argument `mask`, [B, A] bool",
            )
        networks = initial(self, spec, key)
        if by_actor and not callable(getattr(networks, "actor", None)):
            raise ConfigError(
                f"{cls.__name__} has no act (or distribution), and its state has no network 'actor'",
                fix="write one of these methods",
            )
        return _with_optimisers(self, networks, fold_in(key, TRAINING_KEY), updates)

    def update(self: Any, state: Any, batch: Batch, key: jax.Array) -> tuple[Any, dict[str, jax.Array]]:
        """Do one gradient step for each loss, then move the target networks."""
        state, metrics = gradient_steps(self, state, batch, key)
        return follow_targets(self, state), metrics

    def policy_params(self: Any, state: Any) -> Any:
        """Return all fields but the target networks."""
        fields = _online(type(state))
        return _params_type(fields)(**{field: getattr(state, field) for field in fields})

    _fill(cls, stores=stores, phases=phases, update=update, policy_params=policy_params)
    _set(cls, init=init)
    if by_actor:
        _complete_acting_by_actor(cls)


def _with_optimisers(config: Any, networks: Any, key: jax.Array, updates: int) -> Any:
    """Return the full state; every array in its own buffer, because training donates them."""
    owner = type(config).__name__
    fields = getattr(networks, "_fields", ())
    if not fields or set(fields) & set(ADDED):
        raise ConfigError(
            f"{owner}.init returned {type(networks).__name__} {fields}",
            f"a NamedTuple of networks without {', '.join(ADDED)}, which are added",
            "class State(NamedTuple): actor: Any",
        )
    lost = [name for name in fields if name.startswith(TARGET) and name.removeprefix(TARGET) not in fields]
    if lost:
        raise ConfigError(f"{owner}.init: {lost[0]} follows '{lost[0].removeprefix(TARGET)}', which the state lacks")
    networks = copied(networks)
    optimiser = setting(config, "optimiser")
    opt_states = {name: init_opt_state(optimiser, getattr(networks, name)) for name in _online(type(networks))}
    full = _state_type(type(networks).__name__, fields)
    return full(*networks, opt_states, scalar(0), scalar(updates), key)


def _online(state: type[Any]) -> tuple[str, ...]:
    return tuple(name for name in state._fields if name not in ADDED and not name.startswith(TARGET))


@cache
def _state_type(name: str, fields: tuple[str, ...]) -> Any:
    return namedtuple(name, (*fields, *ADDED))  # the fields are the user's


@cache
def _params_type(fields: tuple[str, ...]) -> Any:
    return namedtuple("PolicyParams", fields)  # the fields are the user's


# Acting.


def _complete_acting_by_actor(cls: type[Any]) -> None:
    """Add the policy of the network `actor`, and the values of discrete actions by `critic` where there is one."""

    def begin(self: Any, params: Any, batch: int) -> Any:
        """Return the actor's initial recurrent state, or None."""
        return initial_state(params.actor, batch)

    def act(
        self: Any,
        params: Any,
        observation: Observation,
        *,
        mask: jax.Array | None = None,
        carry: Any = None,
        key: jax.Array | None = None,
    ) -> Act:
        """Return the actor's mode, or a sample with a key."""
        return choose(params.actor, observation, mask, carry, key, setting(self, "epsilon"))

    def distribution(
        self: Any, params: Any, observation: Observation, mask: jax.Array | None = None, carry: Any = None
    ) -> Any:
        """Return the distribution of the sampled policy."""
        return sampled(params.actor, observation, mask, carry, setting(self, "epsilon"))[0]

    def plain(self: Any, params: Any) -> dict[str, Any]:
        """Return the acting computation and the values of discrete actions as plain nodes."""
        critic = getattr(params, "critic", None)
        feed_forward = setting(self, "recurrent_size") is None
        values = recipe.values(critic, setting(self, "reward_weights")) if feed_forward else None
        act = recipe.likely(params.actor, setting(self, "epsilon"))
        return recipe.whole(act, values, setting(self, "recurrent_size"))

    _fill(cls, initial_state=begin, act=act, distribution=distribution, recipe=plain)


def _complete_acting(cls: type[Any]) -> None:
    own_act, own_distribution = getattr(cls, "act", None), getattr(cls, "distribution", None)
    own_values: Any = getattr(cls, "q_values", None)
    act_reads, distribution_reads = _arguments(cls, "act"), _arguments(cls, "distribution")

    def act(
        self: Any,
        params: Any,
        observation: Observation,
        *,
        mask: jax.Array | None = None,
        carry: Any = None,
        key: jax.Array | None = None,
    ) -> Act:
        """Return the action of the policy: the most likely one without a key, or a sample with one."""
        if own_act is None:
            policy = self.distribution(params, observation, mask, carry)
            action = policy.mode() if key is None else policy.sample(key)
            return Act(action, policy.log_probability(action))
        optional = {"mask": mask, "carry": carry, "key": key}
        chosen = own_act(self, params, observation, **_known(optional, act_reads))
        return chosen if isinstance(chosen, Act) else Act(chosen)

    def distribution(
        self: Any, params: Any, observation: Observation, mask: jax.Array | None = None, carry: Any = None
    ) -> Any:
        """Return the distribution of the sampled policy, or None where the algorithm has none."""
        if own_distribution is None:
            return None
        return own_distribution(self, params, observation, **_known({"mask": mask, "carry": carry}, distribution_reads))

    def begin(self: Any, params: Any, batch: int) -> None:
        """Return None: this policy has no recurrent state."""

    def q_values(self: Any, params: Any, observation: Observation, action: jax.Array | None = None) -> jax.Array | None:
        """Return the smallest critic's values [B, A] of discrete actions, or [B] of chosen actions.

        None for continuous actions that are not chosen, without a critic, and for recurrent networks.
        """
        if own_values is not None:
            values = own_values(self, params, observation)
            return values if action is None or values is None else pick(values, action)
        critic = getattr(params, "critic", None)
        if critic is None or setting(self, "recurrent_size") is not None:
            return None
        return smallest_values(critic, observation, setting(self, "reward_weights"), action)

    if not act_reads >= {"mask", "carry", "key"}:
        _set(cls, act=act)
    if not distribution_reads >= {"mask", "carry"}:
        _set(cls, distribution=distribution)
    if "action" not in _arguments(cls, "q_values"):
        _set(cls, q_values=q_values)
    _fill(cls, initial_state=begin)


def _known(optional: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in optional.items() if name in names}


def _arguments(cls: type[Any], *methods: str) -> set[str]:
    found = [getattr(cls, method) for method in methods if hasattr(cls, method)]
    return {name for method in found for name in inspect.signature(method).parameters}


def _fill(cls: type[Any], **methods: Callable[..., Any]) -> None:
    _set(cls, **{name: method for name, method in methods.items() if not hasattr(cls, name)})


def _set(cls: type[Any], **methods: Callable[..., Any]) -> None:
    for name, method in methods.items():
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)


# The table of algorithm names, and the decorator that adds an algorithm to it.

T = TypeVar("T")

ALGORITHMS: dict[str, type[Any]] = {}
CONFIGURATIONS: dict[str, tuple[type[Any], dict[str, Any]]] = {}  # other names: a class and fixed settings


@dataclass_transform(frozen_default=True, kw_only_default=True)
def algorithm(name: str) -> Callable[[type[T]], type[T]]:
    """Make a class an algorithm of your own, under a name for files and the command line.

    The class becomes a frozen dataclass of hyper-parameters (`tl.field`), which refuses unknown names and values out of
    range. `docs/write-your-own.md` shows which methods it needs. Raises ConfigError for an invalid or taken name, for
    a field of a type that has no text form or without a default, and for a class that lacks a method.

    Example:
        >>> from typing import NamedTuple
        >>> from tidelog.networks.actors import Actor
        >>> from tidelog.networks.layers import host_generator
        >>> class Networks(NamedTuple):
        ...     actor: Actor
        >>> @tl.algorithm("imitate")
        ... class Imitate:
        ...     takes = (tl.types.Discrete,)
        ...
        ...     def init(self, spec, key):
        ...         return Networks(Actor.create(host_generator(key), spec, hidden=(16,)))
        ...
        ...     def loss(self, state, batch, key):
        ...         policy = state.actor(batch.data.observation, mask=batch.data.mask)
        ...         return {"actor": batch.mean(policy.imitation_error(batch.data.action))}, {}
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> tl.fit(Imitate(), log, steps=20).policy().spec.action.n
        6
    """
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ConfigError(
            f"algorithm: the name {name!r} is invalid", fix="use lower-case words joined by -, such as my-clone"
        )

    def add(cls: type[T]) -> type[T]:
        other = CONFIGURATIONS[name][0] if name in CONFIGURATIONS else ALGORITHMS.get(name)
        if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ConfigError(
                f"algorithm: the name '{name}' already belongs to {other.__module__}.{other.__qualname__}",
                fix="choose another",
            )
        check_class(cls)
        config = hyperparameters(cls)
        ALGORITHMS[name] = complete(name, config)
        return config

    return add


def configure(name: str, cls: type[Any], **settings: Any) -> None:
    """Add a name for a registered algorithm with fixed settings, such as PPO for one setting of PPG."""
    CONFIGURATIONS[name] = (cls, settings)
