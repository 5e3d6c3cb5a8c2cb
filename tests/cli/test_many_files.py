"""`tidelog act` and `recommend` write a file for each of several files, in one process or in several, and go on."""

import json
import os
import shutil
from pathlib import Path

import polars as pl
import pytest

import tidelog as tl
from tests.data.clicks import clicks
from tests.runtime.cases import listing
from tests.sweeps.engines import InProcess
from tidelog.cli import act, many_files
from tidelog.cli.many_files import ManyFiles
from tidelog.errors import ConfigError
from tidelog.policies.batch_inference import act_on_table
from tidelog.runtime.policy import Policy as SavedPolicy
from tidelog.sweeps import fan_out as fan_out_module
from tidelog.sweeps.engines import Job, named
from tidelog.sweeps.engines.work import run_job
from tidelog.sweeps.fan_out import groups_of

GLOB = "new/*/*"


@pytest.fixture(scope="module")
def policy(run, tmp_path_factory):
    """A saved policy, which NumPy alone computes."""
    folder = tmp_path_factory.mktemp("policy") / "policy"
    tl.load(run).policy().save(folder)
    return folder


@pytest.fixture
def new(here, table):
    """New rows of two days, a file of each kind, and one with a column too few."""
    for day, ending in (("mon", "csv"), ("tue", "parquet")):
        (here / "new" / day).mkdir(parents=True)
        part = table[:20] if day == "mon" else table[20:50]
        getattr(part, f"write_{ending}")(here / "new" / day / f"rows.{ending}")
    table[50:60].drop("kidneys").write_csv(here / "new" / "tue" / "short.csv")
    return here


def written(folder="actions"):
    outputs = [path for path in Path(folder).rglob("rows.*") if path.suffix != ".json"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in outputs}


def test_each_file_gets_a_file_and_the_broken_one_a_reason(new, policy, tidelog):
    done = tidelog("act", policy, "--data", GLOB, "--out", "actions")
    assert done.code == 4
    assert "2 files with their actions: actions" in done.out
    assert f"nothing for {new}/new/tue/short.csv" in done.said
    assert "has no column 'kidneys'" in done.said
    known = tl.load_policy(policy)
    for name, read in (("mon/rows.csv", pl.read_csv), ("tue/rows.parquet", pl.read_parquet)):
        expected = act_on_table(known, str(new / "new" / name))
        assert read(new / "actions" / name)["action"].to_list() == expected["action"].to_list()
    done = tidelog("act", policy, "--data", GLOB, "--out", "actions", "--json")
    assert json.loads(done.out)["failed"] == [str(new / "new" / "tue" / "short.csv")]


def test_it_goes_on_with_new_and_mended_files_and_keeps_the_others(new, policy, table, tidelog):
    words = ["act", policy, "--data", GLOB, "--out", "actions"]
    assert tidelog(*words).code == 4
    (new / "actions" / "mon" / "rows.csv").write_text("kept")
    table[50:60].write_csv("new/tue/short.csv")
    table[60:70].write_csv("new/mon/more.csv")
    done = tidelog(*words)
    assert done.code == 0, done.err
    assert "4 files with their actions" in done.out
    assert (new / "actions" / "mon" / "rows.csv").read_text() == "kept"
    assert not (new / "actions" / "failures").exists()
    assert len(pl.read_csv("actions/mon/more.csv")) == len(pl.read_csv("actions/tue/short.csv")) == 10


@pytest.mark.parametrize(
    ("change", "words", "expected"),
    [
        (None, ["--sample"], "begun with another --sample"),
        ("rows", [], "rows.csv has changed since its output was written"),
        ("place", [], "has another place below the files since"),
        ("policy", [], "begun with another version of the policy"),
    ],
)
def test_what_would_mix_two_commands_is_refused(change, words, expected, new, policy, run, tidelog):
    here = new / "policy"
    tl.load(run).policy().save(here)
    data = ["--data", "new/mon/*"]
    assert tidelog("act", here, *data, "--out", "actions").code == 0
    before = written()
    if change == "rows":
        (new / "new" / "mon" / "rows.csv").write_text((new / "new" / "mon" / "rows.csv").read_text() + "\n")
    elif change == "place":
        data = ["--data", GLOB]
    elif change == "policy":
        shutil.rmtree(here)
        tl.load(run).policy(member=1).save(here)
    done = tidelog("act", here, *data, "--out", "actions", *words)
    assert done.code == 2
    assert expected in done.said
    assert "--overwrite" in done.said
    assert written() == before
    assert tidelog("act", here, *data, "--out", "actions", *words, "--overwrite").code in (0, 4)


def test_samples_are_the_same_by_one_process_and_by_jobs_of_an_engine(new, policy, tidelog, monkeypatch):
    words = ["act", policy, "--data", "new/mon", "--data", "new/tue/rows.parquet", "--sample", "--seed", 3]
    assert tidelog(*words, "--out", "alone").code == 0
    monkeypatch.setattr(named, "engine_of", lambda *_: Jobs())
    assert tidelog(*words, "--out", "actions", "--workers", 2).code == 0
    assert written() == written("alone")
    assert len(set(pl.read_csv("actions/mon/rows.csv")["action"])) > 1


def test_files_with_the_same_rows_have_samples_of_their_own(new, policy, tidelog):
    shutil.copy("new/mon/rows.csv", "new/mon/again.csv")
    assert tidelog("act", policy, "--data", "new/mon", "--out", "actions", "--sample", "--seed", 3).code == 0
    actions = [pl.read_csv(f"actions/{name}.csv")["action"].to_list() for name in ("rows", "again")]
    assert actions[0] != actions[1]


class Jobs(InProcess):
    """Does the jobs of a command in this process, after losing some."""

    def submit(self, job):
        self.jobs.append(job)
        lost = self._lost(job)
        if not lost:
            run_job(job)
        self._ended.append((job, "killed by signal 9" if lost else "ended with code 0"))


def test_a_lost_job_is_done_again_and_a_job_that_is_always_lost_is_a_failure(new, policy, tidelog, monkeypatch):
    engine = Jobs(lost=lambda job: job.number == 1 or job.attempt == 1)
    monkeypatch.setattr(named, "engine_of", lambda *_: engine)
    done = tidelog("act", policy, "--data", "new/mon", "--data", "new/tue/rows.parquet", "--out", "actions",
                   "--workers", 2)  # fmt: skip
    assert done.code == 4
    assert "its process was lost 3 times (killed by signal 9)" in done.said
    assert [(job.number, job.attempt) for job in engine.jobs] == [(0, 1), (1, 1), (0, 2), (1, 2), (1, 3)]
    assert list(written()) == ["mon/rows.csv"]
    monkeypatch.setattr(named, "engine_of", lambda *_: Jobs())
    done = tidelog("act", policy, "--data", "new/mon", "--data", "new/tue/rows.parquet", "--out", "actions",
                   "--workers", 2)  # fmt: skip
    assert done.code == 0, "the file that failed is tried again"


def test_files_are_divided_into_a_few_jobs_for_each_worker(monkeypatch):
    monkeypatch.setattr(fan_out_module, "MOST_JOBS", 2)
    assert groups_of([5, 7, 9], None) == [[5, 9], [7]]
    assert groups_of([5, 7, 9], 1) == [[5], [7], [9]]


def test_skipped_rows_are_in_a_folder_of_their_own(new, policy, table, tidelog):
    strange = table[:4].with_columns(kidneys=pl.Series(["healthy", "none", "impaired", "none"]))
    strange.write_csv("new/mon/rows.csv")
    done = tidelog("act", policy, "--data", "new/mon", "--data", "new/tue/rows.parquet", "--out", "actions",
                   "--skip-unknown", "actions/skipped")  # fmt: skip
    assert done.code == 0, done.err
    assert pl.read_csv("actions/skipped/mon/rows.csv")["row"].to_list() == [2, 4]
    assert len(pl.read_csv("actions/mon/rows.csv")) == 2
    assert "2 rows of 1 file skipped, each with the values that the policy cannot read: actions/skipped" in done.out
    assert done.out.count(" skipped") == 1
    done = tidelog("act", policy, "--data", "new/mon", "--data", "new/tue/rows.parquet", "--out", "actions",
                   "--skip-unknown", "actions/skipped", "--json")  # fmt: skip
    assert json.loads(done.out)["skipped"] == 2, "also where nothing is left to do"


def test_text_that_a_spreadsheet_computes_is_said_once_for_a_folder(new, policy, table, histories, tidelog):
    for name in ("one", "two", "three"):
        table[:4].with_columns(id=pl.lit("=1+1")).write_csv(f"new/mon/{name}.csv")
    done = tidelog("act", policy, "--data", "new/mon", "--out", "actions")
    assert f"note: {new}/actions/one.csv has text that a spreadsheet computes as a formula" in done.out
    assert "note: the same note is for 2 more files in actions" in done.out
    assert "formula" not in tidelog("act", policy, "--data", "new/mon", "--out", "safe", "--csv-safe").out
    frame = pl.read_csv("histories/a.csv").with_columns(u=pl.lit("=") + pl.col("u"))
    frame.write_csv("histories/a.csv")
    done = tidelog(*histories, "--out", "lists")
    assert f"note: {new}/lists/a.csv has text that a spreadsheet computes as a formula" in done.out


def test_one_file_is_named_in_the_singular(new, policy, tidelog):
    done = tidelog("act", policy, "--data", "new/mon", "--out", "actions")
    assert "1 file with their actions" not in done.out
    assert "1 file with its actions: actions" in done.out


def test_an_older_output_stays_until_the_new_one_is_complete(new, policy, table, tidelog, monkeypatch):
    """Also that of a file that fails, and of one that is not among the new files until all others are complete."""
    table[:5].write_csv("new/mon/gone.csv")
    words = ["act", policy, "--out", "actions"]
    data = ["--data", "new/mon", "--data", "new/tue/rows.parquet"]
    assert tidelog(*words, *data).code == 0
    Path("new/mon/gone.csv").unlink()
    table[:5].drop("kidneys").write_csv("new/mon/rows.csv")
    before, seen = {**written(), "gone": Path("actions/mon/gone.csv").read_bytes()}, []
    work = act.work_on

    def watched(*given):
        seen.append({**written(), "gone": Path("actions/mon/gone.csv").read_bytes()})
        work(*given)

    monkeypatch.setattr(act, "work_on", watched)
    done = tidelog(*words, *data, "--probabilities", "--overwrite")
    assert done.code == 4
    monkeypatch.setattr(act, "work_on", work)
    assert seen == [before]
    assert "1 file with its actions: actions" in done.out
    assert f"1 output of an earlier call is unchanged, such as {new}/actions/mon/rows.csv" in done.out
    now = written()
    assert now["mon/rows.csv"] == before["mon/rows.csv"]
    assert now["tue/rows.parquet"] != before["tue/rows.parquet"]
    assert not Path("actions/mon/gone.csv").exists()
    table[:5].write_csv("new/mon/rows.csv")
    Path("actions/mon/gone.csv").write_text("mine")
    assert tidelog(*words, *data, "--probabilities").code == 0, "a mended file is written"
    assert any(name.startswith("probability_") for name in pl.read_csv("actions/mon/rows.csv").columns)
    assert [path.name for path in Path("actions/files.done").iterdir()] == ["1"]
    assert Path("actions/mon/gone.csv").read_text() == "mine", "what was deleted once is not deleted again"


def test_skipped_rows_of_an_earlier_call_are_deleted_with_its_output(new, policy, table, tidelog):
    strange = table[:4].with_columns(kidneys=pl.Series(["healthy", "none", "impaired", "none"]))
    strange.write_csv("new/mon/rows.csv")
    words = ["act", policy, "--data", "new/mon", "--out", "actions"]
    assert tidelog(*words, "--skip-unknown", "actions/skipped").code == 0
    assert Path("actions/skipped/rows.csv").exists()
    table[:4].write_csv("new/mon/rows.csv")
    assert tidelog(*words, "--overwrite").code == 0
    assert not Path("actions/skipped/rows.csv").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--data", "visits.csv", "--out", "a.csv", "--workers", 2], "for several files of rows"),
        (["--data", "visits.csv", "--out", "a.csv", "--on", "ray"], "for several files of rows"),
        (["--data", GLOB, "--out", "a", "--probabilities", "--skip-unknown", "b"], "fix: set only one of them"),
        (["--data", GLOB, "--out", "new"], "exists and is not of this command"),
        (["--data", GLOB, "--out", "actions", "--on", "cloud"], "expected 'here'"),
        (["--data", "twins", "--out", "actions"], "would both be written as rows.csv"),
        (["--data", GLOB, "--out", "outside"], "no file that it writes"),
        (["--data", GLOB, "--out", "broken"], "broken/files.json"),
    ],
)
def test_what_cannot_be_is_refused(words, expected, new, policy, table, tidelog):
    for name in ("twins", "outside", "broken"):
        (new / name).mkdir()
    table.write_csv("twins/rows.csv")
    table.write_ndjson("twins/rows.jsonl")
    table.write_csv("twins/rows.tsv", separator="\t")
    one = {"source": "/x", "target": "../rows.csv", "size": 1, "modified": 1}
    (new / "outside" / "files.json").write_text(json.dumps({"folder": "x", "settings": {}, "files": [one]}))
    (new / "broken" / "files.json").write_text("{")
    done = tidelog("act", policy, *words)
    assert done.code == 2, done.said
    assert expected in done.said


def test_a_place_that_the_command_needs_itself_is_refused(new, policy, table, tidelog):
    (new / "new" / "jobs").mkdir()
    table[:5].write_csv("new/jobs/rows.csv")
    done = tidelog("act", policy, "--data", GLOB, "--out", "actions")
    assert (done.code, (new / "actions").exists()) == (2, False)
    assert "its output would be jobs/rows.csv, which this command needs. fix: rename the folder 'jobs'" in done.said
    with pytest.raises(ConfigError, match=r"has no files\.json, it is not of this command"):
        ManyFiles.read(new)


def test_of_many_failures_the_first_are_shown(new, policy, tidelog):
    for number in range(6):
        shutil.copy("new/tue/short.csv", f"new/tue/short-{number}.csv")
    done = tidelog("act", policy, "--data", GLOB, "--out", "actions")
    assert done.out.count("nothing for ") == many_files.MOST_SHOWN
    assert "... and for 2 more: actions/failures" in done.out


def test_a_recurrent_policy_reads_all_files_as_one_table(new, policy, tidelog, monkeypatch):
    monkeypatch.setattr(SavedPolicy, "is_recurrent", True)
    done = tidelog("act", policy, "--data", GLOB, "--out", "actions")
    assert (done.code, (new / "actions").exists()) == (2, False)
    assert "--out FILE.parquet reads all files as one table" in done.said


@pytest.fixture
def histories(here):
    """A policy for lists, and the histories of six users in two files."""
    table = clicks(users=6)
    (here / "histories").mkdir()
    users = table["u"].unique(maintain_order=True).to_list()
    table.filter(pl.col("u").is_in(users[:4])).write_csv("histories/a.csv")
    table.filter(pl.col("u").is_in(users[4:])).write_parquet("histories/b.parquet")
    listing("lists, mean").save("lists-policy")
    return ["recommend", "lists-policy", "--data", "histories", "--user", "u", "--item", "i", "--time", "t", "--event",
            "kind", "--k", "3"]  # fmt: skip


def test_each_file_of_histories_gets_its_lists(histories, here, tidelog, monkeypatch):
    monkeypatch.setattr(named, "engine_of", lambda *_: Jobs(lost=lambda job: job.attempt == 1))
    done = tidelog(*histories, "--out", "lists", "--workers", 2)
    assert done.code == 0, done.err
    assert "2 files with their lists: lists" in done.out
    clicks(users=6).write_csv("clicks.csv")
    assert tidelog(*histories[:3], "clicks.csv", *histories[4:], "--out", "whole.csv").code == 0
    parts = pl.concat([pl.read_csv("lists/a.csv"), pl.read_parquet("lists/b.parquet")], how="vertical_relaxed")
    assert parts.drop("score").equals(pl.read_csv("whole.csv").drop("score"))
    done = tidelog(*histories, "--out", "together.csv")
    assert done.code == 2
    assert "expected the same column in every file. fix: export the files alike" in done.said
    assert json.loads(tidelog(*histories, "--out", "lists", "--json").out)["k"] == 3


def test_a_broken_file_of_histories_stops_no_other(histories, here, tidelog):
    (here / "histories" / "c.csv").write_text("who,i,t,kind\na,i1,1,click\n")
    (here / "histories" / "d.parquet").write_bytes(b"PAR1")
    done = tidelog(*histories, "--out", "lists")
    assert done.code == 4
    assert "2 files with their lists: lists" in done.out
    assert "c.csv: the table has no column 'u'" in done.said or "no column 'u'" in done.said
    assert "d.parquet" in done.said


def test_a_user_in_two_files_and_another_stock_are_refused(histories, here, tidelog):
    Path("stock.txt").write_text("i1\ni2\ni3\ni4\n")
    stock = ["--candidates", "stock.txt", "--exclude-seen", "no"]
    assert tidelog(*histories, *stock, "--out", "lists").code == 0
    Path("stock.txt").write_text("i1\ni2\ni3\ni5\n")
    done = tidelog(*histories, *stock, "--out", "lists")
    assert (done.code, "was begun with another content of --candidates" in done.said) == (2, True)
    done = tidelog(*histories, "--exclude", "absent.txt", "--out", "more")
    assert (done.code, "--exclude absent.txt cannot be read" in done.said) == (2, True)
    shutil.copy("histories/a.csv", "histories/c.csv")
    done = tidelog(*histories, "--out", "more")
    assert (done.code, Path("more").exists()) == (2, False)
    assert "histories/c.csv: a list needs the whole history. fix: --out FILE.parquet" in done.said


def test_a_user_of_an_earlier_call_and_empty_cells_of_users(histories, here, tidelog):
    shutil.copy("histories/a.csv", "again.csv")
    assert tidelog(*histories, "--out", "lists").code == 0
    words = [*histories[:3], "again.csv", "--data", "other.csv", *histories[4:], "--out", "lists"]
    for name, users in (("other.csv", ["x", None]), ("one.csv", ["y", None])):
        pl.DataFrame({"u": users, "i": ["i1", "i2"], "t": [1, 2], "kind": ["click"] * 2}).write_csv(name)
    done = tidelog(*words)
    assert (done.code, "histories/a.csv" in done.said, "a list needs the whole" in done.said) == (2, True, True)
    done = tidelog(*histories[:3], "other.csv", "--data", "one.csv", *histories[4:], "--out", "empty")
    assert done.code == 4
    assert "user None" not in done.said
    assert done.said.count("other.csv") == 1


@pytest.mark.parametrize("place", ["new", "actions", "."])
def test_skipped_rows_are_written_in_the_folder_and_nowhere_else(place, new, policy, tidelog):
    before = (new / "new" / "mon" / "rows.csv").read_bytes()
    done = tidelog("act", policy, "--data", GLOB, "--out", "actions", "--skip-unknown", place)
    assert (done.code, "fix: --skip-unknown actions/skipped" in done.said) == (2, True)
    assert (new / "new" / "mon" / "rows.csv").read_bytes() == before
    assert not Path("actions").exists()


@pytest.mark.full
def test_processes_of_this_machine_write_what_one_does(new, policy, tidelog):
    words = ["act", policy, "--data", GLOB]
    assert tidelog(*words, "--out", "alone").code == 4
    assert tidelog(*words, "--out", "actions", "--workers", 2).code == 4
    assert written() == written("alone")
    plan = ManyFiles.read(Path("actions"))
    assert list(plan.failures()) == [plan.files.index(one) for one in plan.files if "short" in one.source]
    job = Job(str(Path("actions").absolute()), 0, 1, module=act.__name__)
    assert job.output.exists()


def test_the_output_of_another_file_is_not_taken_for_that_of_this_one(new, policy, table, tidelog):
    """Both would be `rows.csv`, as each is alone below its folder; and one written earlier is remembered."""
    (new / "new" / "wed").mkdir()
    table[60:70].write_csv("new/wed/rows.csv")
    assert tidelog("act", policy, "--data", "new/mon", "--data", "new/wed", "--out", "actions").code == 0
    assert tidelog("act", policy, "--data", "new/mon", "--out", "alone").code == 0
    done = tidelog("act", policy, "--data", "new/wed", "--out", "alone")
    assert done.code == 2
    assert f"rows.csv was written for {new}/new/mon/rows.csv, which is another file" in done.said
    shutil.copy("new/mon/rows.csv", "new/mon/more.csv")
    assert tidelog("act", policy, "--data", "new/mon/*.csv", "--out", "alone").code == 0
    assert (
        tidelog("act", policy, "--data", "new/mon/more*", "--out", "alone", "--probabilities", "--overwrite").code == 0
    )
    assert not (new / "alone" / "rows.csv").exists(), "it was written without probabilities"


def test_an_output_of_an_earlier_call_is_deleted_with_the_others(new, policy, tidelog):
    shutil.copy("new/mon/rows.csv", "new/mon/more.csv")
    words = ["act", policy, "--out", "actions"]
    assert tidelog(*words, "--data", "new/mon/rows*").code == 0
    assert tidelog(*words, "--data", "new/mon/more*").code == 0
    assert tidelog(*words, "--data", "new/mon/more*", "--probabilities", "--overwrite").code == 0
    assert sorted(path.name for path in Path("actions").glob("*.csv")) == ["more.csv"]
    assert tidelog(*words, "--data", "new/mon", "--probabilities").code == 0
    assert any(name.startswith("probability_") for name in pl.read_csv("actions/rows.csv").columns)


def test_a_second_command_on_a_folder_is_refused_while_the_first_writes(new, policy, tidelog, monkeypatch):
    said = []
    work = act.work_on

    def second(*words):
        if not said:
            said.append(None)
            said.append(
                tidelog("act", policy, "--data", "new/mon", "--out", "actions", "--overwrite", "--probabilities")
            )
        work(*words)

    monkeypatch.setattr(act, "work_on", second)
    assert tidelog("act", policy, "--data", "new/mon", "--out", "actions").code == 0
    assert said[1].code == 2
    assert "actions is being written by process" in said[1].said
    assert not any(name.startswith("probability_") for name in pl.read_csv("actions/rows.csv").columns)


def test_a_policy_that_changes_after_the_command_has_begun_writes_nothing(new, run, tidelog, monkeypatch):
    here = new / "policy"
    tl.load(run).policy().save(here)
    work = act.work_on

    def changed(*words):
        shutil.rmtree(here)
        tl.load(run).policy(member=1).save(here)
        work(*words)

    monkeypatch.setattr(act, "work_on", changed)
    done = tidelog("act", here, "--data", "new/mon", "--out", "actions")
    assert done.code == 2
    assert f"version of the policy has changed since {new}/actions was begun. fix: call the command again" in done.said
    assert not written()


@pytest.mark.parametrize("overwrite", [False, True])
def test_nothing_outside_of_the_folder_is_written_or_deleted(overwrite, new, policy, tidelog):
    """The folder has a link out, as if somebody else had made it."""
    (new / "elsewhere").mkdir()
    (new / "elsewhere" / "rows.csv").write_text("mine")
    assert tidelog("act", policy, "--data", GLOB, "--out", "actions").code == 4
    shutil.rmtree("actions/mon")
    Path("actions/mon").symlink_to(new / "elsewhere")
    done = tidelog("act", policy, "--data", GLOB, "--out", "actions", *(["--overwrite"] if overwrite else []))
    assert done.code == 2
    assert "actions/mon is a link out of actions" in done.said
    assert (new / "elsewhere" / "rows.csv").read_text() == "mine"


@pytest.mark.parametrize("target", ["", ".", "/etc/x.csv", "../x.csv", "files.json", "mon"])
def test_a_plan_of_somebody_else_deletes_nothing_else(target, new, policy, tidelog):
    (new / "plan" / "mon").mkdir(parents=True)
    (new / "plan" / "mon" / "kept").write_text("mine")
    one = {"source": "/x", "target": target, "size": 1, "modified": 1}
    for files in ({"files": [one]}, {"files": [], "earlier": [one]}):
        (new / "plan" / "files.json").write_text(json.dumps({"folder": "x", "settings": {}} | files))
        done = tidelog("act", policy, "--data", GLOB, "--out", "plan", "--overwrite")
        assert (done.code, "no file that it writes" in done.said) == (2, True)
        assert (new / "plan" / "mon" / "kept").read_text() == "mine"


def test_its_own_outputs_are_no_input(new, policy, tidelog):
    done = tidelog("act", policy, "--data", "new/mon/*.csv", "--out", "new/mon/actions")
    assert done.code == 0
    done = tidelog("act", policy, "--data", "new/mon/**/*.csv", "--out", "new/mon/actions")
    assert done.code == 2
    assert "new/mon/actions/rows.csv is in new/mon/actions, where this command writes" in done.said


def test_odd_names_and_files_are_read_or_refused(new, policy, table, tidelog):
    """A name that is no UTF-8, one with an escape, a FIFO, a name that another output needs as its folder."""
    table[:5].write_csv("plain.csv")
    (new / "odd").mkdir()
    for name in (b"odd/\xff.csv", b"odd/\x1b[31mred.csv", b"odd/a\nb.csv"):
        shutil.copy("plain.csv", os.fsdecode(name))
    table[:5].drop("kidneys").write_csv("short.csv")
    shutil.move("short.csv", os.fsdecode(b"odd/short\xfe.csv"))
    done = tidelog("act", policy, "--data", "odd", "--out", "actions", "--sample", "--seed", 1)
    assert done.code == 4, done.said
    assert "\x1b" not in done.out + done.err
    assert len([*Path("actions").glob("*.csv")]) == 3
    os.mkfifo("odd/wait.csv")
    done = tidelog("act", policy, "--data", "odd/*.csv", "--out", "fifo")
    assert (done.code, "wait.csv is a FIFO" in done.said) == (2, True)
    (new / "nested" / "a.csv").mkdir(parents=True)
    shutil.copy("plain.csv", "nested/a.csv/b.csv")
    shutil.copy("plain.csv", "nested/a.tsv")
    done = tidelog("act", policy, "--data", "nested/a.csv", "--data", "nested/a.tsv", "--out", "deep")
    assert (done.code, "the folder that" in done.said, Path("deep").exists()) == (2, True, False)


def test_a_folder_in_which_a_killed_command_has_left_its_files_is_used_again(new, policy, tidelog):
    (new / "actions" / "mon").mkdir(parents=True)
    for name in ("actions/.writing-files.json-01234567", "actions/files.lock"):
        Path(name).write_text("{")
    shutil.rmtree("actions/mon")
    assert tidelog("act", policy, "--data", GLOB, "--out", "actions").code == 4
    Path("actions/mon/.writing-rows.csv-01234567").write_text("half")
    assert tidelog("act", policy, "--data", GLOB, "--out", "actions").code == 4
    assert not [*Path("actions").rglob(".writing-*")]


@pytest.mark.parametrize("word", ["absent.toml", "odd.toml"])
def test_a_mapping_that_cannot_be_read_is_refused(word, new, policy, tidelog):
    Path("odd.toml").write_bytes(b"\xff = 1")
    done = tidelog("act", policy, "--data", "new/mon", "--out", "actions", "--columns", word)
    assert (done.code, word in done.said, Path("actions").exists()) == (2, True, False)
