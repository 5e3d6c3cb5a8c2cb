"""Make environments from names: built-in problems first, then the ids of gymnasium."""

from __future__ import annotations

import difflib
import importlib
import sys
import traceback
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.envs.protocol import Environment, positive
from tidelog.envs.satiation import satiation
from tidelog.envs.tabular import PointMass, Tabular, TabularEnvironment
from tidelog.envs.treatment import treatment
from tidelog.errors import ConfigError

if TYPE_CHECKING:
    from tidelog.envs.functional import Functional

_FUNCTIONAL = ("jax:CartPole-v1", "jax:Pendulum-v1", "jax:treatment", "jax:satiation")
_BUILT_IN: dict[str, Callable[[int], Environment]] = {
    "treatment": lambda count: TabularEnvironment(treatment(), count),
    "satiation": lambda count: TabularEnvironment(satiation(), count),
    "point-mass": lambda count: PointMass(count),
}


def make(name_or_env: Any, count: int = 1) -> Environment:
    """Make `count` copies of an environment, stepped together.

    Accepts a built-in name ("treatment", "satiation", "point-mass", "jax:..." for a functional environment), a
    gymnasium id, a gymnasium environment or a function that makes one, a `Tabular`, a `Functional`, or, with that many
    copies, a `gymnasium.vector.VectorEnv` or an `Environment`. A function may make a `VectorEnv`, too.
    ConfigError for unknown names, with the nearest known name.

    Example:
        >>> from tidelog.envs import make
        >>> environment = make("treatment", 4)  # four copies
        >>> observed = environment.reset(seed=0)
        >>> environment.step(np.zeros(4, np.int32)).reward.shape
        (4,)
    """
    if isinstance(name_or_env, str):
        return _named(name_or_env, count)
    if isinstance(name_or_env, Tabular):
        return TabularEnvironment(name_or_env, count)
    if isinstance(name_or_env, Environment):
        if name_or_env.count != count:
            raise ConfigError(f"{name_or_env.name} has {name_or_env.count} copies", f"{count}")
        return name_or_env
    if hasattr(name_or_env, "single_observation_space"):
        return _from_vector(name_or_env, count)
    if all(hasattr(name_or_env, part) for part in ("start", "observe", "mask", "step", "spec")):
        return _hosted(name_or_env, count)
    if hasattr(name_or_env, "observation_space") or callable(name_or_env):
        return _from_gymnasium(name_or_env, count)
    raise ConfigError(f"found a {type(name_or_env).__name__}", "an environment or the name of one")


def is_one_object(env: Any) -> bool:
    """Whether `make` steps this object itself, so that two members would step one simulator."""
    if isinstance(env, Environment) or hasattr(env, "single_observation_space"):
        return True
    return hasattr(env, "observation_space") and not callable(env) and getattr(env, "spec", None) is None


def module_of(name: str) -> str | None:
    """The module that registers an environment, such as `my_module` of "my_module:Steer-v0"; None without one."""
    module, colon, _ = name.partition(":")
    is_kind = module == "jax"
    return module if colon and not is_kind and all(part.isidentifier() for part in module.split(".")) else None


def check_imported(names: Iterable[str], command: str) -> None:
    """Raise ConfigError where the module of an environment's name in a file is not imported yet.

    A file must not decide which modules run: the user names the module again, with `command` or by importing it.
    """
    for name in names:
        module = module_of(name)
        if module is not None and module not in sys.modules:
            raise ConfigError(
                f"the run's environment {name!r} is of the module '{module}', which a run folder does not "
                "import by itself",
                fix=f"`{command}`; in Python, `import {module}` first",
            )


@cache
def functional(name: str) -> Functional:
    """The functional environment of a name, such as "jax:CartPole-v1" or "jax:treatment".

    ConfigError for unknown names, with the known ones. The same name gives the same object, which reuses its
    compiled code.
    """
    from tidelog.envs.functional import CartPole, Finite, Pendulum

    makers: tuple[Callable[[], Functional], ...] = (
        CartPole, Pendulum, lambda: Finite(treatment()), lambda: Finite(satiation()),
    )  # fmt: skip
    if name not in _FUNCTIONAL:
        raise _unknown(name, [], f"functional environments: {', '.join(_FUNCTIONAL)}")
    return makers[_FUNCTIONAL.index(name)]()


def _hosted(functional: Functional, count: int) -> Environment:
    from tidelog.envs.functional import HostedCopies

    return HostedCopies(functional, count)


def _named(name: str, count: int) -> Environment:
    kind = name.partition(":")[0]
    if name.startswith("ALE/"):
        from tidelog.envs.gym import atari

        return atari(name, count)
    if kind == "jax":
        return _hosted(functional(name), count)
    if name in _BUILT_IN:
        return _BUILT_IN[name](count)
    return _from_gymnasium(name, count)


def _from_gymnasium(source: Any, count: int) -> Environment:
    import gymnasium
    from gymnasium import error

    from tidelog.envs.gym import vectorised

    module = module_of(source) if isinstance(source, str) else None
    if module is not None:
        import_module(module, source)
    try:
        many = vectorised(source, count) if isinstance(source, str) and count > 1 else None
        return many or _one_by_one(source, count)
    except error.DependencyNotInstalled as missing:
        raise ConfigError(f"{source} needs a package that is not installed: {missing}") from missing
    except (error.Error, ImportError) as broken:
        if module is not None and source.partition(":")[2] not in gymnasium.registry:
            raise _unknown(source, _of_module(module), "") from broken
        if module is None and isinstance(source, str) and source not in gymnasium.registry:
            raise _unknown(source, [*gymnasium.registry], f"gymnasium: {broken}") from broken
        raise ConfigError(f"gymnasium cannot make {source}: {broken}") from broken


def import_module(module: str, source: str) -> None:
    """Import the module of an environment; ConfigError where it does not exist, or where its own code raises."""
    try:
        importlib.import_module(module)
    except Exception as error:  # whatever another author's module raises
        name = getattr(error, "name", None)
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{name}."):
            raise _no_module(module, source) from error
        if isinstance(error, SyntaxError):
            file, line, problem = error.filename, error.lineno, f"SyntaxError: {error.msg}"
        else:
            frames = [one for one in traceback.extract_tb(error.__traceback__) if "importlib" not in one.filename]
            file, line, problem = frames[-1].filename, frames[-1].lineno, f"{type(error).__name__}: {error}"
        fix = "correct the module"
        if isinstance(error, ModuleNotFoundError):
            problem, fix = f"the package '{name}' is not installed", f"install {name}, or correct the module"
        raise ConfigError(
            f"the module '{module}' of the environment {source!r} fails in line {line} of {file}: {problem}", fix=fix
        ) from error


def _no_module(module: str, source: str) -> ConfigError:
    """The error for a module that does not exist, with the nearest of the working folder."""
    here = [path.stem for path in Path().glob("*.py")] + [path.parent.name for path in Path().glob("*/__init__.py")]
    close = difflib.get_close_matches(module, here, n=1)
    fix = "start in the folder of the module; in Python, put its folder on sys.path"
    if close:
        fix = f"did you mean '{close[0]}:{source.partition(':')[2]}'? This folder has the module '{close[0]}'"
    return ConfigError(f"the environment {source!r} names the module '{module}', which does not exist here", fix=fix)


def _of_module(module: str) -> list[str]:
    """The ids that gymnasium knows, with the module in front where gymnasium does not bring them."""
    import gymnasium

    ids = []
    for name, spec in gymnasium.registry.items():
        entry = spec.entry_point
        origin = entry if isinstance(entry, str) else getattr(entry, "__module__", "")
        ids.append(name if origin.startswith("gymnasium.") else f"{module}:{name}")
    return ids


def _one_by_one(source: Any, count: int) -> Environment:
    from tidelog.envs.gym import Gymnasium, ResumableGymnasium, can_save

    maker = _maker(source, positive("count", count))
    first = maker()
    if hasattr(first, "single_observation_space"):  # a function that makes a vector environment
        return _from_vector(first, count)
    copies = [first, *(maker() for _ in range(count - 1))]
    kind = ResumableGymnasium if can_save(copies) else Gymnasium
    return kind(iter(copies).__next__, count, source if isinstance(source, str) else None)


def _from_vector(source: Any, count: int) -> Environment:
    from tidelog.envs.gym import VectorGymnasium, freezes_copies

    if source.num_envs != count:
        raise ConfigError(f"{source} has {source.num_envs} copies", f"{count}")
    if freezes_copies(source):
        raise ConfigError(
            f"{source} freezes all other copies in steps that restart one copy, but these steps have rewards",
            fix="pass the environment's id; its copies are then stepped one by one",
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
    raise ConfigError(f"one {type(source).__name__} cannot be copied {count} times", fix="pass a factory function")


def _unknown(name: str, registered: list[str], reason: str) -> ConfigError:
    known = sorted({*_BUILT_IN, *_FUNCTIONAL, *registered})
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"built in: {', '.join(_BUILT_IN)}"
    if name.isidentifier() and Path(f"{name}.py").exists():
        found = f"there is no environment {name!r}: {name}.py is a module in this folder"
        return ConfigError(found, fix=f"name an environment that it registers ({name}:MyEnv-v0)")
    own = "" if ":" in name else f", or name the module that registers an environment of your own (MODULE:{name})"
    found = f"there is no environment {name!r}: {hint}{f' ({reason})' if reason else ''}"
    return ConfigError(found, fix=f"correct the name{own}")
