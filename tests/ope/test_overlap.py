"""A policy knows what it learnt from: fingerprints of episodes, sketches of logs, and what runs remember of them."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

from tests.ope.cases import assessed, bandit
from tests.training.runs import LOSS, bc, begin, finish, stop_at, write_record
from tidelog import ConfigError, Log, collect, load_policy, load_run, read_log
from tidelog.data import statistics
from tidelog.data.statistics import Overlap, Sketch, episode_hashes
from tidelog.errors import CheckpointError
from tidelog.ope.decide import Reuse, broken, chosen_here
from tidelog.training.run import policy_of_run


@pytest.fixture(scope="module")
def many():
    """Some 3,000 one-step episodes: more than a sketch keeps."""
    seen, done = np.random.default_rng(0).random((3000, 2)), np.arange(3000) % 4
    return Log.from_arrays(observation=seen, action=done, reward=seen[:, 0], terminated=True)


def test_every_episode_has_a_fingerprint_of_its_own(log, many):
    for one in (log, many):
        hashes = episode_hashes(one)
        assert len(np.unique(hashes)) == len(one.episodes)
        np.testing.assert_array_equal(episode_hashes(one, np.array([3, 5])), hashes[[3, 5]])
        np.testing.assert_array_equal(episode_hashes(one.take_episodes([5, 3])), hashes[[5, 3]])


def test_fingerprints_are_the_same_in_every_process():
    log = Log.from_arrays(observation=np.eye(2), action=[0, 1], reward=[0.5, -1.0], terminated=True)
    assert [f"{h:016x}" for h in episode_hashes(log)] == FINGERPRINTS


FINGERPRINTS = ["84bda218bde95c05", "776c38eebb607d5c"]


@pytest.mark.parametrize("what", ["action", "reward", "episode_ids", "observation"])
def test_whatever_changes_changes_the_fingerprint(what, log):
    if what == "observation":
        seen = log.observation["numeric"].copy()
        seen[log.position[log.starts[2]]] += 1.0
        other = replace(log, observation={**log.observation, "numeric": seen})
    else:
        values = getattr(log, what).copy()
        values[2 if what == "episode_ids" else log.starts[2]] += 1000 if what == "episode_ids" else 1
        other = replace(log, **{what: values})
    changed = episode_hashes(log) != episode_hashes(other)
    assert changed.nonzero()[0].tolist() == [2]


def test_the_order_of_steps_counts():
    seen, flags = np.zeros((2, 1)), [False, True]
    one, two = (
        Log.from_arrays(observation=seen, action=a, reward=[0, 0], terminated=flags, episode=["a", "a"], actions=2)
        for a in ([0, 1], [1, 0])
    )
    assert episode_hashes(one)[0] != episode_hashes(two)[0]


def test_the_order_of_columns_and_of_words_does_not_count(tmp_path):
    table = "who,a,x,y,ward\n1,low,1,2,b\n2,high,3,4,a\n"
    (tmp_path / "one.csv").write_text(table)
    (tmp_path / "two.csv").write_text(table.replace("2,high,3,4,a\n", "3,none,3,4,c\n"))
    mapping = {"episode": "who", "action": "a", "observation": ["x", "y", "ward"], "terminated": True}
    one = read_log(tmp_path / "one.csv", mapping)
    two = read_log(tmp_path / "two.csv", {**mapping, "observation": ["ward", "y", "x"]})
    assert one.spec != two.spec
    assert (episode_hashes(one) == episode_hashes(two)).tolist() == [True, False]


def test_pictures_count_pixel_by_pixel(monkeypatch):
    pictures = np.random.default_rng(0).integers(0, 255, (6, 4, 4, 1)).astype(np.uint8)
    log = Log.from_arrays(observation=pictures, action=[0, 1] * 3, reward=[0.0] * 6, terminated=True)
    monkeypatch.setattr(statistics, "PIXELS", 20)
    in_parts = episode_hashes(log)
    monkeypatch.undo()
    np.testing.assert_array_equal(in_parts, episode_hashes(log))
    pictures[4, 3, 3, 0] ^= 1
    other = Log.from_arrays(observation=pictures, action=[0, 1] * 3, reward=[0.0] * 6, terminated=True)
    assert (episode_hashes(other) != in_parts).nonzero()[0].tolist() == [4]


def test_up_to_so_many_episodes_the_overlap_is_exact(log):
    kept = Sketch.of(log, np.arange(20))
    assert kept.overlap(log)[:3] == (30, 20, True)
    assert kept.overlap(log, np.arange(20, 30))[:3] == (10, 0, True)
    assert kept.overlap(log).exceeds(0.5)
    assert not kept.overlap(log).exceeds(0.7)
    assert not Overlap(100, 1, True).exceeds(0.01)
    assert Overlap(100, 2, True).exceeds(0.01)


def test_of_more_episodes_a_sample_tells(many, monkeypatch):
    monkeypatch.setattr(statistics, "BLOCK", 700)
    train, held_out = many.split_ordinals(0.8, 0)
    sketch = Sketch.of(many, train)
    assert len(sketch.smallest) == statistics.SIZE < sketch.episodes == 2400
    clean, whole = sketch.overlap(many, held_out), sketch.overlap(many)
    assert clean.shared == 0
    assert 200 < clean.known < 320  # 256 expected; a right sketch fails for 2 in 100,000 logs
    assert not clean.exceeds(0.01)
    assert abs(whole.share - 0.8) < 0.05  # a right sketch fails for 7 in a billion logs
    assert whole.exceeds(0.01)
    mixed = sketch.overlap(many, np.concatenate([held_out, train[:60]]))
    assert mixed.exceeds(0.01)
    assert Sketch.from_json(json.loads(json.dumps(sketch.to_json()))).overlap(many) == whole


def clicks(seed, **more):
    """Clicks in two contexts, without a column that names rows."""
    generator = np.random.default_rng(seed)
    context, action, reward = generator.integers(0, 2, (3, 1200))
    return Log.from_arrays(observation=np.eye(2)[context], action=action, reward=reward, terminated=True, **more)


@pytest.mark.parametrize("exact", [True, False])
def test_rows_of_one_number_in_two_logs_may_look_alike(exact, monkeypatch):
    if exact:
        monkeypatch.setattr(statistics, "SIZE", 5_000)
    one, other = clicks(0), clicks(1)
    overlap = Sketch.of(one).overlap(other)
    assert 0.08 < overlap.shared / overlap.known < 0.17  # an eighth, by chance
    assert not overlap.exceeds(0.01)
    assert Sketch.of(one).overlap(one).share == 1.0
    assert Sketch.of(one).overlap(one).exceeds(0.5)
    few = replace(other, observation={"observation": np.zeros_like(other.observation["observation"])})
    some = Sketch.of(few.take_episodes(np.arange(240))).overlap(few)  # a policy that learnt from a fifth of them
    assert some.share == pytest.approx(0.2, abs=0.03)  # a quarter of which would be alike, had both all numbers
    assert some.exceeds(0.01)
    names = clicks(1, episode=np.char.add("b", np.arange(1200).astype(str)))
    assert Sketch.of(clicks(0, episode=np.char.add("a", np.arange(1200).astype(str)))).overlap(names).shared == 0
    assert Sketch.of(names).overlap(names).chance == 0.0


@pytest.mark.parametrize(("known", "shared", "more"), [
    (1, 1, True), (50, 1, False), (50, 3, True), (10**6, 1000, False), (80_000, 1000, True), (0, 0, False),
])  # fmt: skip
def test_a_sample_says_no_more_than_it_can(known, shared, more):
    assert Overlap(known, shared, False).exceeds(0.01) == more


def test_sketches_of_two_logs_join(many):
    parts = np.array_split(np.arange(3000), 3)
    joined = Sketch.of(many, parts[0]).joined(Sketch.of(many, parts[1]))
    np.testing.assert_array_equal(joined.smallest, Sketch.of(many, np.arange(2000)).smallest)
    assert joined.episodes == 2000
    few = Sketch.of(many, np.arange(10)).joined(Sketch.of(many, np.arange(5, 15)))
    assert (few.episodes, few.overlap(many)) == (15, Overlap(3000, 15, True))


def test_logs_without_rewards_are_compared_without(many):
    bare = replace(many, reward=None)
    assert Sketch.of(bare).overlap(many).share == 1.0
    assert Sketch.of(many).joined(Sketch.of(bare)) is None


def test_a_run_remembers_what_its_policies_learnt_from(log, saved, tmp_path):
    run = finish(begin(bc(), log, tmp_path / "run", best_metric=LOSS, seeds=[0, 3]))
    held_out = log.split_ordinals(0.8, 0)[1]
    run.best_policy().save(tmp_path / "best")
    saved = load_policy(tmp_path / "best"), load_run(tmp_path / "run", log).policy()
    of_folder = policy_of_run(tmp_path / "run"), policy_of_run(tmp_path / "run", 1)
    policies = [run.policy(3), run.best_policy(), *saved, *of_folder]
    for policy in policies:
        learnt_from, kept = (Sketch.from_json(policy.origin[name]) for name in ("learnt_from", "held_out"))
        assert learnt_from.overlap(log)[:3] == (30, 24, True)
        assert learnt_from.overlap(log, held_out).shared == 0
        assert kept.overlap(log, held_out).shared == len(held_out)
    assert [policy.origin["chosen_by"] for policy in policies] == [None, LOSS, LOSS, None, LOSS, None]
    assert learnt_from_these(collect("treatment", episodes=20, seed=9), policies[0]) == 0


def learnt_from_these(log, policy):
    return Sketch.from_json(policy.origin["learnt_from"]).overlap(log).shared


def test_patience_chooses_the_last_policy_too(log):
    run = stop_at(begin(bc(), log, best_metric=f"min:{LOSS}", patience=9), 1)
    assert run.policy().origin["chosen_by"] == LOSS
    run = stop_at(begin(bc(), log, best_metric="imitation_loss", patience=9), 1)
    assert run.policy().origin["chosen_by"] is None


def test_a_part_of_many_held_out_episodes_chooses_and_the_others_judge(many, tmp_path):
    run = stop_at(begin(bc(), many, tmp_path / "run", best_metric=LOSS, held_out=0.1, eval_every=1), 1)
    _, held_out = many.split_ordinals(0.9, 0)
    assert run.record.options.selection_share == 0.25
    left = np.flatnonzero(np.isin(many.episode_ids, run.record.held_out))
    chose = np.setdiff1d(held_out, left)
    assert (len(chose), len(left)) == (75, 225)
    assert set(left) < set(held_out)
    origin = run.best_policy().origin
    assert Sketch.from_json(origin["held_out"]).overlap(many, chose).shared == 75
    reuse = Reuse.of(run.best_policy(), many.take_episodes(left))
    assert (reuse.learnt_from.shared, reuse.chosen_by, reuse.held_out.shared) == (0, LOSS, 0)
    assert not broken(chosen_here(assessed(bandit(), reuse=reuse)))
    assert broken(chosen_here(assessed(bandit(), reuse=Reuse.of(run.best_policy(), many.take_episodes(chose)))))
    again = load_run(tmp_path / "run", many)  # the same episodes validate after a restart
    assert again.record.held_out == run.record.held_out
    one, two = (each.learnt_from()[1].stores for each in (run, again))
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_array_equal(left, right)
    few = begin(bc(), many, best_metric=LOSS, held_out=0.04)
    assert (few.record.options.selection_share, len(few.record.held_out)) == (1.0, 120)
    assert begin(bc(), many, best_metric="imitation_loss", held_out=0.1).record.options.selection_share == 1.0
    assert len(begin(bc(), many, best_metric=LOSS, held_out=0.04, selection_share=0.5).record.held_out) == 60
    with pytest.raises(ConfigError, match="no held-out metric chooses the policy"):
        begin(bc(), many, held_out=0.1, selection_share=0.5)


def test_a_part_of_the_held_out_episodes_divides_no_cluster(many):
    log = replace(many, cluster=(np.arange(len(many.episode_ids)) // 3)[many.episode].astype(np.int32))
    _, held_out = log.split_ordinals(0.8, 0)
    first, second = log.split_ordinals(0.25, 0, held_out)
    np.testing.assert_array_equal(np.sort(np.concatenate([first, second])), held_out)
    assert not set(log.clusters[first]) & set(log.clusters[second])
    assert abs(len(first) - len(held_out) / 4) < 3


def test_parts_from_another_run_bring_what_it_learnt_from(log, tmp_path):
    finish(begin(bc(), log, tmp_path / "one", split_seed=0))
    run = begin(bc(), log, tmp_path / "two", split_seed=1, warm_start={"actor": tmp_path / "one"})
    theirs, ours = log.split_ordinals(0.8, 0)[0], log.split_ordinals(0.8, 1)[0]
    both = len(set(theirs.tolist()) | set(ours.tolist()))
    assert learnt_from_these(log, run.policy()) == both
    forget_sketches(tmp_path / "one")
    unknown = begin(bc(), log, warm_start={"actor": tmp_path / "one"})
    assert "learnt_from" not in unknown.policy().origin


def forget_sketches(folder):
    content = json.loads((folder / "run.json").read_text())
    del content["sketches"]
    write_record(folder, content)


@pytest.mark.parametrize("broken", [{}, {"episodes": 3, "rewards": True, "smallest": "xyz"}, {"smallest": 3}])
def test_a_broken_sketch_is_refused(broken):
    with pytest.raises(CheckpointError, match="is malformed"):
        Sketch.from_json(broken)


def test_no_episodes_and_episodes_that_are_longer_than_a_block_have_their_hashes(log, monkeypatch):
    assert Sketch.of(log, np.array([], int)).episodes == 0
    whole = episode_hashes(log)
    monkeypatch.setattr(statistics, "BLOCK", 1)
    np.testing.assert_array_equal(episode_hashes(log), whole)
