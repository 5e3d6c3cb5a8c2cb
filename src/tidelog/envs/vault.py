"""The built-in problem of pictures: two keys, one door, and a reward that comes long after the choice that earned it.

A picture of 16 by 16 shows 8 by 8 cells. In the room on the left lie a red and a blue key, each in one of three niches,
and somewhere stands the agent (white). The door to the room on the right is red or blue; it lets through whoever holds
the key of its colour. The first key that is stepped on is taken, the other vanishes, and with the wrong one the door
stays shut for good. Entering the goal (green) earns 1 and ends the episode; nothing else earns anything, and after 64
steps the clock ends it. So what the door's colour says is worth something only many steps later.

Moves never fail: from each start the best value is `discount ** (steps - 1)` for the fewest steps. At discount 1 a
policy's value is its share of episodes that reach the goal: 1 for the best. All values are exact (`Tabular`).
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.envs.tabular import Tabular, View
from tidelog.types import Image

SIDE, PIXELS, LIMIT = 8, 2, 64  # cells, pixels a cell, steps
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
NICHES = ((1, 1), (6, 1), (1, 3))
WALL, DOOR, GOAL = 4, (4, 4), (4, 6)  # the column of the wall between the rooms
RED, BLUE, NOTHING = 0, 1, -1

_FLOOR, _STONE, _AGENT, _GREEN = (0, 0, 0), (96, 96, 96), (255, 255, 255), (0, 200, 0)
_COLOURS = ((230, 0, 0), (0, 60, 255))
_ROOM = tuple(itertools.product(range(1, SIDE - 1), range(1, WALL)))

Cell = tuple[int, int]


class Scene(NamedTuple):
    """What there is: where the agent stands, the door's colour, the red and the blue key's niches, the key held."""

    cell: Cell
    door: int
    keys: tuple[Cell, ...]  # empty once one is taken
    held: int = NOTHING


@cache
def vault() -> Tabular:
    """The problem; its last state is final (the goal), its leaf "observation" the picture `[16, 16, 3]` uint8."""
    found = _reachable()
    place = {scene: i for i, scene in enumerate(found)}
    states, goal = len(found) + 1, len(found)
    transition = np.zeros((states, len(MOVES), states))
    for scene, action in itertools.product(found, range(len(MOVES))):
        moved = after(scene, action)
        transition[place[scene], action, goal if moved.cell == GOAL else place[moved]] = 1.0
    transition[goal, :, goal] = 1.0
    reward = transition[:, :, goal].copy()
    initial = np.zeros(states)
    initial[[place[scene] for scene in starts()]] = 1.0 / len(starts())
    pictures = np.stack([*map(picture, found), np.zeros((SIDE * PIXELS, SIDE * PIXELS, 3), np.uint8)])
    views = {"observation": View(Image(*pictures.shape[1:]), pictures)}
    final = np.arange(states) == goal
    return Tabular(transition, reward, initial, final, LIMIT, None, "vault", tuple(MOVES), views)


def starts() -> list[Scene]:
    """The scenes in which an episode begins, all equally likely."""
    arranged = itertools.product((RED, BLUE), itertools.permutations(NICHES, 2))
    return [Scene(cell, door, keys) for door, keys in arranged for cell in _ROOM if cell not in keys]


def after(scene: Scene, action: int) -> Scene:
    """The scene after a move; walls and a door that stays shut hold the agent where it is."""
    down, right = list(MOVES.values())[action]
    cell = (scene.cell[0] + down, scene.cell[1] + right)
    if not _open(cell, scene):
        return scene
    if cell in scene.keys:
        return Scene(cell, scene.door, (), scene.keys.index(cell))
    return scene._replace(cell=cell)


def picture(scene: Scene) -> NDArray[np.uint8]:
    """`[16, 16, 3]`; a key that is held colours half of the agent."""
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
    """All scenes from which an episode goes on, those of starts first."""
    found = dict.fromkeys(starts())
    edge = list(found)
    while edge:
        moved = [after(scene, action) for scene in edge for action in range(len(MOVES))]
        edge = [scene for scene in dict.fromkeys(moved) if scene not in found and scene.cell != GOAL]
        found |= dict.fromkeys(edge)
    return list(found)
