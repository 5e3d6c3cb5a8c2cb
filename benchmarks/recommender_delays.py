"""Where Q helps a recommender: users whose clicks on loud items cost visits 1, 3 or 8 steps later, or never.

Three loud items have the highest click probabilities, three fair ones lower ones, two quiet ones hardly any. A clicked
loud item makes the user leave more often, after exactly `delay` more steps; the reward is 1 for a click, so a value is
the number of clicks of a visit. Without that cost the likeliest click is the best item, and Q has nothing to add. The
values of the logger and of the best policies come from dynamic programming; a learnt policy reads a history, not the
state, and is played for `PLAYED` visits.

For each delay and seed: one log, one training. Its last tenth of the time is held out and chooses the weight of Q, as
in every training ("chosen weight"); "Q alone" is the same policy with `q_weight` set to `ALONE`, as someone sets it who
knows that rewards come late. Settings were chosen on seeds from 100 on; they are the same for every delay.

`python -m benchmarks recommender_delays [SEED ...]`
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import polars as pl

import tidelog as tl
from benchmarks.keep import keep, seed_interval
from benchmarks.recommender import shown_first
from tidelog.envs.tabular import Tabular
from tidelog.recommend.ranking import ranker as ranker_of

COMMAND = "python -m benchmarks recommender_delays"
DELAYS = (0, 1, 3, 8)  # steps until a clicked loud item has its cost; 0: none
CLICKS = np.array([0.8, 0.75, 0.7, 0.55, 0.5, 0.45, 0.15, 0.1])
LOUD = np.arange(len(CLICKS)) < 3
ITEMS = ("loud 1", "loud 2", "loud 3", "fair 1", "fair 2", "fair 3", "quiet 1", "quiet 2")
EVENTS = ("shown", "clicked")
LEAVES, LEAVES_AFTER = 0.05, 0.35  # after a step; after the step in which the cost of a loud item comes
SHARPNESS, ERRATIC = 4.0, 0.3
VISITS, PLAYED, STEPS, SEEDS, LENGTH, LIMIT = 10_000, 4_000, 4_000, 5, 50, 150
ALONE = 10.0
SETTINGS: dict[str, Any] = {
    "history": 12, "memory": 0, "size": 24, "candidates": 8, "hidden": (64, 64), "threshold": 0.1,
    "pretrain_share": 0.3, "joint": False, "tau": 0.01,
}  # fmt: skip


def moves(state: Any, item: Any, clicked: Any, delay: int) -> tuple[Any, Any]:
    """Return the loud clicks of the last `delay` steps, as bits, after a step, and the probability to leave then."""
    if not delay:
        return state, np.full(np.shape(state), LEAVES)
    due = (state >> (delay - 1)) & 1
    return ((state << 1) | (LOUD[item] & clicked)) & ((1 << delay) - 1), np.where(due, LEAVES_AFTER, LEAVES)


def problem(delay: int) -> Tabular:
    """Return the problem; a state is the loud clicks of the last `delay` steps, the last two states are final."""
    live = 1 << delay
    transition = np.zeros((live + 1, len(ITEMS), live + 1))
    state, item = np.meshgrid(np.arange(live), np.arange(len(ITEMS)), indexing="ij")
    for clicked, chance in ((1, CLICKS), (0, 1.0 - CLICKS)):
        following, leaves = moves(state, item, np.full(state.shape, clicked), delay)
        np.add.at(transition, (state, item, following), chance * (1.0 - leaves))
        transition[:live, :, live] += chance * leaves
    transition[live, :, live] = 1.0
    reward = np.tile(CLICKS, (live + 1, 1))
    reward[live] = 0.0
    return Tabular(transition, reward, np.eye(live + 1)[0], np.arange(live + 1) == live, name=f"delay {delay}")


def editor() -> Any:
    """Return the probabilities of the logging policy, the same in every state: mostly items that are often clicked."""
    liked = np.exp(SHARPNESS * CLICKS)
    return (1.0 - ERRATIC) * liked / liked.sum() + ERRATIC / len(CLICKS)


def visits(delay: int, act: Any, users: int, seed: int) -> dict[str, Any]:
    """Simulate visits under a policy of histories and events [B, LENGTH]: columns of events, in order."""
    generator = np.random.default_rng(seed)
    items, kinds = np.zeros((2, users, LENGTH + LIMIT), np.int32)
    chances = np.zeros((users, LIMIT))
    live, state = np.arange(users), np.zeros(users, np.int64)
    for step in range(LIMIT):
        window = slice(step, step + LENGTH)
        offered = act(items[live, window], kinds[live, window])
        item = np.minimum((generator.random((len(live), 1)) > offered.cumsum(1)).sum(1), len(ITEMS) - 1)
        clicked = (generator.random(len(live)) < CLICKS[item]).astype(np.int64)
        items[live, LENGTH + step], kinds[live, LENGTH + step] = item + 1, clicked + 1
        chances[live, step] = offered[np.arange(len(live)), item]
        state, leaves = moves(state, item, clicked, delay)
        stays = generator.random(len(live)) >= leaves
        live, state = live[stays], state[stays]
        if not len(live):
            break
    user, place = np.nonzero(items[:, LENGTH:])
    event = kinds[:, LENGTH:][user, place]
    return {
        "user": user, "time": user * 2.0 * LIMIT + place, "item": items[:, LENGTH:][user, place], "event": event,
        "reward": event - 1.0, "chance": chances[user, place],
    }  # fmt: skip


def logged(delay: int, seed: int) -> Any:
    """Return a log of the editor's."""
    seen = visits(delay, lambda items, _: np.tile(editor(), (len(items), 1)), VISITS, 1_000 + seed)
    seen |= {"item": np.array(ITEMS)[seen["item"] - 1], "event": np.array(EVENTS)[seen["event"] - 1]}
    return tl.read_interactions(
        pl.DataFrame(seen), user="user", item="item", time="time", event="event", reward="reward", session_gap=1.5,
        propensity="chance",
    )  # fmt: skip


def clicks(delay: int, ranker: Any, log: Any, seed: int) -> float:
    """Return the clicks of a visit, over `PLAYED` visits, where the first item of a ranker's list is shown."""
    act = shown_first(ranker, log, ITEMS, EVENTS)
    return float(visits(delay, act, PLAYED, 2_000 + seed)["reward"].sum() / PLAYED)


def one(delay: int, seed: int) -> dict[str, Any]:
    """Return the clicks of what is learnt from one log, and the weight of Q that the held-out period chooses."""
    log = logged(delay, seed)
    policy = tl.fit(
        tl.RecommenderBCQ(**SETTINGS), log, steps=STEPS, seeds=[seed], held_out=0.1, eval_every=STEPS
    ).policy()
    weight = float(policy.params.weight)
    alone = ranker_of(policy.algorithm, policy.params._replace(weight=jnp.float32(ALONE)))
    reader = clicks(delay, policy.ranker(supervised=True), log, seed)
    found = {
        "reader alone": reader,
        "chosen weight": clicks(delay, policy.ranker(), log, seed) if weight else reader,
        "Q alone": clicks(delay, alone, log, seed),
    }
    print(delay, seed, weight, found, flush=True)
    return {"delay": delay, "seed": seed, "weight": weight, "clicks": found}


def exact(delay: int) -> dict[str, float]:
    """Return the exact values of the logger, of the likeliest click and of the best policies."""
    world, logger = problem(delay), editor()
    policy = np.tile(logger, (world.states, 1))
    allowed = np.tile(logger >= SETTINGS["threshold"] * logger.max(), (world.states, 1))
    return {
        "logger": world.value_of(policy),
        "likeliest click": world.value_of(np.zeros(world.states, np.int64)),
        "best within support": world.optimal(allowed=allowed)[0],
        "optimal": world.optimal()[0],
    }


def study(*chosen: int) -> None:
    """Measure every delay with these seeds, or all, and keep the results."""
    seeds = chosen or tuple(range(SEEDS))
    rows = [one(delay, seed) for seed in seeds for delay in DELAYS]
    found = {}
    for delay in DELAYS:
        same = [row for row in rows if row["delay"] == delay]
        values = {name: np.array([row["clicks"][name] for row in same]) for name in same[0]["clicks"]}
        minus = {f"{name} minus reader alone": values[name] - values["reader alone"] for name in list(values)[1:]}
        found[str(delay)] = {
            "exact": exact(delay),
            "intervals": {name: list(seed_interval(each.tolist())) for name, each in (values | minus).items()},
            "weights": [row["weight"] for row in same],
        }
    content = {
        "visits": VISITS, "played": PLAYED, "steps": STEPS, "alone": ALONE, "seeds": len(seeds), "settings": SETTINGS,
        "delays": found,
    }  # fmt: skip
    keep("recommender_delays", COMMAND, content, rows=rows)
