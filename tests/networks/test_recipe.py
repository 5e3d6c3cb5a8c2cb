"""Networks as nodes of a recipe: custom parts are refused by name."""

import numpy as np
import pytest

from tidelog.errors import ExportError
from tidelog.networks import recipe
from tidelog.networks.actors import Actor
from tidelog.networks.layers import MLP, Linear
from tidelog.networks.pictures import Stack
from tidelog.recommend import networks

LAYER = Linear(np.zeros((2, 2), np.float32), np.zeros(2, np.float32))


class Custom:
    """A module of the user."""


def own_activation(x):
    return x


@pytest.mark.parametrize(
    ("node", "name"),
    [
        (lambda: recipe.mlp(MLP.create(np.random.default_rng(0), (2, 2), activation=own_activation)), "function"),
        (lambda: recipe._convolution(LAYER, Stack(8)), "Linear"),
        (lambda: recipe.network(Custom()), "Custom"),
        (lambda: recipe.imitator(Custom()), "Custom"),
        (lambda: recipe.imitator(Actor(None, None, Custom())), "Actor"),
        (lambda: recipe.likely(Custom()), "Custom"),
        (lambda: recipe.likely(Actor(None, MLP.create(np.random.default_rng(0), (2, 2)), Custom())), "Custom"),
        (lambda: networks._body(Custom()), "Custom"),
    ],
)
def test_a_custom_module_is_refused_by_name(monkeypatch, node, name):
    monkeypatch.setattr(recipe, "encoder", lambda part: {})
    expected = rf"^{name} is a custom module; only the JAX runtime can run it.* fix: use the networks of tidelog$"
    with pytest.raises(ExportError, match=expected):
        node()


def test_an_array_of_a_recipe_belongs_to_the_policy():
    owner = {"weight": np.zeros(2)}
    assert recipe.named([owner], owner) == [{"weight": {"array": "['weight']"}}]
    with pytest.raises(ExportError, match=r"an array outside policy_params\. fix: add it to policy_params\(\)"):
        recipe.named({"weight": np.zeros(2)}, owner)
