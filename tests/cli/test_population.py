"""Population-based training on the command line: its flags, its report, and the file that repeats it."""

from pathlib import Path

import pytest

import tidelog as tl
from tidelog.cli.population_flags import PopulationFlags, as_flags, population_of
from tidelog.errors import ConfigError

PBT = tl.PopulationBasedTraining(every=10, metric="held_out/imitation_loss", vary=("learning_rate",), share=0.5)


def test_flags_are_settings_and_back():
    assert population_of(PopulationFlags()) is None
    assert as_flags(None) == {}
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in as_flags(PBT).items()}
    assert population_of(PopulationFlags(**values)) == PBT


@pytest.mark.parametrize("changes", [{"population_every": 10}, {"population_share": 0.3}])
def test_flags_that_are_missing_are_named(changes):
    with pytest.raises(
        ConfigError, match=r"needs .*--population-metric, --population-vary. fix: use --population-every"
    ):
        population_of(PopulationFlags(**changes))


@pytest.mark.full
def test_a_population_is_trained_reported_and_repeated(tidelog, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tl.collect("treatment", episodes=30, seed=0).save("log.tidelog")
    words = ["train", "bc", "--data", "log.tidelog", "--hidden", "8", "--steps", 40, "--seeds", 3, "--preset", "none",
             "--held-out", "0.5", "--population-every", 10, "--population-metric", PBT.metric, "--population-vary",
             "learning_rate", "--population-share", "0.5", "--out", "run"]  # fmt: skip
    assert tidelog(*words).code == 0
    run = tl.load("run")
    assert run.record.options.population == PBT
    assert len(run.copies) == 3
    assert tidelog("report", "run", "--out", "page.html").code == 0
    page = Path("page.html").read_text()
    assert 'id="population"' in page
    assert "learning_rate over updates, a line for each member" in page
    assert f"copied member {run.copies[-1].source} at update 30" in page
    assert tidelog("config", "run", "--out", "run.toml").code == 0
    assert tidelog("train", "bc", "--config", "run.toml", "--out", "again").code == 0
    assert tl.load("again").copies == run.copies
    done = tidelog("config", "run", "--member", 1, "--out", "one.toml")
    assert done.code == 2
    assert "copied each other" in done.said
    done = tidelog("refit", "run", "--out", "refit")
    assert done.code == 2
    assert "its numbers changed during training" in done.said
