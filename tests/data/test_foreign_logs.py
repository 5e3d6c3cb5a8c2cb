"""Small files in the shapes of logs from elsewhere: what inspect proposes for them, and how they are read."""

import gzip
import json
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.data.test_inspect import Case, check_proposal
from tidelog import Columns, ConfigError, LogError, read_log
from tidelog.data import formats as file_bytes
from tidelog.data.inspect import describe_table
from tidelog.data.parse import date_formats
from tidelog.data.read import is_table, one_table, validate
from tidelog.types import Discrete

ROWS = 600
generator = np.random.default_rng(3)
CHOSEN = generator.choice(3, ROWS, p=[0.5, 0.3, 0.2])
PROBABLE = np.asarray([0.5, 0.3, 0.2])[CHOSEN]


def proposed(source):
    return tomllib.loads(describe_table(source).toml)


def router(**more):
    """Requests, each sent to one of three models: latency and cost follow, seconds end in `_s`."""
    return pl.DataFrame(
        {
            "request": [f"req-{row}" for row in range(ROWS)],
            "task": np.tile(["code", "chat", "code", "translate"], ROWS // 4),
            "tokens": np.arange(ROWS) % 97,
            "model": np.asarray(["large", "small", "local"])[CHOSEN],
            "routing_probability": PROBABLE,
            "cost_usd": 0.01 * CHOSEN,
            "latency_s": 0.5 + 0.1 * (np.arange(ROWS) % 7),
            "feedback": np.tile(["good", "bad"], ROWS // 2),
            **more,
        }
    )


LOCAL = "Zeit;Wert;Kosten;Code;a\n03.01.2025;-1,5;1.234,50;E11.9;low\n14.01.2025;2;2,00;250.83;high\n"
LOCAL_MAPPING = {"observation": ["Wert", "Kosten", "Code"], "categorical": "Code", "action": "a", "terminated": True}


def test_a_decimal_comma_is_proposed_and_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(LOCAL)
    found = proposed(path)
    assert found["decimal"] == ","
    assert found["date_format"] == "%d.%m.%Y"
    log = read_log(path, LOCAL_MAPPING | {"decimal": ",", "time": "Zeit", "date_format": "%d.%m.%Y"})
    assert log.observation["numeric"].tolist() == [[-1.5, 1234.5], [2.0, 2.0]]
    assert log.spec.observation["categorical"].vocabularies == (("250.83", "E11.9"),)
    report = validate(path, LOCAL_MAPPING)
    assert {one.check for one in report.errors} <= {"non-numeric text", "changing shapes"}
    assert report.errors


@pytest.mark.parametrize(
    ("name", "text"),
    [("commas.csv", 'x,mask,a\n1,"0,3",low\n2,"0,4",high\n'), ("flags.csv", "x;mask;a\n1;1,0;low\n2;0,1;high\n"),
     ("lists.csv", "x;items;a\n1;6,1,2;low\n2;6,7,8;high\n")],
)  # fmt: skip
def test_other_commas_are_no_fractions(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    assert "decimal" not in proposed(tmp_path / name)


def test_settings_that_a_file_cannot_have_are_named(tmp_path):
    pl.DataFrame({"x": [1.0]}).write_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("x,a\n1,2\n")
    for source, setting in (("a.parquet", {"decimal": ","}), ("a.csv", {"explode": "events"})):
        (name,) = setting
        with pytest.raises(LogError, match=f"drop {name} from the mapping"):
            one_table(tmp_path / source, form=Columns(observation="x", action="a", reward=None, **setting).text_form)
    with pytest.raises(ConfigError, match="decimal = ';'"):
        Columns(observation="x", action="a", reward=None, decimal=";")
    with pytest.raises(ConfigError, match="explode = 3"):
        Columns(observation="x", action="a", reward=None, explode=3)


@pytest.mark.parametrize(
    ("cells", "formats"),
    [(["03.01.2025 04:05", "14.01.2025 23:59"], ["%d.%m.%Y %H:%M"]), (["01/14/2025", "02/03/2025"], ["%m/%d/%Y"]),
     (["01/02/2025", "02/03/2025"], ["%d/%m/%Y", "%m/%d/%Y"]), (["2025-01-14"], []), (["1.5.2", "a"], []), ([], [])],
)  # fmt: skip
def test_formats_of_dates(cells, formats):
    assert date_formats(pl.Series("t", cells, dtype=pl.String)) == formats


def sessions(path, extra=""):
    lines = [
        {
            "session_id": f"s{place}",
            "user": {"id": "u"},
            "ts": place,
            "events": [
                {"ts": 1_767_225_600_000 + step, "shown": "ab"[step % 2], "clicked": step == 1} for step in range(2)
            ],
        }
        for place in range(4)
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n" + extra)
    return path


def test_events_in_lists_are_rows(tmp_path):
    path = sessions(tmp_path / "a.jsonl", '{"session_id": "s9", "user": {"id": "u"}, "ts": 9, "events": []}\n')
    found = proposed(path)
    assert (found["explode"], found["episode"], found["reward"]) == ("events", "session_id", "clicked")
    mapping = {"observation": "user.id", "action": "shown", "reward": "clicked", "episode": "session_id",
               "time": "events.ts", "terminated": True, "explode": "events", "extra": "ts"}  # fmt: skip
    log = read_log(path, mapping)
    assert (log.steps, len(log.episode_ids)) == (8, 4)
    assert log.reward.tolist() == [0.0, 1.0] * 4
    (note,) = [one for one in log.report.problems if one.check == "converted"]
    assert "1 lines whose list 'events' is empty" in note.found
    with pytest.raises(LogError, match="no list of objects under 'session_id'"):
        read_log(path, mapping | {"explode": "session_id"})


RECORDS = [{"user": 1 + row // 2, "t": row % 2, "seen": {"age": 20 + row}, "action": row % 3, "reward": 0.5 * row}
           for row in range(12)]  # fmt: skip
DOCUMENT_MAPPING = {"episode": "user", "step": "t", "observation": "seen.age", "action": "action", "reward": "reward"}


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.json.zip"])
@pytest.mark.parametrize("document", [RECORDS, {"exported": "2026-01-01", "tags": ["x"], "events": RECORDS}])
@pytest.mark.parametrize("indent", [None, 2])
def test_one_document_is_a_table(document, indent, name, tmp_path):
    path, text = tmp_path / name, json.dumps(document, indent=indent).encode()
    if name.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.json", text)
    else:
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    log = read_log(path, DOCUMENT_MAPPING)
    assert is_table(path)
    assert (log.steps, len(log.episode_ids)) == (12, 6)
    assert log.reward.tolist() == [row["reward"] for row in RECORDS]
    assert ("not read: exported, tags" in log.report.text()) == isinstance(document, dict)
    described = describe_table(path)
    assert described.rows == 12
    assert described.proposed.action == "action"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"events": [{"a": 1}], "users": [{"b": 1}]}', "2 lists of objects: events, users"),
        ("[1, 2]", "0 lists of objects"),
        ('[{"a": 1}, {"a": 2}', "not one JSON value"),
        ('[{"a": 1, "a": 2}]', "not one JSON value"),
        ('{"a": 1}\n{"a": 2}\n', r"objects one a line are read from a file that ends in \.jsonl"),
        ('[{"a.b": 1, "a": {"b": 2}}]', "the same name twice"),
        ("[{}]", "objects without keys"),
    ],
)
def test_documents_that_are_no_table_are_refused(text, words, tmp_path):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(LogError, match=words):
        read_log(tmp_path / "a.json", DOCUMENT_MAPPING)


def test_a_mapping_beside_documents_is_no_table(tmp_path):
    (tmp_path / "columns.json").write_text(json.dumps(DOCUMENT_MAPPING))
    (tmp_path / "a.json").write_text(json.dumps(RECORDS[:6]))
    (tmp_path / "b.json").write_text(json.dumps({"events": RECORDS[6:]}))
    for source in (tmp_path, f"{tmp_path}/*"):
        log = read_log(source, tmp_path / "columns.json")
        assert log.steps == 12
        assert "columns.json" in log.report.text()


@pytest.mark.parametrize("way", [RECORDS, {"events": RECORDS}])
def test_a_document_of_little_text_does_not_take_the_memory(way, tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text(json.dumps(way))
    monkeypatch.setattr(file_bytes, "shortage", lambda size: "too large" if size > 500 else None)
    with pytest.raises(LogError, match="too large"):
        read_log(tmp_path / "a.json", DOCUMENT_MAPPING)


def test_empty_text_is_counted_and_its_rule_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('region,action,reward\n"",0,1\nnorth,1,0\nsouth,0,1\n"",1,0\n')
    described = describe_table(path)
    assert described.fields[0].empty == 2
    assert any("2 in 'region'" in note for note in described.notes)
    (error,) = [one for one in described.report.errors if one.check == "missing value"]
    assert error.fix.startswith('set missing = { "')


def ward(**more):
    """Forty patients of three visits each; columns have names in another language."""
    rng = np.random.default_rng(1)
    columns = {
        "patient_nr": np.repeat(np.arange(40), 3),
        "zeitpunkt": np.tile([0, 1, 2], 40),
        "alter": np.repeat(rng.integers(20, 90, 40), 3),
        "druck": rng.normal(120.0, 9.0, 120).round(1),
        "massnahme": rng.choice(["nichts", "gabe", "warten"], 120),
        "belohnung": np.tile([0, 0, 1], 40) * rng.integers(0, 2, 120),
    }
    return pl.DataFrame({name: more.get(name, values) for name, values in {**columns, **more}.items()
                         if more.get(name, values) is not None})  # fmt: skip


def test_roles_without_a_known_name_are_proposed_by_their_values():
    assert proposed(ward()) == {
        "episode": "patient_nr", "step": "zeitpunkt", "reward": "belohnung", "action": "massnahme",
        "observation": ["alter", "druck"],
    }  # fmt: skip
    notes = "\n".join(describe_table(ward()).notes)
    for role, name in {"step": "zeitpunkt", "reward": "belohnung", "action": "massnahme"}.items():
        assert any(f"'{name}'" in note and f"change `{role}` if wrong" in note for note in notes.split("\n")), role
    assert read_log(ward(), proposed(ward())).steps == 120


MISSED = np.tile([0, 1, 2, 0, 1, 3], 20)  # a visit is left out in every other episode
STEPS = {  # whether a column is the step: in the order of the file, and where rows are scattered over it
    "from 0": (np.tile([0, 1, 2], 40), True, True),
    "from 1": (np.tile([1, 2, 3], 40), True, True),
    "with some left out": (MISSED, True, True),
    "by twos": (np.tile([2, 4, 6], 40), True, False),
    "rows of the file": (np.arange(120), True, False),
    "what remains": (np.tile([2, 1, 0], 40), False, None),
    "growing unevenly": (np.tile([3, 5, 9], 40), False, False),
    "arms in any order": (np.tile([0, 1, 2, 2, 0, 1, 1, 2, 0, 0, 2, 1], 10), False, None),
    "with a step twice": (np.tile([1, 2, 2], 40), False, False),
    "from anywhere": (np.concatenate([np.arange(3) + row % 5 for row in range(40)]) + 10 * (MISSED == 3), False, False),
}


@pytest.mark.parametrize("case", STEPS)
@pytest.mark.parametrize("names", [{}, {"massnahme": "action", "belohnung": "reward"}])
def test_a_column_that_counts_rows_is_the_step_whatever_the_others_are_called(case, names):
    values, ordered, scattered = STEPS[case]
    frame = ward(zeitpunkt=values).rename(names)
    assert (proposed(frame).get("step") == "zeitpunkt") == ordered
    if scattered is not None:  # no order of the file tells a count from what falls, or from arms
        assert (proposed(frame.sample(fraction=1.0, shuffle=True, seed=1)).get("step") == "zeitpunkt") == scattered


@pytest.mark.parametrize("first", [0, 1])
def test_an_episode_without_a_known_name_is_the_column_whose_rows_another_counts(first):
    frame = ward(zeitpunkt=np.tile([first, first + 1, first + 2], 40)).rename({"patient_nr": "akte"})
    assert proposed(frame) == {
        "episode": "akte", "step": "zeitpunkt", "reward": "belohnung", "action": "massnahme",
        "observation": ["alter", "druck"],
    }  # fmt: skip
    assert any("change `episode` and `step` if wrong" in note for note in describe_table(frame).notes)
    twice = frame.with_columns(akte=pl.col("akte") // 2)  # every step of an episode twice
    assert "episode" not in proposed(twice)


@pytest.mark.parametrize("name", ["reward", "satisfaction"])
def test_a_reward_on_the_last_row_of_each_episode_alone_is_0_before(name):
    last = np.arange(120) % 3 == 2
    earned = [float(i % 2) if end else None for i, end in enumerate(last)]  # also a 0 is a value
    frame = pl.DataFrame({"stay": np.arange(120) // 3, "step": np.arange(120) % 3, "x": np.arange(120) % 7,
                          "action": np.arange(120) % 2, name: earned})  # fmt: skip
    table = describe_table(frame, {"reward": name})
    assert tomllib.loads(table.toml)["missing_reward"] == 0.0
    assert table.report.ok
    assert any("is on the last row of each episode, and the rows before it earn 0" in note for note in table.notes)
    for other in (
        frame.with_columns(pl.Series(name, [None, None, None, *earned[3:]])),  # one episode without
        frame.with_columns(pl.Series(name, [1.0, *earned[1:]])),
    ):  # a reward before an end
        assert "missing_reward" not in tomllib.loads(describe_table(other, {"reward": name}).toml)


def test_a_dose_that_is_mostly_none_is_an_amount_and_its_levels_are_one_line_away():
    dose = np.where(np.arange(120) % 3 == 0, np.arange(120) % 20, 0)
    frame = ward(massnahme=None, insulin=dose)
    mapping = proposed(frame)
    assert (mapping["action"], mapping["bounds"]) == ("insulin", [0.0, 19.0])
    assert "insulin" not in mapping["observation"]
    (note,) = [note for note in describe_table(frame).notes if "insulin" in note]
    assert "a dose from 0 to 19" in note
    assert "such as none, up to 9.5, more" in note
    amount = pl.col("insulin")
    levels = pl.when(amount == 0).then(pl.lit("none")).when(amount <= 9.5).then(pl.lit("low")).otherwise(pl.lit("high"))
    assert proposed(frame.with_columns(levels.alias("insulin")))["action"] == "insulin"


PAGE = np.tile(["home", "cart", "item"], ROWS // 3)  # a third each, as three actions with even chances
EVEN = router(page=PAGE, model=np.repeat(["large", "small", "local"], 200), routing_probability=np.full(ROWS, 1 / 3))
COUPONS = router().select("task", "tokens", coupon="model", profit="cost_usd")
POINTS = router().select("tokens", setpoint_heating="latency_s", cooling_set_point="cost_usd", energy_kwh="tokens")
FALLING = ward(zeitpunkt=np.tile([2, 1, 0], 40)).sort("zeitpunkt", descending=True, maintain_order=True)
LENGTHS = np.random.default_rng(0).geometric(0.3, 40)  # the longest has several times the mean
UNEVEN = pl.DataFrame({
    "faden": np.repeat(np.arange(40) * 3 + 100, LENGTHS), "zug": np.concatenate([np.arange(n) for n in LENGTHS]),
    "stimmung": generator.normal(size=LENGTHS.sum()), "action": generator.choice(["reply", "close"], LENGTHS.sum()),
})  # fmt: skip
PAID = np.where(np.arange(40) % 2, 5 + np.arange(40) % 3, 0)
CASES = {
    "a probability names the action": Case(
        router(), {"action": "model", "observation": ["task", "tokens"]},
        lines=('# reward = ["cost_usd", "latency_s", "feedback"]',
               "# reward_weights = [-1.0, -1.0, 1.0]   # with your numbers, below 0 for costs",
               '# reward_values = { "bad" = 0.0, "good" = 0.0 }   # with your numbers')),
    "a page as frequent": Case(router(page=PAGE), {"action": "model"}),
    "a page with even chances": Case(EVEN.rename({"model": "place"}), {"action": None}),
    "an action by its name": Case(EVEN, {"action": "model"}),
    "outcomes of the past": Case(
        router(last_cost=np.arange(ROWS) % 5, prior_feedback=np.tile(["good", "bad"], ROWS // 2)),
        {"observation": ["task", "tokens", "last_cost", "prior_feedback"]}),
    "a coupon": Case(COUPONS.with_columns(redeemed=pl.Series(np.tile(["yes", "no"], ROWS // 2))),
                     {"action": "coupon", "reward": "profit", "observation": ["task", "tokens"]}),
    "set points": Case(POINTS, {"action": ["setpoint_heating", "cooling_set_point"], "observation": ["tokens"]}),
    **{f"letters {' '.join(names)}": Case(
        pl.DataFrame({name: np.arange(20) / 4 for name in names} | {"action": [0, 1] * 10}), {"observation": seen})
       for names, seen in ((("s_0", "s_1", "age"), ["s_0", "s_1"]), (("x1", "x2", "age"), ["x1", "x2"]),
                           (("s", "age"), ["s"]), (("duration_s", "age"), ["duration_s", "age"]),
                           (("size_x", "age"), ["size_x", "age"]))},
    "dates of two formats": Case(
        router(date=["01/02/2025", "02/03/2025"] * (ROWS // 2)), {"time": None},
        lines=('# time = "date"', '# date_format = "%d/%m/%Y"   # or "%m/%d/%Y": the times fit both')),
    "two columns that may be the action": Case(  # whoever takes the '#' away must not observe the action
        ward(lage=np.tile(["links", "rechts"], 60)), {"action": None, "observation": ["alter", "druck"]},
        lines=('# action = "massnahme"   # or lage',)),
    "two rows of a step": Case(ward(zeitpunkt=np.tile([1, 2, 2], 40)), {"step": None}),
    "what counts nothing": Case(ward(zeitpunkt=np.tile([3, 5, 9], 40)), {"step": None}),
    "the same on every visit": Case(ward(massnahme=np.repeat(["a", "b", "c", "d"], 30)), {"action": None}),
    "a reward within": Case(ward(belohnung=np.tile([0, 1, 0], 40)), {"reward": None}),
    "nobody": Case(ward(patient_nr=None), {"action": None}),
    "what remains, by turns": Case(FALLING, {"step": None}),
    "a count, by turns": Case(FALLING.with_columns(zeitpunkt=2 - pl.col("zeitpunkt")), {"step": "zeitpunkt"}),
    "unequal lengths": Case(UNEVEN, {"episode": "faden", "step": "zug"}),
    "unequal lengths by name": Case(UNEVEN.rename({"faden": "conversation", "zug": "turn"}),
                                    {"episode": "conversation"}),
    "a payment at the end": Case(
        pl.DataFrame({"patient": np.arange(40) // 2, "severity": np.arange(40) * 7 % 11, "payment": PAID}),
        {"action": None, "reward": None, "terminated": None}, unseen=("payment",),
        said=("'payment' is 0 except on last rows of episodes: an outcome",)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_foreign_table_is_proposed_as_it_is_meant(name):
    check_proposal(CASES[name])


def dsjson(path: Path) -> Path:
    """Forty decisions as Vowpal Wabbit's decision service writes them; one in two users has the feature."""
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        for row in range(40):
            chosen = int(rng.integers(0, 3))
            line = {
                "_label_cost": -float(chosen == 2), "_label_probability": 0.25, "_label_Action": chosen + 1,
                "_labelIndex": chosen, "a": [chosen + 1, 1, 2, 3], "p": [0.25] * 4,
                "c": {"User": {f"user=u{row % 2}": 1}, "_multi": [{"Action": {f"action={one}": 1}} for one in "abcd"]},
            }  # fmt: skip
            print(json.dumps(line), file=file)
    return path


def test_dsjson_is_json_lines_with_advice(tmp_path: Path) -> None:
    path = dsjson(tmp_path / "log.dsjson")
    described = describe_table(path)
    assert described.notes[0].startswith("these are decisions in DSJSON")
    proposed = tomllib.loads(described.toml)
    assert "explode" not in proposed
    log = read_log(path, proposed)
    assert (log.steps, log.spec.action) == (40, Discrete(4))  # the fourth was never chosen
    np.testing.assert_array_equal(log.reward, (log.action == 2).astype(float))
    assert set(np.asarray(log.propensity)) == {0.25}
    assert [name for name in proposed["observation"] if not name.startswith("c.User")] == []
    said = tomllib.loads(describe_table(path, {"action": "_label_Action"}).toml)
    assert (said["action"], said["reward"]) == ("_label_Action", "_label_cost")
    (tmp_path / "log.dsjson.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert read_log(tmp_path / "log.dsjson.gz", proposed).fingerprint() == log.fingerprint()
    path.rename(tmp_path / "log.jsonl")
    assert tomllib.loads(describe_table(tmp_path / "log.jsonl").toml) == proposed
