"""Hyper-parameters as pytrees: numbers are leaves, so a population shares one compilation; all else is static.

A field with the annotation `float` is a leaf. Any other belongs to the compiled program: a size, a switch, a function.
A function with a name in `choices` can be written in a file or on a command line. Any other function can be passed in
Python; a run that uses one needs the algorithm again to resume.

A field's `group` is its part of the command's help (`groups_of`).
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Iterable, Mapping
from functools import partial
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, ClassVar, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

import jax

from tidelog.algorithms.optimisation import OPTIMISERS, SCHEDULES
from tidelog.data.statistics import REWARD_SCALINGS
from tidelog.errors import ConfigError, nearest, unknown_name
from tidelog.losses.td import POINT_LOSSES
from tidelog.networks.actors import HEADS
from tidelog.networks.layers import ACTIVATIONS, PRODUCTS
from tidelog.networks.phasic import ARCHITECTURES
from tidelog.networks.pictures import LAYERS
from tidelog.schema import RENAMED, renamed

T = TypeVar("T")
MAIN = "main"  # the group of the few settings that matter most
ALGORITHM = "algorithm"  # the group of settings that are this algorithm's own


def field(
    default: Any,
    *,
    least: float | None = None,
    most: float | None = None,
    open_ends: bool = False,
    choices: Mapping[str, Any] | None = None,
    leaf: bool = True,
    help: str = "",
    group: str = ALGORITHM,
    role: str = "",
) -> Any:
    """Declare a hyper-parameter: with the annotation `float` a number of the pytree, else a value of the program.

    A number lies in `[least, most]`, strictly inside with `open_ends`; with `leaf=False` it belongs to the compiled
    program, so that all members of a population share it. A whole number is at least `least`; of a tuple, `least=0`
    allows none. `choices` maps names usable in files and on the command line to functions. `group` is a heading of the
    command's help; `role` names the rule by which the value follows a log (`auto/settings.py`).

    Example:
        >>> @tl.algorithm("constant")
        ... class Constant:
        ...     rate: float = tl.field(0.1, least=0.0, most=1.0, open_ends=True)
        ...     size: int = tl.field(64, least=1)
        ...     takes = (tl.types.Discrete,)
        ...
        ...     def init(self, spec, key): ...
        ...     def loss(self, state, batch, key): ...
        >>> Constant(rate=1.0)
        Traceback (most recent call last):
            ...
        tidelog.errors.ConfigError: Constant.rate = 1.0: expected a finite number in (0, 1)
    """
    declared = {"least": least, "most": most, "open_ends": open_ends, "choices": choices, "leaf": leaf}
    return dataclasses.field(default=default, metadata={**declared, "help": help, "group": group, "role": role})


def own(help: str) -> Any:
    """Declare an optional function of the user, in Python only, not in a file or flag; the default is None."""
    return dataclasses.field(
        default=None, metadata={"leaf": False, "own": True, "least": None, "choices": None, "help": help}
    )


@dataclass_transform(frozen_default=True, kw_only_default=True)
def hyperparameters(cls: type[T]) -> type[T]:
    """Make a frozen dataclass whose numbers are pytree leaves; it refuses unknown names and invalid values.

    Every field needs an annotation and a default; a plain default is a `field` without limits. Raises ConfigError for
    a field of a type that has no text form, or without a default.
    """
    _declare_fields(cls)
    cls = dataclasses.dataclass(frozen=True, repr=False)(cls)
    if "__repr__" not in vars(cls):
        cls.__repr__ = _changed_settings  # type: ignore[method-assign]
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    leaves = tuple(f.name for f in fields if f.metadata["leaf"])
    rest = tuple(f.name for f in fields if not f.metadata["leaf"])
    _check_on_construction(cls, [f.name for f in fields])

    def flatten_with_keys(self: T) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        keyed = tuple((jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in leaves)
        return keyed, tuple(getattr(self, n) for n in rest)

    def unflatten(static_values: tuple[Any, ...], leaf_values: Iterable[Any]) -> T:
        # Without the constructor, unlike `jax.tree_util.register_dataclass`: it checks what users write, and JAX
        # rebuilds pytrees from tracers, None and placeholders.
        self = object.__new__(cls)
        for name, value in (*zip(leaves, leaf_values, strict=True), *zip(rest, static_values, strict=True)):
            object.__setattr__(self, name, value)
        return self

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten)
    return cls


def _changed_settings(self: Any) -> str:
    """The algorithm as it was written: its name, and the settings that differ from their defaults."""
    shown = []
    for field in dataclasses.fields(self):
        value = getattr(self, field.name)
        if value is not field.default and not (type(value) is type(field.default) and value == field.default):
            shown.append(f"{field.name}={getattr(value, '__name__', None) or repr(value)}")
    return f"{type(self).__name__}({', '.join(shown)})"


def _declare_fields(cls: type[Any]) -> None:
    """Replace plain defaults by declarations, and add to each declaration the type that its annotation names."""
    try:
        hints = get_type_hints(cls)
    except NameError as error:
        raise ConfigError(f"{cls.__name__}: an annotation is unknown: {error}", fix="import its type") from error
    for name in inspect.get_annotations(cls):
        hint = hints[name]
        if get_origin(hint) is ClassVar:
            continue
        default = cls.__dict__.get(name, dataclasses.MISSING)
        if default is dataclasses.MISSING:
            raise ConfigError(f"{cls.__name__}.{name} has no default", fix=f"write {name}: {_written(hint)} = ...")
        kind, optional = hint, False
        if get_origin(hint) in (Union, UnionType):
            kinds = [one for one in get_args(hint) if one is not NoneType]
            kind, optional = (kinds[0] if len(kinds) == 1 else hint), NoneType in get_args(hint)
        declared = default if isinstance(default, dataclasses.Field) else None
        if declared is None:
            if kind not in STATIC_KINDS and kind is not float:
                raise ConfigError(
                    f"{cls.__name__}.{name} has the type {_written(hint)}, which has no text form",
                    fix=(
                        "use float, int, bool, str, a tuple of int or of float, or tl.field(default, "
                        "choices={name: value})"
                    ),
                )
            declared = field(default)
        metadata = {**declared.metadata, "type": kind, "optional": optional}
        if "own" not in metadata and kind is float:
            if metadata["choices"] is not None:
                raise ConfigError(f"{cls.__name__}.{name}: choices of a float", "none", "annotate it as its function")
            least, most = (metadata.pop(end) for end in ("least", "most"))
            ends = -math.inf if least is None else least, math.inf if most is None else most
            metadata["range"] = (*ends, metadata.pop("open_ends"))
        elif "own" not in metadata:
            if metadata.pop("most") is not None or metadata.pop("open_ends"):
                raise ConfigError(f"{cls.__name__}.{name}: most and open_ends", "a float", "annotate it as float")
            metadata["leaf"] = False
        setattr(cls, name, dataclasses.field(default=declared.default, metadata=metadata))


LARGEST_COUNT = 2**31 - 1  # counts and sizes fit into 32 bits in compiled programs
LARGEST_NUMBER: Any = 1e300
STATIC_KINDS: tuple[Any, ...] = (int, bool, str, tuple[int, ...], tuple[float, ...])


def _written(hint: Any) -> str:
    return getattr(hint, "__name__", str(hint)) if get_origin(hint) is None else str(hint)


def _check_on_construction(cls: type[Any], names: list[str]) -> None:
    original = cls.__init__

    def checking(self: Any, *args: Any, **kwargs: Any) -> None:
        if args:
            raise ConfigError(f"{cls.__name__} accepts keyword arguments only", fix=f"{cls.__name__}({names[0]}=...)")
        for name in kwargs:
            if name not in names:
                if RENAMED.get(name) in names:
                    raise ConfigError(f"{cls.__name__} has no hyper-parameter '{name}'", fix=f"write {RENAMED[name]}")
                raise unknown_name(cls.__name__, "hyper-parameter", name, names)
        original(self, **kwargs)
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, checked(cls.__name__, field, getattr(self, field.name)))
        getattr(self, "check", lambda: None)()

    cls.__init__ = checking


def checked(owner: str, field: dataclasses.Field[Any], value: Any) -> Any:
    """Return `value` in the field's type, or raise ConfigError with what was expected."""
    where = f"{owner}.{field.name} = {value!r}"
    if "range" in field.metadata:
        return _checked_number(where, field, value)
    if field.metadata.get("own"):
        if not (value is None or callable(value)):
            raise ConfigError(where, "a function or None", "pass a function")
        return value
    choices = field.metadata["choices"]
    if choices is not None:
        if isinstance(value, str) and value not in choices:
            raise ConfigError(f"{where}: {nearest(value, choices)}")
        if not isinstance(value, str) and not callable(value):
            raise ConfigError(where, f"a function or one of {', '.join(choices)}", "use a name from this list")
        return choices[value] if isinstance(value, str) else value
    return _checked_static(where, field, value)


def _checked_number(where: str, field: dataclasses.Field[Any], value: Any) -> float | None:
    if value is None and field.metadata["optional"]:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ConfigError(where, "a number", "write it as in 0.5")
    try:
        number = float(value)
    except OverflowError:  # a whole number of more than 308 digits
        number = math.inf
    least, most, open_ends = field.metadata["range"]
    inside = least < number < most if open_ends else least <= number <= most
    if not (inside and -LARGEST_NUMBER <= number <= LARGEST_NUMBER):
        left, right = "()" if open_ends else "[]"
        raise ConfigError(where, f"a finite number in {left}{least:g}, {most:g}{right}")
    return number


def _checked_static(where: str, field: dataclasses.Field[Any], value: Any) -> Any:
    kind, least = field.metadata["type"], field.metadata["least"]
    if value is None and field.metadata["optional"]:
        return None
    if kind is bool and not isinstance(value, bool):
        raise ConfigError(where, "true or false")
    if kind is str and not isinstance(value, str):
        raise ConfigError(where, "text")
    if get_origin(kind) is tuple:
        return _checked_tuple(where, value, get_args(kind)[0], least == 0)
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if kind is int and whole and abs(value) > LARGEST_COUNT:
        raise ConfigError(where, f"at most {LARGEST_COUNT:,}")
    if kind is int and not (whole and (least is None or value >= least)):
        raise ConfigError(f"{where}: expected a whole number" + (f" of at least {least}" if least is not None else ""))
    return int(value) if kind is int else value


def _checked_tuple(where: str, value: Any, kind: type, may_be_empty: bool) -> tuple[Any, ...]:
    if may_be_empty and isinstance(value, tuple | list) and not value:
        return ()
    listed = value if isinstance(value, tuple | list) else ()
    whole = [isinstance(v, Integral) and not isinstance(v, bool) and int(v) > 0 for v in listed]
    fit = whole if kind is int else [isinstance(v, Real) and not isinstance(v, bool) for v in listed]
    if any(ok and abs(v) > LARGEST_COUNT for ok, v in zip(fit, listed, strict=True)):
        raise ConfigError(where, f"numbers of at most {LARGEST_COUNT:,}")
    if not listed or not all(fit):
        raise ConfigError(where, f"a list of {'positive whole ' if kind is int else ''}numbers")
    return tuple(kind(v) for v in listed)


def groups_of(cls: type[Any]) -> dict[str, list[Any]]:
    """Return the fields that have a text form by their groups: `MAIN` first, the others in the order of the fields."""
    groups: dict[str, list[Any]] = {MAIN: []}
    for field in dataclasses.fields(cls):
        if not field.metadata.get("own"):
            groups.setdefault(field.metadata["group"], []).append(field)
    return groups


def to_config(algorithm: Any) -> dict[str, Any]:
    """Return plain values by field name; a function without a name becomes `{"own": its name}`, which is write-only."""
    return {f.name: _plain(f, getattr(algorithm, f.name)) for f in dataclasses.fields(algorithm)}


def _plain(field: dataclasses.Field[Any], value: Any) -> Any:
    for name, choice in (field.metadata.get("choices") or {}).items():
        if choice is value:
            return name
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return list(value)
    if hasattr(value, "dtype"):
        return float(value)
    return {"own": getattr(value, "__name__", type(value).__name__)}


def from_config(cls: type[T], values: Mapping[str, Any]) -> T:
    """Rebuild hyper-parameters from `to_config`, also under the names of earlier versions.

    ConfigError for an unknown name, or where a function is needed.
    """
    known = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    values = renamed(values, known)
    for name, value in values.items():
        if name not in known:
            raise ConfigError(
                f"the saved settings have {cls.__name__}.{name} = {value!r}, but {cls.__name__} has no "
                f"hyper-parameter '{name}' in this version",
                fix="use the version that wrote them, or train again",
            )
        if isinstance(value, Mapping) and "own" in value:
            raise ConfigError(
                f"{cls.__name__}.{name} is '{value['own']}', your own function, and files cannot hold functions",
                fix=f"pass the algorithm again: resume(..., algorithm={cls.__name__}({name}=...))",
            )
    return cls(**values)


def same_program(algorithms: list[Any]) -> None:
    """Raise ConfigError unless the members of a population differ in numbers only."""
    first = algorithms[0]
    for other in algorithms[1:]:
        if type(other) is not type(first):
            raise ConfigError(
                f"a population needs one algorithm, but it has {type(first).__name__} and {type(other).__name__}",
                fix="train them as separate runs",
            )
        for field in dataclasses.fields(first):
            one, two = getattr(first, field.name), getattr(other, field.name)
            differs = (one is None) != (two is None) if field.metadata["leaf"] else one != two
            if differs:
                raise ConfigError(
                    f"members of a population can differ in numbers only, but {type(first).__name__}.{field.name} "
                    f"is {one!r} in one and {two!r} in another",
                    fix="train them as separate runs",
                )


def chosen_preset(owner: str, presets: Mapping[str, dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the values of a preset, or raise ConfigError with the nearest name."""
    if name not in presets:
        raise ConfigError(f"{owner} has no preset '{name}': {nearest(name, presets)}")
    return dict(presets[name])


# Hyper-parameters of several algorithms; each takes its default from the algorithm's page. Value learning:

discount = partial(
    field, least=0.0, most=1.0, help="discount per step, or per unit of elapsed time", group=MAIN, role="discount"
)
n_step = partial(field, least=1, help="rewards summed before bootstrapping", group="value")
num_critics = partial(field, least=1, help="size of the critic ensemble", group="value")
critic_loss = partial(field, choices=POINT_LOSSES, help="loss of a TD error", group="value")
inverse_temperature = partial(
    field,
    least=0.0,
    help="inverse temperature: multiplies the advantage; 0 clones the log",
    group=MAIN,
    role="inverse temperature",
)


# of target actions, in half ranges (Fujimoto et al. 2018)
policy_noise = partial(field, 0.2, least=0.0, help="standard deviation of the noise on target actions", group="value")
noise_clip = partial(field, 0.5, least=0.0, help="largest size of that noise", group="value")
policy_delay = partial(field, 2, least=1, help="critic updates per update of actor and targets", group="value")


def tau(default: float | None, of: str) -> Any:
    """The update rate of target networks."""
    return field(default, least=0.0, most=1.0, help=f"share of the gap that {of}", group="value")


def reward_scaling(default: str) -> Any:
    """The scaling of the log's rewards before training; with `return-deviation` their unit has no effect."""
    how = "scaling of the log's rewards before training"
    return field(REWARD_SCALINGS[default], choices=REWARD_SCALINGS, help=how, group="value", role="reward scaling")


# Optimisation and sampling:

batch_size = partial(field, least=1, help="samples of an update", group=MAIN)
schedule = partial(
    field, choices=SCHEDULES, help="factor on the learning rate over the run's progress", group="optimisation"
)
matmul_precision = partial(
    field,
    "float32",
    choices=PRODUCTS,
    help="factors of layers' products in training: float32, or rounded to bfloat16 (faster on some processors)",
    group="optimisation",
    role="precision",
)
priority_exponent = partial(
    field, least=0.0, most=1.0, help="prioritised sampling: 0 is uniform, 1 proportional", group="sampling"
)
priority_correction = partial(
    field, least=0.0, most=1.0, help="initial exponent of the importance weights; none: no weights", group="sampling"
)


debug_metrics = partial(
    field,
    help="more metrics: norms of gradients and networks, of IQL also a summary of each critic",
    group="optimisation",
)


def learning_rate(default: float, of: str = "all networks", group: str = "optimisation") -> Any:
    """The learning rate."""
    return field(default, least=0.0, help=f"learning rate of {of}", group=group, role="learning rate")


def optimiser(default: str) -> Any:
    """The optimiser."""
    return field(OPTIMISERS[default], choices=OPTIMISERS, help="optimiser of the updates", group="optimisation")


def gradient_clip(default: float | None, of: str) -> Any:
    """The limit of gradient clipping."""
    return field(default, least=0.0, open_ends=True, help=f"largest norm of {of}", group="optimisation")


# Networks and acting:

embedding = partial(field, least=1, help="embedding width of a categorical column", group="network")
picture_shift = partial(
    field, least=0, help="pixels by which pictures move at random in every update; 0: none", group="network"
)
convolutions = partial(field, choices=LAYERS, help="convolution layers for pictures", group="network")
picture_width = partial(field, least=1, help="features of a picture", group="network")
layer_norm = partial(field, help="layer normalisation in hidden layers", group="network")
dropout = partial(
    field, least=0.0, most=0.99, help="dropout rate in the actor's trunk during training", group="network"
)
actor_head = partial(field, choices=HEADS, help="distribution for continuous actions", group="network")
recurrent_size = partial(field, least=1, help="width of the recurrent unit in every network", group="recurrent")
window = partial(field, least=1, help="consecutive steps that a loss uses", group="recurrent")
burn_in = partial(field, least=0, help="steps before them that only update the recurrent state", group="recurrent")
epsilon = partial(field, least=0.0, most=1.0)


def activation(default: str) -> Any:
    """The activation of hidden layers."""
    return field(ACTIVATIONS[default], choices=ACTIVATIONS, help="activation of hidden layers", group="network")


def widths(default: tuple[int, ...], of: str, least: int = 1, group: str = MAIN) -> Any:
    """The widths of hidden layers; `least` 0 allows no hidden layer."""
    return field(default, least=least, help=f"widths of {of}", group=group, role="widths")


# Phasic policy gradients:

auxiliary_minibatch = partial(field, least=1, help="segments per auxiliary update")
reward_normalisation = partial(field, help="divide rewards by the deviation of returns", group="value")
reward_discount = partial(field, least=0.0, most=1.0, help="discount of those returns", group="value")
reward_clip = partial(field, least=0.0, open_ends=True, help="largest normalised reward", group="value")
observation_normalisation = partial(
    field, help="standardise numbers by their running mean and deviation; a saved policy keeps them", group="network"
)
value_normalisation = partial(field, help="learn values in units of the deviation of their targets", group="value")


policy_hidden = partial(field, (), least=0, help="widths of the policy's layers after the trunk", group="network")
value_hidden = partial(field, (), least=0, help="widths of each value's layers after the trunk", group="network")


def value_clip(default: float | None, of: str) -> Any:
    """The clip range of the value, in units of the value network."""
    return field(default, least=0.0, open_ends=True, help=f"clip range of {of}, in its own units")


def architecture(default: str) -> Any:
    """Which networks policy and value share."""
    return field(ARCHITECTURES[default], choices=ARCHITECTURES, help="networks of policy and value", group="network")
