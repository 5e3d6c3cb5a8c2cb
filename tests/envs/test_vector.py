"""gymnasium's vector environments, in every way of restarting: no reward or transition lost, invented or moved."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

import tidelog as tl
from tidelog.envs import Resumable, make
from tidelog.envs.gym import Gymnasium, VectorCartPole, VectorGymnasium
from tidelog.errors import ConfigError, EnvironmentFailure, SpecError
from tidelog.training.collect import assign_environments
from tidelog.types import Codes, Vector

MODES = [*AutoresetMode]
HOWS = ["terminated", "truncated", "both"]
LENGTHS = (3, 1, 2, 5)  # of the episodes of each copy, all different


class Tickers(VectorEnv):
    """Copy `w` shows (w, episode, step) and earns 100 * w + 10 * episode + step, by gymnasium's rules for each mode.

    A restarting row reports a reward of 1000, which nobody may believe.
    """

    def __init__(self, mode, how="truncated", lengths=LENGTHS, masked=False):
        self.num_envs, self.how, self.lengths, self.masked = len(lengths), how, np.array(lengths), masked
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.single_action_space = spaces.Discrete(2, start=3)
        self.seen_actions = []

    def shown(self):
        return np.stack([np.arange(self.num_envs), self.episode, self.age], 1).astype(np.float64)

    def info(self):
        return {"action_mask": np.stack([self.age >= 0, self.age % 2 == 0], 1)} if self.masked else {}

    def reset(self, *, seed=None, options=None):
        if options is None:
            self.episode, self.age = np.zeros((2, self.num_envs), int)
            self.ended = np.zeros(self.num_envs, bool)
        else:
            rows = options["reset_mask"]
            assert (rows == self.ended).all(), "exactly the copies that ended have to be restarted"
            self.begin(rows)
        return self.shown(), self.info()

    def begin(self, rows):
        self.episode[rows] += 1
        self.age[rows] = 0
        self.ended[rows] = False

    def step(self, action):
        self.seen_actions.append(action)
        mode, restarting = self.metadata["autoreset_mode"], self.ended.copy()
        assert mode is AutoresetMode.NEXT_STEP or not restarting.any()
        self.age += 1
        reward = 100.0 * np.arange(self.num_envs) + 10 * self.episode + self.age
        self.begin(restarting)
        reward[restarting] = 1000.0
        self.ended = (self.age >= self.lengths) & ~restarting
        ended, info = self.ended.copy(), {}
        seen = self.shown()
        if mode is AutoresetMode.SAME_STEP and ended.any():
            final = np.full(self.num_envs, None, object)
            for row in np.flatnonzero(ended):
                final[row] = seen[row]
            info = {"final_obs": final, "_final_obs": ended, "final_info": self.info()}
            self.begin(ended)
            seen = self.shown()
        flags = [ended if self.how in (kind, "both") else np.zeros_like(ended) for kind in ("terminated", "truncated")]
        return seen, reward, *flags, info | self.info()


@pytest.mark.parametrize("mode", MODES)
def test_masks_belong_to_what_is_shown(mode):
    environment = make(Tickers(mode, masked=True), 4)
    observed = environment.reset(0)
    assert environment.spec.masked
    for _ in range(12):
        outcome = environment.step(np.zeros(4, int))
        age = outcome.next_observation.observation["observation"][:, 2]
        np.testing.assert_array_equal(outcome.next_observation.action_mask[:, 1], age % 2 == 0)
        waits = (outcome.terminated | outcome.truncated) & (mode is AutoresetMode.NEXT_STEP)
        age = outcome.current_observation.observation["observation"][:, 2]
        np.testing.assert_array_equal(outcome.current_observation.action_mask[:, 1], (age % 2 == 0) | waits)
        observed = outcome.current_observation
    assert observed.action_mask.dtype == bool


class Clock(gymnasium.Env):
    """Shows a mapping: a random number of the episode with the step, and a code counted from 2; ends after `end`."""

    def __init__(self, end=3, how="truncated", masked=True):
        self.observation_space = spaces.Dict(
            {
                "clock": spaces.Box(-np.inf, np.inf, (2,), np.float64),
                "ward": spaces.Discrete(9, start=2),
                "beds": spaces.MultiDiscrete([9, 9], start=[1, 0]),
            }
        )
        self.action_space = spaces.Discrete(3, start=5)
        self.end, self.how, self.masked = end, how, masked

    def seen(self):
        beds = np.array([1 + self.age, self.age])
        return {"clock": np.array([self.mark, self.age]), "ward": np.int64(2 + self.age), "beds": beds}

    def info(self):
        return {"action_mask": np.array([1, self.age % 2, 1], np.int8)} if self.masked else {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age, self.mark = 0, self.np_random.random()
        return self.seen(), self.info()

    def step(self, action):
        self.age += 1
        ended = self.age == self.end
        flags = (ended and self.how != "truncated", ended and self.how != "terminated")
        return self.seen(), float(action) + self.age / 8, *flags, self.info()


def makers(how):
    return [lambda end=end: Clock(end, how) for end in (3, 1, 2)]


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("copied", [True, False])
def test_gymnasiums_own_is_what_the_copies_are_one_by_one(mode, how, copied):
    """The rows of each copy in turn, restarts left out, are those of the copies stepped here, from the same seeds."""
    many = VectorGymnasium(SyncVectorEnv(makers(how), autoreset_mode=mode, copy=copied))
    ends = iter(makers(how))
    alone = Gymnasium(lambda: next(ends)(), 3)
    assert many.spec == alone.spec
    assert many.spec.observation == {"clock": Vector(2), "ward": Codes((9,)), "beds": Codes((9, 9))}
    many.reset(4)
    alone.reset(4)
    own = int(np.random.SeedSequence(4).generate_state(1)[0])
    for row, copy in enumerate(alone._copies):
        copy.reset(seed=own + row)  # as gymnasium spreads one seed
    rows, expected = ([[] for _ in range(3)] for _ in range(2))
    generator = np.random.default_rng(0)
    orders = generator.integers(3, size=(3, 40))
    for _ in range(40):
        at = [len(one) for one in rows]
        outcome = many.step(np.array([orders[row, place] for row, place in enumerate(at)]))
        keep(rows, outcome)
    for step in range(40):
        keep(expected, alone.step(orders[:, step]))
    for found, wanted in zip(rows, expected, strict=True):
        assert len(found) > 15
        assert repr(found[1:]) == repr(wanted[1 : len(found)])  # the first shows the copies' own first seeds


def keep(rows, outcome):
    for row, own in enumerate(rows):
        if outcome.valid is None or outcome.valid[row]:
            followed = {name: leaf[row].tolist() for name, leaf in outcome.next_observation.observation.items()}
            own.append((outcome.reward[row], *(outcome.terminated[row], outcome.truncated[row]), followed))


@pytest.mark.parametrize("told", [None, "sometimes"])
def test_a_mode_that_is_not_told_is_not_guessed(told):
    source = Tickers(AutoresetMode.NEXT_STEP)
    source.metadata = {} if told is None else {"autoreset_mode": told}
    with pytest.raises(ConfigError, match=r"autoreset_mode is .*: expected a known mode.*metadata"):
        make(source, 4)


def test_an_environment_that_ends_while_restarting_lied_about_its_mode():
    source = Tickers(AutoresetMode.SAME_STEP, lengths=(4, 1))
    environment = make(source, 2)
    environment._mode = "NEXT_STEP"
    environment.reset(0)
    environment.step(np.zeros(2, int))
    with pytest.raises(EnvironmentFailure, match=r"Tickers, copy 1, step 2: .*not NEXT_STEP"):
        environment.step(np.zeros(2, int))


def test_a_last_observation_that_is_lost_is_said():
    class Losing(Tickers):
        def step(self, action):
            *rest, info = super().step(action)
            return *rest, {key: value for key, value in info.items() if key != "final_obs"}

    environment = make(Losing(AutoresetMode.SAME_STEP, lengths=(4, 1)), 2)
    environment.reset(0)
    with pytest.raises(EnvironmentFailure, match=r"copy 1, step 1: .*final_obs"):
        environment.step(np.zeros(2, int))


def spoilt(place, change):
    class Spoilt(Tickers):
        def step(self, action):
            parts = list(super().step(action))
            if len(self.seen_actions) == 3:
                parts[place] = change(parts[place])
            return tuple(parts)

    environment = make(Spoilt(AutoresetMode.NEXT_STEP, lengths=(9, 9, 9)), 3)
    environment.reset(0)
    environment.step(np.zeros(3, int))
    environment.step(np.zeros(3, int))
    return environment


def entry(*place):
    def change(array):
        array = array.copy()
        array[place[:-1]] = place[-1]
        return array

    return change


def raising(_):
    raise RuntimeError("pump stuck")


@pytest.mark.parametrize(
    ("place", "change", "words"),
    [
        (0, entry(2, 1, np.nan), "copy 2, step 3: entry 1 of the observation is nan"),
        (0, entry(1, 0, -np.inf), "copy 1, step 3: entry 0 of the observation is -inf"),
        (0, entry(1, 2, 1e300), r"copy 1, step 3: entry 2 of the observation is 1e\+300"),
        (0, lambda array: array[:, :2], r"step 3: the observation has shape \(3, 2\): expected \(3, 3\)"),
        (0, lambda array: None, r"step 3: the observation has shape \(\): expected \(3, 3\)"),
        (1, entry(2, np.nan), "copy 2, step 3: the reward is nan"),
        (1, lambda array: array[:2], r"step 3: the reward has shape \(2,\): expected \(3,\)"),
        (1, lambda array: ["high"] * 3, "step 3: the reward has type .*: expected numbers"),
        (2, lambda array: array[None], r"step 3: terminated has shape \(1, 3\): expected \(3,\)"),
        (3, lambda array: np.full(3, 0.5), "copy 0, step 3: truncated is 0.5: expected true or false"),
        (0, lambda array: [[1, 2], [3]], "step 3: the observation is not an array: setting an array element"),
        (0, raising, "all copies, step 3: step raised RuntimeError: pump stuck"),
    ],
)
def test_a_failure_names_the_copy_and_the_step(place, change, words):
    with pytest.raises(EnvironmentFailure, match=f"Spoilt, .*{words}"):
        spoilt(place, change).step(np.zeros(3, int))


def test_a_mask_that_goes_missing_names_the_copy():
    made = []
    environment = make(SyncVectorEnv([lambda: made.append(Clock()) or made[-1]] * 3), 3)
    environment.reset(0)
    made[1].masked = False
    with pytest.raises(EnvironmentFailure, match=r"copy 1, step 1: .*action_mask"):
        environment.step(np.zeros(3, int))


def test_a_mask_needs_discrete_actions_in_every_copy():
    source = Tickers(AutoresetMode.DISABLED, masked=True)
    source.single_action_space = spaces.Box(-1, 1, (2,))
    with pytest.raises(SpecError, match=r"Tickers has an action mask for Continuous\(.*\): expected discrete actions"):
        make(source, 4)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="4 copies: expected 3"):
        make(Tickers(AutoresetMode.DISABLED), 3)
    source = Tickers(AutoresetMode.DISABLED)
    source.single_observation_space = spaces.Box(0, 1, (2, 2))
    with pytest.raises(SpecError, match="FlattenObservation"):
        make(source, 4)
    with pytest.raises(EnvironmentFailure, match="was not reset"):
        make(Tickers(AutoresetMode.DISABLED), 4).step(np.zeros(4, int))


def test_environments_whose_copies_wait_for_each_other_are_not_taken_as_they_are():
    """gymnasium's own of that name; it needs a package that is not installed here."""

    class FunctionalJaxVectorEnv(Tickers):
        pass

    with pytest.raises(ConfigError, match="pass the environment's id"):
        make(FunctionalJaxVectorEnv(AutoresetMode.NEXT_STEP), 4)


@pytest.mark.parametrize(("start", "kind"), [(5, VectorGymnasium), (4, Gymnasium)])
def test_a_registered_vector_form_is_taken_only_where_it_is_the_same_problem(start, kind):
    class Many(SyncVectorEnv):
        def __init__(self, num_envs, max_episode_steps=None):
            super().__init__([Starting] * num_envs)

    class Starting(Clock):
        def __init__(self):
            super().__init__()
            self.action_space = spaces.Discrete(3, start=start)

    gymnasium.register("Clock-v0", Clock, vector_entry_point=Many, disable_env_checker=True)
    try:
        assert type(make("Clock-v0", 2)) is kind
    finally:
        del gymnasium.registry["Clock-v0"]


def test_cartpole_is_vectorised_and_others_stay_as_they_were():
    assert isinstance(make("CartPole-v1", 2), VectorCartPole)
    assert isinstance(make("CartPole-v1", 2), Resumable)
    assert isinstance(make("CartPole-v1", 1), Gymnasium)
    assert isinstance(make("Pendulum-v1", 2), Gymnasium)


@pytest.mark.full
def test_vectorised_cartpole_is_the_copies_one_by_one():
    """From the same states and by the same actions, through falls and limits."""
    many, alone = make("CartPole-v1", 6), Gymnasium(lambda: gymnasium.make("CartPole-v1"), 6)
    seen = shown(many.reset(0))
    alone.reset(0)
    generator, ends = np.random.default_rng(1), np.zeros(2, int)
    for step in range(1500):
        put_where_the_vectorised_ones_are(many, alone)
        steady = (seen @ [0.02, 0.05, 1.0, 0.3] > 0).astype(int)
        action = np.where(np.arange(6) < 3, steady, generator.integers(2, size=6))
        found, wanted = many.step(action), alone.step(action)
        assert found.valid is None
        for one in ("reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(found, one), getattr(wanted, one), err_msg=f"{one}, step {step}")
        np.testing.assert_allclose(shown(found.next_observation), shown(wanted.next_observation), rtol=1e-6, atol=1e-7)
        ended = found.terminated | found.truncated
        seen = shown(found.current_observation)
        assert (np.abs(seen[ended]) <= 0.05).all()
        np.testing.assert_array_equal(seen[~ended], shown(found.next_observation)[~ended])
        ends += [found.terminated.sum(), found.truncated.sum()]
    assert (ends > 3).all(), ends


def test_restarts_of_cartpole_are_the_draws_that_gymnasium_would_make():
    many, own = make("CartPole-v1", 5), gymnasium.make_vec("CartPole-v1", 5, "vector_entry_point")
    many.reset(3)
    own.reset(seed=int(np.random.SeedSequence(3).generate_state(1)[0]))
    ended = np.zeros(5, bool)
    while not ended.any():
        ended = many.step(np.ones(5, int)).terminated
        own.step(np.ones(5, int))
    fresh = own.step(np.ones(5, int))[0]
    np.testing.assert_array_equal(many._source.state.T.astype(np.float32)[ended], fresh[ended])


def shown(observed):
    return observed.observation["observation"]


def put_where_the_vectorised_ones_are(many, alone):
    for row, copy in enumerate(alone._copies):
        copy.unwrapped.state = many._source.state[:, row].copy()


def test_a_source_that_breaks_its_interface_is_named():
    class Short(Tickers):
        def step(self, action):
            return super().step(action)[:4]

    class Listed(Tickers):
        def reset(self, *, seed=None, options=None):
            return [*super().reset(seed=seed, options=options)]

    environment = make(Short(AutoresetMode.NEXT_STEP), 4)
    environment.reset(0)
    with pytest.raises(EnvironmentFailure, match="step 1: step returned a tuple: expected a tuple of 5 values"):
        environment.step(np.zeros(4, int))
    with pytest.raises(EnvironmentFailure, match="reset returned a list: expected a tuple of 2 values"):
        make(Listed(AutoresetMode.NEXT_STEP), 4)

    class Partial(SyncVectorEnv):
        def step(self, action):
            seen, *rest = super().step(action)
            return {"clock": seen["clock"], "ward": seen["ward"]}, *rest

    environment = make(Partial([Clock]), 1)
    environment.reset(0)
    with pytest.raises(EnvironmentFailure, match="step 1: the observation is unusable: KeyError: 'beds'"):
        environment.step(np.zeros(1, int))


def test_members_never_share_a_simulator():
    def made():
        return SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 8)

    algorithm = tl.PPO(num_envs=8, rollout_steps=16, hidden=(8,))
    for one in (made(), made().envs[0].unwrapped):
        count = 8 if isinstance(one, VectorEnv) else 1
        one.spec = None
        with pytest.raises(ConfigError, match=r"object cannot serve 2 members.*or a function that creates it"):
            assign_environments(one, count, [0, 1], False)
    run = tl.learn(algorithm, made, steps=128, seeds=2, progress=False)
    first, second = (host.environment for host in run._engine._assignment.hosts)
    assert first._source is not second._source
