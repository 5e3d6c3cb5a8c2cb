"""A problem of images: two keys, one door, and a reward that comes many steps after the choice that causes it.

An image of 16 by 16 pixels shows 8 by 8 cells. The left room has a red and a blue key, each in one of three niches,
and the agent (white). The door to the right room is red or blue; it opens only for the agent with the key of its
colour. The first key that the agent steps on is picked up and the other disappears; with the wrong key the door stays
closed. Entering the goal (green) has reward 1 and ends the episode; there is no other reward, and after 64
steps the episode is truncated. The colour of the door affects the reward only many steps later.

Moves never fail: the best value of each start is `discount ** (steps - 1)` for the fewest steps. At discount 1 a
policy's value is its share of episodes that reach the goal, at best 1. All values are exact (`Tabular`).
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.envs.tabular import Tabular, View
from tidelog.types import Image

SIDE, PIXELS, LIMIT = 8, 2, 64  # cells, pixels per cell, steps
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
NICHES = ((1, 1), (6, 1), (1, 3))
WALL, DOOR, GOAL = 4, (4, 4), (4, 6)  # the column of the wall between the rooms
RED, BLUE, NOTHING = 0, 1, -1

_FLOOR, _STONE, _AGENT, _GREEN = (0, 0, 0), (96, 96, 96), (255, 255, 255), (0, 200, 0)
_COLOURS = ((230, 0, 0), (0, 60, 255))
_ROOM = tuple(itertools.product(range(1, SIDE - 1), range(1, WALL)))

Cell = tuple[int, int]


class Scene(NamedTuple):
    """The state: the agent's cell, the door's colour, the niches of the red and the blue key, the key held."""

    cell: Cell
    door: int
    keys: tuple[Cell, ...]  # empty after one is picked up
    held: int = NOTHING


@cache
def vault() -> Tabular:
    """The problem; its last state is final (the goal), its leaf "observation" is the image `[16, 16, 3]` uint8."""
    scenes = _reachable()
    place = {scene: i for i, scene in enumerate(scenes)}
    states, goal = len(scenes) + 1, len(scenes)
    transition = np.zeros((states, len(MOVES), states))
    for scene, action in itertools.product(scenes, range(len(MOVES))):
        moved = after(scene, action)
        transition[place[scene], action, goal if moved.cell == GOAL else place[moved]] = 1.0
    transition[goal, :, goal] = 1.0
    reward = transition[:, :, goal].copy()
    initial = np.zeros(states)
    initial[[place[scene] for scene in starts()]] = 1.0 / len(starts())
    images = np.stack([*map(image, scenes), np.zeros((SIDE * PIXELS, SIDE * PIXELS, 3), np.uint8)])
    views = {"observation": View(Image(*images.shape[1:]), images)}
    final = np.arange(states) == goal
    return Tabular(transition, reward, initial, final, LIMIT, None, "vault", tuple(MOVES), views)


def starts() -> list[Scene]:
    """The scenes at the start of an episode, all equally likely."""
    arranged = itertools.product((RED, BLUE), itertools.permutations(NICHES, 2))
    return [Scene(cell, door, keys) for door, keys in arranged for cell in _ROOM if cell not in keys]


def after(scene: Scene, action: int) -> Scene:
    """The scene after a move; the agent stays at walls and at a closed door."""
    down, right = list(MOVES.values())[action]
    cell = (scene.cell[0] + down, scene.cell[1] + right)
    if not _open(cell, scene):
        return scene
    if cell in scene.keys:
        return Scene(cell, scene.door, (), scene.keys.index(cell))
    return scene._replace(cell=cell)


def image(scene: Scene) -> NDArray[np.uint8]:
    """The image `[16, 16, 3]` of a scene; the key held colours half of the agent."""
    cells = np.zeros((SIDE, SIDE, 3), np.uint8)
    cells[[0, -1]] = cells[:, [0, -1]] = cells[:, WALL] = _STONE
    cells[DOOR], cells[GOAL], cells[scene.cell] = _COLOURS[scene.door], _GREEN, _AGENT
    for colour, cell in enumerate(scene.keys):
        cells[cell] = _COLOURS[colour]
    pixels = cells.repeat(PIXELS, 0).repeat(PIXELS, 1)
    if scene.held != NOTHING:
        pixels[scene.cell[0] * PIXELS + 1, scene.cell[1] * PIXELS : (scene.cell[1] + 1) * PIXELS] = _COLOURS[scene.held]
    return pixels


def _open(cell: Cell, scene: Scene) -> bool:
    if cell == DOOR:
        return scene.held == scene.door
    return all(0 < side < SIDE - 1 for side in cell) and cell[1] != WALL


def _reachable() -> list[Scene]:
    """All non-final scenes, those of starts first."""
    scenes = dict.fromkeys(starts())
    edge = list(scenes)
    while edge:
        moved = [after(scene, action) for scene in edge for action in range(len(MOVES))]
        edge = [scene for scene in dict.fromkeys(moved) if scene not in scenes and scene.cell != GOAL]
        scenes |= dict.fromkeys(edge)
    return list(scenes)
