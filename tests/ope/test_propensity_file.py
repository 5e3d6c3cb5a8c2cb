"""Propensities from a file: matched by episode and step, refused where they do not fit, and named by the verdict."""

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.ope.cases import QUICK, Told, best_treatments, mostly, treated
from tidelog.ope.assumptions import BEHAVIOR, REWARDS
from tidelog.ope.policy_evidence import behavior_model, choose_model
from tidelog.ope.propensities import FilePropensities, read_propensities


@pytest.fixture(scope="module")
def log():
    return treated(mostly(best_treatments(), 0.5), 120)


@pytest.fixture(scope="module")
def table(log):
    """A row for each step, with the propensities that the log has recorded; visits are counted from 1."""
    episode = np.asarray(log.episode_ids)[np.asarray(log.episode)]
    return pl.DataFrame({"episode": episode, "step": np.asarray(log.step) + 1, "propensity": log.propensity})


@pytest.fixture
def written(table, tmp_path):
    """A function of a change of the table that writes the changed one and returns its path."""

    def write(change=lambda frame: frame, name="p.csv"):
        path, frame = tmp_path / name, change(table)
        frame.write_parquet(path) if path.suffix == ".parquet" else frame.write_csv(path)
        return path

    return write


def small(log):
    return log.take_episodes(np.arange(2))


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_rows_in_any_order_are_matched_by_episode_and_step(log, written, name):
    found = read_propensities(written(lambda frame: frame.sample(fraction=1.0, shuffle=True, seed=1), name), log)
    np.testing.assert_array_equal(found.values.astype(np.float32), log.propensity)
    assert (found.estimated, found.unused) == (False, 0)


def test_rows_of_other_episodes_are_counted(log, written):
    part = small(log)
    found = read_propensities(written(), part)
    np.testing.assert_array_equal(found.values.astype(np.float32), part.propensity)
    assert found.unused == log.steps - part.steps


def changed(name, row, value):
    return lambda frame: frame.with_columns(
        pl.when(pl.int_range(pl.len()) == row).then(pl.lit(value)).otherwise(name).alias(name)
    )


REFUSED = {
    "no row at all": (lambda frame: frame.head(0), "no row: expected one for each step of the log"),
    "a missing row": (lambda frame: frame[1:], r"2 row\(s\) for the 3 step\(s\) of episode '0' \(1 such"),
    "a row too many": (
        lambda frame: pl.concat([frame, frame[:1].with_columns(step=pl.lit(99))]),
        r"4 row\(s\) for the 3 step\(s\) of episode '0'",
    ),
    "a row twice": (
        lambda frame: pl.concat([frame, frame[:1]]),
        r"step 1 of episode '0' stands in several rows \(2 such rows\). fix: keep one",
    ),
    "zero": (changed("propensity", 4, 0.0), r"the propensity of row 5 is 0.0 \(1 such row\(s\)\): expected a prob"),
    "above one": (changed("propensity", 4, 1.5), r"row 5 is 1.5 .*above 0 and at most 1. fix: correct the file"),
    "an empty cell": (changed("propensity", 4, None), r"the propensity of row 5 is empty \(1 such"),
    "a step without a number": (changed("step", 4, None), r"row 5 has no 'episode' or no number in 'step' \(1 such"),
    "another key": (
        lambda frame: frame.with_columns(pl.format("patient {}", "episode").alias("episode")),
        r"none of its episodes, such as 'patient 0', is in the log, whose first one is '0'",
    ),
    "no steps": (lambda frame: frame.drop("step"), r"no column 'step', and episodes have up to \d+ steps. fix: add"),
    "no episodes": (
        lambda frame: frame.drop("episode"),
        r"no column 'episode', by which rows are matched. fix: add the column of the log",
    ),
    "another name": (lambda frame: frame.rename({"propensity": "p"}), r"found the columns episode, p, step. fix: re"),
    "two of them": (lambda frame: frame.with_columns(estimated_propensity="propensity"), r"found both of them"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_does_not_fit_the_log_is_refused(log, written, case):
    change, message = REFUSED[case]
    with pytest.raises(tl.SpecError, match=message):
        read_propensities(written(change), small(log))


def test_the_numbers_of_rows_are_the_keys_of_single_steps(tmp_path):
    rows, path = np.arange(40), tmp_path / "p.csv"
    chances = np.linspace(0.2, 0.8, 40).astype(np.float32)
    part = tl.Log.from_arrays(
        observation=rows[:, None] * 1.0, action=rows % 2, reward=rows % 3, terminated=True, propensity=chances
    ).split(0.5, seed=1)[1]
    pl.DataFrame({"episode": rows, "propensity": chances}).write_csv(path)
    np.testing.assert_array_equal(read_propensities(path, part).values.astype(np.float32), part.propensity)


def test_a_verdict_by_a_file_is_that_of_the_same_recorded_numbers_and_names_the_file(log, written, tmp_path):
    policy, options = Told(mostly(best_treatments(), 0.7)), {"limits": QUICK, "model": "tabular", "ledger": False}
    recorded = tl.judge(policy, log, **options)
    found = tl.judge(policy, log, propensities=written(), **options)
    assert found.difference == pytest.approx(recorded.difference, rel=1e-5)
    assert found.context["propensities"] == "recorded"
    path = str(tmp_path / "p.csv")
    assert found.context["propensities_file"] == {"file": path, "unused_rows": 0}
    said = f"the probabilities of the recorded decisions were read from {path}, as recorded"
    assert said in found.reasons
    assert said[1:] in found.paragraph


def test_estimated_ones_of_a_file_are_trusted_less_and_said_to_be_estimated(log, written):
    path = written(lambda frame: frame.rename({"propensity": "estimated_propensity"}))
    policy, options = Told(mostly(best_treatments(), 0.7)), {"limits": QUICK, "model": "tabular", "ledger": False}
    found = tl.judge(policy, log, propensities=path, first_steps=2, **options)
    assert (found.context["propensities"], found.context["propensities_by"]) == ("estimated", "file")
    assert f"read from {path}, estimated by a model that is not known here" in " ".join(found.reasons)
    assert "They miss the logged decisions, which their model may have seen, by" in found.paragraph
    assert found.estimates[0].estimated
    recorded, numbers = (
        tl.judge(policy, log, propensities=one, first_steps=2, **options) for one in (None, np.asarray(log.propensity))
    )
    assert numbers.difference == recorded.difference


def test_tests_of_the_behavior_are_about_our_own_models_alone(log):
    plan = choose_model(log, "tabular", None, 0)
    read = FilePropensities(np.asarray(log.propensity, np.float64), True, "p.csv")
    ours, theirs = (
        {one.outcome for one in behavior_model(log, plan, source, 0).history} for source in ("estimated", read)
    )
    assert ours - theirs == {BEHAVIOR}
    assert REWARDS in theirs


@pytest.mark.full
def test_a_look_by_a_file_is_not_the_same_look_as_one_by_the_log(log, written, tmp_path):
    policy = Told(mostly(best_treatments(), 0.7))
    options = {"limits": QUICK, "model": "tabular", "ledger": tmp_path / "looks.jsonl"}
    tl.judge(policy, log, propensities=written(), **options)
    tl.judge(policy, log, propensities=str(written()), **options)
    tl.judge(policy, log, **options)
    looks = tl.Ledger.of(log, tmp_path / "looks.jsonl").looks
    assert len({look.settings["propensities"] for look in looks}) == len(looks) == 2


def test_an_unknown_word_is_refused_before_anything_is_fitted(log):
    with pytest.raises(tl.ConfigError, match=r"'estimatd': .*the path of a table.*did you mean 'estimated'"):
        tl.judge(Told(best_treatments()), log, propensities="estimatd", ledger=False)
    with pytest.raises(tl.LogError, match="the file does not exist"):
        tl.estimate(Told(best_treatments()), log, propensities="nothing.csv")
