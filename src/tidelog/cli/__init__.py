"""The command line: modules of commands, imported when a command runs.

Exit codes: 0 done, 1 unexpected error, 2 invalid input, 3 gate closed, 4 stopped by a failure, also of the disk
(what was saved can be resumed), 130 and 143 interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import tidelog
from tidelog._machine import import_without_gc
from tidelog._text import one_line, wrapped
from tidelog.errors import (
    ConfigError,
    DivergenceError,
    EnvironmentFailure,
    LogError,
    ProcessError,
    TidelogError,
    nearest,
)

COMMANDS = {
    "demo": "a complete example on a log that it creates",
    "log": "inspect, check or convert a log",
    "train": "learn a policy from a log or in an environment, anew, from a run, or like a run",
    "resume": "continue an interrupted run or sweep",
    "sweep": "train with many settings, and compare them",
    "evaluate": "play a run's policies, or compare them with a log",
    "judge": "decide whether to trust a policy before anyone uses it",
    "explain": "why a verdict decides as it does: its checks, with their numbers",
    "plan": "how many more episodes, or which exploration, would show an effect",
    "report": "one HTML page about runs: verdict, curves, returns, estimates, settings",
    "act": "actions for new rows, or lists of items for users",
    "export": "write a policy as a folder, a zip or ONNX, for other programs",
    "verify": "check a saved policy: its files, its signature, where it is from",
    "serve": "answer observations over HTTP",
    "collect": "play an environment and save the log",
}
OLD = {  # commands of earlier versions, and what they are now
    "data inspect": "log inspect",
    "data validate": "log check",
    "data convert": "log convert",
    "data": "log",
    "finetune": "train --from",
    "refit": "train --like",
    "recommend": "act",
}
HOMES = {  # of commands that are not `run` of the module of their name
    "collect": ("evaluate", "run_collect"),
    "explain": ("report", "run_explain"),
    "plan": ("judge", "run_plan"),
}
PLUGIN = "--plugin"
PROCESSES = ("--processes", "--coordinator", "--rank")
ENVIRONMENTS = ("--env", "--evaluate")
INTERRUPTED = "tidelog: interrupted"
LONGEST_NAME = 100  # characters of a file name in an error


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    shown_by_python, warnings.showwarning = warnings.showwarning, _show_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a pipe may have an encoding without the letters of a log
            stream.reconfigure(errors="backslashreplace")
    try:
        if any(word.startswith(PROCESSES) for word in words):  # what they lose is said once, by tidelog
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        code = _dispatch(_without_plugins(words))
        if sys.stdout is not None:  # a service may have closed it
            sys.stdout.flush()
        return code
    except TidelogError as error:
        reported = isinstance(error, LogError) and error.report is not None
        text = str(error) if reported else one_line(str(error))  # a value of a file makes no line of its own
        _print_error(f"tidelog: {text}")
        if isinstance(error, ProcessError):
            importlib.import_module("tidelog.cli.train").leave(4)
        return 4 if isinstance(error, DivergenceError | EnvironmentFailure | ProcessError) else 2
    except KeyboardInterrupt:
        _print_error(INTERRUPTED)
        return 130
    except SystemExit as leaving:  # 143 after SIGTERM; 2 and 0 come from tyro, which has printed the reason
        if leaving.code == 143:
            _print_error(INTERRUPTED)
        raise
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as error:
        return _failed(error)
    finally:
        warnings.showwarning = shown_by_python


ADVICE = {
    errno.ENOSPC: "free some space, then run the command again (`tidelog resume` goes on with a run)",
    errno.EDQUOT: "free some space, then run the command again (`tidelog resume` goes on with a run)",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EACCES: "choose a place where you may read and write",
    errno.EROFS: "choose a place that can be written",
}


def _print_error(text: str) -> None:
    """Print to standard error; that nobody reads it any more changes no exit code."""
    with contextlib.suppress(BrokenPipeError):
        print(wrapped(text, sys.stderr), file=sys.stderr)  # noqa: T201


def _failed(error: OSError) -> int:
    """Print what the operating system refused, and return the exit code; output that is left is dropped."""
    where = "" if error.filename is None else f" ({str(error.filename)[:LONGEST_NAME]!r})"
    advice = ADVICE.get(error.errno or 0, "look at the disk and the folder, then run the command again")
    text = f"tidelog: {error.strerror or error}{where}. fix: {advice}"
    if isinstance(sys.stdout, TextIOWrapper):
        try:
            sys.stdout.flush()
        except OSError:  # what its buffer holds would be written, and refused, again when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _print_error(text)
    return 2 if error.errno == errno.ENAMETOOLONG else 4


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Print a warning of tidelog as one line; another one with its place in the source."""
    own = category.__module__.split(".")[0] == tidelog.__name__
    if own or (category is UserWarning and Path(filename).is_relative_to(Path(tidelog.__file__).parent)):
        print(wrapped(f"tidelog: warning: {message}", sys.stderr), file=sys.stderr)  # noqa: T201
    else:
        print(warnings.formatwarning(message, category, filename, lineno, line), end="", file=sys.stderr)  # noqa: T201


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        commands = [f"  tidelog {name:<10} {what}" for name, what in COMMANDS.items()]
        print("tidelog learns to act from a log, and reports how far the result can be trusted.", "", *commands, "",  # noqa: T201
              "`tidelog COMMAND --help` shows the common flags, `--help-all` all; start with `tidelog demo`.",
              "`--plugin MODULE` imports a module of yours that registers algorithms; it works with every command.",
              "`tidelog --version` prints the version.", sep="\n")  # fmt: skip
        return 0
    if "--version" in words:
        print(f"tidelog {tidelog.__version__}")  # noqa: T201
        return 0
    command = words[0]
    if command not in COMMANDS:
        for old, new in OLD.items():
            if words[: len(old.split())] == old.split():
                rest = words[len(old.split()) :]
                run = ["RUN"] if new.startswith("train") and (not rest or rest[0].startswith("-")) else []
                now = shlex.join(["tidelog", *new.split(), *run, *rest])
                raise ConfigError(f"`tidelog {old}` is now `tidelog {new}`", fix=f"`{now}`")
        raise ConfigError(f"no command '{command}': {nearest(command, COMMANDS)}")
    module, function = HOMES.get(command, (command, "run"))
    code: int = getattr(import_without_gc(f"tidelog.cli.{module}"), function)(words[1:])
    return code


def _without_plugins(words: list[str]) -> list[str]:
    """Import the modules after every `--plugin` and return the other words; ConfigError where one fails.

    A module that `--env` or `--evaluate` names is found in the working folder too.
    """
    rest, plugins, flag = [], [], ""
    for word in words:  # such as `--env my_module:MyEnv-v0`; `--evaluate` takes several names
        if word.startswith("--"):
            flag, _, word = word.partition("=")
        module, colon, _ = word.removeprefix("sampled:").partition(":")
        path = Path(*module.split("."))
        if flag in ENVIRONMENTS and colon and (path.with_suffix(".py").is_file() or path.is_dir()):
            sys.path.insert(0, str(Path.cwd()))
            break
    given = iter(words)
    for word in given:
        if word == PLUGIN or word.startswith(f"{PLUGIN}="):
            plugins.append(word[len(PLUGIN) + 1 :] or next(given, ""))
        else:
            rest.append(word)
    if plugins:
        sys.path.insert(0, str(Path.cwd()))  # the console script does not look there, `python -m tidelog` does
        algorithms = importlib.import_module("tidelog.algorithms.names")
        for plugin in plugins:
            algorithms.load_plugin(plugin)
    return rest
