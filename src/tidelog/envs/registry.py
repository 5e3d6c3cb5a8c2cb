"""Make environments from names: built-in problems first, then the ids of gymnasium."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from tidelog.envs.protocol import Environment, positive
from tidelog.envs.satiation import satiation
from tidelog.envs.tabular import Tabular, TabularEnvironment
from tidelog.envs.toys import PointMass
from tidelog.envs.treatment import icu_sepsis, treatment
from tidelog.envs.vault import vault
from tidelog.errors import ConfigError

if TYPE_CHECKING:
    from tidelog.envs.functional import Functional

_FUNCTIONAL = (
    *("jax:CartPole-v1", "jax:Pendulum-v1", "jax:treatment", "jax:satiation"),
    *("jax:vault", "jax:t-maze"),
)
_BUILT_IN: dict[str, Callable[[int], Environment]] = {
    "treatment": lambda count: TabularEnvironment(treatment(), count),
    "satiation": lambda count: TabularEnvironment(satiation(), count),
    "vault": lambda count: TabularEnvironment(vault(), count),
    "point-mass": lambda count: PointMass(count),
}
_FROM_FILE: dict[str, Callable[[str, int], Environment]] = {
    "icu-sepsis": lambda path, count: TabularEnvironment(icu_sepsis(path)[0], count),
}


def make(name_or_env: Any, count: int = 1) -> Environment:
    """Make `count` copies of an environment, stepped together.

    Accepts a built-in name ("treatment", "satiation", "vault", "point-mass", "icu-sepsis:PATH" with its dynamics.npz,
    "jax:..." for a functional environment, "procgen/GAME-MODE", "envpool:ID"), a gymnasium id, a gymnasium environment
    or a function that makes one, a `Tabular`, a `Functional`, or, with that many copies, a `gymnasium.vector.VectorEnv`
    or an `Environment`.
    ConfigError for unknown names, with the nearest known name.
    """
    if isinstance(name_or_env, str):
        return _named(name_or_env, count)
    if isinstance(name_or_env, Tabular):
        return TabularEnvironment(name_or_env, count)
    if isinstance(name_or_env, Environment):
        if name_or_env.count != count:
            raise ConfigError(f"{name_or_env.name} has {name_or_env.count} copies: expected {count}")
        return name_or_env
    if hasattr(name_or_env, "single_observation_space"):
        return _from_vector(name_or_env, count)
    if all(hasattr(name_or_env, part) for part in ("start", "observe", "mask", "step", "spec")):
        return _hosted(name_or_env, count)
    if hasattr(name_or_env, "observation_space") or callable(name_or_env):
        return _from_gymnasium(name_or_env, count)
    raise ConfigError(f"found a {type(name_or_env).__name__}: expected an environment or the name of one")


@cache
def functional(name: str) -> Functional:
    """The functional environment of a name, such as "jax:CartPole-v1" or "jax:treatment".

    ConfigError for unknown names, with the known ones. The same name gives the same object, which reuses its
    compiled code.
    """
    from tidelog.envs.functional_problems import CartPole, Finite, Pendulum, TMaze

    makers: tuple[Callable[[], Functional], ...]
    finite = (treatment, satiation, vault)
    makers = (CartPole, Pendulum, *(lambda world=world: Finite(world()) for world in finite), TMaze)
    if name not in _FUNCTIONAL:
        raise ConfigError(_unknown(name, [], f"functional environments: {', '.join(_FUNCTIONAL)}"))
    return makers[_FUNCTIONAL.index(name)]()


def _hosted(functional: Functional, count: int) -> Environment:
    from tidelog.envs.functional import Hosted

    return Hosted(functional, count)


def _named(name: str, count: int) -> Environment:
    kind, _, path = name.partition(":")
    if kind in _FROM_FILE:
        if not path:
            raise ConfigError(f"{kind} needs a file. fix: write {kind}:PATH")
        return _FROM_FILE[kind](path, count)
    if kind == "envpool":
        from tidelog.envs.pools import pool

        return pool(path, count)
    if name.startswith("ALE/"):
        from tidelog.envs.pools import atari

        return atari(name, count)
    if name.startswith("procgen/"):
        from tidelog.envs.procgen import procgen

        return procgen(name.removeprefix("procgen/"), count)
    if kind == "jax":
        return _hosted(functional(name), count)
    if name in _BUILT_IN:
        return _BUILT_IN[name](count)
    return _from_gymnasium(name, count)


def _from_gymnasium(source: Any, count: int) -> Environment:
    import gymnasium
    from gymnasium import error

    from tidelog.envs.vector import vectorised

    try:
        many = vectorised(source, count) if isinstance(source, str) and count > 1 else None
        return many or _one_by_one(source, count)
    except error.DependencyNotInstalled as missing:
        raise ConfigError(f"{source} needs a package that is not installed: {missing}") from missing
    except (error.Error, ImportError) as broken:
        module, colon, _ = source.partition(":") if isinstance(source, str) else ("", "", "")
        if colon and isinstance(broken, ModuleNotFoundError) and module.replace(".", "_").isidentifier():
            raise ConfigError(
                f"the module '{module}' of the environment {source!r} cannot be imported: {broken}. fix: start in its "
                f"folder, or add --plugin {module}; in Python, put its folder on sys.path"
            ) from broken
        if isinstance(source, str) and source not in gymnasium.registry:
            raise ConfigError(_unknown(source, [*gymnasium.registry], f"gymnasium: {broken}")) from broken
        raise ConfigError(f"gymnasium cannot make {source}: {broken}") from broken


def _one_by_one(source: Any, count: int) -> Environment:
    from tidelog.envs.gym import Gymnasium, ResumableGymnasium, can_save

    maker = _maker(source, count)
    copies = [maker() for _ in range(positive("count", count))]
    kind = ResumableGymnasium if can_save(copies) else Gymnasium
    return kind(iter(copies).__next__, count, source if isinstance(source, str) else None)


def _from_vector(source: Any, count: int) -> Environment:
    from tidelog.envs.vector import VectorGymnasium, freezes_copies

    if source.num_envs != count:
        raise ConfigError(f"{source} has {source.num_envs} copies: expected {count}")
    if freezes_copies(source):
        raise ConfigError(
            f"{source} freezes all other copies in steps that restart one copy, but these steps have rewards. "
            "fix: pass the environment's id; its copies are then stepped one by one"
        )
    return VectorGymnasium(source)


def _maker(source: Any, count: int) -> Callable[[], Any]:
    import gymnasium

    if isinstance(source, str):
        return lambda: gymnasium.make(source)
    if callable(source):
        return source  # type: ignore[no-any-return]
    if getattr(source, "spec", None) is not None:
        return lambda: gymnasium.make(source.spec)
    if count == 1:
        return lambda: source
    raise ConfigError(f"one {type(source).__name__} cannot be copied {count} times. fix: pass a factory function")


def _unknown(name: str, registered: list[str], reason: str) -> str:
    known = sorted({*_BUILT_IN, *_FUNCTIONAL, *(f"{kind}:PATH" for kind in _FROM_FILE), *registered})
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"built in: {', '.join(_BUILT_IN)}"
    return f"there is no environment {name!r}: {hint} ({reason})"
