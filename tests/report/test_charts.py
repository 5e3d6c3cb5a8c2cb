"""Where things are drawn: axes, curves over seeds, intervals, shared histograms."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from tests.report.pages import Page
from tidelog.policies.statistics import Interval, bootstrap_interval, mean
from tidelog.report.frame import (
    Axis,
    Curve,
    Reach,
    Source,
    axis,
    binned,
    curves,
    intervals,
    named_ticks,
    overlaid,
    ridges,
    shares,
    short,
)
from tidelog.report.verdict import _weights
from tidelog.training.metrics import MOST_POINTS, over_seeds, thin

RANGES = [(0.0, 1.0), (-3.0, 17.0), (1e-9, 2e-9), (1e6, 1e6 + 3), (-3e38, 3e38), (5.0, 5.0), (0.0, 0.0)]


@pytest.mark.parametrize("ends", RANGES)
def test_an_axis_has_round_numbers_within_its_range(ends):
    made = axis(np.array(ends), 10, 110)
    assert made.low < made.high
    ticks = made.ticks(5)
    assert 2 <= len(ticks) <= 6
    assert all(made.low - 1e-9 * abs(made.low) <= tick <= made.high + 1e-9 * abs(made.high) for tick in ticks)
    assert (made.at(np.array([*ends, *ticks])) >= 10).all()
    assert (made.at(np.array([*ends, *ticks])) <= 110).all()


def test_an_axis_places_numbers_and_becomes_logarithmic_over_decades():
    np.testing.assert_allclose(Axis(-1, 3, 100, 0).at([-1, 0, 3, 9, -9, np.nan]), [100, 75, 0, 0, 100, np.nan])
    wide = axis([0.01, 1.0, 100.0], 0, 100, positive=True)
    assert wide.logarithmic
    np.testing.assert_allclose(wide.at([0.01, 1.0, 100.0]), [0, 50, 100])
    np.testing.assert_allclose(wide.ticks(), [0.01, 0.1, 1, 10, 100])
    assert not axis([0.0, 100.0], 0, 100, positive=True).logarithmic
    assert not axis([0.01, 100.0], 0, 100).logarithmic


def test_ticks_have_as_many_digits_as_their_places_need():
    assert named_ticks([0.0, 0.5, 1.0]) == [(0.0, "0"), (0.5, "0.5"), (1.0, "1")]
    assert [name for _, name in named_ticks([1.2, 1.21, 1.215])] == ["1.2", "1.21", "1.215"]
    assert [name for _, name in named_ticks([100_000.0, 100_001.0])] == ["100k", "100.001k"]
    assert named_ticks([500.0, 1000.0]) == [(500.0, "500"), (1000.0, "1000")]
    assert named_ticks([]) == []


def test_numbers_are_short():
    assert [short(n) for n in (0, 20_000, 1.5e6, 0.25, -12_345, 3e38)] == [
        "0",
        "20k",
        "1.5M",
        "0.25",
        "-12.35k",
        "3e+38",
    ]


@pytest.mark.full
def test_the_band_over_seeds_is_the_bootstrap_interval_of_their_mean():
    values = np.random.default_rng(0).normal([0, 10, 20], size=(8, 3))
    middle, low, high = over_seeds(values)
    np.testing.assert_allclose(middle, values.mean(0))
    for place in range(3):
        expected = bootstrap_interval(values[:, place], mean, replicates=20_000)
        # 0 of 19 other seeds fail
        assert [low[place], high[place]] == pytest.approx([expected.low, expected.high], abs=0.05)
    assert over_seeds(values[:1])[1:] == (None, None)


def test_what_is_not_finite_is_left_out_of_means():
    values = np.array([[1.0, np.nan, np.nan], [3.0, 5.0, np.nan]])
    middle, low, high = over_seeds(values)
    np.testing.assert_array_equal(middle, [2, 5, np.nan])
    np.testing.assert_array_equal(low, [1, 5, np.nan])
    np.testing.assert_array_equal(high, [3, 5, np.nan])


def test_thinning_keeps_means_and_leaves_short_curves_alone():
    updates, values = np.arange(1, 481) * 10, np.arange(960.0).reshape(2, 480)
    fewer, means = thin(updates, values)
    assert len(fewer) == MOST_POINTS
    np.testing.assert_allclose(fewer[:2], [25, 65])
    np.testing.assert_allclose(means[:, :2], [[1.5, 5.5], [481.5, 485.5]])
    np.testing.assert_array_equal(thin(updates[:9], values[:, :9])[1], values[:, :9])


def test_a_curve_is_drawn_where_its_numbers_are():
    up = Curve("a", 3, np.array([0.0, 50.0, 100.0]), np.array([0.0, 1.0, 2.0]), None, None, np.zeros((1, 3)))
    text = curves("a metric", [up], "loss")
    Page(text)
    ((path),) = re.findall(r'<path class="curve c3" d="M([^"]+)"', text)
    x, y = np.array([[float(n) for n in point.split()] for point in path.split("L")]).T
    assert (np.diff(x) > 0).all()
    np.testing.assert_allclose(np.diff(y), np.diff(y)[0], atol=0.11)
    assert (np.diff(y) < 0).all()  # up is up
    gap = Curve("a", 3, np.arange(5.0), np.array([0.0, 1.0, np.nan, 2.0, 3.0]), None, None, np.zeros((1, 5)))
    ((path),) = re.findall(r'<path class="curve c3" d="([^"]+)"', curves("a metric", [gap], "loss"))
    assert path.count("M") == 2
    alone = Curve("a", 3, np.array([5.0]), np.array([1.0]), None, None, np.zeros((1, 1)))
    assert '<circle class="dot c3"' in curves("a metric", [alone], "loss")


def test_intervals_stand_on_their_side_of_the_line_and_far_ends_are_arrows():
    rows = [Reach("ours", Interval(1, 0.5, 1.5), strong=True), Reach("lost", Interval(np.nan, np.nan, np.nan)),
            Reach("wild", Interval(0, -900, 900), "log")]  # fmt: skip
    text = intervals("differences", rows, 0.0, "difference", ("worse", "better"))
    Page(text)
    line = float(re.findall(r'class="ink" x1="([\d.]+)"', text)[0])
    dots = [float(x) for x in re.findall(r'<circle class="dot \w+" cx="([\d.]+)"', text)]
    assert dots[0] > line + 10
    assert dots[1] == pytest.approx(line, abs=0.1)
    assert len(re.findall(r">[◂▸]</text>", text)) == 2
    assert "no number" in text
    far = intervals("differences", [rows[0], Reach("far", Interval(500, 400, 600), "log")], 0.0, "difference", ("", ""))
    assert len(re.findall(r'<circle class="dot', far)) == 1  # a mean outside of the picture has no dot at its edge


def test_sources_share_their_bins():
    low, high = Source("low", "log", np.zeros(50)), Source("high", "c1", np.ones(10))
    text = ridges("returns", [low, high], "return")
    Page(text)
    left = {kind: float(x) for kind, x in re.findall(r'<rect class="(\w+)" x="([\d.]+)"', text)}
    assert left["c1"] > left["log"] + 50
    Page(overlaid("actions", [low, high, Source("same", "c2", np.zeros(3))], "dose"))
    for values in (np.array([-3e38, 3e38]), np.array([2.5]), np.random.default_rng(0).normal(size=100)):
        Page(ridges("returns", [Source("one", "log", values)], "return"))
        Page(overlaid("actions", [Source("one", "log", values), Source("two", "c0", values)], "dose"))


def test_shares_and_weights_are_drawn_in_proportion():
    text = shares("shares", ["a", "b"], [("log", np.array([0.25, 0.75])), ("c0", np.array([0.5, 0.5]))])
    Page(text)
    widths = [float(width) for width in re.findall(r'width="([\d.]+)" height', text)]
    np.testing.assert_allclose(np.array(widths) / widths[2], [1 / 3, 2 / 3, 1, 2 / 3], atol=0.01)
    text = binned("weights", np.array([1.0, 0.0, 4.0]), np.array([-1.0, 0.0, 1.0, 2.0]), [(0.0, "1")], "weight")
    heights = [float(height) for height in re.findall(r'<rect[^>]+height="([\d.]+)"', text)]
    np.testing.assert_allclose(np.array(heights) / heights[-1], [0.25, 1])


def test_tiny_weights_are_named_by_their_power_of_ten():
    """150 episodes with weights from 1e-60 to 10: no two places of the axis have one name, and none is 0."""
    saved = SimpleNamespace(counts=np.ones(10), edges=np.linspace(-60.0, 1.0, 11), zeros=0)
    names = re.findall(r">([\d.e-]+)</text>", _weights(saved))
    assert {"1e-60", "1e-49", "1e-16", "1e-5"} <= set(names)
    assert "0" not in names
