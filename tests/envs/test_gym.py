from fractions import Fraction

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.envs.corridor import chain
from tidelog.envs.gym import Gymnasium, VectorGymnasium, action_space, columns
from tidelog.envs.protocol import BatchReader, play
from tidelog.envs.registry import make
from tidelog.envs.tabular import TabularEnvironment
from tidelog.errors import ConfigError, EnvironmentFailure, SpecError
from tidelog.types import Codes, Continuous, Discrete, Image, MultiDiscrete, Vector


class Clock(gymnasium.Env):
    """Shows (a random number of the episode, the step); ends at `end` in the given way; `broken` steps misbehave."""

    def __init__(self, end=3, how="truncated", broken=None):
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = spaces.Discrete(3, start=5)
        self.end, self.how, self.broken = end, how, broken or {}
        self.total = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age, self.mark = 0, self.np_random.random()
        return np.array([self.mark, 0.0]), {}

    def step(self, action):
        self.age += 1
        self.total += 1
        ended = self.age == self.end
        result = [
            np.array([self.mark, self.age]),
            float(action),
            ended and "term" in self.how,
            ended and "trunc" in self.how,
        ]
        fault = self.broken.get(self.total)
        if isinstance(fault, Exception):
            raise fault
        if fault is not None:
            result[fault[0]] = fault[1]
        return (*result, {})


def shown(observed):
    return observed.observation["observation"]


@pytest.mark.parametrize("how", ["truncated", "terminated", "terminated and truncated"])
def test_what_followed_is_kept_apart_from_what_to_act_on(how):
    ends = iter([3, 2])
    environment = Gymnasium(lambda: Clock(next(ends), how), 2)
    first = shown(environment.reset(0))
    environment.step(np.array([0, 0]))
    second = environment.step(np.array([1, 2]))
    assert second.reward.tolist() == [6, 7]  # actions start at 5 there, at 0 here
    assert second.terminated.tolist() == [False, "terminated" in how]
    assert second.truncated.tolist() == [False, "truncated" in how]
    np.testing.assert_array_equal(shown(second.next_observation), np.stack([first[:, 0], [2, 2]], 1))
    assert shown(second.current_observation)[:, 1].tolist() == [2, 0]
    assert shown(second.current_observation)[1, 0] != first[1, 0]
    assert shown(second.current_observation).dtype == np.float32
    third = environment.step(np.array([1, 1]))
    assert shown(third.next_observation)[:, 1].tolist() == [3, 1]
    assert shown(third.current_observation)[:, 1].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (RuntimeError("pump stuck"), "step raised RuntimeError: pump stuck"),
        ((0, np.array([0.0, np.nan])), "entry 1 of the observation is nan"),
        ((0, np.array([np.inf, 0.0])), "entry 0 of the observation is inf"),
        ((0, np.array([0.0, 1e300])), "entry 1 of the observation is 1e"),
        ((0, np.zeros(3)), r"the observation has shape \(3,\): expected \(2,\)"),
        ((0, None), r"the observation has shape \(\): expected \(2,\)"),
        ((1, np.nan), "the reward is nan"),
        ((1, -np.inf), "the reward is -inf"),
        ((1, "high"), "the reward has type <U4: expected numbers"),
        ((1, None), "the reward has type object: expected numbers"),
    ],
)
def test_a_failure_names_the_copy_and_the_step(fault, words):
    copies = iter([{}, {}, {4: fault}])
    environment = Gymnasium(lambda: Clock(broken=next(copies)), 3)
    environment.reset(0)
    for _ in range(3):
        environment.step(np.zeros(3, int))
    with pytest.raises(EnvironmentFailure, match=f"Clock, copy 2, step 4: .*{words}"):
        environment.step(np.zeros(3, int))


TWO, THREE, NOTHING = spaces.Discrete(2), spaces.Discrete(3), {}


class Shows(gymnasium.Env):
    """Shows and returns always the same, and remembers the actions."""

    def __init__(self, space, shown, action=TWO, reward=0.0, terminated=False, info=NOTHING):
        self.observation_space, self.action_space, self.taken = space, action, []
        self.shown, self.reward, self.terminated, self.info = shown, reward, terminated, info

    def reset(self, *, seed=None, options=None):
        return self.shown, self.info

    def step(self, action):
        self.taken.append(action)
        return self.shown, self.reward, self.terminated, False, self.info


def plain(action=THREE, **returned):
    """A vector of two numbers; what else is returned may be as loose as in environments in the wild."""
    return Shows(spaces.Box(-9, 9, (2,), np.float32), np.zeros(2, np.float32), action, **returned)


ADAPTERS = {
    "copies": lambda make: Gymnasium(make, 2),
    "vector": lambda make: VectorGymnasium(
        gymnasium.vector.SyncVectorEnv([make] * 2, autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP)
    ),
}


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ([0.0, -np.inf, 0.0], "entry 1 of the info's action_mask is -inf: expected true or false"),  # log-probabilities
        ([np.nan, 0.0, 1.0], "entry 0 of the info's action_mask is nan"),
        (["True", "False", "True"], "entry 0 of the info's action_mask is 'True'"),
        ([False, False, False], "the action mask allows no action: expected at least one. fix: end the episode"),
    ],
)
def test_every_adapter_refuses_what_is_no_mask(adapter, mask, words):
    with pytest.raises(EnvironmentFailure, match=f"copy 0, step 0: {words}"):
        ADAPTERS[adapter](lambda: plain(info={"action_mask": np.asarray(mask)})).reset(0)


def test_an_info_that_is_none_is_named():
    with pytest.raises(EnvironmentFailure, match="copy 0, step 0: the info is None: expected a dict"):
        Gymnasium(lambda: plain(info=None), 2).reset(0)


@pytest.mark.parametrize(
    ("space", "code", "leaf"),
    [
        (spaces.Discrete(5), np.uint64(3), [3]),
        (spaces.Discrete(5, start=-2), [-1], [1]),
        (spaces.MultiDiscrete([3, 4]), np.array([1, 2], np.uint64), [1, 2]),
        (spaces.MultiDiscrete([3]), 2, [2]),
    ],
)
def test_codes_of_every_integer_type_are_read(space, code, leaf):
    environment = Gymnasium(lambda: Shows(space, code, reward=Fraction(1, 2)), 2)
    assert shown(environment.reset(0)).tolist() == [leaf, leaf]
    assert environment.step(np.zeros(2, int)).reward.tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (3, "the observation is 3: expected -2 to 2"),
        (np.ma.masked_array(1, True), "the observation is masked"),
        (np.ma.masked_array([1], [True]), "the observation is masked"),
    ],
)
def test_a_code_that_is_none_is_named_as_it_was_returned(code, words):
    with pytest.raises(EnvironmentFailure, match=f"copy 0, step 0: {words}"):
        Gymnasium(lambda: Shows(spaces.Discrete(5, start=-2), code), 1)


@pytest.mark.parametrize("flag", ["False", np.nan, 0.5, None, np.array([True, False])])
def test_a_flag_that_is_neither_true_nor_false_ends_no_episode(flag):
    environment = Gymnasium(lambda: plain(terminated=flag), 2)
    environment.reset(0)
    with pytest.raises(EnvironmentFailure, match=r"copy 0, step 1: terminated (is|has shape) .*: expected"):
        environment.step(np.zeros(2, int))


@pytest.mark.parametrize("flag", [np.bool_(True), 1, 1.0, np.array(True)])
def test_flags_of_other_types_that_are_true_end_an_episode(flag):
    environment = Gymnasium(lambda: plain(terminated=flag), 2)
    environment.reset(0)
    assert environment.step(np.zeros(2, int)).terminated.all()


@pytest.mark.parametrize("limit", [None, 9])  # gymnasium's own time limit unpacks the values before tidelog does
def test_an_environment_of_an_older_gym_is_told_what_gymnasium_expects(limit):
    class Four(Clock):
        def step(self, action):
            observation, reward, terminated, _, info = super().step(action)
            return observation, reward, terminated, info

    class Seedless(Clock):
        def reset(self):
            return super().reset()

    class Bare(Clock):
        def reset(self, *, seed=None, options=None):
            return np.zeros(3)

    step = r"step 1: step raised ValueError.*: expected step\(action\) to return \(observation, reward, terminated, "
    reset = r"reset raised \w+Error.*: expected reset\(\*, seed=None, options=None\) to return \(observation, info\)"
    for kind, words in ((Four, step), (Seedless, reset), (Bare, reset)):
        make = kind if limit is None else (lambda kind=kind: gymnasium.wrappers.TimeLimit(kind(), limit))
        with pytest.raises(EnvironmentFailure, match=words):
            play(Gymnasium(make, 1), lambda seen, generator: (np.zeros(1, int), None), episodes=1, seed=0)


def test_a_failing_reset_is_named_too():
    class Stuck(Clock):
        def reset(self, *, seed=None, options=None):
            if self.total == 3:
                raise OSError("no bed")
            return super().reset(seed=seed)

    environment = Gymnasium(Stuck, 1)
    environment.reset(0)
    environment.step(np.zeros(1, int))
    environment.step(np.zeros(1, int))
    with pytest.raises(EnvironmentFailure, match="copy 0, step 3: reset raised OSError: no bed"):
        environment.step(np.zeros(1, int))


MASKED = {"action_mask": np.array([1, 0, 1], np.int8)}


def test_a_mask_needs_discrete_actions():
    with pytest.raises(SpecError, match=r"Shows has an action mask for Box\(.*\): expected discrete actions"):
        Gymnasium(lambda: plain(spaces.Box(-1, 1, (2,)), info=MASKED), 2)


def test_a_mask_that_goes_missing_is_a_failure():
    made = []
    environment = Gymnasium(lambda: made.append(plain(info=MASKED)) or made[-1], 2)
    environment.reset(0)
    assert environment.reset(0).action_mask.tolist() == [[True, False, True]] * 2
    made[1].info = {}
    with pytest.raises(EnvironmentFailure, match=r"copy 1, step 1: the info has no action_mask"):
        environment.step(np.array([0, 2]))


@pytest.mark.parametrize(
    ("space", "kind", "action", "taken"),
    [
        (spaces.Discrete(3, start=-1), Discrete(3), np.array([2]), 1),
        (spaces.MultiDiscrete([2, 3], start=[0, 4]), MultiDiscrete((2, 3)), np.array([[1, 2]]), [1, 6]),
        (spaces.Box(-2, 2, (2,), np.float64), Continuous((-2.0, -2.0), (2.0, 2.0)), np.array([[0.5, 1]]), [0.5, 1]),
    ],
)
def test_actions_reach_the_environment_in_its_own_words(space, kind, action, taken):
    made = []
    environment = Gymnasium(lambda: made.append(plain(space)) or made[-1], 1)
    assert environment.spec.action == kind
    assert not environment.spec.masked
    environment.reset(0)
    environment.step(action)
    assert np.asarray(made[0].taken[0]).tolist() == taken
    assert space.contains(made[0].taken[0])


@pytest.mark.parametrize(
    "space", [spaces.Box(0, 1, (2, 2)), spaces.Tuple([spaces.MultiBinary(2)]), spaces.Dict({"a": spaces.Dict({})})]
)
def test_observations_that_are_not_taken_say_the_mend(space):
    with pytest.raises(SpecError, match="FlattenObservation"):
        columns(space)


@pytest.mark.parametrize(
    ("space", "mend"),
    [
        (spaces.Box(-np.inf, 1, (1,)), "finite bounds"),
        (spaces.Box(0, 1, (2, 2)), "one-dimensional Box"),
        (spaces.MultiBinary(3), "TransformAction"),
        (spaces.Box(0, 5, (1,), np.int32), r"rounded after they are recorded.*MultiDiscrete\(sizes, start=...\)"),
        (spaces.Box(0, 1, (1,), np.float16), "Box of float32 or float64"),
        (spaces.Box(-1e300, 1e300, (1,), np.float64), r"a range of at most 3.4e\+38"),
    ],
)
def test_actions_that_are_not_taken_say_the_mend(space, mend):
    with pytest.raises(SpecError, match=mend):
        action_space(space)


def test_an_episode_is_what_gymnasium_itself_plays():
    environment, alone = make("CartPole-v1", 1), gymnasium.make("CartPole-v1")
    own_seed = int(np.random.SeedSequence(7).generate_state(1)[0])
    expected = [alone.reset(seed=own_seed)[0]]
    observed = [shown(environment.reset(7))[0]]
    for step in range(5):
        expected.append(alone.step(step % 2)[0])
        observed.append(shown(environment.step(np.array([step % 2])).next_observation)[0])
    np.testing.assert_array_equal(observed, expected)
    alone.close()
    environment.close()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("CartPol-v1", "CartPole-v1"),
        ("treatmnt", "'treatment'"),
        ("nowhere/Zzz-v0", "no environment 'nowhere/Zzz-v0'"),
        ("CartPole-v99", "CartPole-v1"),
        ("no_such_module:Env-v0", "no_such_module"),
        ("", "no environment ''"),
    ],
)
def test_unknown_names_are_answered_with_known_ones(name, words):
    with pytest.raises(ConfigError, match=words):
        make(name, 2)


def test_many_things_can_be_made_into_an_environment():
    assert make("treatment", 4).count == 4
    assert make("point-mass", 2).name == "point-mass"
    assert make(chain(3), 2).spec.action == Discrete(2, ("left", "right"))
    assert make(Clock, 2).count == 2
    assert make(Clock(), 1).name == "Clock"
    assert make(gymnasium.make("CartPole-v1"), 2).name == "CartPole-v1"
    ready = TabularEnvironment(chain(3), 2)
    assert make(ready, 2) is ready


@pytest.mark.parametrize(("source", "count"), [(Clock(), 2), (TabularEnvironment(chain(3), 2), 3), (7, 1), (dict, 1)])
def test_what_cannot_be_made_is_said(source, count):
    with pytest.raises(ConfigError):
        make(source, count)


BYTES = spaces.Box(0, 255, (6, 5, 3), np.uint8)


def test_pictures_stay_bytes_also_within_mappings():
    space = spaces.Dict({"eye": BYTES, "speed": spaces.Box(0, 1, (2,))})
    environment = Gymnasium(lambda: Shows(space, space.sample()), 2)
    assert environment.spec.observation == {"eye": Image(6, 5, 3), "speed": Vector(2)}
    seen = environment.reset(0).observation
    assert (seen["eye"].shape, seen["eye"].dtype) == ((2, 6, 5, 3), np.uint8)
    assert seen["speed"].dtype == np.float32


@pytest.mark.parametrize(
    ("space", "found", "mend"),
    [
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), "channels are first", r"np\.moveaxis\(x, 0, -1\)"),
        (spaces.Box(0, 1, (6, 5, 3), np.float32), "type float32", r"\(255 \* x\)\.astype\(np\.uint8\)"),
        (spaces.Box(0, 255, (6, 5), np.uint8), "no channels", r"x\[\.\.\., None\]"),
    ],
)
def test_pictures_of_another_layout_or_type_are_refused_by_name_with_the_mend(space, found, mend):
    with pytest.raises(SpecError, match=rf"observation 'eye' is Box.*{found}.*{mend}.*TransformObservation"):
        columns(spaces.Dict({"eye": space}))


def test_a_picture_that_breaks_its_spaces_promise_is_a_failure():
    with pytest.raises(EnvironmentFailure, match=r"copy 0, step 0: .*has type float32: expected uint8"):
        Gymnasium(lambda: Shows(BYTES, np.zeros((6, 5, 3), np.float32)), 1)
    with pytest.raises(EnvironmentFailure, match=r"copy 0, step 0: .*shape \(3, 6, 5\): expected \(6, 5, 3\)"):
        Gymnasium(lambda: Shows(BYTES, np.zeros((3, 6, 5), np.uint8)), 1)
    batch = BatchReader("eyes", 1, 4)
    with pytest.raises(EnvironmentFailure, match=r"has type float64: expected uint8"):
        batch.leaf("the observation", np.zeros((1, 6, 5, 3)), Image(6, 5, 3))


def test_what_gymnasium_cannot_make_is_said_in_its_words():
    def refused(error):
        def entry():
            raise error

        gymnasium.register("Refused-v0", entry)
        try:
            make("Refused-v0", 1)
        finally:
            del gymnasium.registry["Refused-v0"]

    with pytest.raises(ConfigError, match=r"Refused-v0 needs a package that is not installed: pip install pump"):
        refused(gymnasium.error.DependencyNotInstalled("pip install pump"))
    with pytest.raises(ConfigError, match="gymnasium cannot make Refused-v0: no bed is free"):
        refused(gymnasium.error.Error("no bed is free"))


def test_an_observation_of_other_leaves_or_types_is_a_failure_of_all_copies():
    batch, expected = BatchReader("ward", 2, 7), {"beds": Codes((4,)), "pulse": Vector(1)}
    with pytest.raises(
        EnvironmentFailure, match=r"ward, all copies, step 7: .* leaves \['beds'\]: expected \['beds', 'p"
    ):
        batch.leaves({"beds": np.zeros((2, 1), int)}, expected)
    with pytest.raises(EnvironmentFailure, match="observation 'beds' has type float64: expected whole numbers"):
        batch.leaves({"beds": np.zeros((2, 1)), "pulse": np.zeros((2, 1))}, expected)
