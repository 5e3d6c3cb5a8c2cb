"""The recommender's networks as nodes of a recipe (`tidelog/networks/recipe.py`)."""

from __future__ import annotations

from typing import Any

from tidelog.networks.recipe import Node, foreign, gru, linear, mlp, norm
from tidelog.recommend.networks.catalogue import Pair, Table
from tidelog.recommend.networks.sequence import Attention, Block, Mean, Reader, Recurrent


def catalogue(table: Table, features: Any) -> Node:
    """Return the node of item vectors; `features` [N + 1, F] where a tower reads them, else None."""
    tower = None if table.tower is None else mlp(table.tower)
    return {"kind": "catalogue", "weight": table.weight, "bias": table.bias, "tower": tower, "features": features}


def reader(part: Reader) -> Node:
    """Return the node of a history encoder."""
    node = {"kind": "reader", "events": part.events, "empty": part.empty, "about": part.about}
    return {**node, "body": _body(part.body), "norm": norm(part.norm)}


def _body(part: Any) -> Node:
    if isinstance(part, Mean):
        return {"kind": "mean", "linear": linear(part.layer)}
    if isinstance(part, Recurrent):
        return {"kind": "recurrent", "unit": gru(part.unit), "linear": linear(part.layer)}
    if isinstance(part, Attention):
        return {"kind": "attention", "positions": part.positions, "blocks": [_block(block) for block in part.blocks]}
    raise foreign(part)


def _block(part: Block) -> Node:
    layers = {name: linear(getattr(part, name)) for name in ("queries", "keys", "values", "out", "wide", "narrow")}
    norms = {"before": norm(part.before), "between": norm(part.between)}
    return {"kind": "attending", **layers, **norms, "heads": part.heads}


def pair(part: Pair) -> Node:
    """Return the node of a network of a state and an item's vector."""
    return {"kind": "pair", "state": linear(part.state), "item": linear(part.item), "body": mlp(part.body)}
