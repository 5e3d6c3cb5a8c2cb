"""What the docs say exists, and what they show runs."""

import dataclasses
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from benchmarks import redraw
from benchmarks.calibration import coverage_over_seeds
from benchmarks.keep import kept
from tests.shared import shared
from tidelog.cli import demo
from tidelog.runtime import load

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (ROOT, ROOT / "docs", ROOT / "docs/tutorials", ROOT / "docs/gallery", ROOT / "docs/reference")
PAGES = sorted(page for folder in FOLDERS for page in folder.glob("*.md"))


def exists(name: str) -> bool:
    """Whether `tl.name`, `tl.Class.member` or `tl.callable(argument)` is there."""
    path, _, argument = name.removeprefix("tl.").rstrip(")").partition("(")
    found = tl
    for part in path.split("."):
        if not hasattr(found, part):
            return part == "metrics"  # an attribute that instances have
        found = getattr(found, part)
    if not argument:
        return True
    if dataclasses.is_dataclass(found):
        return argument in {field.name for field in dataclasses.fields(found)}
    hints = get_type_hints(found)
    keywords = get_args(hints.get("options")) or get_args(hints.get("arrays"))  # of `**options: Unpack[FitOptions]`
    return argument in inspect.signature(found).parameters or any(argument in one.__annotations__ for one in keywords)


def coming_from() -> dict[str, list[list[str]]]:
    """The rows of each table of docs/coming-from.md as cells, by the system's name, without the heads."""
    parts = re.split(r"(?m)^## ", (ROOT / "docs/coming-from.md").read_text())
    tables = {}
    for part in parts[1:]:
        lines = [line for line in part.splitlines() if line.startswith("|")][2:]
        tables[part.splitlines()[0]] = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return tables


def test_every_name_in_coming_from_exists() -> None:
    """Names `tl.` in every cell; other names beside them in the five systems' tables are metrics or commands."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/tidelog").rglob("*.py"))
    names, metrics = [], []
    for rows in coming_from().values():
        for there, here, *more in rows:
            assert there
            assert here
            names += re.findall(r"`(tl\.[^`]+)`", " ".join([here, *more]))
            if more:
                metrics += [name for name in re.findall(r"`([\w/@]+)`", here) if not name.startswith("tl")]
    assert len(names) > 300
    assert len(metrics) > 40
    quoted = [re.sub(r"_\d+$|^.*/", "", name).replace("@10", "@") for name in metrics]
    unknown = {
        metric for metric, name in zip(metrics, quoted, strict=True) if not re.search(rf'"(\w+/)?{name}[_"{{@]', source)
    }
    unknown -= {f"{part}_loss" for part in re.findall(r'"(\w+)"', source)}  # an algorithm names its losses so
    assert {name for name in names if not exists(name)} | unknown == set()
    assert not exists("tl.IQL(temprature)")
    assert not exists("tl.Log.from_arrays(rewrad)")
    assert exists("tl.fit(held_out)")
    assert not exists("tl.fit(log_out)")
    assert not exists("tl.fitt")


def test_every_row_of_the_five_systems_is_there_with_what_shows_it() -> None:
    """Each has a page to the heading, or its line in tests/coming_from.txt; the rows hold every item of the audit."""
    lines = (ROOT / "tests/coming_from.txt").read_text(encoding="utf-8").splitlines()
    shown = {place: by for place, _, by in (line.rpartition(" | ") for line in lines)}
    systems = {name: rows for name, rows in coming_from().items() if rows and len(rows[0]) == 3}
    tables = list(systems.values())
    for name, row in ((name, row) for name, rows in systems.items() for row in rows):
        links, by = re.findall(r"\]\(([^)]+)\)", row[2]), shown.pop(f"{name} | {row[0]}", None)
        assert links or by, row
        for page, _, anchor in (link.partition("#") for link in links):
            heads = re.findall(r"(?m)^#+ (.+)$", (ROOT / "docs" / page).read_text(encoding="utf-8"))
            slugs = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
            assert not anchor or anchor in slugs, row
        for one in by.split(", ") if by else ():
            path, _, test = one.partition("::")
            assert f"def {test}" in (ROOT / path).read_text(encoding="utf-8") if test else (ROOT / path).exists(), row
    assert shown == {}
    audit = shared("specs/items_of_the_five_systems.md").read_text().split("## Every item")[1]
    items = [
        [line.split(" | ")[0] for line in part.splitlines() if line.startswith("| ")][1:]
        for part in audit.split("\n### ")[1:]
    ]
    assert sum(map(len, items)) == 247
    said_otherwise = {"metric", "_layer_num", "keys", "in", "seed", "loses", "it"}
    for theirs, rows in zip(items, tables, strict=True):
        known = {word for row in rows for word in re.findall(r"\w+", row[0])} | said_otherwise
        assert [item for item in theirs if not known.issuperset(re.findall(r"\w+", item))] == []


def test_every_knob_that_people_bring_has_its_row() -> None:
    ours, theirs = (ROOT / "docs/coming-from.md").read_text(), shared("specs/parameters_elsewhere.md").read_text()
    firsts = [[row.split("|")[1] for row in page.splitlines() if row.startswith("| ")] for page in (ours, theirs)]
    known = set(re.findall(r"\w+", " ".join(firsts[0])))
    wanted = [
        word for first in firsts[1] for name in re.findall(r"`([^`]+)`", first) for word in re.findall(r"\w+", name)
    ]
    assert len(wanted) > 130
    suffixes = {"_policy", "_vae"}  # of names that stand beside them
    assert [word for word in wanted if not word.isdigit() and word not in known | suffixes] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    links = re.findall(r"\]\((?!https?:)([^)#]+)", prose)
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_public_names_on_every_page_exist(page: Path) -> None:
    assert {name for name in re.findall(r"\btl\.([A-Za-z]\w*)", page.read_text()) if not hasattr(tl, name)} == set()


def test_every_public_name_is_in_a_guide() -> None:
    """The reference alone does not count: a reader arrives there from a page that says what a name is for."""
    pages = "\n".join(page.read_text() for page in PAGES if page.parent.name != "reference")
    named = set(re.findall(r"\btl\.([A-Za-z]\w*)", pages))
    assert set(tl.__all__) - named == set()


def test_ci_runs_the_readmes_own_test_command() -> None:
    readme, script = (ROOT / "README.md").read_text(), (ROOT / ".ci/run").read_text()
    assert 'pip install -e ".[test]" && pytest' in readme
    assert 'pip install --quiet -e ".[test]"\n' in script
    assert "\npytest\n" in script
    assert 'pip install --quiet -e ".[docs]"\n' in script
    assert "\nmake -C docs clean html" in script
    assert "pip install -e . && tidelog demo" in readme


@pytest.fixture(scope="module")
def demo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the demo's log stands."""
    folder = tmp_path_factory.mktemp("stranger")
    (folder / "tidelog-demo").mkdir()
    before = Path.cwd()
    os.chdir(folder)
    try:
        demo._create_log(Path("tidelog-demo"), 300)
    finally:
        os.chdir(before)
    return folder


@pytest.mark.full
@pytest.mark.parametrize("script", ["first_policy.py", "own_network.py", "own_environment.py"])
def test_examples_run(script: str, demo_folder: Path) -> None:
    words = ["tidelog-demo/treatment.csv", "tidelog-demo/columns.toml", "20"] if script == "first_policy.py" else []
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / script), *words]
    done = subprocess.run(command, cwd=demo_folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.full
def test_an_estimator_is_judged(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(ROOT / "examples/judge_sklearn.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Use it: it is better than the logged decisions if it samples its actions.")


@pytest.mark.slow
@pytest.mark.full
def test_optuna_searches_with_populations(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    reader = {**os.environ, "TIDELOG_STATE": str(tmp_path / "state")}
    command = [sys.executable, "-W", "error", str(ROOT / "examples/optuna_search.py")]
    done = subprocess.run(command, cwd=tmp_path, env=reader, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("12 trials; the best one: {'temperature': ")
    assert "The policy was compared with the behaviour policy on 1,200 recorded episodes" in done.stdout


@pytest.mark.full
def test_ray_tune_searches_with_runs_that_are_read_again(tmp_path: Path) -> None:
    pytest.importorskip("ray.tune", reason='needs pip install "ray[tune]"', exc_type=ImportError)
    program = (ROOT / "examples/ray_tune_search.py").read_text(encoding="utf-8")
    (tmp_path / "search.py").write_text(program.replace("TRIALS, STEPS = 6, 300", "TRIALS, STEPS = 2, 20"))
    reader = {**os.environ, "TIDELOG_STATE": str(tmp_path / "state")}
    done = subprocess.run([sys.executable, "search.py"], cwd=tmp_path, env=reader, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "2 trials, 0 failed; the best one: {'temperature': " in done.stdout
    assert "The policy was compared with the behaviour policy on 1,200 recorded episodes" in done.stdout
    runs = [path.parent for path in (tmp_path / "ray-tune").glob("*/run.json")]
    assert [len(tl.load_run(run).metrics) > 0 for run in runs] == [True, True]


@pytest.mark.full
def test_ray_data_acts_as_the_policy_does(tmp_path: Path) -> None:
    pytest.importorskip("ray.data", reason='needs pip install "ray[data]"', exc_type=ImportError)
    log = tl.collect("treatment", episodes=200, seed=0)
    policy = tl.fit(tl.BC(hidden=(16,)), log, steps=20, progress=False).policy()
    policy.save(tmp_path / "policy")
    rows = log.features().with_row_index("row")
    (tmp_path / "days").mkdir()
    rows[:500].write_parquet(tmp_path / "days/0.parquet")
    rows[500:].write_parquet(tmp_path / "days/1.parquet")
    command = [sys.executable, str(ROOT / "examples/ray_data_act.py"), "policy", "days", "actions"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{len(rows):,} rows with their actions: actions" in done.stdout
    acted = pl.read_parquet(tmp_path / "actions/*.parquet").sort("row")
    assert acted.drop("policy_action").equals(rows)
    assert acted["policy_action"].to_list() == load(tmp_path / "policy")(rows).tolist()
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode != 0, "an existing folder stays as it is"
    assert len(pl.read_parquet(tmp_path / "actions/*.parquet")) == len(rows)


@pytest.mark.full
def test_ray_tune_trains_a_population_in_rounds_that_name_where_they_started(tmp_path: Path) -> None:
    pytest.importorskip("ray.tune", reason='needs pip install "ray[tune]"', exc_type=ImportError)
    program, sizes = (ROOT / "examples/ray_tune_pbt.py").read_text(encoding="utf-8"), "MEMBERS, ROUNDS, STEPS = 4"
    assert f"{sizes}, 5, 200" in program
    (tmp_path / "pbt.py").write_text(program.replace(f"{sizes}, 5, 200", f"{sizes}, 3, 20"))
    reader = {**os.environ, "TIDELOG_STATE": str(tmp_path / "state")}
    done = subprocess.run([sys.executable, "pbt.py"], cwd=tmp_path, env=reader, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "4 members, 0 failed; at least " in done.stdout
    assert done.stdout.count("{'temperature': ") == 3, "the numbers of each round"
    assert "The policy was compared with the behaviour policy on 1,200 recorded episodes" in done.stdout
    files = sorted((tmp_path / "ray-tune-pbt/runs").glob("*/run.json"))
    warm = {str(file.parent): json.loads(file.read_text())["options"]["warm_start"] for file in files}
    starts = {run: None if start is None else start["actor"] for run, start in warm.items()}
    rounds = {run: int(run.rpartition("-")[2]) for run in starts}
    assert {rounds[run] for run, start in starts.items() if start is None} == {0}
    assert all(rounds[start] + 1 == rounds[run] for run, start in starts.items() if start is not None)
    assert any(start is not None and start[:-2] != run[:-2] for run, start in starts.items()), "one copied another"


@pytest.mark.slow
@pytest.mark.full
def test_a_policy_of_another_make_is_judged() -> None:
    logs = [str(shared(f"data/obd_small/{behavior_policy}/men/men.csv.gz")) for behavior_policy in ("random", "bts")]
    command = [sys.executable, "-W", "error", str(ROOT / "examples/judge_open_bandit.py"), *logs]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("no difference shown: ")
    assert "clicked when Thompson sampling chose: 0.00690" in done.stdout


def test_evidence_is_what_its_template_and_the_kept_results_give() -> None:
    template = redraw.TEMPLATE.read_text(encoding="utf-8")
    assert (ROOT / "docs/evidence.md").read_text(encoding="utf-8") == redraw.page(template)


def test_no_result_is_typed_into_the_template_of_evidence() -> None:
    """What looks like a result outside of a `{field}` is one of these levels, goals and settings."""
    template = redraw.FIELD.sub("", redraw.TEMPLATE.read_text(encoding="utf-8"))
    typed = re.findall(r"\d[\d,]*\.\d+%?|\d+%|\d{1,3}(?:,\d{3})+|\d{4,}", re.sub(r"`[^`]*`|\]\([^)]*\)", "", template))
    goals = {"85%", "60%", "3,000"}
    levels = {"95%", "97.5%", "2.5%", "1%"}
    settings = {"0.3", "1,000", "1.5", "70%", "5,000"}
    assert set(typed) == goals | levels | settings


def test_worlds_that_no_log_can_show_have_their_measured_numbers() -> None:
    """Each `N of M` in the table of docs/judging.md is the count of one variant's wrong verdicts."""
    cells = kept("adversarial")["cells"]
    counts = set()
    for world, variant in {(cell["world"], cell["variant"]) for cell in cells}:
        own = [cell for cell in cells if (cell["world"], cell["variant"]) == (world, variant)]
        counts.add((sum(cell["wrong_better"]["count"] for cell in own), sum(cell["logs"] for cell in own)))
    text = (ROOT / "docs/judging.md").read_text(encoding="utf-8")
    table = text.split("| what the log does not hold |")[1].split("\n\n")[0]
    told = [(int(wrong), int(of)) for wrong, of in re.findall(r"\| (\d+) of (\d+) \|", table)]
    assert len(told) == 10
    assert set(told) <= counts


def test_the_coverage_of_intervals_is_said_as_it_was_measured_beside_its_nominal_level() -> None:
    found = kept("calibration")
    over, one = coverage_over_seeds(found["verdicts"]), found["summary"]["covered"]
    assert (over["covered"], over["answered"]) == (one["count"], one["of"])
    said = " ".join((ROOT / "docs/judging.md").read_text(encoding="utf-8").split())
    counts = f"{one['count']:,} of {one['of']:,} verdicts"
    assert (
        f"has a nominal level of 95%. It covers the truth in {one['share']:.1%}, {counts} "
        f"({100 * over['low']:.1f} to {over['high']:.1%} over the {over['seeds']} seeds of logs; "
        f"{100 * one['low']:.1f} to {one['high']:.1%}, Wilson, if all verdicts were independent)"
    ) in said
    assert (over["high"] < 0.95) == ("**less often than its level says**" in said)


def test_coverage_over_seeds_counts_a_seed_once() -> None:
    """Two policies judged from each of four logs, always right or wrong together: as few as four observations."""
    pack = {"problem": "made", "episodes": 10, "truth": 0.5, "seed": [1, 2, 3, 4], "decision": ["better"] * 4}
    right, wrong = [0.6, 0.4, 0.8], [0.9, 0.7, 1.1]
    packs = [pack | {"interval": [right, right, right, wrong]} for _ in range(2)]
    found = coverage_over_seeds(packs)
    assert (found["covered"], found["answered"], found["seeds"], found["share"]) == (6, 8, 4, 0.75)
    assert found["error"] == pytest.approx(np.std([1, 1, 1, 0], ddof=1) / 2)
    unsupported = pack | {"decision": ["unsupported"] * 4, "interval": [wrong] * 4}
    assert coverage_over_seeds([*packs, unsupported]) == found
