"""Hyper-parameters of several algorithms: ranges, help and groups; the defaults are in the algorithm pages."""

from __future__ import annotations

from typing import Any

from tidelog.algorithms.hyperparameters import MAIN, field
from tidelog.algorithms.optimisation import OPTIMISERS, SCHEDULES, Schedule
from tidelog.data.statistics import REWARD_SCALINGS
from tidelog.losses.td import POINT_LOSSES, PointLoss
from tidelog.networks.actors import HEADS, HeadFactory
from tidelog.networks.layers import PRODUCTS
from tidelog.networks.phasic import ARCHITECTURES
from tidelog.networks.pictures import LAYERS, Layers

# Value learning.


def discount(default: float) -> Any:
    """The discount per step."""
    return field(default, least=0.0, most=1.0, help="discount per step", group=MAIN, role="discount")


def n_step(default: int) -> Any:
    """The number of rewards in an n-step return."""
    return field(default, least=1, help="rewards summed before bootstrapping", group="value")


def num_critics(default: int) -> Any:
    """The number of critics."""
    return field(default, least=1, help="size of the critic ensemble", group="value")


def critic_loss(default: PointLoss) -> Any:
    """The loss of a TD error."""
    return field(default, choices=POINT_LOSSES, help="loss of a TD error", group="value")


def tau(default: float | None, of: str) -> Any:
    """The update rate of target networks."""
    return field(default, least=0.0, most=1.0, help=f"share of the gap that {of}", group="value")


def reward_scaling(default: str) -> Any:
    """The scaling of the log's rewards before training; with `return-deviation` their unit has no effect."""
    how = "scaling of the log's rewards before training"
    return field(REWARD_SCALINGS[default], choices=REWARD_SCALINGS, help=how, group="value", role="reward scaling")


def inverse_temperature(default: float) -> Any:
    """The factor on advantages whose exponentials weigh the logged actions."""
    return field(
        default,
        least=0.0,
        help="inverse temperature: multiplies the advantage; 0 clones the log",
        group=MAIN,
        role="inverse temperature",
    )


# Optimisation.


def batch_size(default: int) -> Any:
    """The number of samples of an update."""
    return field(default, least=1, help="samples of an update", group=MAIN)


def learning_rate(default: float, of: str = "all networks", group: str = "optimisation") -> Any:
    """The learning rate."""
    return field(default, least=0.0, help=f"learning rate of {of}", group=group, role="learning rate")


def schedule(default: Schedule) -> Any:
    """The schedule of the learning rate over the run."""
    how = "factor on the learning rate over the run's progress"
    return field(default, choices=SCHEDULES, help=how, group="optimisation")


def optimiser(default: str) -> Any:
    """The optimiser."""
    return field(OPTIMISERS[default], choices=OPTIMISERS, help="optimiser of the updates", group="optimisation")


def matmul_precision() -> Any:
    """The type of the factors of layers' matrix products while training."""
    how = "factors of layers' products in training: float32, or rounded to bfloat16 (faster on some processors)"
    return field("float32", choices=PRODUCTS, help=how, group="optimisation")


def gradient_clip(default: float | None, of: str) -> Any:
    """The limit of gradient clipping."""
    return field(default, least=0.0, open_ends=True, help=f"largest norm of {of}", group="optimisation")


def priority_exponent(default: float | None) -> Any:
    """The exponent of prioritised sampling."""
    return field(
        default, least=0.0, most=1.0, help="prioritised sampling: 0 is uniform, 1 proportional", group="sampling"
    )


def priority_correction(default: float) -> Any:
    """The initial exponent of the importance weights of prioritised sampling."""
    return field(default, least=0.0, most=1.0, help="initial exponent of the importance weights", group="sampling")


# Networks.


def widths(default: tuple[int, ...], of: str, least: int = 1, group: str = MAIN) -> Any:
    """The widths of hidden layers; `least` 0 allows no hidden layer."""
    return field(default, least=least, help=f"widths of {of}", group=group, role="widths")


def embedding(default: int) -> Any:
    """The embedding width of a categorical column."""
    return field(default, least=1, help="embedding width of a categorical column", group="network")


def convolutions(default: Layers) -> Any:
    """The convolution layers for pictures."""
    return field(default, choices=LAYERS, help="convolution layers for pictures", group="network")


def picture_width(default: int) -> Any:
    """The number of features of a picture."""
    return field(default, least=1, help="features of a picture", group="network")


def recurrent_size(default: int | None) -> Any:
    """The width of the recurrent unit, or None for feed-forward networks."""
    return field(default, least=1, help="width of the recurrent unit in every network", group="recurrent")


def window(default: int) -> Any:
    """The number of steps that a loss uses."""
    return field(default, least=1, help="consecutive steps that a loss uses", group="recurrent")


def burn_in(default: int) -> Any:
    """The number of burn-in steps before the window."""
    how = "steps before them that only update the recurrent state"
    return field(default, least=0, help=how, group="recurrent")


def layer_norm(default: bool) -> Any:
    """Whether hidden layers use layer normalisation."""
    return field(default, help="layer normalisation in hidden layers", group="network")


def dropout(default: float | None) -> Any:
    """The dropout rate."""
    how = "dropout rate in the actor's trunk during training"
    return field(default, least=0.0, most=0.99, help=how, group="network")


def actor_head(default: HeadFactory) -> Any:
    """The distribution of an actor of continuous actions."""
    return field(default, choices=HEADS, help="distribution for continuous actions", group="network")


def epsilon(default: float | None, help: str) -> Any:
    """The probability of random acting."""
    return field(default, least=0.0, most=1.0, help=help)


# Phasic policy gradients.


def auxiliary_minibatch(default: int) -> Any:
    """The number of segments of an auxiliary update."""
    return field(default, least=1, help="segments per auxiliary update")


def reward_normalisation(default: bool) -> Any:
    """Whether rewards are divided by the deviation of returns."""
    return field(default, help="divide rewards by the deviation of returns", group="value")


def reward_discount(default: float) -> Any:
    """The discount of the returns whose deviation divides rewards."""
    return field(default, least=0.0, most=1.0, help="discount of those returns", group="value")


def reward_clip(default: float) -> Any:
    """The limit of normalised rewards."""
    return field(default, least=0.0, open_ends=True, help="largest normalised reward", group="value")


def value_normalisation(default: bool) -> Any:
    """Whether values are learnt in units of the deviation of their targets."""
    return field(default, help="learn values in units of the deviation of their targets", group="value")


def architecture(default: str) -> Any:
    """Which networks policy and value share."""
    return field(ARCHITECTURES[default], choices=ARCHITECTURES, help="networks of policy and value", group="network")
