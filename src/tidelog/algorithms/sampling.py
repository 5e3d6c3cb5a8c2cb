"""How a phase reads a store: the unit of a sample, the order of the samples, and the batch size.

A unit gathers samples from a store; an order chooses their rows. Both are values with pure methods: a new unit or
order is one class, and the loop does not change.

Letters: `B` batch, `N` steps, `M` stored observations, `T` steps of a window.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from tidelog.types import Decision, Observation, Transition

OFFSETS = 1  # folded into the key of a draw: offsets of windows have their own key


class Batch(NamedTuple):
    """A batch: `data` from its unit, the rows, the weights, and the steps that count."""

    data: Any  # Transition or Decision, leaves [B, ...], or [B, T, ...] in windows
    rows: jax.Array  # [B] int32: rows of the samples in their store
    weight: jax.Array | None = None  # [B] or [B, T]; None: all weights are 1
    valid: jax.Array | None = None  # windows only, [B, T] bool: the steps that losses use
    valid_steps: jax.Array | None = None  # [B]: their number, in windows drawn in proportion to it

    def mean(self, errors: jax.Array) -> jax.Array:
        """Mean of per-sample errors [B] (or [B, T], over the valid steps), each multiplied by its weight.

        Windows that are drawn in proportion to their valid steps (`valid_steps`) have equal weight at any length:
        every step of the log then has the same expected weight. Other windows are weighted by their steps.
        """
        expected = self.rows.shape if self.valid is None else self.valid.shape
        if errors.shape != expected:
            raise TypeError(
                f"per-sample errors have shape {errors.shape}, expected {expected}. fix: return one error per sample"
            )
        return self.average(errors if self.weight is None else self.weight * errors)

    def average(self, values: jax.Array) -> jax.Array:
        """Unweighted mean of values [B] (or [B, T], over the valid steps): for metrics."""
        if self.valid is None or self.valid_steps is not None:
            return jnp.mean(self.per_sample(values))
        return jnp.sum(values, where=self.valid) / jnp.maximum(jnp.sum(self.valid), 1)

    def explained_variance(self, target: jax.Array, value: jax.Array) -> jax.Array:
        """Share of the targets' variance that values of the same shape explain; 0 where targets do not vary."""

        def variance(values: jax.Array) -> jax.Array:
            return self.average(jnp.square(values - self.average(values)))

        total = variance(target)
        return jnp.where(total > 1e-8, 1.0 - variance(target - value) / jnp.maximum(total, 1e-8), 0.0)

    def per_sample(self, values: jax.Array) -> jax.Array:
        """Values [B], or the mean of [B, T] over each sample's valid steps: for priorities."""
        if self.valid is None:
            return values
        return jnp.sum(values, axis=1, where=self.valid) / jnp.maximum(jnp.sum(self.valid, axis=1), 1)


class StoredLog(NamedTuple):
    """A log on the device, in the units of the networks; columns that no phase reads are None."""

    observation: Observation  # leaves [M, ...]
    position: jax.Array  # [N] int32: index of the observation of step i
    next_position: jax.Array  # [N] int32: index of the observation after step i
    reach: jax.Array  # [N] int32: last row of a window that starts here
    action: jax.Array  # [N], [N, M] or [N, A]
    episode: jax.Array  # [N] int32
    starts: jax.Array  # [E + 1] int32: the first row of each episode, and N
    usable: jax.Array | None = None  # [U] int32: rows that can be a target of value learning; None: all
    reward: jax.Array | None = None  # [N] or [N, K]
    terminated: jax.Array | None = None  # [N] bool
    mask: jax.Array | None = None  # [M, A] bool
    weight: jax.Array | None = None  # [N]
    log_propensity: jax.Array | None = None  # [N]
    elapsed: jax.Array | None = None  # [N]: units of time to the next decision; None: one unit each


class SampleData(NamedTuple):
    """Samples from a unit: data, the weights of the log, and the valid steps of windows."""

    data: Any
    weight: jax.Array | None
    valid: jax.Array | None = None  # [B, T] bool
    valid_steps: jax.Array | None = None  # [B]: their number, in windows drawn in proportion to it


class Samples(NamedTuple):
    """The samples of one batch, or of `K` batches [K, B]."""

    indices: jax.Array  # [B] int32: among all samples of the unit
    importance: jax.Array | None = None  # [B]
    offset: jax.Array | None = None  # windows only, [B] int32: position of the drawn row among the steps that count


class Unit(Protocol):
    """The kind of a sample; `store` is a log or a store of segments."""

    def rows(self, store: Any) -> tuple[int, jax.Array | None]:
        """Return the number of samples and their rows (None: 0 .. count - 1)."""

    def gather(self, store: Any, rows: jax.Array) -> SampleData:
        """Return the samples at `rows` [B]."""


class Order(Protocol):
    """The order of the samples; `init` returns the state that the loop carries for it."""

    def init(self, count: int, key: jax.Array | None = None) -> Any:
        """Return the order's state over `count` samples; the key is for random initial orders."""

    def draw(
        self, state: Any, key: jax.Array, size: int, count: int, progress: jax.Array
    ) -> tuple[jax.Array, jax.Array | None]:
        """Return indices [size] of samples and their importance weights or None, at a share of the run in [0, 1].

        Over a store whose samples expire it also gets `live`, [count] bool: the samples that it may draw.
        """

    def learn(self, state: Any, indices: jax.Array, priority: jax.Array | None) -> Any:
        """Return the state after a step gave priorities [B] or None for its samples."""


@dataclass(frozen=True)
class Uniform:
    """Every sample equally likely, with replacement."""

    def init(self, count: int, key: jax.Array | None = None) -> None:
        """Return no state."""

    def draw(self, state: None, key: jax.Array, size: int, count: int, progress: jax.Array) -> tuple[jax.Array, None]:
        """Return indices [size], each uniform on `0 .. count - 1`."""
        return jax.random.randint(key, (size,), 0, count), None

    def learn(self, state: None, indices: jax.Array, priority: jax.Array | None) -> Any:
        """Return the state unchanged."""
        return state


@dataclass(frozen=True)
class LoggedAction:
    """A decision: observation and action, without reward and next observation."""

    def rows(self, store: StoredLog) -> tuple[int, None]:
        """Return all steps of the log."""
        return store.position.shape[0], None

    def gather(self, store: StoredLog, rows: jax.Array, limit: jax.Array | None = None) -> SampleData:
        """Return decisions at `rows` [B]."""
        here = store.position[rows]
        mask = None if store.mask is None else store.mask[here]
        return SampleData(Decision(_at(store.observation, here), store.action[rows], mask), _weight(store, rows))

    def end(self, store: StoredLog, rows: jax.Array) -> jax.Array:
        """Return the last row [B] of each row's episode."""
        return store.starts[store.episode[rows] + 1] - 1


@dataclass(frozen=True)
class NStep:
    """An n-step transition: a decision and the next `n_step` steps, never across the end of an episode.

    The n-step return is not corrected for the logging policy's actions in between: it is biased towards that policy.
    """

    n_step: int
    discount: Any  # float, or a tracer in a population; a tuple [K] has one for each reward
    next_action: bool = False  # also gather the logged action after these steps

    def rows(self, store: StoredLog) -> tuple[int, jax.Array | None]:
        """Return the steps whose window ends in a terminal or a known observation."""
        return (store.position.shape[0], None) if store.usable is None else (store.usable.shape[0], store.usable)

    def gather(self, store: StoredLog, rows: jax.Array, limit: jax.Array | None = None) -> SampleData:
        """Return transitions at `rows` [B]; their steps end at row `limit` [B] or before."""
        if store.reward is None or store.terminated is None:
            raise TypeError(
                "NStep needs the columns 'reward' and 'terminated'. fix: use StoreSpec(('reward', 'terminated'))"
            )
        last = self.last(store, rows, limit)
        reward, elapsed = store.reward[rows], store.elapsed
        several = isinstance(self.discount, tuple)
        discount = jnp.asarray(self.discount, jnp.float32) if several else self.discount
        passed: Any = None if elapsed is None else elapsed[rows]  # [B]: units of time until step k
        for k in range(1, self.n_step):
            at, column = jnp.minimum(rows + k, last), (-1, *[1] * (reward.ndim - 1))
            inside, units = rows + k <= last, k if passed is None else passed.reshape(column)
            reward += jnp.where(inside.reshape(column), discount**units * store.reward[at], 0.0)
            passed = None if elapsed is None else passed + jnp.where(inside, elapsed[at], 0.0)
        length, terminated = last - rows + 1 if passed is None else passed, store.terminated[last]
        if several:
            length, terminated = length[:, None], terminated[:, None]
        is_constant = self.n_step == 1 and passed is None
        factor = discount if is_constant else discount ** length.astype(jnp.float32)
        here, after = store.position[rows], store.next_position[last]
        row = Transition(
            observation=_at(store.observation, here),
            action=store.action[rows],
            reward=reward,
            discount=factor * (1.0 - terminated.astype(jnp.float32)),
            next_observation=_at(store.observation, after),
            mask=None if store.mask is None else store.mask[here],
            next_mask=None if store.mask is None else store.mask[after],
            log_propensity=None if store.log_propensity is None else store.log_propensity[rows],
        )
        if self.next_action:
            known = last + 1 < store.starts[store.episode[rows] + 1]
            row = row._replace(next_action=store.action[jnp.where(known, last + 1, last)], has_next_action=known)
        return SampleData(row, _weight(store, rows))

    def last(self, store: StoredLog, rows: jax.Array, limit: jax.Array | None = None) -> jax.Array:
        """Return the last row [B] whose reward is in the sum."""
        last = jnp.minimum(rows + (self.n_step - 1), store.reach[rows])
        return last if limit is None else jnp.minimum(last, limit)

    def end(self, store: StoredLog, rows: jax.Array) -> jax.Array:
        """Return the last row [B] of each row's episode that value learning can use."""
        return store.reach[rows]


@dataclass(frozen=True)
class Window:
    """`length` consecutive steps of one episode, after `burn_in` steps that only update the recurrent state.

    The drawn row is at a uniform position (`offset`) among the `length` steps; steps before the start or after the end
    of the episode are not real. The probability of a window of m real steps is thus proportional to m, and its loss is
    the mean over them: each of the N steps that can be drawn has expected weight 1 / N, also at the ends of an episode.
    """

    unit: NStep | LoggedAction
    length: int
    burn_in: int = 0

    def rows(self, store: StoredLog) -> tuple[int, jax.Array | None]:
        """Return the rows of the unit: each has the same probability, and a window around it is gathered."""
        return self.unit.rows(store)

    def gather(self, store: StoredLog, rows: jax.Array, offset: jax.Array | None = None) -> SampleData:
        """Return windows [B, T] with `rows` [B], T = burn_in + length; `offset` [B]: the rows' position after burn-in.

        Without an offset every episode is cut into windows from its start, and each row gets the window that holds it:
        over all rows of an episode every step then has exactly equal weight.
        """
        steps = jnp.arange(-self.burn_in, self.length)
        begin, end = store.starts[store.episode[rows]][:, None], self.unit.end(store, rows)[:, None]
        offset = (rows - begin[:, 0]) % self.length if offset is None else offset
        grid = (rows - offset)[:, None] + steps
        real = (grid >= begin) & (grid <= end)
        within = jnp.clip(grid, begin, end)
        limit = jnp.broadcast_to(within[:, -1:], within.shape)
        data, weight, *_ = self.unit.gather(store, within.reshape(-1), limit.reshape(-1))
        data, weight = jax.tree.map(lambda leaf: leaf.reshape(*within.shape, *leaf.shape[1:]), (data, weight))
        data = data._replace(real=real)
        if isinstance(self.unit, NStep):
            last = self.unit.last(store, within.reshape(-1), limit.reshape(-1)).reshape(within.shape)
            data = data._replace(last=jnp.clip(last - grid[:, :1], 0, len(steps) - 1))
        valid = real & (steps >= 0)
        return SampleData(data, weight, valid, jnp.sum(valid, axis=1))


@dataclass(frozen=True)
class Sampler:
    """One batch of a phase: `size` samples of a unit from a store, in an order."""

    store: str
    size: int
    unit: Unit
    order: Any = Uniform()  # an `Order`

    def batch(self, store: Any, state: Any, key: jax.Array, progress: jax.Array) -> tuple[Batch, jax.Array]:
        """Return a batch, and the indices for its feedback."""
        count, rows = self.unit.rows(store)
        indices, importance, offset = self.choose(state, key, count, progress, getattr(store, "live", None))
        return self.at(store, indices if rows is None else rows[indices], importance, offset), indices

    def choose(
        self, state: Any, key: jax.Array, count: int, progress: jax.Array, live: jax.Array | None = None
    ) -> Samples:
        """Return the samples of one batch among `count`; where samples expire, only among the `live` ones."""
        choices = self.order.draw
        choices = choices if live is None else partial(choices, live=live)
        indices, importance = choices(state, key, self.size, count, progress)
        if not isinstance(self.unit, Window):
            return Samples(indices, importance)
        offset = jax.random.randint(jax.random.fold_in(key, OFFSETS), (self.size,), 0, self.unit.length)
        return Samples(indices, importance, offset)

    def at(
        self, store: Any, rows: jax.Array, importance: jax.Array | None = None, offset: jax.Array | None = None
    ) -> Batch:
        """Return the batch of given rows [B] of the store; `offset` [B] is each row's position in its window."""
        if isinstance(self.unit, Window):
            data, weight, valid, valid_steps = self.unit.gather(store, rows, offset)
        else:
            data, weight, valid, valid_steps = self.unit.gather(store, rows)
        if importance is not None:
            each = importance if valid is None else jnp.broadcast_to(importance[:, None], valid.shape)
            weight = each if weight is None else each * weight
        return Batch(data, rows, weight, valid, valid_steps)


def _weight(store: StoredLog, rows: jax.Array) -> jax.Array | None:
    return None if store.weight is None else store.weight[rows]


def _at(observation: Observation, positions: jax.Array) -> Observation:
    return {name: leaf[positions] for name, leaf in observation.items()}


def shifted(batch: Batch, key: jax.Array, most: int) -> Batch:
    """Return the batch with each picture moved by up to `most` pixels up or down and left or right, evenly.

    Beyond its edge a picture goes on with its last row or column. A step's observation and next observation move apart,
    the pictures of a window together (random shifts: Yarats, Kostrikov, Fergus 2021).
    """

    def moved(observation: Observation, key: jax.Array) -> Observation:
        return {name: _moved(leaf, key, most) if leaf.dtype == jnp.uint8 else leaf for name, leaf in
                observation.items()}  # fmt: skip

    data, keys = batch.data, jax.random.split(key)
    data = data._replace(observation=moved(data.observation, keys[0]))
    if isinstance(data, Transition):
        later = moved(data.next_observation, keys[0 if batch.valid is not None else 1])
        data = data._replace(next_observation=later)
    return batch._replace(data=data)


@partial(jax.vmap, in_axes=(0, 0))
def _cut(picture: jax.Array, by: jax.Array) -> jax.Array:
    """Return pictures [..., height, width, channels] that begin at row `by[0]` and column `by[1]`."""
    rows, columns = (
        jnp.clip(jnp.arange(size) + one, 0, size - 1) for size, one in zip(picture.shape[-3:-1], by, strict=True)
    )
    return picture[..., rows, :, :][..., columns, :]


def _moved(pictures: jax.Array, key: jax.Array, most: int) -> jax.Array:
    """Return pictures [B, ..., height, width, channels], each sample moved by its own offsets."""
    return _cut(pictures, jax.random.randint(key, (len(pictures), 2), -most, most + 1))


# Prioritised sampling inside a compiled step: a sum-tree of width 16, one array for each level.
#
# Schaul, Quan, Antonoglou, Silver 2016, arXiv:1511.05952, algorithm 1. The probability of a sample is `p_i ** exponent
# / sum p ** exponent`, where `p = abs(priority) + 1e-6`; one sample comes from each of B equal strata of the total
# mass. A sample that was never drawn has the largest p so far, which is 1 at the beginning. The weight of a sample's
# loss is `(count * probability) ** -correction`, divided by the batch's largest weight; the correction goes to 1 over
# the run.
#
# The largest p changes all new samples at once, so every node has two numbers: the sum over its drawn samples, and the
# number of its new samples, each of the same mass. Leaves are set and their parents recomputed from their children. A
# row that is drawn twice keeps the larger of its values.
#
# Letters: `B` batch, `N` samples, `V` numbers of a node.

WIDTH = 16
SMALLEST = 1e-6  # every sample stays possible
LARGEST = 1e12  # the sum stays finite


class SumTree(NamedTuple):
    """Levels from the leaves up: [ceil(N / 16), 16], [ceil(N / 256), 16], ..., [1, 16]; each entry sums a row below.

    Where nodes have several numbers, every level has a last axis `V`.
    """

    levels: tuple[jax.Array, ...]


def full_tree(count: int, value: Any = 1.0) -> SumTree:
    """Return a tree of `count` equal leaves, each a number or [V]."""
    leaf = jnp.asarray(value, jnp.float32)
    levels = [_in_rows(jnp.broadcast_to(leaf, (count, *leaf.shape)))]
    while levels[-1].shape[0] > 1:
        levels.append(_in_rows(levels[-1].sum(axis=1)))
    return SumTree(tuple(levels))


def _in_rows(values: jax.Array) -> jax.Array:
    """Return values [n, ...] as rows [ceil(n / 16), 16, ...], the last one padded with zeros."""
    padding = [(0, -len(values) % WIDTH), *[(0, 0)] * (values.ndim - 1)]
    return jnp.pad(values, padding).reshape(-1, WIDTH, *values.shape[1:])


def total(tree: SumTree) -> jax.Array:
    """Return the sum of all leaves, a number or [V]."""
    return jnp.sum(tree.levels[-1], axis=(0, 1))


class Priorities(NamedTuple):
    """The state of prioritised sampling."""

    tree: SumTree  # V = 2: (p ** exponent, 0) for samples that were drawn before, (0, 1) for new samples
    largest: jax.Array  # the largest p so far, before the exponent; at least 1


def find(tree: SumTree, mass: jax.Array, scale: jax.Array | None = None) -> jax.Array:
    """Find the leaves [B] where the running sum exceeds `mass` [B]; never a leaf without mass.

    Where nodes have several numbers, `scale` [V] is the factor of each.
    """
    node = jnp.zeros(mass.shape, jnp.int32)
    for level in reversed(tree.levels):
        children = level[node] if scale is None else jnp.sum(level[node] * scale, axis=-1)  # [B, 16]
        below = jnp.cumsum(children, axis=1)
        last = WIDTH - 1 - jnp.argmax(children[:, ::-1] > 0, axis=1)  # rounding must not select an empty child
        child = jnp.minimum(jnp.sum(below <= mass[:, None], axis=1), last)
        before = jnp.where(jnp.arange(WIDTH) < child[:, None], children, 0.0).sum(axis=1)
        mass = mass - before
        node = node * WIDTH + child.astype(jnp.int32)
    return node


def put(tree: SumTree, leaves: jax.Array, values: jax.Array) -> SumTree:
    """Set values [B] or [B, V], >= 0, at leaves [B]; a repeated leaf gets the largest value."""
    position = leaves // WIDTH, leaves % WIDTH
    levels = [tree.levels[0].at[position].set(0.0).at[position].max(values)]
    for level in tree.levels[1:]:
        leaves = leaves // WIDTH
        sums = levels[-1][leaves].sum(axis=1)
        levels.append(level.at[leaves // WIDTH, leaves % WIDTH].set(sums))
    return SumTree(tuple(levels))


@dataclass(frozen=True)
class Prioritised:
    """Samples in proportion to their last priority; new samples have the largest priority so far."""

    exponent: Any  # 0: uniform; 1: in proportion. A float, or a tracer in a population
    correction: Any  # 0: weights are 1; 1: the mean is unbiased. The initial value, it goes to 1; None: no weights

    def init(self, count: int, key: jax.Array | None = None) -> Priorities:
        """Return equal priorities for all samples."""
        return Priorities(full_tree(count, (0.0, 1.0)), jnp.ones(()))

    def draw(
        self, state: Priorities, key: jax.Array, size: int, count: int, progress: jax.Array
    ) -> tuple[jax.Array, jax.Array | None]:
        """Return indices [size] and their importance weights or None, at a share of the run in [0, 1]."""
        strata = (jnp.arange(size) + jax.random.uniform(key, (size,))) / size
        scale = jnp.stack([jnp.ones(()), self._mass(state.largest)])
        mass = jnp.sum(total(state.tree) * scale)
        indices = jnp.minimum(find(state.tree, strata * mass, scale), count - 1)
        if self.correction is None:
            return indices, None
        leaves = state.tree.levels[0][indices // WIDTH, indices % WIDTH]  # [B, 2]
        probability = jnp.sum(leaves * scale, axis=1) / mass
        correction = self.correction + (1.0 - self.correction) * progress
        weight = (count * probability) ** -correction
        return indices, weight / jnp.max(weight)

    def learn(self, state: Priorities, indices: jax.Array, priority: jax.Array | None) -> Priorities:
        """Return the state with new priorities [B] of the drawn samples."""
        if priority is None:
            raise TypeError(
                "prioritised sampling: the step returned no priorities. fix: return Feedback(metrics, priority)"
            )
        priority = jnp.abs(priority) + SMALLEST
        seen = jnp.stack([self._mass(priority), jnp.zeros(indices.shape)], axis=1)
        return Priorities(put(state.tree, indices, seen), jnp.maximum(state.largest, jnp.max(priority)))

    def _mass(self, priority: jax.Array) -> jax.Array:
        """Return the unnormalised probability of samples with these priorities."""
        return jnp.clip(priority**self.exponent, SMALLEST, LARGEST)


def ordered(exponent: Any, correction: Any) -> Uniform | Prioritised:
    """Return prioritised sampling, or uniform sampling without an exponent."""
    return Uniform() if exponent is None else Prioritised(exponent, correction)
