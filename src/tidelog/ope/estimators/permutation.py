"""Permutation distribution of a doubly robust difference, for rewards that few episodes or clusters carry.

A bootstrap over episodes knows weights only where something was earned. If 25 of 5,000 episodes earned, it resamples 25
weights; where these are skewed, most samples of 25 lack the large ones, and their spread is too small: a policy without
any difference is called worse far too often. The weights of all 5,000 episodes are known. If weights and residuals have
nothing to do with each other, every pairing of the weights of one episode with the residuals of another is equally
likely. The difference is linear in the residuals, so the mean, variance and skewness over all pairings have a closed
form; the quantiles are those of the Pearson type III (shifted gamma) distribution with these moments (Mielke & Berry
2007, "Permutation Methods").

This distribution has a hard end on its short side, which long-tailed weights pass: the sum of 26 weights with a
skewness of 12 is below its 2.5% point in 7% of pairings. Where the moments are skewed, pairings are therefore drawn as
well, and the arms reach as far as either. Rows with large residuals meet random weights; the others' sum is normal.

With `w_it` the normalised weight of step t (`sum_i w_it = 1`), or 1/E times its occupancy ratio without the discount,
`delta_it = r_it + gamma v_i,t+1 - q_it`, and `v - q` the model's advantage of the target over the logged action:
`difference = sum_it (w_it - 1/E) gamma^t delta_it + mean_i sum_t gamma^t (v_it - q_it)`.
Whole episodes are paired with products of probabilities, single steps with occupancy ratios, which depend on one step.

Weights of one cluster are alike, and so are its residuals: the episodes of a user, the steps of an episode. Then whole
clusters are paired, and within them the rows. A moment over these pairings is a sum over tuples of rows, of which some
are the same row, some of the same cluster: tuples of one pattern have the same mean on both sides. With clusters of one
size this is exact. With unequal sizes a pattern has one mean for all of them.

Letters: `E` episodes, `N` steps, `T` steps of the longest episode, `R` rows (episodes or steps), `C` clusters of rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainccinv, gammaincinv, ndtr, ndtri

from tidelog.ope.estimators.intervals import Confidence
from tidelog.ope.estimators.ratios import cluster_sums, required_part
from tidelog.ope.estimators.sequential import CELLS, discounts, step_weights
from tidelog.ope.evidence.evidence import Evidence, Floats

PRODUCTS = 5_000_000  # products of two steps that are in memory together
SYMMETRIC = 1e-4  # skewness below which the distribution is normal
SKEWED = 0.25  # skewness from which pairings are drawn, too
DRAWS, LEAST_TAIL = 4_000, 0.005  # pairings; smallest tail that they can show
DRAWN_NUMBERS = 1_000  # residuals that meet weights at random in each of them; the others are a normal number


def permutation_arms(
    evidence: Evidence, confidence: Confidence, against: Evidence | None = None, *, visits: bool = False
) -> tuple[float, float]:
    """Distances of the lower and the upper end from an estimated difference: (below, above), both at least 0.

    The difference is that of the weighted doubly robust estimate, with `visits` of double reinforcement learning, from
    the logger's mean, or from the same estimate of another policy on the same episodes (`against`). If weights and
    residuals are independent, it is above `below` or under `-above` with half the error of `confidence` each. (0, 0)
    where episodes times steps exceed `CELLS`, and for fewer than 3 episodes.
    """
    episodes, horizon = evidence.episodes, evidence.horizon
    if evidence.units < 3 or episodes * horizon > CELLS:
        return 0.0, 0.0
    weights, residuals, advantages = _parts(evidence, visits)
    if against is not None:  # two columns for each step: the pairs of the other policy count against this one's
        others = _parts(against, visits)
        weights, residuals = np.hstack([weights, others[0]]), np.hstack([residuals, -others[1]])
        advantages = advantages - others[2]
    elif visits:
        weights = weights - discounts(evidence)[:, None] / episodes
    units = np.arange(episodes) if evidence.clusters is None else evidence.clusters
    clusters = np.repeat(units, evidence.lengths) if visits else units
    deviation, skewness = _moments(weights - weights.mean(0), residuals - residuals.mean(0), clusters)
    deviate = confidence.widening * float(ndtri((1.0 + confidence.level) / 2.0))
    low, high = (deviation * end for end in pearson_quantiles(skewness, deviate))
    if abs(skewness) > SKEWED:
        generator = np.random.default_rng([confidence.seed, DRAWS])
        sums = _drawn_sums(weights - weights.mean(0), residuals - residuals.mean(0), clusters, deviation, generator)
        tail = max(float(ndtr(-deviate)), LEAST_TAIL)
        farther = deviate / -float(ndtri(tail))  # tails beyond the drawn ones are as long as normal ones
        drawn_low, drawn_high = farther * np.quantile(sums, [tail, 1.0 - tail])
        low, high = min(low, float(drawn_low)), max(high, float(drawn_high))
    sums = cluster_sums(advantages - advantages.mean(), units)
    error = deviate * np.sqrt(np.square(sums).sum() * len(sums) / (len(sums) - 1)) / episodes
    return float(np.hypot(max(high, 0.0), error)), float(np.hypot(max(-low, 0.0), error))


def _parts(evidence: Evidence, visits: bool) -> tuple[Floats, Floats, Floats]:
    """Weights and residuals of one estimate, [E, T] and 0 after the end, with `visits` [N, 1]; its advantages [E]."""
    rated, value = required_part(evidence, "model"), required_part(evidence, "model_target")
    after = np.append(value[1:], 0.0)
    after[evidence.starts[1:] - 1] = 0.0
    discount, gaps = discounts(evidence), evidence.reward + evidence.discount * after - rated
    advantages = np.add.reduceat(discount * (value - rated), evidence.starts[:-1])
    if visits:
        return required_part(evidence, "occupancy")[:, None] / evidence.episodes, gaps[:, None], advantages
    residuals = np.zeros((evidence.episodes, evidence.horizon))
    residuals[np.arange(evidence.horizon) < evidence.lengths[:, None]] = discount * gaps
    return step_weights(evidence), residuals, advantages


def _moments(weights: Floats, residuals: Floats, clusters: NDArray[np.int64]) -> tuple[float, float]:
    """Standard deviation and skewness of `sum_i weights_i . residuals_p(i)` over all pairings p; both centred, [R, T].

    0 where the patterns of unequal clusters leave no variance.
    """
    pairs, triples = _tuples(np.bincount(clusters).astype(np.float64))
    variance, third = (
        sum(float(np.vdot(*sums)) / number for *sums, number in zip(ours, theirs, numbers, strict=True) if number > 0)
        for ours, theirs, numbers in zip(
            _sums(weights, clusters), _sums(residuals, clusters), (pairs, triples), strict=True
        )
    )
    return (np.sqrt(variance), third / variance**1.5) if variance > 0.0 else (0.0, 0.0)


def _drawn_sums(
    weights: Floats, residuals: Floats, clusters: NDArray[np.int64], deviation: float, generator: np.random.Generator
) -> Floats:
    """`DRAWS` centred sums over pairings, whose standard deviation is `deviation`: weights and residuals [R, T].

    Each cluster with large residuals meets the weights of a random cluster, from a random one of its rows on.
    """
    order = np.argsort(clusters, kind="stable")
    sizes = np.bincount(clusters)
    first = np.cumsum(sizes) - sizes
    size_of_residuals = cluster_sums(np.square(residuals).sum(1), clusters)
    largest = np.argsort(-size_of_residuals, kind="stable")
    count = max(1, int(np.searchsorted(np.cumsum(sizes[largest]) * weights.shape[1], DRAWN_NUMBERS, "right")))
    chosen = largest[:count]
    own = np.concatenate([order[first[one] : first[one] + sizes[one]] for one in chosen])
    place = np.concatenate([np.arange(sizes[one]) for one in chosen])
    met = np.repeat(np.arange(count), sizes[chosen])
    sums = np.empty(DRAWS)
    step = max(1, PRODUCTS // (len(own) * weights.shape[1]))
    for begin in range(0, DRAWS, step):
        some = min(step, DRAWS - begin)
        donors = generator.integers(len(sizes), size=(some, count))
        if len(order) == len(sizes):  # one row in each cluster: nothing is left to draw
            rows = order[donors]
        else:
            shift = generator.integers(sizes[donors])
            rows = order[first[donors][:, met] + (shift[:, met] + place) % sizes[donors][:, met]]
        sums[begin : begin + some] = np.einsum("brt,rt->b", weights[rows], residuals[own])
    rest = max(deviation**2 - float(sums.var()), 0.0)
    return np.asarray(sums - sums.mean() + np.sqrt(rest) * generator.standard_normal(DRAWS))


def _tuples(sizes: Floats) -> tuple[list[float], list[float]]:
    """How many pairs and triples of rows have each pattern of `_sums`; two equal ones can stand in three places."""
    rows, squares, cubes = sizes.sum(), (sizes**2).sum(), (sizes**3).sum()
    same_cluster, apart = squares - rows, rows**2 - squares
    three = (sizes * (sizes - 1) * (sizes - 2)).sum()
    two_apart = rows * squares - cubes - apart
    return (
        [rows, same_cluster, apart],
        [rows, same_cluster / 3, three, apart / 3, two_apart / 3, rows**3 - 3 * rows * squares + 2 * cubes],
    )


def _sums(values: Floats, clusters: NDArray[np.int64]) -> tuple[list[Floats], list[Floats]]:
    """Sums of the products of two columns, [T, T], and of three, [T * T, T], over all pairs and triples of a pattern.

    Pairs are one row, two of a cluster, or of two clusters. Triples are one row; one row and another of its cluster;
    three of a cluster; one row and one of another cluster; two of a cluster and one of another; of three clusters.
    """
    totals = cluster_sums(values, clusters)
    row, within = values.T @ values, totals.T @ totals
    one = mixed = cluster = _triples(values, values)
    if len(totals) < len(values):
        mixed, cluster = _triples(values, totals[clusters]), _triples(totals, totals)
    same_cluster = mixed - one
    return (
        [row, within - row, -within],
        [one, same_cluster, cluster - one - _in_each_place(same_cluster), -mixed, mixed - cluster, 2.0 * cluster],
    )


def _triples(values: Floats, others: Floats) -> Floats:
    """Sums over rows of the products of two columns of `values` and one of `others`, [T * T, T]."""
    width = values.shape[1]
    sums = np.zeros((width * width, width))
    rows = max(1, PRODUCTS // width**2)
    for begin in range(0, len(values), rows):
        part = values[begin : begin + rows]
        sums += (part[:, :, None] * part[:, None, :]).reshape(len(part), -1).T @ others[begin : begin + rows]
    return sums


def _in_each_place(sums: Floats) -> Floats:
    """Sums of triples with the third column in each of the three places, added."""
    cube = sums.reshape(sums.shape[1], sums.shape[1], -1)
    return np.asarray(cube + cube.transpose(0, 2, 1) + cube.transpose(2, 1, 0)).reshape(sums.shape)


def pearson_quantiles(skewness: float, deviate: float) -> tuple[float, float]:
    """Quantiles of the Pearson type III distribution of mean 0 and variance 1, with the tails beyond -/+ `deviate`.

    The tails are those of a standard normal number.
    """
    if abs(skewness) < SYMMETRIC:
        return -deviate, deviate
    shape, tail = 4.0 / skewness**2, float(ndtr(-deviate))
    short = (float(gammaincinv(shape, tail)) - shape) / np.sqrt(shape)
    long = (float(gammainccinv(shape, tail)) - shape) / np.sqrt(shape)
    return (short, long) if skewness > 0 else (-long, -short)
