"""Pictures show the numbers that they are made of: axes, bars, curves over seeds, intervals; as figures and as SVG."""

import re
import sys
import warnings
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.patches import PathPatch

from tests.report.crafted import verdict
from tests.report.pages import Page
from tests.training.logs import log, origin, saved
from tests.training.runs import LOSS, bc, begin, finish
from tidelog import ConfigError, Log
from tidelog.data.statistics import episode_returns
from tidelog.ope.estimators import Estimates
from tidelog.plots import (
    LIGHT,
    Bins,
    Curve,
    Range,
    Reach,
    Source,
    bars,
    binned,
    curves,
    figure,
    histogram,
    intervals,
    named_ticks,
    overlaid,
    ridges,
    short,
    svg,
)
from tidelog.policies.statistics import Interval, bootstrap_interval, mean
from tidelog.training.metrics import MOST_POINTS, over_seeds, thin

__all__ = ["log", "origin", "saved"]


@pytest.fixture(scope="module")
def run(log):
    """Two seeds of a population of two, with its best policy."""
    return finish(begin([bc(), bc(learning_rate=1e-3)], log, seeds=2, best_metric=LOSS))


def drawn_file(figure, path):
    """Draw it, with the warnings of matplotlib as errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.savefig(path)
    assert path.stat().st_size > 5000
    return path


def heights(axes, of=0):
    """Widths [B], heights [B] and middles [B] of the bars of the picture's path number `of`."""
    paths = [one.get_path() for one in axes.patches if type(one) is PathPatch]
    corners = paths[of].vertices.reshape(-1, 5, 2)
    across, up = corners[..., 0], corners[..., 1]
    return np.ptp(across, 1), np.ptp(up, 1), across.min(1) / 2 + across.max(1) / 2


def named(axes, name):
    """The points of the line of a name."""
    (line,) = [one for one in axes.lines if one.get_label() == name]
    return line


def test_a_run_shows_the_metrics_of_every_seed_and_the_chosen_checkpoint(run, tmp_path):
    figure = run.plot()
    (axes,) = figure.axes
    assert (axes.get_title("left"), axes.get_xlabel()) == ("imitation_loss", "updates")
    for metric, dashes in (("imitation_loss", "-"), (LOSS, "--")):
        lines = [one for one in axes.lines if one.get_linestyle() == dashes]
        for config in (0, 1):
            values = [[row[metric] for row in run.metrics if row["member"] == m] for m in (2 * config, 2 * config + 1)]
            for expected in (*values, np.mean(values, axis=0)):
                assert any(np.allclose(line.get_ydata(), expected, rtol=1e-12) for line in lines), (metric, config)
        assert all(list(line.get_xdata()) == [14, 28, 42] for line in lines)
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    names = [f"bc [learning_rate {rate}]" for rate in (0.01, 0.001)]
    assert labels == [f"{name}{ending}" for name in names for ending in ("", ", held out")] + ["chosen checkpoint"]
    (star,) = [one for one in axes.lines if one.get_marker() == "*"]
    best = min(run.metrics, key=lambda row: row[LOSS])
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (best["update"], best[LOSS])
    drawn_file(figure, tmp_path / "run.png")


def test_other_metrics_are_drawn_by_name_and_wrong_names_are_refused(run):
    name = next(one for one in run.metrics[0] if "loss" not in one and one not in ("update", "member", "seed"))
    assert [one.get_title("left") for one in run.plot([name]).axes] == [name]
    with pytest.raises(ConfigError, match="no report has the metric 'imitation_los': did you mean 'imitation_loss'"):
        run.plot(["imitation_los"])


def test_a_run_without_a_report_has_nothing_to_draw(log):
    with pytest.raises(ConfigError, match=r"no report yet.*fix: train it first"):
        begin(bc(), log).plot()


def test_a_verdict_shows_its_intervals_its_decision_and_its_unit(tmp_path):
    shown = verdict("better", reward_unit="EUR")
    figure = shown.plot()
    (axes,) = figure.axes
    assert " ".join(figure.get_suptitle().split()) == f"Verdict: better. {shown.advice}"
    assert axes.get_xlabel() == "mean return per episode in EUR"
    for row in shown.estimates:
        line = named(axes, f"{row.name} (decides)" if row.name == "wdr" else row.name)
        assert list(line.get_xdata()) == [row.low, row.high]
        assert line.get_color() == LIGHT["c0" if row.name == "wdr" else "log"]
    assert list(named(axes, "behaviour policy, as recorded").get_xdata()) == [0.57, 0.67]
    assert any(list(one.get_xdata()) == [0.62, 0.62] for one in axes.lines), "the line of the behaviour policy"
    words = [one.get_text() for one in axes.texts]
    assert words[:2] == ["wdr (decides)", "0.7 (0.65 to 0.75)"]
    assert words[-2:] == ["behaviour policy, as recorded", "0.62 (0.57 to 0.67)"]
    assert sum("(decides)" in word for word in words) == 1
    drawn_file(figure, tmp_path / "verdict.png")


def test_guesses_of_an_unsupported_policy_are_called_so(tmp_path):
    figure = verdict("unsupported").plot()
    (axes,) = figure.axes
    assert "do not use them" in " ".join(figure.get_suptitle().split())
    assert named(axes, "wdr (decides)").get_color() == LIGHT["log"]
    shown = verdict()
    wild = replace(shown.estimates[1], low=-900.0, high=900.0)
    lost = replace(shown.estimates[2], estimate=np.nan, low=np.nan, high=np.nan)
    figure = replace(shown, estimates=Estimates([shown.estimates[0], wild, lost])).plot()
    low, high = figure.axes[0].get_xlim()
    assert 0.6 < high - low < 1.5, "the deciding estimate sets the width"
    words = [one.get_text() for one in figure.axes[0].texts]
    assert words[words.index("wis") + 1] == "no number: the log does not support it"
    drawn_file(figure, tmp_path / "wild.png")


def test_a_log_shows_its_returns_lengths_and_actions(log, tmp_path):
    figure = log.plot()
    returns, lengths, actions = figure.axes
    _, tall, middles = heights(returns)
    assert tall.sum() == len(log.episodes)
    if len(np.unique(episode_returns(log))) < 30:
        np.testing.assert_allclose((tall * middles).sum(), episode_returns(log).sum(), rtol=0.05)
    assert heights(lengths)[1].sum() == len(log.episodes)
    assert lengths.get_xlabel() == "steps of an episode"
    assert [int(bar.get_width()) for bar in actions.patches] == np.bincount(log.action).tolist()
    assert [one.get_text() for one in actions.get_yticklabels()] == list(log.spec.action.names)
    drawn_file(figure, tmp_path / "log.png")


@pytest.mark.full
def test_logs_of_other_kinds_have_figures_too(tmp_path):
    rng = np.random.default_rng(0)
    doses = Log.from_arrays(
        observation=rng.normal(size=(40, 2)), action=rng.uniform(-1, 1, (40, 8)), reward=rng.normal(size=(40, 2)),
        episode=np.arange(40) // 4, reward_unit=r"$\no formula$",
    )  # fmt: skip
    figure = doses.plot()
    names = [one.get_xlabel().replace("\\$", "$") for one in figure.axes]
    returns = [rf"return of reward {place} of an episode in $\no formula$" for place in range(2)]
    assert names == [*returns, "steps of an episode", *(f"action[{one}], {one + 1} of 8" for one in range(6))]
    drawn_file(figure, tmp_path / "doses.png")
    many = Log.from_arrays(observation=np.arange(60.0), action=np.array([rf"_$\a^{one}$" for one in range(60)]),
                           reward=np.full(60, 2.5))  # fmt: skip
    figure = many.plot()
    assert len(figure.axes[-1].patches) == 20
    assert "and 40 more" in [one.get_text() for one in figure.axes[-1].texts]
    drawn_file(figure, tmp_path / "many.png")


def test_no_window_and_no_global_state(log, run):
    before = "matplotlib.pyplot" in sys.modules
    log.plot()
    run.plot()
    assert ("matplotlib.pyplot" in sys.modules) == before


def test_a_log_without_rewards_shows_no_returns():
    log = Log.from_arrays(observation=np.zeros((6, 1)), action=[0, 1] * 3, reward=None, episode=[0, 0, 0, 1, 1, 2])
    lengths, actions = log.plot().axes
    assert lengths.get_xlabel() == "steps of an episode"
    assert [int(bar.get_width()) for bar in actions.patches] == [3, 3]


# Each picture alone.

RANGES = [(0.0, 1.0), (-3.0, 17.0), (1e-9, 2e-9), (1e6, 1e6 + 3), (-3e38, 3e38), (5.0, 5.0), (0.0, 0.0)]


@pytest.mark.parametrize("ends", RANGES)
def test_an_axis_has_round_numbers_within_its_range(ends):
    made = Range.of(np.array(ends))
    assert made.low < made.high
    assert made.low <= ends[0] <= ends[1] <= made.high
    ticks = made.ticks(5)
    assert 2 <= len(ticks) <= 6
    assert all(made.low - 1e-9 * abs(made.low) <= tick <= made.high + 1e-9 * abs(made.high) for tick in ticks)


def test_ticks_have_as_many_digits_as_their_places_need():
    assert named_ticks([0.0, 0.5, 1.0]) == ["0", "0.5", "1"]
    assert named_ticks([1.2, 1.21, 1.215]) == ["1.2", "1.21", "1.215"]
    assert named_ticks([100_000.0, 100_001.0]) == ["100k", "100.001k"]
    assert named_ticks([500.0, 1000.0]) == ["500", "1000"]
    assert named_ticks([]) == []


def test_numbers_are_short():
    expected = ["0", "20k", "1.5M", "0.25", "-12.35k", "3e+38"]
    assert [short(n) for n in (0, 20_000, 1.5e6, 0.25, -12_345, 3e38)] == expected


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


def axes_of(picture):
    """The axes of a picture, which is also valid as SVG of a page."""
    Page(svg(picture))
    (axes,) = figure([picture]).axes
    return axes


def test_a_curve_is_drawn_where_its_numbers_are():
    up = Curve("a", 3, np.array([0.0, 50.0, 100.0]), np.array([0.0, 1.0, 2.0]), None, None, np.zeros((1, 3)))
    text = svg(curves("a metric", [up], "loss"))
    ((path),) = re.findall(r'<path d="M ([^"]+)" fill="none" stroke="var\(--c3\)"', text)
    x, y = np.array([[float(n) for n in point.split()] for point in path.split("L")]).T
    assert (np.diff(x) > 0).all()
    np.testing.assert_allclose(np.diff(y), np.diff(y)[0], atol=0.11)
    assert (np.diff(y) < 0).all()  # up is up
    gap = Curve("a", 3, np.arange(5.0), np.array([0.0, 1.0, np.nan, 2.0, 3.0]), None, None, np.zeros((1, 5)))
    ((path),) = re.findall(r'<path d="([^"]+)" fill="none" stroke="var\(--c3\)"', svg(curves("a", [gap], "loss")))
    assert path.count("M") == 2
    alone = Curve("a", 3, np.array([5.0]), np.array([1.0]), None, None, np.zeros((1, 1)))
    assert [one.get_marker() for one in axes_of(curves("a", [alone], "loss")).lines] == ["o"]
    steep = Curve("a", 0, np.arange(4.0), 10.0 ** np.arange(4), None, None, np.zeros((0, 4)))
    picture = curves("a", [steep], "loss")
    axes = axes_of(picture)
    assert axes.get_yscale() == "log"
    assert axes.get_title("left") == "loss, logarithmic scale"
    assert "logarithmic" in picture.description


def test_intervals_stand_on_their_side_of_the_line_and_far_ends_are_arrows():
    rows = [Reach("ours", Interval(1, 0.5, 1.5), strong=True), Reach("lost", Interval(np.nan, np.nan, np.nan)),
            Reach("wild", Interval(0, -900, 900), "log")]  # fmt: skip
    axes = axes_of(intervals("differences", rows, 0.0, "difference", ("worse", "better")))
    words = [one.get_text() for one in axes.texts]
    assert [words.count(one) for one in ("◂", "▸", "◂ worse", "better ▸")] == [1, 1, 1, 1]
    assert "no number: the log does not support it" in words
    dots = [float(one.get_xdata()[0]) for one in axes.lines if one.get_marker() == "o"]
    assert dots == [1, 0]
    assert [list(one.get_xdata()) for one in axes.lines].count([0, 0]) == 2  # the line, beside rows with a number
    low, high = axes.get_xlim()
    assert list(named(axes, "wild").get_xdata()) == [low, high]
    assert -6 < low < high < 7
    far = [rows[0], Reach("far", Interval(500, 400, 600), "log")]
    axes = axes_of(intervals("differences", far, 0.0, "difference"))
    # a mean outside of the picture has no dot at its edge
    assert [list(one.get_xdata()) for one in axes.lines if one.get_marker() == "o"] == [[1]]


def test_sources_share_their_bins():
    low, high = Source("low", "log", np.zeros(50)), Source("high", "c1", np.ones(10))
    axes = axes_of(ridges("returns", [low, high], "return"))
    assert [heights(axes, of)[2].tolist() for of in (0, 1)] == [[0], [1]]
    assert [one.get_text() for one in axes.get_xticklabels()] == ["0", "1"]
    means = [list(one.get_xdata()) for one in axes.lines if one.get_color() == LIGHT["ink"]]
    assert means == [[0, 0], [1, 1]]
    axes = axes_of(overlaid("actions", [low, high, Source("same", "c2", np.array([0.0, 0, 1]))], "dose"))
    assert heights(axes)[1].tolist() == [1]
    assert [one.get_data().values.tolist() for one in axes.patches if type(one) is not PathPatch] == [
        [0, 1],
        pytest.approx([2 / 3, 1 / 3]),
    ]
    for values in (np.array([-3e38, 3e38]), np.array([2.5]), np.random.default_rng(0).normal(size=100)):
        axes_of(ridges("returns", [Source("one", "log", values)], "return"))
        axes_of(overlaid("actions", [Source("one", "log", values), Source("two", "c0", values)], "dose"))
        axes_of(histogram("one", values))


def test_shares_and_weights_are_drawn_in_proportion():
    shares = [("log", np.array([0.25, 0.75])), ("c0", np.array([0.5, 0.5]))]
    axes = axes_of(bars("shares", ["a", "b"], shares, "{:.0%}".format, "share"))
    assert [one.get_width() for one in axes.patches] == [0.25, 0.75, 0.5, 0.5]
    assert [one.get_text() for one in axes.texts] == ["25%", "75%", "50%", "50%"]
    weights = Bins(np.array([1.0, 0.0, 4.0]), np.array([-1.0, 0.0, 1.0, 2.0]), False)
    axes = axes_of(binned("weights", weights, [(0.0, "1")], "weight"))
    assert heights(axes)[1].tolist() == [1, 4]
    assert [one.get_text() for one in axes.get_xticklabels()] == ["1"]


def test_a_picture_of_a_page_is_the_same_twice_whatever_the_settings_of_matplotlib_are():
    names = [r"$\no formula$", 'a & <b> style="1.23456"', "中文", "a\nb\x00\u202e", "\udcff"]
    picture = bars('of "names"', names, [("c0", np.arange(5.0))], "{:.0f}".format, "rows 1.23456")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = svg(picture)
        with mpl.rc_context({"font.weight": "bold", "font.size": 30, "svg.fonttype": "path", "figure.dpi": 50}):
            assert svg(picture) == first
            assert mpl.rcParams["font.size"] == 30
    assert set(re.findall(r'(?:fill|stroke)="([^"]+)"', first)) <= {"none", *(f"var(--{name})" for name in LIGHT)}
