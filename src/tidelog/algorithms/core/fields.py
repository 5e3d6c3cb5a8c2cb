"""Hyper-parameters that several pages have: ranges and help, written once; defaults stay on the pages."""

from __future__ import annotations

from typing import Any

from tidelog.algorithms.core.hyperparameters import number, static
from tidelog.algorithms.core.optimisation import OPTIMISERS, SCHEDULES, Schedule
from tidelog.data.scaling import REWARD_SCALINGS
from tidelog.losses.td import POINT_LOSSES, PointLoss
from tidelog.networks.actor import HEADS, HeadFactory
from tidelog.networks.convolution import LAYERS, Layers

# Values.


def discount(default: float) -> Any:
    """The factor on rewards one step later."""
    return number(default, least=0.0, most=1.0)


def n_step(default: int) -> Any:
    """How many rewards are summed."""
    return static(default, least=1, help="rewards summed before bootstrapping")


def critics(default: int) -> Any:
    """How many critics there are."""
    return static(default, least=1, help="size of the critic ensemble")


def critic_loss(default: PointLoss) -> Any:
    """What is made of a TD error."""
    return static(default, choices=POINT_LOSSES)


def target_rate(default: float | None, of: str) -> Any:
    """How fast targets follow."""
    return number(default, least=0.0, most=1.0, help=f"share of the gap that {of}")


def reward_scaling(default: str) -> Any:
    """What is made of the log's rewards before training."""
    return static(REWARD_SCALINGS[default], choices=REWARD_SCALINGS)


# Descent.


def batch_size(default: int) -> Any:
    """How many samples an update reads."""
    return static(default, least=1)


def learning_rate(default: float) -> Any:
    """The length of a step."""
    return number(default, least=0.0)


def schedule(default: Schedule) -> Any:
    """How a rate changes over the run."""
    return static(default, choices=SCHEDULES, help="factor on the rate, over the run's progress")


def optimiser(default: str) -> Any:
    """What makes the direction of a step."""
    return static(OPTIMISERS[default], choices=OPTIMISERS, help="makes the direction of a step")


def gradient_clip(default: float | None, of: str) -> Any:
    """Where a gradient is cut."""
    return number(default, least=0.0, open_ends=True, help=f"largest norm of {of}")


def priority_exponent(default: float | None) -> Any:
    """How far samples are drawn by priority."""
    return number(default, least=0.0, most=1.0, help="prioritised sampling: 0 is uniform, 1 proportional")


def priority_correction(default: float) -> Any:
    """How far importance weights make up for that, at the beginning."""
    return number(default, least=0.0, most=1.0, help="where the importance exponent begins")


# Networks.


def widths(default: tuple[int, ...], of: str, least: int = 1) -> Any:
    """The widths of hidden layers; with `least` 0 there may be none."""
    return static(default, least=least, help=f"widths of {of}")


def embedding(default: int) -> Any:
    """How a categorical column becomes numbers."""
    return static(default, least=1, help="width of a categorical column's table")


def convolutions(default: Layers) -> Any:
    """How pictures become numbers."""
    return static(default, choices=LAYERS, help="layers that look at pictures")


def picture_width(default: int) -> Any:
    """How many numbers a picture becomes."""
    return static(default, least=1, help="features that are made of a picture")


def recurrent_size(default: int | None) -> Any:
    """Whether networks remember, and how much."""
    return static(default, least=1, help="width of a recurrent unit in every network")


def window(default: int) -> Any:
    """How many steps a loss is about."""
    return static(default, least=1, help="with a memory: steps in a row that a loss is about")


def burn_in(default: int) -> Any:
    """How many steps come before them."""
    return static(default, least=0, help="with a memory: steps before them that only warm it up")


def layer_norm(default: bool) -> Any:
    """Whether hidden layers are normalised."""
    return static(default)


def dropout(default: float | None) -> Any:
    """How much of a trunk is silenced."""
    return number(default, least=0.0, most=0.99, help="in the actor's trunk, while training")


def actor_head(default: HeadFactory) -> Any:
    """Which distribution an actor of continuous actions makes."""
    return static(default, choices=HEADS, help="for continuous actions")


def epsilon(default: float | None, help: str) -> Any:
    """How often acting is left to chance."""
    return number(default, least=0.0, most=1.0, help=help)
