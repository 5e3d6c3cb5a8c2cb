"""Every command keeps the same promises: --quiet, --json, and what it writes."""

import json
import re
import shutil

import pytest

from tests.cli.conftest import ROLES, SMALL, call
from tests.report.crafted import verdict
from tests.sweeps.pools import InProcess
from tidelog.cli import COMMANDS, resume, sweep
from tidelog.ope.verdict import write

DATA = ["--data", "visits.csv", "--columns", "columns.toml"]
RUN_FACTS = {"run", "done", "finished", "metrics"}
JUDGE = ["judge", "run", "--sample", "--ledger", "off", "--replicates", 1000, "--model", "tabular"]
VERBS = {  # a command, the lines of its quiet output (None: tables), and keys of its JSON
    "act": (["act", "run", "--data", "visits.csv", "--out", "actions.csv"],
            [r"[\d,]+ rows with their actions: actions\.csv"], {"out", "rows", "skipped", "acting"}),
    "act with a saved policy": (["act", "policy", "--data", "visits.csv", "--out", "actions.parquet"],
                                [r"[\d,]+ rows with their actions: actions\.parquet"], {"out", "rows"}),
    "collect": (["collect", "--env", "treatment", "--episodes", 2, "--out", "played"], ["played"],
                {"log", "steps", "episodes", "returns"}),
    "log convert": (["log", "convert", *DATA, "--out", "log.npz"], [r"written: log\.npz"], {"written"}),
    "log convert to a folder": (["log", "convert", *DATA, "--out", "log.tidelog"], [r"written: log\.tidelog"],
                                 {"written"}),
    "log inspect": (["log", "inspect", *DATA], [r"visits\.csv: .*"], {"statistics", "fingerprint"}),
    "log inspect of a table": (["log", "inspect", "--data", "visits.csv", "--write", "new.toml", "--html", "p.html"],
                                [r"visits\.csv: .*", r"written: .*", r"written: .*"], {"rows", "toml"}),
    "log check": (["log", "check", *DATA, "--html", "page.html"], [r"visits\.csv: .*", r"written: page\.html"],
                      {"ok", "rows"}),
    "evaluate by play": (["evaluate", "run", "--env", "treatment", "--episodes", 3], None, {"returns"}),
    "evaluate by a log": (["evaluate", "run", *DATA], None, {"members", "parts"}),
    "export": (["export", "run", "--out", "exported", "--no-onnx"], ["exported: exported"],
               {"policy", "out", "checked"}),
    "judge": (JUDGE, ["member-0: (UNSUPPORTED|NO DIFFERENCE SHOWN)"], {"decision", "difference", "paragraph"}),
    "judge all": ([*JUDGE, "--all-members"], None, {"verdicts"}),
    "plan": (["plan", "run", "--simulations", 20, "--explore", 0.2, "--model", "tabular"], ["The present logging: .*"],
             {"effect", "probability", "loggings", "sentences"}),
    "act for users": (["act", "SHOP/policy", "--data", "SHOP/clicks.csv", *ROLES[:8], "--k", 2, "--out", "lists.csv"],
                  [r"lists of 2 items for 16 users: lists\.csv"], {"out", "users", "k", "rows"}),
    "explain": (["explain", "verdict.json"], ["Decision: better. .*"], {"verdicts"}),
    "train like a run": (["train", "--like", "run", "--out", "final"], ["run folder: final"], RUN_FACTS),
    "report": (["report", "run"], [r"report: report\.html"], {"report", "bytes"}),
    "resume": (["resume", "run"], ["run is complete at update 42: .*"], RUN_FACTS),
    "sweep": (["sweep", "bc", *DATA, "--steps", 2, "--out", "swept", *SMALL], ["sweep folder: swept"], {"trials"}),
    "train": (["train", "bc", *DATA, "--steps", 3, "--out", "new", *SMALL], ["run folder: new"], RUN_FACTS),
    "verify": (["verify", "policy"], ["policy: complete, not signed"], {"files", "signature"}),
}  # fmt: skip
ELSEWHERE = {"demo": "test_commands.py", "serve": "tests/serving"}
WRITE = {
    "act",
    "collect",
    "export",
    "act for users",
    "train like a run",
    "sweep",
    "train",
    "log convert",
    "log inspect of a table",
}
WRITE |= {"act with a saved policy", "log convert to a folder", "log check"}


def test_no_command_is_forgotten():
    assert {name.split()[0] for name in VERBS} | {*ELSEWHERE} == {*COMMANDS}


@pytest.fixture(scope="session")
def place(clinic, run, tmp_path_factory):
    """A folder with a table, a run and a policy."""
    folder = tmp_path_factory.mktemp("verbs")
    for name in ("visits.csv", "columns.toml"):
        shutil.copy(clinic / name, folder)
    shutil.copytree(run, folder / "run")
    assert call("export", folder / "run", "--out", folder / "policy", "--no-onnx", "--quiet") == 0
    write(verdict(), folder / "verdict.json")
    return folder


def files(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.sample(
    "act", "collect", "log inspect of a table", "evaluate by a log", "export", "judge", "train", "verify"
)
@pytest.mark.parametrize("name", VERBS)
def test_quiet_prints_the_result_and_json_is_one_document_and_what_exists_stays(
    name, place, shop, tidelog, monkeypatch
):
    """Quiet: nothing but the result. JSON: standard output is one document, what people read is on standard error."""
    monkeypatch.chdir(place)
    for module in (sweep, resume):
        monkeypatch.setattr(module, "pool_of", lambda *settings: InProcess())
    words, lines, keys = VERBS[name]
    words = [str(word).replace("SHOP", str(shop)) for word in words]
    quiet = tidelog(*words, "--quiet")
    assert (quiet.code, quiet.err) == (0, ""), quiet.said
    said = quiet.out.splitlines()
    if lines is None:
        assert said
        assert not any(word in quiet.out for word in ("next:", "note:", "trained on", "training episodes say"))
    else:
        assert len(said) == len(lines)
        assert all(re.fullmatch(line, one) for line, one in zip(lines, said, strict=True)), said
    if name in WRITE:
        before = files(place)
        again = tidelog(*words, "--json")
        assert (again.code, again.out, "exists" in again.err) == (2, "", True), again.said
        assert files(place) == before
        words += ["--overwrite"] if name != "sweep" else ["--out", "other"]
    spoken = tidelog(*words, "--json")
    assert spoken.code == 0, spoken.said
    assert keys <= set(json.loads(spoken.out))
    both = tidelog(*words, "--json", "--quiet", *(["--out", "third"] if name == "sweep" else []))
    assert keys <= set(json.loads(both.out))
    assert "note" not in both.err
