"""From a table of clicks to a table of lists by commands alone, and what is typed wrong on the way."""

import json
import re
import shlex
from pathlib import Path

import polars as pl
import pytest

import tidelog.runtime
from tests.algorithms.recommenders import people
from tests.cli.conftest import ROLES, TINY
from tests.data.clicks import clicks
from tidelog.cli import main, run_result
from tidelog.recommend.evaluate import RULES, RuleLists, word_of
from tidelog.recommend.held_out import TimeSplit
from tidelog.recommend.read import read_interactions


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Every command is called in a folder of its own."""
    monkeypatch.chdir(tmp_path)


def said(capsys):
    found = capsys.readouterr()
    return " ".join((found.out + found.err).replace("│", " ").split())


@pytest.mark.sample("policy")
@pytest.mark.parametrize("source", ["policy", "run"])
def test_lists_for_every_user(source, shop, capsys, request):
    path = request.getfixturevalue("ranker") if source == "run" else shop / "policy"
    words = ["act", str(path), "--data", str(shop / "clicks.csv"), *ROLES[:8], "--k", "2"]
    assert main([*words, "--out", "lists.csv"]) == 0
    assert "lists of 2 items for 16 users" in said(capsys)
    lists = pl.read_csv("lists.csv")
    assert lists.columns == ["u", "rank", "i", "score"]
    assert lists.height == 32
    taken = set(clicks(users=16).select("u", "i").iter_rows())
    assert not taken & set(lists.select("u", "i").iter_rows())
    Path("few.txt").write_text("i1\ni2\ni3\n")
    again = [*words, "--exclude-seen", "no", "--candidates", "few.txt", "--out", "few.csv"]
    assert main(again) == 0
    assert set(pl.read_csv("few.csv")["i"]) <= {"i1", "i2", "i3"}
    capsys.readouterr()
    assert main([*words, "--json", "--out", "more.csv"]) == 0
    found = capsys.readouterr()
    assert json.loads(found.out) == {"out": "more.csv", "users": 16, "k": 2, "rows": 32}
    assert "lists of 2 items for 16 users" in found.err


def test_diverse_lists_with_reasons(shop):
    words = ["act", str(shop / "policy"), "--data", str(shop / "clicks.csv"), *ROLES[:8], "--k", "2"]
    words += ["--exclude-seen", "no", "--diversity", "0.4", "--explain", "--out", "lists.csv"]
    assert main(words) == 0
    lists = pl.read_csv("lists.csv")
    assert lists.columns == ["u", "rank", "i", "score", "explain", "times_likelier"]
    assert (lists["times_likelier"] >= 1).all()
    history = set(clicks(users=16).select("u", "i").iter_rows())
    assert set(lists.drop_nulls("explain").select("u", "explain").iter_rows()) <= history


@pytest.mark.full
def test_a_table_of_users_goes_into_training_and_lists(capsys):
    clicks(users=16).write_csv("clicks.csv")
    people().write_csv("users.csv")
    words = ["train", "recommender-bcq", "--data", "clicks.csv", *ROLES, *TINY, "--pretrain-share", "0.5"]
    words += ["--user-features", "users.csv", "--learning-rate", "0.1"]
    assert main([*words, "--steps", "4", "--eval-every", "2", "--held-out", "0.3", "--out", "run"]) == 0
    ask = ["act", "run", "--data", "clicks.csv", *ROLES[:8], "--k", "2"]
    told = [*ask, "--user-features", "users.csv"]
    assert main([*told, "--out", "told.csv"]) == 0
    assert main([*ask, "--out", "untold.csv"]) == 0
    one, two = (pl.read_csv(f"{name}.csv")["score"] for name in ("told", "untold"))
    assert (one - two).abs().max() > 1e-4
    capsys.readouterr()
    broken = {
        "few": (people().head(3), "has no row for 13 users (u3, u4, u5, u6, u7, ...)"),
        "twice": (pl.concat([people(), people().head(1)]), "has 17 rows for 16 users: expected one per user"),
        "lacking": (people().drop("plan"), "has no column 'plan'"),
        "text": (people().with_columns(age=pl.lit("old")), "row 1: 'age' is 'old': expected a number"),
        "word": (people().with_columns(plan=pl.lit("gold")), "has 'gold', unknown in the log"),
    }
    for name, (frame, message) in broken.items():
        frame.write_csv(f"{name}.csv")
        assert main([*ask, "--user-features", f"{name}.csv", "--out", "no.csv"]) == 2
        assert message in said(capsys), name
    assert not Path("no.csv").exists()
    skip = [*ask, "--user-features", "few.csv", "--unknown", "skip", "--out", "s.csv"]
    assert main(skip) == 0


def test_an_unknown_item_is_named_or_passed_over(shop, capsys):
    pl.DataFrame({"u": ["a"], "i": ["i11"]}).write_csv("new.csv")
    words = ["act", str(shop / "policy"), "--data", "new.csv", "--user", "u", "--item", "i"]
    words += ["--k", "3", "--out", "lists.csv"]
    assert main(words) == 2
    assert "history 0 has the unknown item 'i11'" in said(capsys)
    assert main([*words, "--unknown", "skip"]) == 0


def test_inspect_and_validate_understand_interactions(shop, capsys):
    source = str(shop / "clicks.csv")
    assert main(["log", "inspect", "--data", source, *ROLES, "--session-gap", "1000"]) == 0
    shown = said(capsys)
    assert "events of 16 users" in shown
    assert "no pause ends a session" in shown
    assert main(["log", "check", "--data", source, *ROLES]) == 0
    read_interactions(source, user="u", item="i", time="t").save("saved")
    assert main(["log", "check", "--data", "saved"]) == 0
    assert "0 errors" in said(capsys)
    broken = pl.read_csv(source).with_columns(t=pl.lit("noon"))
    broken.write_csv("broken.csv")
    flags = ["log", "check", "--data", "broken.csv", *ROLES, "--quarantine", "aside.csv"]
    assert main(flags) == 4
    assert "unreadable cell in 't'" in said(capsys)
    assert pl.read_csv("aside.csv").height == broken.height


# What the commands say next, followed to the letter.


def shop_table(folder: Path, **changes) -> Path:
    """Clicks in a file with the columns that shops have; `changes` are other columns."""
    frame = clicks(users=16).rename({"u": "user_id", "i": "item_id", "t": "timestamp", "kind": "event type"})
    frame.with_columns(**changes).write_csv(folder / "my shop.csv")
    return folder / "my shop.csv"


def proposed(text: str, verb: str) -> list[str]:
    """The words of the last command in a text that begins with `tidelog <verb>`."""
    lines = [line.strip().removeprefix("next: ") for line in text.splitlines()]
    return shlex.split([line for line in lines if line.startswith(f"tidelog {verb}")][-1])[1:]


@pytest.fixture
def advised_policy(monkeypatch):
    """After a training the next command is that of the policy, also where a rule has better lists."""
    advice = run_result.lists_advice
    monkeypatch.setattr(
        run_result, "lists_advice", lambda *words: (one for one in advice(*words) if isinstance(one, str))
    )


@pytest.mark.full
@pytest.mark.usefixtures("advised_policy")
@pytest.mark.parametrize(
    "renamed",
    [{}, {"user_id": "user", "item_id": "item", "timestamp": "t", "event type": "event"}],
    ids=["timestamp", "t"],
)
def test_from_a_table_to_lists_by_following_what_is_said(renamed, tmp_path, capsys):
    table = shop_table(tmp_path)
    pl.read_csv(table).rename(renamed).write_csv(table)
    assert main(["log", "inspect", "--data", table.name]) == 0
    inspected = capsys.readouterr().out
    assert "as interactions: 0 errors" in inspected
    assert "tidelog train bc" not in inspected
    assert main(proposed(inspected, "log check")) == 0
    train = proposed(inspected, "train recommender-bcq")
    assert "--steps" not in train  # training has a number of its own, for its share of the log
    assert main([*train, *TINY, "--steps", "4", "--eval-every", "4"]) == 0
    trained = capsys.readouterr().out
    decision = r"(Do not use these lists|Do not use these lists yet|Use these lists): .*\nIn [\d.]+% of \d+ held-out"
    assert re.search(decision, trained)
    assert "kept: the policy of update 4, with the best held_out/ndcg@10, " in trained
    recommend = proposed(trained, "act")
    assert (recommend[2:4], "--user" in recommend) == (["--data", "my shop.csv"], False), "the run knows the columns"
    assert main(recommend) == 0
    assert re.findall(r"note: (\w+ \w+ \w+)", capsys.readouterr().out) == ["Q adds nothing"]  # after so few updates
    assert pl.read_csv("lists.csv")[train[train.index("--user") + 1]].n_unique() == 16


def test_a_table_of_interactions_with_errors_is_not_to_be_trained_on(tmp_path, capsys):
    table = shop_table(tmp_path, user_id=pl.when(pl.col("item_id") == "i1").then(None).otherwise(pl.col("user_id")))
    assert main(["log", "inspect", "--data", str(table)]) == 0
    inspected = capsys.readouterr().out
    assert "as interactions: 1 error" in inspected
    assert "tidelog train" not in inspected
    assert main(proposed(inspected, "log check")) == 4
    assert "empty cell in 'user_id'" in said(capsys)
    assert len(pl.read_csv("bad.csv")) == pl.read_csv(table)["user_id"].null_count()
    good = pl.read_csv("good.csv", infer_schema=False)
    assert good.equals(pl.read_csv(table, infer_schema=False).drop_nulls("user_id"))
    assert main(proposed(inspected, "log inspect")) == 0
    assert "tidelog train recommender-bcq --data good.csv" in capsys.readouterr().out


@pytest.mark.parametrize("ticks", [1.0, 1e3])
def test_epoch_times_are_shown_as_dates(ticks, capsys):
    """The command `date -u -d @1395864323` writes 2014-03-26 20:05:23."""
    times = [(1395864323.0 + 86_400 * row) * ticks for row in range(20)]
    table = pl.DataFrame({"u": ["a", "b"] * 10, "i": list("cdef") * 5, "t": times})
    table.write_csv("events.csv")
    assert main(["log", "inspect", "--data", "events.csv", *ROLES[:6]]) == 0
    assert "from 2014-03-26 20:05:23 to 2014-04-14 20:05:23" in said(capsys)
    log = read_interactions(table, user="u", item="i", time="t")
    assert log.facts()["time"] == "2014-03-26 20:05:23 to 2014-04-14 20:05:23"
    assert " from 2014-04-11 00:53:23 on;" in TimeSplit(log, 0.2).notes()[0]
    counts = read_interactions(table.with_columns(t=pl.int_range(20)), user="u", item="i", time="t")
    assert counts.facts()["time"] == "0 to 19"


@pytest.mark.full
@pytest.mark.usefixtures("advised_policy")
@pytest.mark.parametrize("profile", [True, False])
def test_a_table_of_users_is_named_if_the_policy_reads_it(profile, capsys):
    clicks(users=16).write_csv("clicks.csv")
    people().write_csv("people.csv")
    words = ["train", "recommender-bcq", "--data", "clicks.csv", *ROLES, *TINY, "--user-features", "people.csv"]
    assert main([*words, "--steps", "1", "--eval-every", "1", *([] if profile else ["--no-profile"])]) == 0
    recommend = proposed(capsys.readouterr().out, "act")
    assert ("--user-features" in recommend) == profile
    assert main(recommend) == 0
    assert re.findall(r"note: (\w+ \w+ \w+)", capsys.readouterr().out) == ["Q adds nothing"]  # after so few updates
    clicks(users=16).drop("kind").write_csv("plain.csv")
    assert main(["act", "runs/recommender-bcq", "--data", "plain.csv", "--k", "2", "--out", "a.csv"]) == 0
    told = said(capsys)
    assert "note: every event counts as 'click'; --event names the column" in told
    assert ("note: nothing is known of the users; --user-features names their table" in told) == profile


@pytest.mark.parametrize(
    "words", [["judge"], ["evaluate", "--env", "CartPole-v1"], ["train --from", "--env", "CartPole-v1"]]
)
def test_a_command_that_needs_actions_names_those_for_lists(words, ranker, tmp_path, capsys):
    assert main([*words[0].split(), str(ranker), *words[1:]]) == 2
    told = capsys.readouterr().err
    assert f"ranks items of a catalogue, `tidelog {words[0]}` needs a policy that chooses one action" in told
    assert not any(tmp_path.iterdir())
    named = re.findall(r"`(tidelog report .*?)`", told)
    assert main([*shlex.split(named[0])[1:], "--out", "report.html"]) == 0


def test_a_reward_may_be_a_column(capsys):
    clicks(users=16).with_columns(worth=2.5).write_csv("clicks.csv")
    words = ["--data", "clicks.csv", *ROLES[:6], "--reward", "worth"]
    assert main(["log", "check", *words]) == 0


def test_columns_that_are_left_out_are_those_of_the_log_of_the_run(ranker, shop, capsys):
    """The kind of event is a column that only one of the tables has; a saved policy knows no columns."""
    words = ["act", str(ranker), "--k", "2", "--data"]
    assert main([*words, str(shop / "clicks.csv"), *ROLES[:8], "--out", "named.csv"]) == 0
    capsys.readouterr()
    assert main([*words, str(shop / "clicks.csv"), "--out", "left.csv"]) == 0
    assert "columns of the run's log: --user u, --item i, --time t, --event kind" in said(capsys)
    assert pl.read_csv("left.csv").equals(pl.read_csv("named.csv"))
    clicks(users=16).drop("kind").write_csv("plain.csv")
    assert main([*words, "plain.csv", "--item", "i", "--out", "plain-lists.csv"]) == 0
    assert "columns of the run's log: --user u, --time t note: " in said(capsys)
    clicks(users=16).rename({"u": "who"}).write_csv("other.csv")
    assert main([*words, "other.csv", "--out", "no.csv"]) == 2
    assert "has no column 'u'" in said(capsys)


def test_the_lists_of_a_rule_are_written_by_its_name(ranker, shop, capsys):
    """The rule counts the whole log of the run."""
    words = ["act", str(ranker), "--data", str(shop / "clicks.csv"), "--k", "2", "--exclude-seen", "no"]
    assert main([*words, "--rule", "last-event-markov", "--out", "lists.csv"]) == 0
    assert "lists by the counting rule last-event Markov (what followed the last item with its kind" in said(capsys)
    assert pl.read_csv("lists.csv")["u"].n_unique() == 16


def test_every_rule_that_is_compared_has_a_name_and_answers_over_http(shop):
    endpoint = pytest.importorskip("tidelog.serving.app").RecommendEndpoint
    log = read_interactions(shop / "clicks.csv", user="u", item="i", time="t", event="kind")
    for name in RULES:
        lists = RuleLists(log, word_of(name))
        assert lists.recommend([["i1"], []], 3).items.shape == (2, 3)
        answer = endpoint(lists, 10)
        asked = answer.read(b'{"history": ["i1"], "k": 2}')
        assert len(answer.compute(asked)["items"]) == 2


def test_rules_by_their_names_count_what_the_names_say():
    """After a was viewed b follows three times, after it was bought c twice; a follows nothing, and is popular."""
    paths = [["a view", "b view"]] * 3 + [["a buy", "c view"]] * 2
    rows = [(user, moment, *step.split()) for user, path in enumerate(paths) for moment, step in enumerate(path)]
    frame = pl.DataFrame(rows, schema=["u", "t", "i", "kind"], orient="row")
    log = read_interactions(frame, user="u", item="i", time="t", event="kind")
    asked = tidelog.Histories([["a"], []], events=[["buy"], []])
    first = {
        rule: RuleLists(log, rule).recommend(asked, 1, False).items.ravel().tolist()
        for rule in ("last-event-markov", "last-item-markov", "popularity")
    }
    assert first == {"last-event-markov": ["c", "a"], "last-item-markov": ["b", "a"], "popularity": ["a", "a"]}
