"""What a mapping declares: propensities, atoms, the unit of rewards; into every saved form, and what does not fit."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.data.clicks import interactions
from tests.data.visits import mapping
from tidelog.data.columns import Columns
from tidelog.data.log import Log, with_declaration
from tidelog.errors import ConfigError, LogError
from tidelog.recommend.interactions import Interactions, text

ROLES: dict[str, Any] = {"observation": ["age", "village"], "action": "arm", "reward": "y", "terminated": True}


def table(rows: int = 600, seed: int = 0, **columns: Any) -> pl.DataFrame:
    generator = np.random.default_rng(seed)
    content = {
        "age": generator.normal(40.0, 10.0, rows),
        "village": [f"v{one}" for one in generator.integers(0, 5, rows)],
        "arm": generator.choice(["A", "B"], rows),
        "y": generator.random(rows),
    }
    return pl.DataFrame(content | columns)


def errors(frame: pl.DataFrame, propensity: Any, **roles: Any) -> list[Any]:
    report = tl.check(frame, tl.Columns(propensity=propensity, **{**ROLES, **roles}))
    return list(report.errors)


def test_shares_are_those_of_the_log_and_of_the_rows_of_a_stratum() -> None:
    frame = table(arm=["A"] * 150 + ["B"] * 450, village=(["v0"] * 10 + ["v1"] * 50) * 10)
    log = tl.read_log(frame, Columns(propensity="shares", **{**ROLES, "observation": ["age"]}))
    assert np.asarray(log.propensity)[[0, 599]] == pytest.approx([0.25, 0.75])
    log = tl.read_log(frame, Columns(propensity={"shares_by": ["village"]}, **{**ROLES, "observation": ["age"]}))
    drawn = frame.filter((pl.col("village") == "v0") & (pl.col("arm") == "A")).height / 100
    assert np.asarray(log.propensity)[0] == pytest.approx(drawn)


@pytest.mark.parametrize("wrong", [0, 1.5, -0.5, True, {}, {"A": 0}, {"A": "0.5"}, {"shares_by": [3]}, [0.5, 0.5]])
def test_declarations_that_cannot_be_meant(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="propensity"):
        Columns(propensity=wrong, **ROLES)


@pytest.mark.parametrize(
    ("propensity", "found", "fix"),
    [
        (0.4, "0.4 for each of 2 actions, 0.8 in all", "write 0.5 if all were drawn alike"),
        ({"A": 0.5, "B": 0.3}, "probabilities that sum to 0.8", "correct the probabilities"),
        ({"A": 1.0}, "no probability of 'B'", "add what is missing"),
        ({"A": 0.5, "B": 0.3, "C": 0.2}, "a probability of 'C', which is no action", "vocabularies"),
        ({"shares_by": ["age"]}, "strata by 'age' with fewer than 10 rows", "coarser"),
    ],
)
def test_a_declaration_that_does_not_fit_the_actions_is_an_error(propensity: Any, found: str, fix: str) -> None:
    (problem,) = errors(table(), propensity)
    assert found in problem.found
    assert fix in problem.fix
    with pytest.raises(LogError, match="declared propensities"):
        tl.read_log(table(), Columns(propensity=propensity, **ROLES))
    with pytest.raises(ConfigError) as raised:  # as the judge takes it
        with_declaration(tl.read_log(table(), Columns(**ROLES)), propensity)
    assert found in raised.value.found
    assert fix in raised.value.fix


def test_rounded_probabilities_are_divided_by_their_sum_with_a_note() -> None:
    frame = table(arm=["A", "B", "C"] * 200)
    log = tl.read_log(frame, Columns(propensity=0.3333, **ROLES))
    assert np.asarray(log.propensity) == pytest.approx(1 / 3)
    assert [one.check for one in log.report.notes].count("rounded propensities") == 1
    exact = tl.read_log(table(), Columns(propensity=0.5, **ROLES))
    assert "rounded propensities" not in [one.check for one in exact.report.notes]


def test_a_mask_and_actions_that_are_not_one_choice_have_no_declared_propensities() -> None:
    masked = table().with_columns(may_a=pl.lit(1), may_b=pl.lit(1))
    assert "and a mask" in errors(masked, 0.5, action_mask=["may_a", "may_b"])[0].found
    assert "continuous" in errors(table(arm=np.linspace(0.0, 1.0, 600)), 0.5)[0].found
    several = table(arm=[0, 1] * 300).with_columns(second=pl.Series([0, 0, 1, 1] * 150))
    assert "join the columns" in errors(several, 0.25, action=["arm", "second"], actions=[2, 2])[0].fix


def test_a_column_called_shares_needs_a_clear_word() -> None:
    frame = table(shares=[0.5] * 600)
    (problem,) = errors(frame, "shares")
    assert "a column of that name" in problem.found
    assert "shares_by = []" in problem.fix
    assert not errors(frame, {"shares_by": []})
    renamed = tl.read_log(frame.rename({"shares": "p"}), Columns(propensity="p", **ROLES))
    assert renamed.declared is None
    assert renamed.propensity is not None


def test_a_missing_column_of_strata_and_an_empty_cell_there_are_errors() -> None:
    assert errors(table(), {"shares_by": ["town"]})[0].check == "missing column"
    frame = table().with_columns(town=pl.Series([None, *["x"] * 599]))
    assert errors(frame, {"shares_by": ["town"]})[0].check == "missing value"


def test_a_declaration_that_observations_contradict_is_an_error_that_names_them() -> None:
    generator = np.random.default_rng(1)
    village = generator.integers(0, 5, 2_000)
    arm = np.where(generator.random(2_000) < np.array([0.2, 0.4, 0.5, 0.6, 0.8])[village], "A", "B")
    frame = table(2_000, arm=arm, village=[f"v{one}" for one in village])
    for propensity in (0.5, "shares"):
        (problem,) = errors(frame, propensity)
        assert problem.check == "contradicted propensities"
        assert "'village' predicts" in problem.found
        assert 'shares_by = ["village"]' in problem.fix
    assert not errors(frame, {"shares_by": ["village"]})


def test_a_weak_imbalance_is_a_warning() -> None:
    generator = np.random.default_rng(0)
    age = generator.normal(size=4_000)
    arm = np.where(generator.random(4_000) < 0.5 + 0.04 * np.sign(age), "A", "B")
    report = tl.check(table(4_000, age=age, arm=arm), Columns(propensity=0.5, **ROLES))
    assert report.ok
    assert [one.check for one in report.warnings] == ["doubtful propensities"]


def test_one_draw_for_a_whole_episode_is_told_from_a_draw_for_each_decision() -> None:
    generator = np.random.default_rng(2)
    frame = table(400, arm=np.repeat(generator.choice(["A", "B"], 100), 4)).with_columns(
        patient=pl.Series(np.repeat(np.arange(100), 4)), visit=pl.Series(np.tile(np.arange(4), 100))
    )
    (problem,) = errors(frame, 0.5, episode="patient", step="visit")
    assert "the decision before" in problem.found
    assert "one row for each episode" in problem.fix
    each = frame.with_columns(arm=pl.Series(generator.choice(["A", "B"], 400)))
    assert not errors(each, 0.5, episode="patient", step="visit")


def floored(digits: int) -> Any:
    return lambda exact: np.floor(exact * 10**digits) / 10**digits


ROUNDINGS = {
    "two digits": floored(2), "three digits": floored(3), "six digits": floored(6), "seven digits": floored(7),
    "16 bits": lambda exact: exact.astype(np.float16),
    "32 bits": lambda exact: np.nextafter(exact.astype(np.float32), 0),
    "three of its digits": lambda exact: np.array([float(f"{one:.3g}") for one in exact]),
    "two digits in every second row": lambda exact: np.where(np.arange(len(exact)) % 2, floored(2)(exact), exact),
    "two digits but for a row": lambda exact: np.append(floored(2)(exact[:-1]), exact[-1:]),
}  # fmt: skip


@pytest.mark.parametrize("levels", [0.28 + 0.013 * np.arange(12), 0.28 + 0.04 * np.arange(12), [0.0512, 0.9488]])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_recorded_propensities_of_few_values_are_no_warning(rounding: str, levels: Any) -> None:
    """A policy of few states has few probabilities: those of the logged actions tell them in two ways."""
    if rounding == "two digits in every second row" and np.diff(levels).min() < 0.02:
        pytest.skip("rounding cannot be told from differences")
    warned = 0
    for seed in range(3):
        generator = np.random.default_rng(seed)
        often = (np.asarray(levels) + 1 / 271)[generator.integers(0, len(levels), 3_000)]
        action = (generator.random(3_000) < often).astype(int)
        recorded = ROUNDINGS[rounding](np.where(action == 1, often, 1.0 - often))
        frame = table(3_000, arm=action).with_columns(p=pl.Series(recorded.astype(np.float32)))
        report = tl.check(frame, Columns(**{**ROLES, "actions": 2, "propensity": "p"}))
        warned += "doubtful propensities" in [one.check for one in report.warnings]
    assert warned == 0


def test_wrong_propensities_of_few_values_that_lie_close_are_a_warning() -> None:
    """The probability was raised by as much as it is said to be lowered: no observation tells."""
    generator = np.random.default_rng(0)
    said = 0.43 + 0.013 * generator.integers(0, 12, 20_000)
    action = (generator.random(20_000) < 1.0 - said).astype(int)
    recorded = np.where(action == 1, said, 1.0 - said)
    frame = table(20_000, arm=action).with_columns(p=pl.Series(recorded))
    (found,) = [
        one
        for one in tl.check(frame, Columns(**{**ROLES, "actions": 2, "propensity": "p"})).warnings
        if one.check == "doubtful propensities"
    ]
    assert "the size of" in found.found


def test_recorded_propensities_that_do_not_tell_those_of_all_actions_are_not_tested() -> None:
    """Mean weights have too heavy tails: right logs of many actions would be doubted."""
    generator = np.random.default_rng(4)
    chances = generator.dirichlet(np.ones(4) * 3.0, 3_000)
    action = (chances.cumsum(axis=1) < generator.random((3_000, 1))).sum(axis=1).clip(0, 3)
    right = chances[np.arange(3_000), action]
    village = generator.integers(0, 5, 3_000)
    roles = {**ROLES, "actions": 4, "propensity": "p"}

    def checks(recorded: Any) -> list[str]:
        frame = table(3_000, arm=action, village=[f"v{one}" for one in village]).with_columns(p=pl.Series(recorded))
        found = tl.check(frame, Columns(**roles)).warnings
        return [one.check for one in found if "propensities" in one.check]

    assert checks(right) == []
    assert checks(np.where(village == 2, right * 0.6, right)) == []


def test_files_without_a_place_for_a_declaration_refuse_it(tmp_path: Path) -> None:
    log = tl.read_log(table(), Columns(propensity=0.5, **ROLES))
    with pytest.raises(LogError, match="does not support declared propensities"):
        log.to_npz(tmp_path / "log.npz")


# Declared atoms of continuous actions: from a mapping or an argument into every saved form.


PLAIN = {
    "observation": np.arange(6.0), "action": np.asarray([0.0, 0.3, 0.0, -0.2, 0.5, 0.0])[:, None],
    "reward": np.arange(6.0), "terminated": True, "bounds": (-1.0, 1.0),
}  # fmt: skip


def table_of_atoms(**more):
    columns = {"seen": np.arange(6.0), "dose": PLAIN["action"][:, 0], "earned": np.arange(6.0)}
    mapping = {"observation": ["seen"], "action": "dose", "reward": "earned", "terminated": True, **more}
    return pl.DataFrame(columns), Columns(**mapping)


@pytest.mark.parametrize("atoms", ["0.0", [None], [np.inf], ["a"], {"dose": 0.0}, [True], [[0.0]]])
def test_only_finite_numbers_are_atoms(atoms: object) -> None:
    with pytest.raises(ConfigError, match=r"atoms = .*expected finite numbers. fix:"):
        table_of_atoms(atoms=atoms)
    with pytest.raises(ConfigError, match="atoms"):
        Log.from_arrays(**PLAIN, atoms=atoms)


def test_atoms_of_discrete_actions_are_refused() -> None:
    whole = {**PLAIN, "action": np.arange(6) % 2, "bounds": None}
    with pytest.raises(
        LogError, match=r"found: atoms 0, 1 of discrete actions\n  expected: continuous actions\n  fix: set bounds"
    ):
        Log.from_arrays(**whole, atoms=[0, 1])
    assert Log.from_arrays(**{**whole, "bounds": (-1.0, 2.0)}, atoms=[0, 1]).atoms == (0.0, 1.0)


# The unit of rewards: from a mapping or an argument into every saved form, and without effect on the numbers.


UNIT_ARRAYS = {"observation": np.arange(6.0), "action": np.arange(6) % 2, "reward": np.arange(6.0), "terminated": True}


@pytest.mark.parametrize("unit", ["", "  ", "two\nlines", "x" * 31, 3, ["EUR"], "bell\x07"])
def test_only_a_short_text_is_a_unit(unit: object) -> None:
    with pytest.raises(ConfigError, match=r"reward_unit = .*expected a text of 1 to 30 characters on one line. fix:"):
        mapping(reward_unit=unit)
    with pytest.raises(ConfigError, match="reward_unit"):
        Log.from_arrays(**UNIT_ARRAYS, reward_unit=unit)


def test_a_unit_names_no_column_and_needs_rewards() -> None:
    assert "reward_unit" not in mapping(reward_unit="EUR").used()
    with pytest.raises(ConfigError, match=r"reward_unit = 'EUR' is set without reward\. fix:"):
        mapping(reward=None, reward_unit="EUR")


def test_a_damaged_unit_of_a_saved_log_is_refused(tmp_path: Path) -> None:
    log = Log.from_arrays(**UNIT_ARRAYS, reward_unit="EUR")
    object.__setattr__(log, "reward_unit", "two\nlines")
    log.save(tmp_path / "a")
    with pytest.raises(LogError, match=r"an entry is missing or malformed .*reward_unit"):
        Log.load(tmp_path / "a")


def test_the_unit_of_interactions_is_read_saved_and_shown(tmp_path: Path) -> None:
    log, plain = interactions(reward_unit=" EUR "), interactions()
    assert (log.reward_unit, plain.reward_unit) == ("EUR", None)
    assert log.fingerprint() == plain.fingerprint()
    assert "\nrewards in EUR: min" in text(log)
    assert "\nrewards: min" in text(plain)
    log.save(tmp_path / "clicks")
    plain.save(tmp_path / "plain")
    assert Interactions.load(tmp_path / "clicks").reward_unit == "EUR"
    assert Interactions.load(tmp_path / "plain").reward_unit is None
    for part in (log.split(share=0.3).train, log.split(share=0.3).test):
        assert part.reward_unit == "EUR"
    with pytest.raises(ConfigError, match="reward_unit = '': expected a text"):
        interactions(reward_unit="")


@pytest.mark.parametrize(
    ("arrays", "name", "values", "found"),
    [
        (PLAIN, "atoms", ([0.0], [0.5]), "atoms is .*fix: declare the same atoms= in both mappings"),
        (
            UNIT_ARRAYS,
            "reward_unit",
            ("EUR", "USD"),
            "reward_unit is EUR in log 0 .*fix: declare the same reward_unit",
        ),
        (UNIT_ARRAYS, "reward_unit", ("EUR", None), "reward_unit is EUR in log 0 .*fix: declare the same reward_unit"),
    ],
    ids=["atoms", "units", "one unit"],
)
def test_logs_of_different_declarations_are_not_joined(
    arrays: dict[str, Any], name: str, values: tuple[Any, Any], found: str
) -> None:
    with pytest.raises(LogError, match=found):
        Log.concat([Log.from_arrays(**arrays, **{name: value}) for value in values])
