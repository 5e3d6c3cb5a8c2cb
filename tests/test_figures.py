"""Figures of logs, runs and verdicts show the numbers that these hold."""

import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest

from tests.report.crafted import verdict
from tests.training.logs import log, origin, saved
from tests.training.runs import LOSS, bc, begin, finish
from tidelog import ConfigError, Log
from tidelog.data.statistics import episode_returns
from tidelog.ope.estimators import Estimates
from tidelog.policies.statistics import Interval

__all__ = ["log", "origin", "saved"]


@pytest.fixture(scope="module")
def run(log):
    """Two seeds of a population of two, with its best policy."""
    return finish(begin([bc(), bc(learning_rate=1e-3)], log, seeds=2, best=LOSS))


def drawn_file(figure, path):
    """Draw it, with the warnings of matplotlib as errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.savefig(path)
    assert path.stat().st_size > 5000
    return path


def test_a_run_shows_the_metrics_of_every_seed_and_the_chosen_checkpoint(run, tmp_path):
    figure = run.plot()
    (axes,) = figure.axes
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == ("imitation_loss", "updates", "imitation_loss")
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
    assert [one.get_title() for one in run.plot([name]).axes] == [name]
    with pytest.raises(ConfigError, match="no report has the metric 'imitation_los': did you mean 'imitation_loss'"):
        run.plot(["imitation_los"])


def test_a_run_without_a_report_has_nothing_to_draw(log):
    with pytest.raises(ConfigError, match=r"no report yet.*fix: train it first"):
        begin(bc(), log).plot()


def test_a_verdict_shows_its_intervals_its_decision_and_its_unit(tmp_path):
    shown = verdict("better", reward_unit="EUR")
    figure = shown.plot()
    (axes,) = figure.axes
    assert " ".join(axes.get_title().split()) == f"Verdict: better. {shown.advice}"
    assert axes.get_xlabel() == "mean return per episode in EUR"
    for row in shown.estimates:
        (line,) = [one for one in axes.lines if one.get_gid() == row.name]
        assert list(line.get_xdata()) == [row.low, row.high]
        assert line.get_linewidth() == (4.0 if row.name == "wdr" else 1.8)
    (logger,) = [one for one in axes.lines if one.get_gid() == "logger, as recorded"]
    assert list(logger.get_xdata()) == [0.57, 0.67]
    assert any(list(one.get_xdata()) == [0.62, 0.62] for one in axes.lines), "the line of the logger"
    names = [one.get_text() for one in axes.get_yticklabels()]
    assert names[0] == "wdr (decides)\n0.7 (0.65 to 0.75)"
    assert names[-1] == "logger, as recorded\n0.62 (0.57 to 0.67)"
    assert sum("(decides)" in name for name in names) == 1
    drawn_file(figure, tmp_path / "verdict.png")


def test_guesses_of_an_unsupported_policy_are_called_so(tmp_path):
    figure = verdict("unsupported").plot()
    assert "do not use them" in figure.axes[0].get_xlabel()
    assert {one.get_color() for one in figure.axes[0].lines if one.get_gid() == "wdr"} == {"0.6"}
    shown = verdict()
    wild = replace(shown.estimates[1], low=-900.0, high=900.0)
    lost = replace(shown.estimates[2], estimate=np.nan, low=np.nan, high=np.nan)
    figure = replace(shown, estimates=Estimates([shown.estimates[0], wild, lost])).plot()
    low, high = figure.axes[0].get_xlim()
    assert 0.6 < high - low < 1.2, "the deciding estimate sets the width"
    assert figure.axes[0].get_yticklabels()[2].get_text() == "wis\nno number"
    drawn_file(figure, tmp_path / "wild.png")


def test_a_verdict_without_estimates_shows_the_logger_alone(tmp_path):
    for logger in (Interval(0.62, 0.57, 0.67), Interval(np.nan, np.nan, np.nan)):
        figure = verdict("unsupported", estimates=Estimates([]), logger=logger).plot()
        assert figure.axes[0].get_xlabel() == "mean return per episode"
        assert len(figure.axes[0].get_yticklabels()) == 1
        drawn_file(figure, tmp_path / "alone.png")


def test_a_log_shows_its_returns_lengths_and_actions(log, tmp_path):
    figure = log.plot()
    returns, lengths, actions = figure.axes
    heights = np.array([bar.get_height() for bar in returns.patches])
    middles = np.array([bar.get_x() + bar.get_width() / 2 for bar in returns.patches])
    assert heights.sum() == len(log.episodes)
    if len(np.unique(episode_returns(log))) < 30:
        np.testing.assert_allclose((heights * middles).sum(), episode_returns(log).sum(), rtol=0.05)
    assert sum(bar.get_height() for bar in lengths.patches) == len(log.episodes)
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
    titles = [one.get_title() for one in figure.axes]
    assert titles[:3] == ["Returns of reward 0", "Returns of reward 1", "Episode lengths"]
    assert titles[3:] == [f"Actions, {place} of 8" for place in range(1, 7)]
    drawn_file(figure, tmp_path / "doses.png")
    many = Log.from_arrays(observation=np.arange(60.0), action=np.array([rf"_$\a^{one}$" for one in range(60)]),
                           reward=np.full(60, 2.5))  # fmt: skip
    figure = many.plot()
    assert len(figure.axes[-1].patches) == 20
    assert "40 rarer actions are not shown" in figure.axes[-1].get_xlabel()
    drawn_file(figure, tmp_path / "many.png")


def test_without_matplotlib_the_error_names_the_package(log, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"figures need the package matplotlib.*fix: "):
        log.plot()


def test_no_window_and_no_global_state(log, run):
    before = "matplotlib.pyplot" in sys.modules
    log.plot()
    run.plot()
    assert ("matplotlib.pyplot" in sys.modules) == before


def test_one_seed_has_one_line_and_many_seeds_have_no_line_each(log, run, monkeypatch):
    alone = finish(begin(bc(), log)).plot([LOSS.removeprefix("held_out/")])
    (axes,) = alone.axes
    assert (len(axes.lines), len(axes.collections)) == (2, 0)  # of training and of held-out data
    (axes,) = run.plot([LOSS.removeprefix("held_out/")]).axes
    several = len(axes.lines)
    monkeypatch.setattr("tidelog.training.metrics.MOST_SEEDS", 1)
    (axes,) = run.plot([LOSS.removeprefix("held_out/")]).axes
    assert several - len(axes.lines) == 8  # two seeds of two algorithms, in training and on held-out data
    assert len(axes.collections) == 4  # the bands stay


def test_a_log_without_rewards_shows_no_returns():
    log = Log.from_arrays(observation=np.zeros((6, 1)), action=[0, 1] * 3, reward=None, episode=[0, 0, 0, 1, 1, 2])
    lengths, actions = log.plot().axes
    assert lengths.get_xlabel() == "steps of an episode"
    assert [int(bar.get_width()) for bar in actions.patches] == [3, 3]
