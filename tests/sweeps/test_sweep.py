"""A sweep's trials are what direct calls of `fit` would be, however it is interrupted; its decisions are repeatable."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import tidelog as tl
from tests.algorithms.own import own_actor
from tests.sweeps.pools import InProcess
from tests.training.runs import EVERY, LOSS, STEPS, all_of, bc, begin, finish, iql, untimed
from tidelog import ConfigError, LogError, SpecError
from tidelog.cli import main
from tidelog.errors import CheckpointError
from tidelog.parallel import ProcessPool
from tidelog.policies.policy import fingerprint
from tidelog.sweeps import sweep as sweep_module
from tidelog.sweeps.job import Job, trial_folder
from tidelog.sweeps.plan import Plan, decide
from tidelog.sweeps.sweep import MOST_LOSSES, Driver, judgement_of, train_trial, write_page
from tidelog.training.record import locked

RATES = (1e-2, 3e-3, 1e30, 1e-3)
OPTIONS = {"seeds": [3, 1], "eval_every": EVERY, "best_metric": LOSS, "progress": False}


def trials():
    return tl.grid(bc(), learning_rate=RATES)


def run_sweep(log, out, engine=None, algorithms=None, steps=STEPS, **options):
    return tl.sweep(algorithms or trials(), log, steps, out=out, on=engine or InProcess(), **{**OPTIONS, **options})


@pytest.fixture(scope="module")
def halved(log, tmp_path_factory):
    return run_sweep(log, tmp_path_factory.mktemp("halved") / "sweep", halving=(2, EVERY))


def state_of(sweep, trial):
    return [fingerprint(one) for one in tl.load_run(sweep.run_folder(trial)).learners()]


@pytest.mark.full
def test_a_trial_that_was_stopped_at_rungs_equals_a_direct_fit(halved, log, tmp_path):
    assert [row["state"] for row in halved.table] == ["complete", "stopped", "diverged", "stopped"]
    options = {"best_metric": LOSS, "seeds": [3, 1], "selection_share": 0.25}
    direct = finish(begin(bc(learning_rate=RATES[0]), log, tmp_path / "direct", **options))
    assert all_of(tl.load_run(halved.run_folder(0))) == all_of(direct)
    assert (
        direct.metrics[-2][LOSS]
        == halved.table[0]["least" if direct.metrics[-2][LOSS] < direct.metrics[-1][LOSS] else "most"]
    )
    stopped = finish(begin(bc(learning_rate=RATES[3]), log, steps=STEPS, **options)).metrics
    first = [row for row in stopped if row["update"] <= EVERY]
    assert untimed(tl.load_run(halved.run_folder(3)).metrics) == untimed(first)


def test_the_best_part_goes_on_by_the_held_out_metric(halved):
    first, second = halved.decisions
    assert (first.step, first.metric, first.compared, first.promoted) == (14, LOSS, [0, 1, 2, 3], [0, 1])
    assert (second.step, second.compared, second.promoted) == (28, [0, 1], [0])
    assert first.values[2] is None
    losses = [row[LOSS] for row in tl.load_run(halved.run_folder(1)).metrics if row["update"] == 14]
    assert first.values[1] == sum(losses) / 2
    assert "diverged" in [row["state"] for row in halved.table]
    assert "learning rates" in halved.table[2]["reason"]
    assert halved.failed


def test_equal_values_go_by_number_and_one_trial_always_goes_on(tmp_path):
    def values(trial, *losses):
        folder = trial_folder(tmp_path, trial) / "run"
        folder.mkdir(parents=True)
        rows = [{"update": 10, "member": n, "seed": n, LOSS: loss} for n, loss in enumerate(losses)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    values(0, 2.0, 2.0)
    values(1, 1.0, 2.0)
    values(2, 2.0, 1.0)
    values(3, 1.0, float("nan"))
    plan = SimpleNamespace(options=SimpleNamespace(best_metric=LOSS), halving=SimpleNamespace(factor=4))
    decision = decide(tmp_path, plan, 10, [0, 1, 2, 3], set())
    assert decision.promoted == [1]
    assert decision.values == [2.0, 1.5, 1.5, None]
    assert decide(tmp_path, plan, 10, [0, 3], set()).promoted == [0]
    assert decide(tmp_path, plan, 10, [1, 2], {1}).promoted == [2]
    plan.options.best_metric = f"max:{LOSS}"
    assert decide(tmp_path, plan, 10, [0, 1, 2, 3], set()).promoted == [0]


@pytest.mark.parametrize("jobs", [1, pytest.param(3, marks=pytest.mark.full), pytest.param(5, marks=pytest.mark.full)])
def test_an_interrupted_sweep_goes_on_and_decides_the_same(jobs, halved, log, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_sweep(log, tmp_path / "sweep", InProcess(stop=jobs), halving=(2, EVERY))
    again = tl.resume(tmp_path / "sweep", on=InProcess(), progress=False)
    assert again.decisions == halved.decisions
    assert [row["state"] for row in again.table] == [row["state"] for row in halved.table]
    assert state_of(again, 0) == state_of(halved, 0)
    nothing = InProcess()
    tl.resume(tmp_path / "sweep", on=nothing, progress=False)
    assert nothing.jobs == []


def test_lost_attempts_are_repeated_until_there_are_too_many(log, tmp_path):
    algorithms = [bc(), bc(learning_rate=1e-3)]
    jobs = set()

    def lost(job):
        begun = job in jobs
        jobs.add(job)
        return job.number == 0 or not begun

    engine = InProcess(lost=lost)
    sweep = run_sweep(log, tmp_path / "sweep", engine, algorithms, steps=2, eval_every=1, seeds=1)
    assert [row["state"] for row in sweep.table] == ["failed", "complete"]
    assert f"lost {MOST_LOSSES} times" in sweep.table[0]["reason"]
    assert [job.number for job in engine.jobs].count(0) == MOST_LOSSES
    again = tl.resume(tmp_path / "sweep", on=InProcess(), progress=False)
    assert [row["state"] for row in again.table] == ["complete", "complete"]
    assert not again.failed


def test_a_run_stops_where_it_is_told_and_goes_on_to_the_same_end(log, tmp_path):
    straight = finish(begin(bc(), log, tmp_path / "straight", best_metric=LOSS))
    run = begin(bc(), log, tmp_path / "parts", best_metric=LOSS)
    for until in (5, 14, 20):  # before, at and after a report
        for _ in run.stream(until):
            pass
        assert run.update == until
        run = tl.load_run(tmp_path / "parts", log)
        assert run.update == until
    assert all_of(finish(tl.load_run(tmp_path / "parts", log))) == all_of(straight)
    with pytest.raises(ConfigError, match="until = 0: expected at least 1 step"):
        next(straight.stream(0))


@pytest.mark.full
def test_all_complete_trials_are_judged_at_once(log, tmp_path):
    shares = run_sweep(log, tmp_path / "sweep", algorithms=bc(), data_share=(0.5, 1.0), steps=2, eval_every=1, seeds=1)
    assert shares.settings == [{"data_share": 0.5}, {"data_share": 1.0}]
    policies, held_out = shares.policies(), shares.held_out()
    assert list(policies) == ["trial 0", "trial 1"]
    records = [shares.run_record(trial) for trial in (0, 1)]
    assert records[0].held_out == records[1].held_out
    assert sorted(held_out.episode_ids.tolist()) == sorted(records[0].held_out)
    verdicts = tl.judge(policies, held_out, sample=True, progress=False)
    assert len(verdicts) == 2
    page = write_page(shares).read_text()
    assert "none of them is shown to be better" in page
    assert f"tidelog judge {shares.folder} --sample" in page
    run = str(shares.run_folder(0))
    assert main(["judge", run, "--sample", "--quiet"]) == 0
    assert judgement_of(shares) is None  # one of two trials is no judgement of the sweep
    assert main(["judge", str(shares.folder), "--sample", "--quiet"]) == 0
    assert judgement_of(shares).together is not None
    assert main(["report", str(shares.folder), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "the intervals hold for all of them" in page
    assert '<th scope="row">trial 1: best</th><td' in page
    assert page.count(">unknown<") == 6  # three numbers of two unsupported policies


def test_grids_and_draws_are_lists_of_algorithms():
    points = tl.grid(bc(), learning_rate=(1e-2, 1e-3), hidden=((4,), (8, 8)))
    assert [(one.learning_rate, one.hidden) for one in points] == [
        (1e-2, (4,)), (1e-2, (8, 8)), (1e-3, (4,)), (1e-3, (8, 8)),
    ]  # fmt: skip
    ranges = {
        "actor_learning_rate": (1e-5, 1e-3, "log"),
        "batch_size": (16, 64),
        "hidden": [(4,), (8,)],
        "dropout": (0, 0.5),
    }
    drawn = tl.random_search(iql(), 200, seed=1, **ranges)
    assert drawn == tl.random_search(iql(), 200, seed=1, **ranges)
    assert drawn != tl.random_search(iql(), 200, seed=2, **ranges)
    rates = np.array([one.actor_learning_rate for one in drawn])
    assert 1e-5 <= rates.min() < 2e-5 < 5e-4 < rates.max() <= 1e-3
    assert 0.35 < (rates < 1e-4).mean() < 0.65  # half of a logarithmic range, and a tenth of a linear one
    sizes = [one.batch_size for one in drawn]
    assert {type(size) for size in sizes} == {int}
    assert (min(sizes), max(sizes)) == (16, 64)
    assert {one.hidden for one in drawn} == {(4,), (8,)}
    dropouts = [one.dropout for one in drawn]
    assert 0.0 <= min(dropouts) < 0.05 < 0.45 < max(dropouts) <= 0.5
    sizes = [one.batch_size for one in tl.random_search(bc(), 400, seed=1, batch_size=(1, 100, "log"))]
    assert {type(size) for size in sizes} == {int}
    assert (min(sizes), max(sizes)) == (1, 100)
    assert 0.4 < (np.array(sizes) <= 10).mean() < 0.6  # half of a logarithmic range


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tl.grid(bc(), learning_rat=(1, 2)), "no hyper-parameter 'learning_rat': did you mean 'learning_rate'"),
        (lambda: tl.grid(bc(), learning_rate=1e-3), "learning_rate = 0.001: expected a list of values"),
        (lambda: tl.grid(bc(), learning_rate=()), "expected a list of values"),
        (lambda: tl.grid(bc(), batch_size=(0,)), "batch_size = 0"),
        (lambda: tl.grid(bc(), batch_size=range(1, 102), steps=range(100)), "the grid has 10,100 points"),
        (lambda: tl.random_search(bc(), 0, learning_rate=(1, 2)), "count = 0"),
        (
            lambda: tl.random_search(bc(), 2, seed=-1, learning_rate=(1, 2)),
            "seed = -1: expected a whole number of at least 0",
        ),
        (lambda: tl.random_search(bc(), 2), "ranges: found none"),
        (lambda: tl.random_search(bc(), 2, learning_rate=(2, 1)), "the first one smaller"),
        (lambda: tl.random_search(bc(), 2, learning_rate=(0, 1, "log")), "above 0"),
        (lambda: tl.random_search(bc(), 2, learning_rate=(1, 2, "square")), "expected (low, high)"),
        (lambda: tl.random_search(bc(), 2, batch_size=(0.5, 8)), "expected whole numbers as ends"),
    ],
)
def test_lists_refuse_what_no_algorithm_has(call, words):
    with pytest.raises(ConfigError) as error:
        call()
    assert words in str(error.value)


REFUSED = {  # options, words, and the error if it is not ConfigError
    "no folder": ({"out": None}, "out: expected a folder"),
    "no held-out metric": ({"halving": (2, 14), "best_metric": "imitation_loss"}, "needs a held-out metric"),
    "no metric": ({"halving": (2, 14), "best_metric": None}, "halving needs a held-out metric"),
    "nothing held out": ({"halving": (2, 14), "held_out": 0.0}, "halving needs held-out data"),
    "no episode left": ({"halving": (2, 14), "selection_share": 1.0}, "leaves no episode"),
    "a factor of one": ({"halving": (1, 14)}, "a factor of at least 2"),
    "a rung at the end": ({"halving": (2, 42)}, "below the 42 steps"),
    "no pair": ({"halving": 3}, "expected (factor, steps"),
    "a rung without a report": ({"halving": (2, 15)}, "eval_every = 14: the first rung of halving, 15"),
    "patience": ({"halving": (2, 14), "patience": 2}, "drop patience"),
    "an unknown metric": ({"best_metric": "held_out/los"}, "this run has no such metric"),
    "an unknown engine": ({"on": "there"}, "on = 'there': expected 'here'"),
    "a share twice": ({"data_share": (0.5, 0.5)}, "data_share = (0.5, 0.5)"),
    "a share above one": ({"data_share": 1.5}, "data_share = 1.5"),
    "equal trials": ({"algorithms": [bc(), bc()]}, "algorithms 0 and 1 are equal"),
    "an own network": (
        {"algorithms": [bc(actor_network=own_actor)]},
        "BC.actor_network is your own function, and the processes of a sweep read settings from a file",
    ),
    "too many trials": (
        {"algorithms": [bc(batch_size=size) for size in range(1, 102)], "data_share": [n / 100 for n in range(1, 101)]},
        "the sweep has 10,100 trials: expected at most 10,000",
    ),
    "an own function": ({"evaluate": {"mine": len}}, "evaluate: 'mine' is your own function"),
    "other actions": ({"algorithms": [bc(), tl.BCQ()]}, "BCQ requires", SpecError),
    "one episode": ({"held_out": 0.01}, "1 episode", LogError),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_sweep_that_cannot_be_trained_writes_nothing(case, log, tmp_path):
    options, words, error = (*REFUSED[case], ConfigError)[:3]
    out = tmp_path / "sweep"
    arguments = {"algorithms": [bc()], "steps": STEPS, "out": out, "on": InProcess(), **OPTIONS, **options}
    with pytest.raises(error) as raised:
        tl.sweep(arguments.pop("algorithms"), log, **arguments)
    assert words in str(raised.value)
    assert not out.exists()


def test_a_folder_that_is_not_empty_is_left_alone(halved, log, tmp_path):
    with pytest.raises(ConfigError, match=r"is not empty \(a sweep\); nothing was written.*tidelog resume"):
        run_sweep(log, halved.folder)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"is not empty \(no sweep\)"):
        run_sweep(log, tmp_path)
    with pytest.raises(ConfigError, match="is a file"):
        run_sweep(log, tmp_path / "notes.txt")


def test_a_damaged_plan_is_refused(halved, tmp_path):
    text = (halved.folder / "sweep.json").read_text()
    for content, words in (
        (text.replace('"steps": 42', '"steps": 43'), "its checksum differs"),
        (text.replace('"schema": 1', '"schema": 9'), "has schema 9: expected 1"),
        (text[:-5], "cannot be read"),
    ):
        (tmp_path / "sweep.json").write_text(content)
        with pytest.raises(CheckpointError, match=words):
            Plan.read(tmp_path)
    with pytest.raises(CheckpointError, match="is no sweep"):
        tl.Sweep(tmp_path / "nowhere")


def test_the_table_is_ordered_and_says_what_it_does_not_show(halved):
    assert [row["trial"] for row in halved.ranked] == [0, 1, 3, 2]
    assert halved.head == ["trial", "learning_rate", "state", "updates", LOSS, "of its seeds"]
    assert halved.rows()[0][:4] == ["0", "0.01", "complete", "42"]
    assert "does not show that a trial is better" in halved.caution
    assert "held-out data" in halved.caution
    page = write_page(halved).read_text()
    assert "step" in page
    assert "learning rates" in page
    assert "Sweep of 4 trials, 1 complete, 2 stopped, 1 diverged" in repr(halved)


@pytest.mark.full
def test_a_process_of_its_own_trains_the_same(log, tmp_path):
    sweep = run_sweep(log, tmp_path / "sweep", ProcessPool(workers=1), algorithms=bc(), seeds=1)
    direct = finish(begin(bc(), log, best_metric=LOSS, selection_share=0.25))
    assert state_of(sweep, 0) == [fingerprint(one) for one in direct.learners()]
    assert sweep.run_record(0).machine["threads"] == 1
    assert (trial_folder(sweep.folder, 0) / "output.txt").read_text() == ""


def test_one_driver_at_a_time(halved):
    class Nested(InProcess):
        def free(self):
            with pytest.raises(CheckpointError, match="is being trained by process"):
                Driver(halved.folder, InProcess()).run(False)
            raise KeyboardInterrupt

    driver = Driver(halved.folder, Nested())
    driver.statuses.pop(0)
    with pytest.raises(KeyboardInterrupt):
        driver.run(False)


def test_a_driver_waits_for_an_engine_that_is_not_ready(log, tmp_path):
    class Late(InProcess):
        asked = 0

        def free(self):
            self.asked += 1
            return self.asked > 1 and super().free()

    sweep = run_sweep(log, tmp_path / "sweep", Late(), algorithms=bc(), seeds=1, steps=1, eval_every=1)
    assert sweep.complete() == [0]


def test_what_is_no_log_and_what_no_process_can_import_is_refused(log, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"log: expected a tl.Log, found str. fix: read it first with tl.read_log"):
        run_sweep("visits.csv", tmp_path / "sweep")
    monkeypatch.setattr(tl.BC, "__module__", "__main__")
    with pytest.raises(ConfigError, match="BC is defined in the script that runs, which other processes cannot import"):
        run_sweep(log, tmp_path / "sweep")
    assert not any(tmp_path.iterdir())


def test_a_sweep_without_a_complete_trial_has_nothing_to_judge(log, tmp_path):
    waiting = run_sweep(log, tmp_path / "waiting", algorithms=bc(), seeds=1, train=False)
    assert [row["state"] for row in waiting.table] == ["waiting"]
    assert waiting.judge_command is None
    assert "<pre" not in write_page(waiting).read_text()
    with pytest.raises(CheckpointError, match=r"waiting has no complete trial\. fix: resume the sweep"):
        waiting.held_out()


def test_without_held_out_episodes_no_command_judges(log, tmp_path):
    whole = run_sweep(
        log, tmp_path / "whole", algorithms=bc(), seeds=1, steps=1, eval_every=1, best_metric=None, held_out=0.0
    )
    assert whole.complete() == [0]
    assert whole.judge_command is None
    assert whole.caution == "No metric was named (best_metric=...), so the trials have no order."


def test_a_log_that_has_changed_since_the_sweep_began_is_refused(log, tmp_path):
    begun = run_sweep(log, tmp_path / "sweep", algorithms=bc(), seeds=1, train=False)
    log.take_episodes(np.arange(10)).save(begun.folder / "log", overwrite=True)
    again = tl.resume(begun.folder, on=InProcess(), progress=False)
    (row,) = again.table
    assert row["state"] == "failed"
    assert f"expected {log.fingerprint()[:12]}: its content has changed since the sweep began" in row["reason"]


def test_a_process_imports_the_modules_of_own_algorithms(log, tmp_path):
    begun = run_sweep(log, tmp_path / "sweep", algorithms=bc(), seeds=1, train=False)
    status = train_trial(Job(str(begun.folder), 0, 1, ("no_such_module",)))
    assert "the sweep: importing no_such_module failed" in status.reason


def test_a_trial_waits_for_the_process_that_held_its_run(log, tmp_path, monkeypatch):
    begun = run_sweep(log, tmp_path / "sweep", algorithms=bc(), seeds=1, train=False)
    folder, waits = trial_folder(begun.folder, 0) / "run", []
    job = Job(str(begun.folder), 0, 1)
    assert train_trial(job).update == 1
    with locked(folder), monkeypatch.context() as patch:
        patch.setattr(sweep_module, "LOCK_SECONDS", 0.0)
        assert "is being trained by process" in train_trial(job).reason
    lock = locked(folder)
    lock.__enter__()
    monkeypatch.setattr(sweep_module.time, "sleep", lambda seconds: waits.append(lock.__exit__(None, None, None)))
    assert train_trial(job._replace(until=2)).update == 2
    assert len(waits) == 1
