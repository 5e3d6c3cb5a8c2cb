"""`preset="auto"`: settings that follow the log, each with its reason.

A rule belongs to the role of a hyper-parameter, which its declaration names; an algorithm of your own takes part when
it uses the declarations of `algorithms/hyperparameters.py`. Rules read the training episodes only, so that what is held
out for judging decides nothing. `benchmarks/auto_preset.py` (in the history) compares them with the constructor's
defaults.

* Updates of a recommender: at most `EVENT_PASSES` over the events; with a held-out period its best report is kept, and
  training stops after `WAITED` reports without a better one. Nothing else follows its log.
* Updates: `PASSES` over the training decisions; at least `FEWEST`, unless these are `MOST_PASSES`; at most `MOST`.
* Updates on single decisions: at least `FEWEST_OF_ONE_STEP` instead; more passes over a small log fit the noise of its
  rewards (`benchmarks/one_step_logs.py` in the history chose the number).
* Hidden layers and learning rates: `NARROW` and `QUICK` for logs of fewer than `SMALL` decisions.
* Products of bfloat16 for other logs, where native layers multiply them (`benchmarks/rounding.py`: nothing is lost).
* Held-out share: `JUDGED` episodes, at least a fifth and at most half of them, where episodes are short; a fifth where
  they are long (`benchmarks/held_out.py` in the history compares shares).
* Discount: 1 if the environment ends at least `ENDED` of the episodes, all within `SHORT` decisions; the judge compares
  undiscounted returns.
* In an environment: the preset that an algorithm names for its observations and actions (`preset_for`).
* Temperature and support threshold of discrete actions: the rung of a ladder from the behaviour policy's clone to the
  greedy
  policy that earns most on training episodes which its critic never saw, with its error in mind (`sharpness.py`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.algorithms.hyperparameters import checked, chosen_preset
from tidelog.algorithms.names import algorithm_class, check_source, learns_online, names, ranks
from tidelog.data.log import Log
from tidelog.data.statistics import LoggedRewards, by_return_deviation
from tidelog.envs.registry import make
from tidelog.errors import ConfigError, SpecError
from tidelog.networks import native
from tidelog.recommend.interactions import Interactions
from tidelog.types import Continuous, Discrete, Hybrid, Image, Spec

if TYPE_CHECKING:
    from tidelog.auto.sharpness import CrossFit

PASSES, MOST_PASSES = 50, 400
FEWEST, MOST = 5_000, 100_000  # updates
DECISIONS = 200_000  # in an environment
FEWEST_OF_ONE_STEP = 500  # updates on single decisions, where no value has to travel back
SMALL, NARROW, QUICK = 100_000, (64, 64), 1e-3
SHORT = 100
JUDGED, LEAST_HELD_OUT, MOST_HELD_OUT = 50_000, 0.2, 0.5  # episodes that judge what is learnt, and shares
ENDED = 0.95  # share of episodes: a log that was collected in training cuts off the last episode of each copy
EVENT_PASSES, EVENTS_OF_AN_UPDATE = 10, 128 * 10  # of a recommender: batch_size and targets of RecommenderBCQ
FEWEST_OF_EVENTS, MOST_OF_EVENTS = 500, 10_000  # updates of a recommender
LISTS, WAITED = "held_out/ndcg@10", 3  # what stops a recommender, and the reports without a better one


class Facts(NamedTuple):
    """What the rules read of the training episodes."""

    decisions: int
    longest: int
    ended: float  # share of the episodes that the environment ended
    held_out: int  # number of held-out episodes; of all if none are
    log: Log
    episodes: NDArray[np.int64]  # ordinals of the training episodes
    by_role: Mapping[str, Any] = {}  # settings of the algorithm by their role
    progress: Callable[[str, float], None] | None = None


class Setting(NamedTuple):
    """A value, and why."""

    value: Any
    reason: str


class Suggestion(NamedTuple):
    """An algorithm whose settings follow a log, its number of updates, and all of these settings with their reasons."""

    algorithm: Any
    steps: int  # of an environment: decisions
    settings: Mapping[str, Setting]
    alternatives: Mapping[str, str] = {}  # other algorithms for such actions by name: what each suits

    @property
    def options(self) -> dict[str, Any]:
        """The settings that are arguments of `fit`, such as `best_metric`; empty if none follows the log."""
        own = {one.name for one in dataclasses.fields(self.algorithm)}
        return {name: one.value for name, one in self.settings.items() if name not in own and name != "steps"}

    def lines(self, names: Collection[str] | None = None) -> list[str]:
        """Return a line for each reason, over some of the names; names with the same value and reason share it."""
        together: dict[Setting, list[str]] = {}
        for name, setting in self.settings.items():
            if names is None or name in names:
                together.setdefault(setting, []).append(name)
        return [f"{', '.join(names)} {_plain(one.value)}: {one.reason}" for one, names in together.items()]


class Preset(NamedTuple):
    """A preset that suits an environment, and why."""

    name: str
    reason: str


def preset_of(cls: type[Any], spec: Spec) -> Preset | None:
    """Return the preset that an algorithm's class method `preset_for(spec)` names for an environment, if any."""
    name = getattr(cls, "preset_for", lambda spec: None)(spec)
    if name is None:
        return None
    seen = "pictures" if any(isinstance(leaf, Image) for leaf in spec.observation.values()) else "numbers"
    actions = "are continuous" if isinstance(spec.action, Continuous) else "are discrete"
    actions = "have parts" if isinstance(spec.action, Hybrid) else actions
    return Preset(name, f"observations are {seen}, actions {actions}")


def suggest(
    cls: type[Any],
    source: Log | Interactions | Any,
    *,
    held_out: float | None = 0.0,
    split_seed: int = 0,
    progress: Callable[[str, float], None] | None = None,
    **settings: Any,
) -> Suggestion:
    """Return an algorithm whose settings follow the training episodes of a log, and its number of updates.

    `held_out` and `split_seed` are those of `fit`; with `held_out=None` the share follows the number of episodes and is
    among the suggestion's `options`, as in `tl.fit(found.algorithm, log, found.steps, **found.options)`. `progress`
    gets what is done, and the share of it that is. `settings` are hyper-parameters of your own, which win. Of an
    algorithm that ranks items the number of updates follows its interactions, and with `held_out` its `options` stop
    the training early. The suggestion's `alternatives` say what other algorithms for such actions suit.
    For an algorithm that learns in an environment, `source` is anything that `learn` takes, and the settings are those
    of the preset that suits it. Raises ConfigError for unknown ones and a share outside [0, 1), SpecError for an
    algorithm that does not learn from such a source.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> found = tl.suggest(tl.IQL, log, hidden=(16,))
        >>> print(found.lines()[0])
        steps 1,000: 333 passes over 769 training decisions
        >>> run = tl.fit(found.algorithm, log, found.steps, train=False)
    """
    if learns_online(cls) and not isinstance(source, Log | Interactions):
        return _for_environment(cls, source, settings)
    check_source(cls, False)
    log = source
    if ranks(cls):
        held_out = 0.2 if held_out is None else held_out
        train = log.split(share=held_out).train if held_out > 0 else log  # type: ignore[union-attr, call-arg]
        updates = updates_of_events(train.steps)
        stopped = early_stopping() if held_out > 0 else {}
        return Suggestion(cls(**settings), updates.value, {"steps": updates, **stopped})
    if not isinstance(log, Log):
        raise SpecError(f"{cls.__name__} does not learn from interactions", fix="use tl.RecommenderBCQ")
    changed: dict[str, Setting] = {}
    if held_out is None:
        changed["held_out"] = held_out_share(log)
        held_out = changed["held_out"].value
    facts = facts_of(log, held_out, split_seed)._replace(by_role=_by_role(cls, settings), progress=progress)
    for field in dataclasses.fields(cls):
        role = field.metadata.get("role", "")
        setting = None if role not in RULES or field.name in settings else RULES[role](facts)
        if setting is not None and (setting.value != field.default or role in SHARPNESS):
            changed[field.name] = setting
    own = {name: one.value for name, one in changed.items() if name != "held_out"}
    algorithm = cls(**settings, **own)
    updates = updates_of(facts, getattr(algorithm, "batch_size", 1))
    return Suggestion(algorithm, updates.value, {"steps": updates, **changed}, alternatives_to(cls, log.spec))


def alternatives_to(cls: type[Any], spec: Spec) -> dict[str, str]:
    """Return what each other algorithm suits that learns from a log of such actions, by its name."""
    others = {name: algorithm_class(name) for name in names("a log")}
    fit = {name: one for name, one in others.items() if type(spec.action) in one.takes and one is not cls}
    return {name: one.suits for name, one in fit.items() if hasattr(one, "suits")}


def _by_role(cls: type[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an algorithm by their role, own ones or defaults."""
    fields = [field for field in dataclasses.fields(cls) if field.metadata.get("role")]
    values = {field.name: settings.get(field.name, field.default) for field in fields}
    return {field.metadata["role"]: checked(cls.__name__, field, values[field.name]) for field in fields}


def _for_environment(cls: type[Any], source: Any, settings: Mapping[str, Any]) -> Suggestion:
    environment = make(source, 1)
    try:
        preset = preset_of(cls, environment.spec)
    finally:
        if environment is not source:
            environment.close()
    values = {} if preset is None else chosen_preset(cls.__name__, cls.presets, preset.name)
    reason = "" if preset is None else f"preset {preset.name}, because {preset.reason}"
    changed = {name: Setting(value, reason) for name, value in values.items() if name not in settings}
    return Suggestion(cls(**settings, **{name: one.value for name, one in changed.items()}), DECISIONS, changed)


def facts_of(log: Log, held_out: float, split_seed: int) -> Facts:
    """The facts of the training episodes; with `held_out` 0 all episodes are training episodes."""
    if not 0.0 <= held_out < 1.0:
        raise ConfigError(f"held_out = {held_out}", "a share of the episodes in [0, 1)", "use 0.2")
    if held_out > 0:
        train, held_out_episodes = log.split_ordinals(1.0 - held_out, split_seed)
    else:
        train = held_out_episodes = np.arange(len(log.episode_ids))
    train = train if log.reward_known is None else train[log.has_return[train]]
    lengths, last = np.diff(log.starts)[train], np.asarray(log.starts[1:] - 1)[train]
    return Facts(
        decisions=int(lengths.sum()),
        longest=int(lengths.max()),
        ended=float(np.asarray(log.terminated)[last].mean()),
        held_out=len(held_out_episodes),
        log=log,
        episodes=train,
    )


# The rules: each returns a value with its reason, or None for the default.


def updates_of(facts: Facts, batch: int) -> Setting:
    """The number of updates, rounded to thousands, or to hundreds for a log of single decisions."""
    per_pass, single = facts.decisions / batch, facts.longest == 1
    wanted = min(max(PASSES * per_pass, FEWEST_OF_ONE_STEP if single else FEWEST), MOST_PASSES * per_pass)
    least, digits = (FEWEST_OF_ONE_STEP, -2) if single else (1_000, -3)
    value = int(np.clip(round(wanted, digits), least, MOST))
    what = "training decisions" + ", each an episode of its own" * single
    return Setting(value, f"{value / per_pass:,.0f} passes over {facts.decisions:,} {what}")


def held_out_share(log: Log) -> Setting:
    """The share of the episodes that judges what is learnt from the others."""
    episodes, longest = len(log.episode_ids), int(np.diff(log.starts).max())
    if longest > SHORT:
        return Setting(LEAST_HELD_OUT, f"episodes of up to {longest:,} decisions")
    share = float(np.clip(round(JUDGED / episodes, 2), LEAST_HELD_OUT, MOST_HELD_OUT))
    return Setting(share, f"{share * episodes:,.0f} of {episodes:,} episodes judge what is learnt from the others")


def updates_of_events(events: int) -> Setting:
    """The number of updates of a recommender that reads so many events, rounded to hundreds."""
    wanted = round(EVENT_PASSES * events / EVENTS_OF_AN_UPDATE, -2)
    value = int(min(max(wanted, FEWEST_OF_EVENTS), MOST_OF_EVENTS))
    return Setting(value, f"{value * EVENTS_OF_AN_UPDATE / events:,.0f} passes over {events:,} events")


def early_stopping() -> dict[str, Setting]:
    """The metric of lists that keeps a recommender's best report, and the reports without a better one that stop it."""
    return {
        "best_metric": Setting(LISTS, "the lists of held-out users keep the best report"),
        "patience": Setting(WAITED, f"reports without a better {LISTS} stop the training"),
    }


def for_small_log(facts: Facts, value: Any) -> Setting | None:
    """A value for a small log: of narrow layers, or of the rate for them."""
    return Setting(value, f"fewer than {SMALL:,} decisions") if facts.decisions < SMALL else None


def precision(facts: Facts) -> Setting | None:
    """Rounded products of wide layers, where native layers multiply them."""
    if facts.decisions < SMALL or native.level() < native.BFLOAT16:
        return None
    return Setting("bfloat16", "tidelog-kernels multiplies it faster than float32 on this processor")


def discount(facts: Facts) -> Setting | None:
    """None of the future is discounted where it is short and certain to end."""
    if facts.ended < ENDED or facts.longest > SHORT or facts.log.hindsight is not None:  # there the ends are chosen
        return None
    share = "every episode" if facts.ended == 1.0 else f"{math.floor(1000 * facts.ended) / 10:g}% of the episodes"
    after = "one decision" if facts.longest == 1 else f"at most {facts.longest:,} decisions"
    return Setting(1.0, f"the environment ends {share}, after {after}")


def temperature(facts: Facts) -> Setting | None:
    """The temperature that earns most on training episodes that the critic never saw, in the algorithm's unit."""
    cap, scaling = (facts.by_role.get(role) for role in ("weight cap", "reward scaling"))

    def policies(fitted: CrossFit) -> Callable[[float], Any]:
        return lambda value: fitted.tempered(value, math.inf if cap is None else float(cap))

    def in_its_unit(value: float, unit: float) -> float:
        if scaling is by_return_deviation:
            return value
        train = facts.log.take_episodes(facts.episodes)
        scale = 1.0 if scaling is None else scaling(LoggedRewards.of(train)).scale
        return float(f"{value / (unit * scale):.3g}")

    return _sharpness(facts, "inverse temperature", policies, in_its_unit)


def threshold(facts: Facts) -> Setting | None:
    """The support threshold that earns most on training episodes that the critic never saw."""
    return _sharpness(facts, "support threshold", lambda fitted: fitted.supported, lambda value, _: value)


def _sharpness(
    facts: Facts,
    role: str,
    policies: Callable[[CrossFit], Callable[[float], Any]],
    in_its_unit: Callable[[float, float], float],
) -> Setting | None:
    """The best rung of a ladder, or the default, with the reason."""
    from tidelog.auto import sharpness  # its estimators start slowly

    default = facts.by_role.get(role)
    why = sharpness.obstacle(facts.log, facts.longest, len(facts.episodes))
    if why is not None:
        return None if facts.log.reward is None else Setting(default, f"the default; no estimate chooses it: {why}")
    part, future = sharpness.some_episodes(facts.log, facts.episodes), discount(facts)
    most = sharpness.MOST_UPDATES_OF_ONE_STEP if facts.longest == 1 else sharpness.MOST_UPDATES
    tell = facts.progress or sharpness.no_progress
    plan = (0.99 if future is None else future.value, min(updates_of(facts, 256).value, most))
    if isinstance(facts.log.spec.action, Discrete):
        fitted = sharpness.cross_fit(part, *plan, tell=tell)
        found, unit = sharpness.rungs(fitted, sharpness.LADDERS[role], policies(fitted)), fitted.unit
    else:
        found, unit = sharpness.population_fit(part, sharpness.TRAINED_TEMPERATURES, *plan, tell=tell)
    best = sharpness.best_rung(found, len(part.episode_ids), facts.held_out)
    if best is None:
        return Setting(default, "the default; no estimate chooses it: too few episodes speak for any other policy")
    return Setting(in_its_unit(best.value, unit), best.reason(unit))


RULES: dict[str, Callable[[Facts], Setting | None]] = {
    "widths": lambda facts: for_small_log(facts, NARROW),
    "learning rate": lambda facts: for_small_log(facts, QUICK),
    "precision": precision,
    "discount": discount,
    "inverse temperature": temperature,
    "support threshold": threshold,
}
SHARPNESS = ("inverse temperature", "support threshold")  # roles that are reported also where the default is best


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
