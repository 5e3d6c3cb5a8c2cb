"""Worlds whose truth is known and in which a careless judge calls a policy better that is not, or worse that is not.

Each world draws logs of `n` episodes with NumPy alone and says by how much the policy differs from the behaviour
policy: a closed form, or a sum over everything that can happen. `WORLDS` is the registry; `cells` lists every world,
variant and size. A variant either must not be judged wrongly, or cannot be judged rightly by anybody who has only the
log. The verdict on such a log must say so in words: `words` names the regular expression in `WORDS` that its text must
match.

Letters: `N` rows, `n` episodes, `T` steps, `C` contexts, `U` hidden causes, `A` actions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.stats import binom, norm

import tidelog as tl
from benchmarks.problems import Floats, Table, drawn

WORDS = {  # what a verdict must say where the log cannot show it; tried on its paragraph and its reasons
    "history": r"(?i)markov|done (long )?(before|earlier|ago)|(earlier|past|previous) (decision|action)s?|history",
    "independence": r"(?i)independen|cluster|same (person|user|patient|customer|day)|identical rows|duplicate|repeated",
    "interference": r"(?i)independen|one another|each other|affects? (the )?other|interfere",
    "learnt": r"(?i)learn(t|ed) from these episodes",
    "looks": r"(?i)each look|used for a verdict|judged before|other polic(y|ies) (was|were)|candidate|multiple",
    "rare": r"(?i)rarer than|too rare|rare (harm|loss|gain|event|outcome)|never (happened|occurred|seen)|worst",
    "rare gain": r"(?i)rare gain beyond that, which the policy would give up",
    "rare harm": r"(?i)rare harm beyond that, which the policy would avoid",
    "hidden": r"(?i)unrecorded|not in the log|hidden cause|unobserved|confound",
    "propensities": r"(?i)recorded (probabilit|propensit)|propensit(y|ies) (are|is|were) (wrong|right|correct)|"
    r"confound|probabilities are wrong",
    "missing": r"(?i)(row|episode|decision|case)s? (that )?(are|were|is|was)? ?(missing|left out|not recorded)|"
    r"complete log|every (case|episode|decision) (was|is) (recorded|logged)",
    "cut": r"(?i)cut off|truncat|what (would have )?follow(ed|s)",
    "unknown": r"(?i)rewards are unknown.*which ones are known",
    "late": r"(?i)may still come",
    "timing": r"(?i)(known|recorded|written|seen) (before|after|at the time)|after the decision|before the decision",
}


class Drawn(NamedTuple):
    """One log, the policies that a user judges on it, their true difference from the behaviour policy, and how they are
    judged.

    With several policies the user keeps the most favourable verdict; `truth` is then the same for all. They are judged
    one after another, or `together` in one call.
    """

    log: tl.Log
    policies: tuple[Any, ...]
    truth: float
    arguments: dict[str, Any]
    together: bool = False


class Variant(NamedTuple):
    """One form of a world."""

    draw: Callable[[Generator, int], Drawn]
    words: str | None = None  # None: the verdict must not be wrong
    sizes: tuple[int, ...] | None = None  # instead of the world's own
    networks: bool = False  # no table fits: few logs are judged
    answered: float | None = None  # at least this share of logs must get an answer


def both(name: str, draw: Callable[..., Drawn], **facts: Any) -> dict[str, Variant]:
    """A variant whose log has recorded propensities, and the same one without."""
    estimated = "estimated" if name == "recorded" else f"{name}, estimated"
    names = {name: "recorded", estimated: "estimated"}
    return {one: Variant(partial(draw, propensities=asked), **facts) for one, asked in names.items()}


def form(
    draw: Callable[..., Drawn], words: str | None = None, *, sizes: tuple[int, ...] | None = None,
    networks: bool = False, answered: float | None = None, **facts: Any,
) -> Variant:  # fmt: skip
    """A variant whose draws have these further arguments."""
    return Variant(partial(draw, **facts), words, sizes, networks, answered)


class World(NamedTuple):
    """A sentence that says what is wrong or hard there, numbers of episodes, and variants by name."""

    sentence: str
    sizes: tuple[int, ...]
    variants: dict[str, Variant]


class Cell(NamedTuple):
    """A world's variant at one size."""

    world: str
    variant: str
    episodes: int

    @property
    def name(self) -> str:
        """A name that can be a file's."""
        return f"{self.world}__{self.variant}__{self.episodes}".replace(" ", "-").replace(",", "")

    @property
    def form(self) -> Variant:
        return WORLDS[self.world].variants[self.variant]

    def draw(self, seed: int) -> Drawn:
        """The log of a seed.

        Where `judge` can be told that a policy never saw the log, the user tells it, except in the world about that.
        """
        forms = [(world, variant) for world in WORLDS for variant in WORLDS[world].variants]
        place = forms.index((self.world, self.variant))
        found = self.form.draw(np.random.default_rng([seed, place, self.episodes]), self.episodes)
        if self.world == LEARNT:
            return found
        return found._replace(arguments={"learnt_from": "other data", **found.arguments})


def fingerprint(drawn: Drawn) -> str:
    """What a draw consists of, in sixteen characters."""
    seen = drawn.log.transitions.observation
    parts = [drawn.log.fingerprint(), repr(drawn.truth), repr(sorted(drawn.arguments.items()))]
    parts += [repr(np.asarray(p.probabilities(seen, None))) for p in drawn.policies if isinstance(p, Table)]
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


def cells(worlds: Sequence[str] = ()) -> Iterator[Cell]:
    """Every cell of these worlds, or of all."""
    for world in worlds or WORLDS:
        for variant, form in WORLDS[world].variants.items():
            for size in form.sizes or WORLDS[world].sizes:
                yield Cell(world, variant, size)


# One decision an episode.


def normal(spread: float) -> Callable[[Generator, int], Floats]:
    """Noise of rewards."""
    return lambda generator, size: spread * generator.standard_normal(size)


@dataclass(frozen=True)
class Bandit:
    """One decision an episode; contexts are observed and hidden causes are not. Causes and contexts are independent."""

    behavior_policy: Floats  # [U, C, A]
    target: Floats  # [C, A]
    worth: Floats  # [U, C, A]: mean rewards
    noise: Callable[[Generator, int], Floats]
    causes: Floats = field(default_factory=lambda: np.ones(1))  # [U]: how likely each is
    contexts: Floats | None = None  # [C]: how likely each is; None: all alike

    @property
    def odds(self) -> Floats:
        """[C]."""
        size = self.behavior_policy.shape[1]
        return np.full(size, 1.0 / size) if self.contexts is None else self.contexts

    @property
    def truth(self) -> float:
        """The policy's mean reward minus the behaviour policy's."""
        seen = self.causes[:, None] * self.odds
        return float((seen[..., None] * (self.target - self.behavior_policy) * self.worth).sum())

    def rows(self, generator: Generator, n: int, policy: Floats | None = None) -> dict[str, NDArray[Any]]:
        """Rows of the behaviour policy, or of a policy [U, C, A]."""
        chances = self.behavior_policy if policy is None else policy
        cause = generator.choice(len(self.causes), n, p=self.causes)
        context = generator.choice(len(self.odds), n, p=self.odds)
        action = drawn(generator, chances[cause, context])
        reward = self.worth[cause, context, action] + self.noise(generator, n)
        propensity = chances[cause, context, action]
        return {"cause": cause, "context": context, "action": action, "reward": reward, "propensity": propensity}

    def draw(self, generator: Generator, n: int, propensities: str = "recorded", **leaves: Any) -> Drawn:
        """A log as its behaviour policy would keep it."""
        return self.drawn(self.rows(generator, n), propensities, **leaves)

    def drawn(self, rows: dict[str, NDArray[Any]], propensities: str = "recorded", **more: Any) -> Drawn:
        """These rows as a log."""
        log = one_step(rows, self.behavior_policy.shape[-1], propensities, **more)
        return Drawn(log, (Table(self.target),), self.truth, asked(propensities))


def asked(propensities: str) -> dict[str, Any]:
    """The arguments of a user whose log has propensities, or has none."""
    return {} if propensities == "recorded" else {"propensities": "estimated"}


def one_step(
    rows: dict[str, NDArray[Any]],
    actions: int,
    propensities: str = "recorded",
    leaves: dict[str, Any] | None = None,
    **more: Any,
) -> tl.Log:
    """A log of rows that are episodes."""
    known = {"propensity": rows["propensity"]} if propensities == "recorded" else {}
    observation = {"context": rows["context"], **(leaves or {})}
    return tl.Log.from_arrays(
        observation=observation, action=rows["action"], reward=rows["reward"], terminated=True, actions=actions,
        **known, **more,
    )  # fmt: skip


def two_arms(
    generator: Generator, action: NDArray[Any], reward: Any, often: Any = 0.5, noise: float = 0.0
) -> dict[str, NDArray[Any]]:
    """Rows of two actions, of which the second has these odds; contexts say nothing, and rewards have normal noise."""
    n = len(action)
    rows = {"context": generator.integers(0, 3, n), "action": action}
    rows |= {"propensity": np.where(action == 1, often, 1.0 - often), "reward": reward}
    return rows | ({"reward": reward + noise * generator.standard_normal(n)} if noise else {})


def takes_second(chance: float, contexts: int = 3) -> Table:
    """A policy that takes the second of two actions so often in every context."""
    return Table(np.tile([1.0 - chance, chance], (contexts, 1)))


def with_cluster(cluster: NDArray[Any], named: bool) -> dict[str, Any]:
    """The argument that names who belongs together, where a log is told."""
    return {"cluster": cluster} if named else {}


def plain(gain: float, chance: float, spread: float = 1.0) -> Bandit:
    """Three contexts, two actions at even odds, the second worth `gain` more; the policy takes it so often."""
    worth = np.zeros((1, 3, 2)) + np.array([0.0, 0.5, 1.0])[:, None]
    worth[..., 1] += gain
    return Bandit(np.full((1, 3, 2), 0.5), np.tile([1.0 - chance, chance], (3, 1)), worth, normal(spread))


def quarter(frequent: bool = False, mirrored: bool = False, noise: float = 0.3, contexts: int = 4) -> Bandit:
    """Better in all contexts but the last; there the policy takes what the behaviour policy never took there."""
    behavior_policy, worth = np.zeros((1, contexts, 3)), np.zeros((1, contexts, 3))
    behavior_policy[0, :, :2] = 0.5
    worth[0, :-1] = [1 / 3, 1.0, 2 / 3]
    if frequent:
        behavior_policy[0, :-1] = 1 / 3
    worth[0, -1, 2] = -20.0
    target = np.eye(3)[[1] * (contexts - 1) + [2]]
    return Bandit(behavior_policy, target, -worth if mirrored else worth, normal(noise))


def quarter_with_features(generator: Generator, n: int, propensities: str) -> Drawn:
    """The same with four features of noise, so that hardly anything is seen twice."""
    return quarter().draw(generator, n, propensities, leaves={"noise": generator.standard_normal((n, 4))})


def partly_fixed() -> Bandit:
    """In two contexts of four the behaviour policy always does the same; the policy leaves that in a fifth of these
    cases.
    """
    behavior_policy, worth = np.zeros((1, 4, 2)), np.zeros((1, 4, 2))
    behavior_policy[0, :2], behavior_policy[0, 2:] = 0.5, [1.0, 0.0]
    worth[0, :2, 1], worth[0, 2:, 1] = 0.5, -5.0
    return Bandit(behavior_policy, np.array([[0.1, 0.9], [0.1, 0.9], [0.8, 0.2], [0.8, 0.2]]), worth, normal(0.5))


def hardly_varied(rare: float, rate: float | None = None) -> Bandit:
    """The behaviour policy takes the second action in so few cases, the policy in nine of a hundred, without an effect.

    Fewer than a tenth of the decisions are hardly in the log, so that the verdict can answer. With a rate rewards are
    clicks of that mean.
    """
    behavior_policy, worth = np.tile([1.0 - rare, rare], (1, 4, 1)), np.full((1, 4, 2), rate or 0.0)
    return Bandit(behavior_policy, np.tile([0.91, 0.09], (4, 1)), worth, normal(1.0) if rate is None else clicks(rate))


CAUSES = np.array([0.14, 0.38, 0.62, 0.86])  # how likely the second action is under each hidden cause
STRONG = np.array([0.02, 0.34, 0.66, 0.98])


def confounded(effect: float, causes: Floats = CAUSES, chance: float = 0.8) -> Bandit:
    """What the behaviour policy saw, and the log does not show, moves both its choice and the reward."""
    behavior_policy = np.repeat(np.stack([1.0 - causes, causes], 1)[:, None], 3, axis=1)
    worth = np.zeros((4, 3, 2)) + 2.0 * np.arange(4.0)[:, None, None] / 3.0
    worth[..., 1] += effect
    return Bandit(behavior_policy, np.tile([1.0 - chance, chance], (3, 1)), worth, normal(0.3), np.full(4, 0.25))


def misrecorded(generator: Generator, n: int, how: str, effect: float) -> Drawn:
    """A confounded behaviour policy whose recorded propensities are not what it acted by."""
    bandit = confounded(effect)
    rows = bandit.rows(generator, n)
    second, chance = rows["action"] == 1, CAUSES[rows["cause"]]
    if how == "halved":  # by one of four servers, which serves the cases that earn most
        recorded = np.where(rows["cause"] == 3, rows["propensity"] / 2, rows["propensity"])
    elif how == "swapped":
        recorded = 1.0 - rows["propensity"]
    elif how == "rounded":  # to whole tenths, none at 0
        recorded = np.clip(np.round(rows["propensity"], 1), 0.1, 1.0)
    elif how == "tempered":  # a softmax of temperature 2 where the behaviour policy drew at 1
        flat = np.sqrt(np.stack([1.0 - chance, chance], 1))
        recorded = np.where(second, flat[:, 1], flat[:, 0]) / flat.sum(1)
    elif how == "averaged":  # over the hidden causes
        recorded = np.full(n, 0.5)
    else:
        raise ValueError(how)
    return bandit.drawn({**rows, "propensity": recorded})


def by_cluster(generator: Generator, n: int, size: int, named: bool, by_row: bool = False, share: float = 0.5) -> Drawn:
    """People (or days) of `size` rows each, one arm a person; rewards within a person correlate by `share`."""
    people = np.repeat(np.arange(n // size), size)
    return _clustered(generator, people, named, by_row, share)


def one_person(generator: Generator, n: int, named: bool) -> Drawn:
    """One person has 40% of all rows, everybody else one."""
    own = int(0.4 * n)
    return _clustered(generator, np.concatenate([np.zeros(own, int), np.arange(1, n - own + 1)]), named, False, 0.5)


def _clustered(generator: Generator, people: NDArray[Any], named: bool, by_row: bool, share: float) -> Drawn:
    n, count = len(people), int(people.max()) + 1
    arm = generator.integers(0, 2, n) if by_row else generator.integers(0, 2, count)[people]
    level = np.sqrt(share) * generator.standard_normal(count)[people]
    rows = two_arms(generator, arm, level, noise=np.sqrt(1.0 - share))
    order = generator.permutation(n)  # nobody's rows lie together
    log = one_step({name: values[order] for name, values in rows.items()}, 2, **with_cluster(people[order], named))
    return Drawn(log, (Table(np.tile([0.1, 0.9], (3, 1))),), 0.0, {})


def repeated(generator: Generator, n: int, named: bool, times: int = 5, apart: float = 0.0) -> Drawn:
    """Every row stands in the log several times, with rewards that are so far apart."""
    bandit = plain(0.0, 0.9)
    people = np.tile(np.arange(n // times), times)
    rows = {name: np.tile(v, times) for name, v in bandit.rows(generator, n // times).items()}
    if apart:
        rows["reward"] = rows["reward"] + apart * generator.standard_normal(len(people))
    return bandit.drawn(rows, **with_cluster(people, named))


def learnt_here(generator: Generator, n: int, contexts: int = 10, actions: int = 4) -> Drawn:
    """Rewards are noise; the policy takes what earned most in each context of the log that it is judged on."""
    even = np.full((1, contexts, actions), 1.0 / actions)
    rows = Bandit(even, even[0], np.zeros_like(even), normal(1.0)).rows(generator, n)
    pair = rows["context"] * actions + rows["action"]
    many = np.bincount(pair, minlength=contexts * actions)
    sums = np.bincount(pair, rows["reward"], contexts * actions)
    mean = (sums / np.maximum(many, 1)).reshape(contexts, actions)
    target = 0.8 * np.eye(actions)[mean.argmax(1)] + 0.2 / actions
    return Bandit(even, target, np.zeros_like(even), normal(1.0)).drawn(rows)


LOOKS = 30


def many_looks(generator: Generator, n: int, told: bool) -> Drawn:
    """Thirty policies at random, rewards of noise; the user keeps the best verdict."""
    even = np.full((1, 6, 3), 1.0 / 3.0)
    policies = tuple(Table(0.3 * even[0] + 0.7 * generator.dirichlet(np.ones(3), 6)) for _ in range(LOOKS))
    found = Bandit(even, even[0], np.zeros_like(even), normal(1.0)).draw(generator, n)
    return found._replace(policies=policies, together=told)


def drifting(
    generator: Generator, n: int, behavior_policy: bool = True, rewards: bool = True, propensities: str = "estimated",
    timed: bool = True,
) -> Drawn:  # fmt: skip
    """Over the log's time the behaviour policy's habits, rewards, or both rise; actions have no effect."""
    time = np.arange(n) / n
    second = 0.03 + 0.94 * time if behavior_policy else np.full(n, 0.5)
    action = (generator.random(n) < second).astype(int)
    made = two_arms(generator, action, 2.0 * time if rewards else 1.0, second, 0.3)
    log = one_step(made, 2, propensities, **({"time": np.arange(n, dtype=float)} if timed else {}))
    return Drawn(log, (Table(np.tile([0.05, 0.95], (3, 1))),), 0.0, asked(propensities))


def rare_harm(generator: Generator, n: int, odds: float = 0.0005, loss: float = -1000.0) -> Drawn:
    """The second action earns a quarter more, and costs a thousand once in two thousand times."""
    bandit = plain(0.25, 0.9, 0.3)
    rows = bandit.rows(generator, n)
    harm = (rows["action"] == 1) & (generator.random(n) < odds)
    rows["reward"] = rows["reward"] + loss * harm
    return bandit.drawn(rows)._replace(truth=0.4 * (0.25 + loss * odds))


def rare_outcome_left(generator: Generator, n: int, sign: float, odds: float = 0.0005, size: float = 1000.0) -> Drawn:
    """The policy leaves an action that earns a thousand once in two thousand times for a sure quarter, or both lose."""
    action = generator.integers(0, 2, n)
    rare = size * (generator.random(n) < odds)
    rows = two_arms(generator, action, sign * np.where(action == 0, rare, 0.25), noise=0.1)
    return Drawn(one_step(rows, 2), (Table([[0.0, 1.0]] * 3),), 0.5 * sign * (0.25 - size * odds), {})


def heavy_arm_left(generator: Generator, n: int, sign: float, spread: float = 3.0, share: float = 0.9) -> Drawn:
    """The policy leaves an action of log-normal rewards for 90% of their mean, which few logs reach."""
    action, mean = generator.integers(0, 2, n), np.exp(spread**2 / 2.0)
    heavy_reward, sure = np.exp(spread * generator.standard_normal(n)), share * mean + generator.standard_normal(n)
    rows = two_arms(generator, action, sign * np.where(action == 0, heavy_reward, sure))
    return Drawn(one_step(rows, 2), (Table([[0.0, 1.0]] * 3),), float(-0.5 * sign * (1.0 - share) * mean), {})


def ties(gain: float = 0.5) -> Bandit:
    """Weights 0, 1, 2 and 4, most of the largest alike: they are bounded, and no larger one can be missing."""
    behavior_policy = np.array([[0.5, 0.5], [0.5, 0.5], [0.75, 0.25]])
    target = np.array([[0.5, 0.5], [0.0, 1.0], [0.0, 1.0]])
    worth = np.zeros((1, 3, 2))
    worth[..., 1] = gain
    return Bandit(behavior_policy[None], target, worth, normal(0.5), contexts=np.array([0.696, 0.016, 0.288]))


TIES = np.array([[522, 522], [12, 12], [324, 108]])  # rows by context and action: as many as are expected of 1,500


def tied(generator: Generator, n: int, gain: float = 0.5) -> Drawn:
    """The same with exactly as many rows of each kind as are expected: 12 weights of 2 and 108 of 4 in each 1,500."""
    bandit = ties(gain)
    kinds = generator.permutation(np.repeat(np.arange(6), TIES.ravel() * (n // 1500)))
    context, action = kinds // 2, kinds % 2
    reward = bandit.worth[0, context, action] + bandit.noise(generator, len(kinds))
    propensity = bandit.behavior_policy[0, context, action]
    return bandit.drawn({"context": context, "action": action, "reward": reward, "propensity": propensity})


def selected(generator: Generator, n: int, propensities: str) -> Drawn:
    """Rows of the second action that earned less than -1 never reached the log; `n` rows did."""
    bandit = plain(-0.2, 0.8)
    rows = bandit.rows(generator, 2 * n)
    base = bandit.worth[0, rows["context"], 0]
    kept = np.flatnonzero((rows["action"] == 0) | (rows["reward"] - base > -1.0))[:n]
    return bandit.drawn({name: values[kept] for name, values in rows.items()}, propensities)


def unknown(generator: Generator, n: int, odds: Floats, stated: str, gain: float = 0.0, by: str = "value") -> Drawn:
    """Rewards are 0 or 1; each is unknown with odds [A, 2] of its action and, by its value or by the context, of that.

    `stated` is what the mapping says of them. The policy takes the second action nine times in ten.
    """
    rows = buyers(gain).rows(generator, n)
    reward = (generator.random(n) < rows["reward"]).astype(np.float64)
    missing = generator.random(n) < odds[rows["action"], (reward if by == "value" else rows["context"]).astype(int)]
    rows["reward"] = np.where(missing, np.nan, reward)
    return buyers(gain).drawn(rows, missing_reward=stated)


def buyers(gain: float) -> Bandit:
    """Two contexts with chances of a purchase of 0.3 and 0.5; the second of two actions adds `gain`."""
    worth = np.array([0.3, 0.5])[None, :, None] + np.array([0.0, gain])
    return Bandit(np.full((1, 2, 2), 0.5), np.tile([0.1, 0.9], (2, 1)), worth, normal(0.0))


def late(generator: Generator, n: int, horizon: str | None, gain: float = 0.0, days: float = 60.0) -> Drawn:
    """Purchases come within 3 days of the second action and within 30 of the first; the log ends after 60 days."""
    bandit = buyers(gain)
    rows = bandit.rows(generator, n)
    day = np.sort(generator.random(n)) * days
    delay = generator.random(n) * np.array([30.0, 3.0])[rows["action"]]
    bought = (generator.random(n) < rows["reward"]) & (day + delay <= days)
    table = {
        "context": rows["context"].astype(str), "action": rows["action"], "propensity": rows["propensity"],
        "paid": [1.0 if one else None for one in bought],
        "day": np.datetime64("2026-01-01") + (day * 86_400e6).astype("timedelta64[us]"),
    }  # fmt: skip
    export = {} if horizon is None else {"reward_horizon": horizon, "export_time": "2026-03-02"}
    columns = tl.Columns(
        observation=["context"], vocabularies={"context": ["0", "1"]}, action="action", actions=2, reward="paid",
        propensity="propensity", terminated=True, time="day", missing_reward=0.0, **export,
    )  # fmt: skip
    words = Table(bandit.target, lambda seen: np.asarray(seen["categorical"]).reshape(-1))  # of a log that was read
    return Drawn(tl.read_log(pl.DataFrame(table), columns), (words,), bandit.truth, {})


def written_later(generator: Generator, n: int) -> Drawn:
    """Rewards are noise; the context is the item clicked, written after the decision, and the policy repeats it."""
    action = generator.integers(0, 2, n)
    reward = generator.standard_normal(n)
    rows = {**two_arms(generator, action, reward), "context": np.where(reward > 0, action, 1 - action)}
    return Drawn(one_step(rows, 2), (Table([[0.8, 0.2], [0.2, 0.8]]),), 0.0, {})


def interfering(generator: Generator, n: int, often: float = 0.2, policy: float = 0.9) -> Drawn:
    """A coupon is worth 1 minus twice the share of people who get one: what one gets changes what another earns."""
    action = (generator.random(n) < often).astype(int)
    rows = two_arms(generator, action, action * (1.0 - 2.0 * often), often, 0.5)
    truth = policy * (1.0 - 2.0 * policy) - often * (1.0 - 2.0 * often)
    return Drawn(one_step(rows, 2), (takes_second(policy),), truth, {})


def habituated(generator: Generator, n: int, visits: int = 20, often: float = 0.15, policy: float = 0.6) -> Drawn:
    """People come twenty times, a row each time; the first three sends please them (+1), later ones do not (-1)."""
    sent, reward = sends(generator, n // visits, visits, often, free=3, price=-1.0)
    rows = two_arms(generator, sent.astype(int).ravel(), reward.ravel(), often, 0.5)
    truth = (worth_of_sends(visits, policy, 3, -1.0) - worth_of_sends(visits, often, 3, -1.0)) / visits
    return Drawn(one_step(rows, 2), (takes_second(policy),), truth, {})


def clicks(rate: float) -> Callable[[Generator, int], Floats]:
    """Noise that makes of the mean `rate` rewards of 0 and 1."""
    return lambda generator, size: (generator.random(size) < rate) - rate


def heavy(sign: float, index: float = 1.5) -> Callable[[Generator, int], Floats]:
    """Pareto noise of mean 0 and no variance."""
    return lambda generator, size: sign * (generator.pareto(index, size) + 1.0 - index / (index - 1.0))


def yes_or_no(chance: float = 0.3) -> Bandit:
    """The same without an effect, rewards of 0 and 1."""
    return replace(plain(0.0, 0.7), worth=np.full((1, 3, 2), chance), noise=clicks(chance))


def favourite(noise: Callable[[Generator, int], Floats], first: float = 0.9, mean: float = 0.0) -> Bandit:
    """Four actions at even odds, no effect; the policy takes the first of them so often."""
    target = np.tile([first, *[(1.0 - first) / 3.0] * 3], (3, 1))
    return Bandit(np.full((1, 3, 4), 0.25), target, np.full((1, 3, 4), mean), noise)


# Several decisions an episode: [n, T].


def several(
    context: NDArray[Any],
    action: NDArray[Any],
    reward: Floats,
    propensity: Floats,
    propensities: str = "recorded",
    lengths: NDArray[Any] | None = None,
    truncated: NDArray[np.bool_] | None = None,
    actions: int = 2,
) -> tl.Log:
    """A log of episodes [n, T], the first `lengths` [n] steps of each; `truncated` [n]: which were cut off."""
    n, steps = action.shape
    lengths = np.full(n, steps) if lengths is None else lengths
    there = np.arange(steps) < lengths[:, None]
    last = np.arange(steps) == lengths[:, None] - 1
    cut = np.zeros((n, 1), bool) if truncated is None else truncated[:, None]
    known = {"propensity": propensity[there]} if propensities == "recorded" else {}
    return tl.Log.from_arrays(
        observation={"context": context[there]}, action=action[there], reward=reward[there],
        terminated=(last & ~cut)[there], truncated=(last & cut)[there],
        episode=np.repeat(np.arange(n), lengths), actions=actions, **known,
    )  # fmt: skip


def sends(
    generator: Generator, n: int, steps: int, often: float, free: int, price: float
) -> tuple[NDArray[np.bool_], Floats]:
    """Sends [n, T] at random, and what they earn: 1 each of the first `free`, `price` each later one."""
    sent = generator.random((n, steps)) < often
    return sent, sent * np.where(sent.cumsum(1) <= free, 1.0, price)


def worth_of_sends(steps: int, often: float, free: int, price: float) -> float:
    """Mean return of `sends`."""
    count = np.arange(steps + 1)
    earned = np.minimum(count, free) + price * np.maximum(count - free, 0)
    return float((binom.pmf(count, steps, often) * earned).sum())


def history(
    generator: Generator,
    n: int,
    steps: int = 60,
    free: int = 12,
    price: float = -3.0,
    often: float = 0.15,
    policy: float = 0.45,
    observed: bool = False,
    propensities: str = "recorded",
) -> Drawn:
    """The first sends please, later ones do not; unless `observed`, nothing says how many there were."""
    sent, reward = sends(generator, n, steps, often, free, price)
    before = sent.cumsum(1) - sent
    context = before if observed else generator.integers(0, 3, (n, steps))
    reward = reward + 0.5 * generator.standard_normal((n, steps))
    log = several(context, sent.astype(int), reward, np.where(sent, often, 1.0 - often), propensities)
    truth = worth_of_sends(steps, policy, free, price) - worth_of_sends(steps, often, free, price)
    return Drawn(log, (takes_second(policy, steps + 1),), truth, asked(propensities))


def last_action(generator: Generator, n: int, steps: int = 60, often: float = 0.15, policy: float = 0.45) -> Drawn:
    """A send earns 1, or costs 3 where the step before was one; nothing says whether it was."""
    sent = generator.random((n, steps)) < often
    again = np.concatenate([np.zeros((n, 1), bool), sent[:, :-1]], axis=1)
    reward = sent * np.where(again, -3.0, 1.0) + 0.5 * generator.standard_normal((n, steps))
    log = several(generator.integers(0, 3, (n, steps)), sent.astype(int), reward, np.where(sent, often, 1.0 - often))
    return Drawn(log, (takes_second(policy),), worth_of_spacing(steps, policy) - worth_of_spacing(steps, often), {})


def worth_of_spacing(steps: int, often: float) -> float:
    """Mean return of sends at random where a second in a row costs 3."""
    return often + (steps - 1) * often * (1.0 - 4.0 * often)


BY_DAY, BY_NIGHT = 0.25, 0.05  # how often the behaviour policy sends


def by_hour(generator: Generator, n: int, observed: bool, propensities: str, steps: int = 60) -> Drawn:
    """A send earns 1 by day and costs 2 by night; the behaviour policy knows the hour, and sends mostly by day."""
    night = np.tile(np.arange(steps) % 24 >= 12, (n, 1))
    chance = np.where(night, BY_NIGHT, BY_DAY)
    sent = generator.random((n, steps)) < chance
    reward = sent * np.where(night, -2.0, 1.0) + 0.5 * generator.standard_normal((n, steps))
    context = night.astype(int) if observed else generator.integers(0, 2, (n, steps))
    log = several(context, sent.astype(int), reward, np.where(sent, chance, 1.0 - chance), propensities)
    policy, dark = 0.3, int(night[0].sum())
    truth = (steps - dark) * (policy - BY_DAY) - 2.0 * dark * (policy - BY_NIGHT)
    return Drawn(log, (takes_second(policy, 2),), truth, asked(propensities))


def unsupported_step(
    generator: Generator, n: int, propensities: str, chance: float = 0.65, gain: float = 2 / 3
) -> Drawn:
    """Five steps; at the third, once in four times, the policy takes what the behaviour policy never took there.

    Elsewhere it takes the second action more often, which earns more by `gain`.
    """
    context = generator.integers(0, 3, (n, 5))
    context[generator.random(n) < 0.25, 2] = 3
    action = generator.integers(0, 2, (n, 5))
    earned = np.where(context < 3, np.where(action == 1, 1 / 3 + gain, 1 / 3), 0.0)
    log = several(context, action, earned + 0.3 * generator.standard_normal((n, 5)), np.full((n, 5), 0.5), propensities,
                  actions=3)  # fmt: skip
    target = Table([*[[1.0 - chance, chance, 0.0]] * 3, [0.0, 0.0, 1.0]])
    return Drawn(log, (target,), 4.75 * (chance - 0.5) * gain + 0.25 * -20.0, asked(propensities))


BAD = (0.02, 0.08)  # odds a step of a bad end, by action


def cut_when_bad(generator: Generator, n: int, steps: int = 10, policy: float = 0.65, loss: float = -10.0) -> Drawn:
    """Who does badly leaves, and the loss that follows is not recorded; the second action earns .3 and does that."""
    action = generator.integers(0, 2, (n, steps))
    bad = generator.random((n, steps)) < np.asarray(BAD)[action]
    lengths = np.where(bad.any(1), bad.argmax(1) + 1, steps)
    reward = 0.3 * action + 0.2 * generator.standard_normal((n, steps))
    context = generator.integers(0, 3, (n, steps))
    log = several(context, action, reward, np.full((n, steps), 0.5), lengths=lengths, truncated=bad.any(1))
    truth = worth_with_ends(steps, policy, loss) - worth_with_ends(steps, 0.5, loss)
    return Drawn(log, (takes_second(policy),), truth, {})


def worth_with_ends(steps: int, second: float, loss: float) -> float:
    """Mean return, what follows a bad end included, of who takes the second action so often."""
    bad = BAD[0] * (1.0 - second) + BAD[1] * second
    return float(((1.0 - bad) ** np.arange(steps)).sum() * (0.3 * second + loss * bad))


# Continuous actions, in [-1, 1]; a policy is normal around a mean of each context, cut at the bounds.


def gaussian_policy(log: tl.Log, means: Floats, spread: float) -> Any:
    """A tidelog policy with these means [C]."""
    import equinox as eqx
    import jax.numpy as jnp

    from tidelog.algorithms.bc import BCState
    from tidelog.data.statistics import Scaler
    from tidelog.networks.actors import Gaussian
    from tidelog.policies.policy import Policy

    class Means(eqx.Module):
        """An actor that reads its mean from a table."""

        means: Any
        log_std: Any

        def __call__(self, observation: Any, *, mask: Any = None, dropout: Any = None, key: Any = None) -> Any:
            return Gaussian(self.means[observation["context"][:, 0]][:, None], self.log_std)

    actor = Means(jnp.asarray(means, jnp.float32), jnp.full(1, np.log(spread), jnp.float32))
    return Policy(tl.BC(), log.spec, Scaler(), BCState(actor))


def one_number(context: NDArray[Any], action: Floats, reward: Floats, density: Floats) -> tl.Log:
    """A log of one continuous action an episode."""
    return tl.Log.from_arrays(
        observation={"context": context}, action=action[:, None], reward=reward, terminated=True,
        propensity=density, bounds=((-1.0,), (1.0,)),
    )  # fmt: skip


RANGE, BEYOND = 0.3, 0.6  # where the behaviour policy acts, and where the loss begins


def out_of_range(generator: Generator, n: int) -> Drawn:
    """The behaviour policy acts within .3 of 0; in one context of four the policy acts around .9, where 20 is lost."""
    context, action = generator.integers(0, 4, n), generator.uniform(-RANGE, RANGE, n)
    reward = 2.0 * action * (context < 3) + 0.3 * generator.standard_normal(n)
    log = one_number(context, action, reward, np.full(n, 0.5 / RANGE))
    means, spread = np.array([0.15, 0.15, 0.15, 0.9]), 0.08
    truth = 0.75 * 2.0 * means[0] - 0.25 * 20.0 * norm.sf((BEYOND - means[3]) / spread)
    return Drawn(log, (gaussian_policy(log, means, spread),), float(truth), {"sample": True})


STILL, MOVED = 0.5, (0.4, 0.2)  # how often nothing is changed, and mean and spread of the changes


def no_change(generator: Generator, n: int, kept: str, means: float = 0.0, spread: float = 0.15) -> Drawn:
    """Half of the actions are exactly 0, which alone earns 1; a policy around any mean never takes exactly 0.

    `kept` of the behaviour policy: "nothing", "recorded" (a probability at 0 and a density elsewhere), or these
    "declared".
    """
    still, context = generator.random(n) < STILL, generator.integers(0, 4, n)
    moved = MOVED[0] + MOVED[1] * generator.standard_normal(n)
    action = np.where(still, 0.0, np.clip(moved, -0.99, 0.99))
    known = {"propensity": np.where(still, STILL, (1.0 - STILL) * norm.pdf(moved, *MOVED))} if kept != "nothing" else {}
    log = tl.Log.from_arrays(
        observation={"context": context}, action=action[:, None], reward=still + 0.3 * generator.standard_normal(n),
        terminated=True, bounds=((-1.0,), (1.0,)), atoms=[0.0] if kept == "declared" else [], **known,
    )  # fmt: skip
    return Drawn(log, (gaussian_policy(log, np.full(4, means), spread),), -STILL, {"sample": True})


LOGGED, JUDGED = (0.5, 0.4), (0.7, 0.2)  # mean and spread of the behaviour policy and of the policy


def clipped(generator: Generator, n: int, at: str) -> Drawn:
    """Actions are cut at 1, where 1 is earned; the recorded density is that of the normal before, `at` drawn or cut."""
    wished = LOGGED[0] + LOGGED[1] * generator.standard_normal(n)
    action = np.clip(wished, -1.0, 1.0)
    density = norm.pdf(wished if at == "drawn" else action, *LOGGED)
    context = generator.integers(0, 4, n)
    log = one_number(context, action, (action >= 1.0) + 0.2 * generator.standard_normal(n), density)
    truth = norm.sf(1.0, *JUDGED) - norm.sf(1.0, *LOGGED)
    policy = gaussian_policy(log, np.full(4, JUDGED[0]), JUDGED[1])
    return Drawn(log, (policy,), float(truth), {"sample": True})


# The registry.

LEARNT = "learnt from this log"
UNHAPPY = np.array([[0.0, 0.3], [0.5, 0.0]])  # odds that a reward is unknown, by action and by its value
CENSORED = np.array([[0.05, 0.05], [0.2, 0.6]])  # by action and context

WORLDS: dict[str, World] = {
    "unsupported quarter": World(
        "The policy is better in three contexts of four; in the fourth it takes an action that was never logged there, "
        "worth -20.",
        (110, 150, 250, 600),
        {
            **both("recorded", quarter().draw),
            **both("without noise", quarter(noise=0.0).draw),
            **both("frequent elsewhere", quarter(frequent=True).draw),
            **both("mirrored", quarter(mirrored=True).draw),
            **both("five steps", unsupported_step),
            **both("with noise features", quarter_with_features, sizes=(150, 600), networks=True),
            "continuous, out of range": Variant(out_of_range, sizes=(150, 600), networks=True),
        },
    ),
    "partly deterministic logger": World(
        "In half of the contexts the logger always does the same, and the policy does not.",
        (150, 400, 1000),
        both("recorded", partly_fixed().draw),
    ),
    "history": World(
        "Sixty steps; the first twelve sends please, later ones cost three times as much. The logger sends 15%, the "
        "policy 45%.",
        (100, 400),
        {
            **both("count hidden", history, words="history"),
            "count hidden, milder": form(history, "history", price=-0.5),
            "count observed": form(history, observed=True),
            **both("ten steps", partial(history, steps=10, free=2, often=0.15, policy=0.25), sizes=(300, 1000, 3000)),
            "last action only": Variant(last_action, "history"),
            "by hour, observed": form(by_hour, observed=True, propensities="recorded"),
            "by hour, hidden": form(by_hour, "history", observed=False, propensities="recorded"),
            "by hour, hidden, estimated": form(by_hour, "hidden", observed=False, propensities="estimated"),
        },
    ),
    "habituation": World(
        "People come twenty times, a row each time; what was sent before changes what a send earns, and is not seen.",
        (1000, 4000),
        {"recorded": Variant(habituated, "interference")},
    ),
    "interference": World(
        "A coupon is worth less the more people get one: the policy would change what the log shows of it.",
        (300, 1000, 3000),
        {"recorded": Variant(interfering, "interference")},
    ),
    "dependent episodes": World(
        "An A/B test by person: one arm a person, rewards of a person alike, no true effect.",
        (1000, 2500),
        {
            "by user, unnamed": form(by_cluster, "independence", size=25, named=False),
            "by user, named": form(by_cluster, size=25, named=True),
            "rows five times, unnamed": form(repeated, "independence", named=False),
            "rows five times, named": form(repeated, named=True),
            "one person, unnamed": form(one_person, "independence", named=False),
            "one person, named": form(one_person, named=True),
            "by day, unnamed": form(by_cluster, "independence", size=50, named=False, share=0.3),
            "by day, named": form(by_cluster, size=50, named=True, share=0.3),
            "arms by row": form(by_cluster, size=25, named=False, by_row=True),
        },
    ),
    LEARNT: World(
        "Rewards are noise; the policy takes what earned most in the log that it is judged on.",
        (200, 400, 1000),
        {"of no tidelog run": Variant(learnt_here, "learnt")},
    ),
    "looks": World(
        "Rewards are noise; thirty policies are judged on one log, and the best verdict is kept.",
        (300,),
        {
            "untold": form(many_looks, "looks", told=False),
            "told": form(many_looks, told=True),
        },
    ),
    "drift": World(
        "The logger's habits and the rewards both rise over the log's time; actions have no effect.",
        (400, 1000, 3000),
        {
            "both": form(drifting),
            "both, no time": form(drifting, "hidden", timed=False),
            "logger only": form(drifting, rewards=False),
            "rewards only": form(drifting, behavior_policy=False),
            "both, recorded": form(drifting, propensities="recorded"),
        },
    ),
    "rare harm": World(
        "The second action earns a quarter more and costs 1,000 once in 2,000 times; most logs hold no such loss.",
        (300, 1000, 3000),
        {"recorded": Variant(rare_harm, "rare")},
    ),
    "ties": World(
        "Weights of 0, 1, 2 and 4, nearly all of the largest alike; they are bounded and the policy is better.",
        (1500,),
        {
            "better": Variant(tied, answered=0.8),
            "no effect": form(tied, answered=0.8, gain=0.0),
        },
    ),
    "clipped actions": World(
        "Continuous actions are cut at the bounds when carried out; the recorded density is that of the uncut normal.",
        (300, 1000),
        {
            "density as drawn": form(clipped, networks=True, at="drawn"),
            "density as carried out": form(clipped, networks=True, at="executed"),
        },
    ),
    "confounded logger": World(
        "What the logger saw, and the log does not show, moves its choice and the reward.",
        (300, 1000, 3000),
        {
            "right propensities": Variant(confounded(-0.1).draw),
            "estimated": form(confounded(-0.1, STRONG, 0.95).draw, "hidden", propensities="estimated"),
        },
    ),
    "wrong propensities": World(
        "A hidden cause moves choice and reward, and recorded propensities are not what the logger acted by.",
        (300, 1000, 3000),
        {
            "averaged": form(misrecorded, "propensities", how="averaged", effect=-0.1),
            "halved": form(misrecorded, how="halved", effect=-0.1),
            "swapped": form(misrecorded, how="swapped", effect=-0.1),
            "rounded": form(misrecorded, "propensities", how="rounded", effect=0.05),
            "tempered": form(misrecorded, "propensities", how="tempered", effect=-0.1),
        },
    ),
    "selection on the outcome": World(
        "Rows of the second action that earned little never reached the log; it is worse than the first.",
        (300, 1000, 3000),
        both("recorded", selected, words="missing"),
    ),
    "informative truncation": World(
        "Episodes are cut off when they go wrong, before the loss is recorded; the policy makes them go wrong.",
        (300, 1000, 3000),
        {"recorded": Variant(cut_when_bad, "cut")},
    ),
    "observation written later": World(
        "The context holds what was clicked after the decision; the policy repeats it. Rewards are noise.",
        (300, 1000),
        {"recorded": Variant(written_later, "timing")},
    ),
    "heavy-tailed rewards": World(
        "Rewards are Pareto of index 1.5: they have a mean and no variance. No interval for the mean is right in every "
        "such world (Bahadur & Savage 1956). No effect.",
        (200, 1000, 5000),
        {
            "gains": Variant(favourite(heavy(1.0)).draw, "rare"),
            "losses": Variant(favourite(heavy(-1.0)).draw, "rare"),
        },
    ),
    "rare clicks": World(
        "Rewards are clicks of one row in 250, in 100 or in 20. No effect.",
        (600, 1000, 3000),
        {
            "0.4%": Variant(favourite(clicks(0.004), mean=0.004).draw),
            "1%": Variant(favourite(clicks(0.01), mean=0.01).draw),
            "5%": Variant(favourite(clicks(0.05), mean=0.05).draw),
        },
    ),
    "tiny logs": World(
        "Ten to sixty episodes. No effect.",
        (10, 15, 20, 30, 60),
        {
            **both("normal", plain(0.0, 0.7).draw),
            "yes or no": Variant(yes_or_no().draw),
        },
    ),
    "ordinary": World(
        "An honest log of an ordinary test: what a judge must still be able to answer.",
        (300, 1000, 3000),
        {
            **both("no effect", plain(0.0, 0.8).draw, answered=0.8),
            "better": Variant(plain(0.5, 0.8).draw, answered=0.8),
            "worse": Variant(plain(-0.5, 0.8).draw, answered=0.8),
        },
    ),
    "unsupported seventh": World(
        "The policy is better in six contexts of seven; in the seventh it takes an action that was never logged there, "
        "worth -20.",
        (150, 600),
        both("recorded", quarter(contexts=7).draw),
    ),
    "rare gain given up": World(
        "The policy leaves an action that earns 1,000 once in 2,000 times for a sure quarter: most logs hold no such "
        "gain. Mirrored: a rare loss that it avoids.",
        (300, 1000),
        {
            "gain": form(rare_outcome_left, "rare gain", sign=1.0),
            "harm": form(rare_outcome_left, "rare harm", sign=-1.0),
        },
    ),
    "heavy-tailed arm": World(
        "The policy leaves an action of log-normal rewards (3), for 90% of their mean.",
        (300, 1000),
        {
            "gains": form(heavy_arm_left, "rare gain", sign=1.0),
            "losses": form(heavy_arm_left, "rare harm", sign=-1.0),
        },
    ),
    "no change": World(
        "Half of the continuous actions are exactly 0, which alone earns 1; the policy never takes exactly 0.",
        (300, 600),
        {
            "estimated": form(no_change, networks=True, kept="nothing"),
            "recorded": form(no_change, networks=True, kept="recorded"),
            "declared": form(no_change, networks=True, kept="declared"),
            "estimated, near the others": form(
                no_change, sizes=(600,), networks=True, answered=0.8, kept="nothing", means=0.4
            ),
            "declared, near the others": form(no_change, networks=True, answered=0.8, kept="declared", means=0.4),
        },
    ),
    "near-copies": World(
        "Every decision was exported several times, with rewards that differ a little; no true effect.",
        (1000, 2500),
        {
            "four times": form(repeated, named=False, times=4, apart=1e-3),
            "twice": form(repeated, named=False, times=2, apart=1e-4),
            "ten times": form(repeated, named=False, times=10, apart=1e-2),
        },
    ),
    "unknown rewards": World(
        "Some rewards are unknown: because of what they are, or more often after one action than after the other.",
        (600, 2500),
        {
            "by their value": form(unknown, odds=UNHAPPY, stated="unknown"),
            "by their value, worse": form(unknown, odds=UNHAPPY, stated="unknown", gain=-0.1),
            "by their value, stated at random": form(unknown, "unknown", odds=UNHAPPY, stated="at random"),
            "by action": form(unknown, odds=CENSORED, stated="unknown", by="context"),
            "by action, at random": form(unknown, answered=0.8, odds=CENSORED, stated="at random", by="context"),
            "by action, at random, better": form(
                unknown, answered=0.8, odds=CENSORED, stated="at random", by="context", gain=0.15
            ),
            "few, better": form(unknown, answered=0.8, odds=CENSORED / 10, stated="unknown", gain=0.25),
        },
    ),
    "late rewards": World(
        "Purchases come within 3 days of one action and within 30 of the other; the log ends after 60 days.",
        (600, 2500),
        {
            "horizon": form(late, answered=0.8, horizon="30d"),
            "horizon, worse": form(late, horizon="30d", gain=-0.1),
            "horizon, better": form(late, answered=0.8, horizon="30d", gain=0.15),
            "horizon ignored": form(late, "late", horizon=None),
        },
    ),
    "hardly varied logger": World(
        "The logger varies in a few decisions of a hundred, the policy in nine; no action has an effect.",
        (300, 800, 2500),
        {
            **both("recorded", hardly_varied(0.03).draw),
            "one in a hundred": Variant(hardly_varied(0.01).draw),
            "clicks": Variant(hardly_varied(0.03, rate=0.3).draw),
        },
    ),
}
