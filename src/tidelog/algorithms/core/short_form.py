"""The short form of the contract: an offline algorithm that is an initial state, a loss and an action.

A class in the short form has no `phases`. It writes

- `takes`: the supported kinds of action space;
- `init(spec, key)`: a NamedTuple of networks; a field `target_x` is the target network of the field `x`;
- `loss(state, batch, key)`: the losses, named after the fields that they train, and metrics;
- `act(params, observation, key=None)`, or `distribution(params, observation)`, or both.

The state then also has `opt_states` (by field), `step`, `updates` (planned, for schedules) and `key`. One update is
`gradient_steps`, one step for each named loss in turn, then `follow_targets`; a class with its own
`update(state, batch, key)` calls these as it needs. Samples are uniform n-step transitions of the log. These
hyper-parameters are read where the class has them: `batch_size`, `discount`, `n_step`, `learning_rate`,
`NAME_learning_rate`, `optimiser`, `gradient_clip`, `target_rate`.
"""

from __future__ import annotations

import inspect
from collections import namedtuple
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from tidelog.algorithms.core.contract import Feedback, Phase, StoreSpec, one_reward
from tidelog.algorithms.core.optimisation import copied, descend, init_opt_state, polyak_update
from tidelog.algorithms.core.sampling import Batch, NStep, Sampler
from tidelog.errors import ConfigError, SpecError
from tidelog.networks.keys import split_keys
from tidelog.types import Act, Observation, Spec

TARGET = "target_"
DEFAULTS = {
    "batch_size": 256,
    "discount": 0.99,
    "n_step": 1,
    "learning_rate": 3e-4,
    "optimiser": optax.scale_by_adam,
    "gradient_clip": None,
    "target_rate": 0.005,
}
ADDED = ("opt_states", "step", "updates", "key")  # fields of the state


def complete(name: str, cls: type[Any]) -> type[Any]:
    """Give a class the methods of the contract that it does not have; ConfigError where one of them has no default."""
    has = {method for method in ("init", "loss", "update", "phases", "act", "distribution") if hasattr(cls, method)}
    takes = getattr(cls, "takes", ())
    lacks = ["init"] * ("init" not in has)
    lacks += ["loss (or phases)"] * (not has & {"loss", "phases"})
    lacks += [name for name in ("stores", "policy_params") if "phases" in has and not hasattr(cls, name)]
    lacks += ["act (or distribution)"] * (not has & {"act", "distribution"})
    if lacks:
        raise ConfigError(f"register: {cls.__name__} has no {' and no '.join(lacks)}. fix: write these methods")
    if not isinstance(takes, tuple) or not takes or not all(isinstance(one, type) for one in takes):
        raise ConfigError(
            f"register: {cls.__name__}.takes = {takes!r}: expected the supported kinds of action space. "
            "fix: takes = (tl.Continuous,)"
        )
    if "phases" not in has:
        _complete_learning(name, cls)
    _complete_acting(cls)
    return cls


def setting(config: Any, name: str) -> Any:
    """Return a hyper-parameter of the class, or the default where the class has none of that name."""
    return getattr(config, name, DEFAULTS[name])


def discount_of(algorithm: Any) -> float:
    """Return the discount per step of an algorithm's values."""
    return float(setting(algorithm, "discount"))


# Learning.


def gradient_steps(
    config: Any, state: Any, batch: Batch, key: jax.Array, names: Sequence[str] | None = None
) -> tuple[Any, dict[str, jax.Array]]:
    """Do one gradient step for each named loss in turn (all by default); return the state and the metrics.

    The gradient of a loss is with respect to the field of its name alone; everything else is constant in it. The second
    loss is computed with the networks that the first one has already changed.
    """
    metrics: dict[str, jax.Array] = {}
    for name in named_losses(config, state, batch, key)[0] if names is None else names:
        network = getattr(state, name)
        (value, more), gradient = eqx.filter_value_and_grad(_loss_of, has_aux=True)(
            network, name, config, state, batch, key
        )
        rate = getattr(config, f"{name}_learning_rate", setting(config, "learning_rate"))
        optimiser, clip = setting(config, "optimiser"), setting(config, "gradient_clip")
        network, opt_state = descend(optimiser, network, gradient, state.opt_states[name], rate, clip)
        state = state._replace(**{name: network, "opt_states": {**state.opt_states, name: opt_state}})
        metrics |= {f"{name}_loss": value} | more
    return state, metrics


def _loss_of(
    network: Any, name: str, config: Any, state: Any, batch: Batch, key: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    found, metrics = named_losses(config, state._replace(**{name: network}), batch, key)
    return found[name], metrics


def follow_targets(config: Any, state: Any) -> Any:
    """Move every target network of a state by `target_rate` of its gap to its online network."""
    rate = setting(config, "target_rate")
    pairs = {field: field.removeprefix(TARGET) for field in state._fields if field.startswith(TARGET)}
    return state._replace(
        **{target: polyak_update(getattr(state, target), getattr(state, of), rate) for target, of in pairs.items()}
    )


def named_losses(
    config: Any, state: Any, batch: Batch, key: jax.Array
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Return losses by the field that they train, and metrics; TypeError or ConfigError where they are malformed."""
    found, metrics = config.loss(state, batch, key)
    for name, loss in found.items():
        if name not in state.opt_states:
            raise ConfigError(
                f"{type(config).__name__}.loss returns '{name}', but the state has no network of this name. fix: name "
                f"losses after the networks they train: {', '.join(state.opt_states)}"
            )
        if jnp.shape(loss) != ():
            raise TypeError(
                f"{type(config).__name__}.loss: '{name}' has shape {jnp.shape(loss)}, expected one number. "
                "fix: use batch.mean(errors), with one error per sample"
            )
    return found, metrics


def _complete_learning(name: str, cls: type[Any]) -> None:
    initial = cls.init
    masks_known = "mask" in _arguments(cls, "act", "distribution")

    def stores(self: Any, spec: Spec) -> dict[str, StoreSpec]:
        """Return the log with its rewards."""
        one_reward(cls.__name__, spec)
        return {"log": StoreSpec(("reward", "terminated"))}

    def phases(self: Any) -> tuple[Phase, ...]:
        """Return one phase over uniform n-step transitions of the log."""
        unit = NStep(setting(self, "n_step"), setting(self, "discount"))
        return (Phase(name, Sampler("log", setting(self, "batch_size"), unit), _step, _validation_losses),)

    def init(self: Any, spec: Spec, key: jax.Array, updates: int = 0) -> Any:
        """Return the algorithm's networks with new optimiser states."""
        if spec.masked and not masks_known:
            raise SpecError(
                f"{cls.__name__} does not read masks, but this log has a mask of allowed actions. "
                f"fix: give {cls.__name__}.act an argument `mask`, [B, A] bool"
            )
        network_key, key = split_keys(key, 2)
        return _with_optimisers(self, initial(self, spec, network_key), key, updates)

    def update(self: Any, state: Any, batch: Batch, key: jax.Array) -> tuple[Any, dict[str, jax.Array]]:
        """Do one gradient step for each loss, then move the target networks."""
        state, metrics = gradient_steps(self, state, batch, key)
        return follow_targets(self, state), metrics

    def policy_params(self: Any, state: Any) -> Any:
        """Return all networks but the target networks."""
        fields = _networks(type(state))
        return _params_type(fields)(**{field: getattr(state, field) for field in fields})

    _fill(cls, stores=stores, phases=phases, update=update, policy_params=policy_params)
    _set(cls, init=init)


def _step(config: Any, state: Any, batch: Batch) -> tuple[Any, Feedback]:
    updated, metrics = config.update(state, batch, jax.random.fold_in(state.key, state.step))
    return updated._replace(step=state.step + 1), Feedback(dict(metrics))


def _validation_losses(config: Any, state: Any, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    return {f"{name}_loss": loss for name, loss in named_losses(config, state, batch, key)[0].items()}


def _with_optimisers(config: Any, networks: Any, key: jax.Array, updates: int) -> Any:
    """Return the full state; every array in its own buffer, because training donates them."""
    owner = type(config).__name__
    fields = getattr(networks, "_fields", ())
    if not fields or set(fields) & set(ADDED):
        raise ConfigError(
            f"{owner}.init returned {type(networks).__name__} {fields}: expected a NamedTuple of networks without "
            f"{', '.join(ADDED)}, which are added. fix: class State(NamedTuple): actor: Any"
        )
    lost = [name for name in fields if name.startswith(TARGET) and name.removeprefix(TARGET) not in fields]
    if lost:
        raise ConfigError(f"{owner}.init: {lost[0]} follows '{lost[0].removeprefix(TARGET)}', which the state lacks")
    networks = copied(networks)
    full = _state_type(type(networks).__name__, fields)
    optimiser = setting(config, "optimiser")
    opt_states = {name: init_opt_state(optimiser, getattr(networks, name)) for name in _networks(type(networks))}
    return full(*networks, opt_states, jnp.int32(0), jnp.int32(updates), key)


def _networks(state: type[Any]) -> tuple[str, ...]:
    return tuple(name for name in state._fields if name not in ADDED and not name.startswith(TARGET))


@cache
def _state_type(name: str, fields: tuple[str, ...]) -> Any:
    return namedtuple(name, (*fields, *ADDED))  # the fields are the user's


@cache
def _params_type(fields: tuple[str, ...]) -> Any:
    return namedtuple("PolicyParams", fields)  # the fields are the user's


# Acting.


def _complete_acting(cls: type[Any]) -> None:
    own_act, own_distribution = getattr(cls, "act", None), getattr(cls, "distribution", None)
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

    def start(self: Any, params: Any, batch: int) -> None:
        """Return None: this policy has no recurrent state."""

    def q_values(self: Any, params: Any, observation: Observation) -> None:
        """Return None: this policy has no action values."""

    if not act_reads >= {"mask", "carry", "key"}:
        _set(cls, act=act)
    if not distribution_reads >= {"mask", "carry"}:
        _set(cls, distribution=distribution)
    _fill(cls, start=start, q_values=q_values)


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
