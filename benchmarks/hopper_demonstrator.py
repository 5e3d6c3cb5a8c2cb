"""A demonstrator for Hopper: a linear policy found by augmented random search, its 33 weights kept as a file.

Mania, Guy, Recht 2018, arXiv:1803.07055, version V2-t: steps along random directions of the weights, weighed by the
difference of two returns and divided by the spread of those used; observations are standardised by what was seen so
far; the bonus for staying alive is left out of returns while searching. The policy kept is the best of those met every
ten iterations, each judged by eight episodes on seeds that nothing else uses.
"""

import numpy as np

from benchmarks.keep import keep, kept

ENVIRONMENT, NAME = "Hopper-v5", "hopper_demonstrator"
COMMAND = "python -m benchmarks.hopper_demonstrator"
DIRECTIONS, USED, RATE, NOISE, ALIVE = 16, 8, 0.02, 0.03, 1.0
DECISIONS, JUDGED, PERIOD = 1_000_000, 8, 10


class Seen:
    """Running mean and spread of observations [O]."""

    def __init__(self, size: int) -> None:
        self.count, self.mean, self.squares = 0, np.zeros(size), np.zeros(size)

    def add(self, rows: np.ndarray) -> None:
        """Take in observations [N, O]."""
        total = self.count + len(rows)
        gap = rows.mean(axis=0) - self.mean
        self.squares += ((rows - rows.mean(axis=0)) ** 2).sum(axis=0) + gap**2 * self.count * len(rows) / total
        self.mean += gap * len(rows) / total
        self.count = total

    def spread(self) -> np.ndarray:
        """Standard deviation [O], never below a hundred-millionth."""
        return np.maximum(np.sqrt(self.squares / max(self.count, 1)), 1e-8) if self.count else np.ones(len(self.mean))


def episode(world, weights: np.ndarray, mean: np.ndarray, spread: np.ndarray, seed: int) -> tuple[float, np.ndarray]:
    """One episode: its return, and the observations that it met [T, O]."""
    observation, _ = world.reset(seed=seed)
    folded = weights / spread
    met, total, ended = [], 0.0, False
    while not ended:
        met.append(observation)
        action = np.clip(folded @ (observation - mean), -1.0, 1.0).astype(np.float32)
        observation, reward, terminated, truncated, _ = world.step(action)
        total += float(reward)
        ended = terminated or truncated
    return total, np.asarray(met)


def search(seed: int, decisions: int = DECISIONS, say=lambda *words: None) -> dict:
    """The best policy met: weights [A, O], mean and spread [O], and how it was judged."""
    import gymnasium

    world = gymnasium.make(ENVIRONMENT)
    size, actions = world.observation_space.shape[0], world.action_space.shape[0]
    random, seen = np.random.default_rng(seed), Seen(size)
    weights, taken, iteration = np.zeros((actions, size)), 0, 0
    best: dict = {"judged": -np.inf}
    while taken < decisions:
        mean, spread = seen.mean.copy(), seen.spread()
        directions = random.standard_normal((DIRECTIONS, *weights.shape))
        found = np.zeros((DIRECTIONS, 2))
        for i, direction in enumerate(directions):
            for side, sign in enumerate((1.0, -1.0)):
                start = int(random.integers(2**31))
                total, met = episode(world, weights + sign * NOISE * direction, mean, spread, start)
                found[i, side] = total - ALIVE * len(met)
                taken += len(met)
                seen.add(met)
        chosen = np.argsort(-found.max(axis=1), kind="stable")[:USED]
        slope = np.tensordot(found[chosen, 0] - found[chosen, 1], directions[chosen], 1) / USED
        weights = weights + RATE * slope / (found[chosen].std() + 1e-8)
        iteration += 1
        if iteration % PERIOD == 0:
            mean, spread = seen.mean.copy(), seen.spread()
            judged = float(np.mean([episode(world, weights, mean, spread, 10**6 + i)[0] for i in range(JUDGED)]))
            say(iteration, taken, f"{judged:.0f}", f"{found.mean():.0f}")
            if judged > best["judged"]:
                best = {"judged": judged, "taken": taken, "weights": weights, "mean": mean, "spread": spread}
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in best.items()}


def demonstrator():
    """The kept policy: observations [W, 11] to actions [W, 3] within the bounds."""
    found = kept(NAME)
    weights, mean, spread = (np.asarray(found[name]) for name in ("weights", "mean", "spread"))

    def act(observation: np.ndarray) -> np.ndarray:
        return np.clip((observation - mean) / spread @ weights.T, -1.0, 1.0).astype(np.float32)

    return act


if __name__ == "__main__":
    keep(NAME, COMMAND, {"environment": ENVIRONMENT, "seed": 0, "decisions": DECISIONS, **search(0, say=print)})
