"""Hyper-parameters of several algorithms: their ranges and help; the defaults are in the algorithm pages."""

from __future__ import annotations

from typing import Any

from tidelog.algorithms.core.hyperparameters import number, static
from tidelog.algorithms.core.optimisation import OPTIMISERS, SCHEDULES, Schedule
from tidelog.data.scaling import REWARD_SCALINGS
from tidelog.losses.td import POINT_LOSSES, PointLoss
from tidelog.networks.actor import HEADS, HeadFactory
from tidelog.networks.convolution import LAYERS, Layers

# Value learning.


def discount(default: float) -> Any:
    """The discount per step."""
    return number(default, least=0.0, most=1.0, role="discount")


def n_step(default: int) -> Any:
    """The number of rewards in an n-step return."""
    return static(default, least=1, help="rewards summed before bootstrapping")


def critics(default: int) -> Any:
    """The number of critics."""
    return static(default, least=1, help="size of the critic ensemble")


def critic_loss(default: PointLoss) -> Any:
    """The loss of a TD error."""
    return static(default, choices=POINT_LOSSES)


def target_rate(default: float | None, of: str) -> Any:
    """The update rate of target networks."""
    return number(default, least=0.0, most=1.0, help=f"share of the gap that {of}")


def reward_scaling(default: str) -> Any:
    """The scaling of the log's rewards before training."""
    return static(REWARD_SCALINGS[default], choices=REWARD_SCALINGS)


def inverse_temperature(default: float) -> Any:
    """The factor on advantages whose exponentials weigh the logged actions."""
    return number(
        default,
        least=0.0,
        help="inverse temperature: multiplies the advantage; 0 clones the log",
        role="inverse temperature",
    )


# Optimisation.


def batch_size(default: int) -> Any:
    """The number of samples of an update."""
    return static(default, least=1)


def learning_rate(default: float) -> Any:
    """The learning rate."""
    return number(default, least=0.0, role="learning rate")


def schedule(default: Schedule) -> Any:
    """The schedule of the learning rate over the run."""
    return static(default, choices=SCHEDULES, help="factor on the learning rate over the run's progress")


def optimiser(default: str) -> Any:
    """The optimiser."""
    return static(OPTIMISERS[default], choices=OPTIMISERS, help="optimiser of the updates")


def gradient_clip(default: float | None, of: str) -> Any:
    """The limit of gradient clipping."""
    return number(default, least=0.0, open_ends=True, help=f"largest norm of {of}")


def priority_exponent(default: float | None) -> Any:
    """The exponent of prioritised sampling."""
    return number(default, least=0.0, most=1.0, help="prioritised sampling: 0 is uniform, 1 proportional")


def priority_correction(default: float) -> Any:
    """The initial exponent of the importance weights of prioritised sampling."""
    return number(default, least=0.0, most=1.0, help="initial exponent of the importance weights")


# Networks.


def widths(default: tuple[int, ...], of: str, least: int = 1) -> Any:
    """The widths of hidden layers; `least` 0 allows no hidden layer."""
    return static(default, least=least, help=f"widths of {of}", role="widths")


def embedding(default: int) -> Any:
    """The embedding width of a categorical column."""
    return static(default, least=1, help="embedding width of a categorical column")


def convolutions(default: Layers) -> Any:
    """The convolution layers for pictures."""
    return static(default, choices=LAYERS, help="convolution layers for pictures")


def picture_width(default: int) -> Any:
    """The number of features of a picture."""
    return static(default, least=1, help="features of a picture")


def recurrent_size(default: int | None) -> Any:
    """The width of the recurrent unit, or None for feed-forward networks."""
    return static(default, least=1, help="width of the recurrent unit in every network")


def window(default: int) -> Any:
    """The number of steps that a loss uses."""
    return static(default, least=1, help="recurrent networks: consecutive steps that a loss uses")


def burn_in(default: int) -> Any:
    """The number of burn-in steps before the window."""
    return static(default, least=0, help="recurrent networks: steps before them that only update the recurrent state")


def layer_norm(default: bool) -> Any:
    """Whether hidden layers use layer normalisation."""
    return static(default)


def dropout(default: float | None) -> Any:
    """The dropout rate."""
    return number(default, least=0.0, most=0.99, help="dropout rate in the actor's trunk during training")


def actor_head(default: HeadFactory) -> Any:
    """The distribution of an actor of continuous actions."""
    return static(default, choices=HEADS, help="distribution for continuous actions")


def epsilon(default: float | None, help: str) -> Any:
    """The probability of random acting."""
    return number(default, least=0.0, most=1.0, help=help)
