"""`tidelog --completion SHELL`: a script by which a shell completes commands, algorithms and flags."""

from __future__ import annotations

import importlib
from dataclasses import is_dataclass
from typing import Any, get_type_hints

import tyro

from tidelog.algorithms.names import configured, names
from tidelog.cli import COMMANDS, data, sweep, train
from tidelog.cli.flags import flag_names
from tidelog.errors import ConfigError

SHELLS = ("bash", "zsh", "fish")
BASH = """\
_tidelog() {{
  local key="${{COMP_WORDS[1]}}" current="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if (( COMP_CWORD > 2 )); then
    case "$key" in data|train|sweep) key="$key ${{COMP_WORDS[2]}}" ;; esac
  fi
  if (( COMP_CWORD == 1 )); then key=""; fi
  case "$key" in
{cases}
  esac
  COMPREPLY=( $(compgen -W "$words" -- "$current") )
}}
complete -o default -o bashdefault -F _tidelog tidelog
"""


def script(shell: str) -> str:
    """Return the script for "bash", "zsh" or "fish"; ConfigError for another shell."""
    if shell not in SHELLS:
        raise ConfigError(f"--completion '{shell}': expected {', '.join(SHELLS)}. fix: write --completion bash")
    words = words_by_command()
    if shell == "fish":
        return _fish(words)
    cases = "\n".join(f'    "{key}") words="{" ".join(next_words)}" ;;' for key, next_words in words.items())
    bash = BASH.format(cases=cases)
    return bash if shell == "bash" else f"autoload -U +X compinit bashcompinit && compinit && bashcompinit\n{bash}"


def words_by_command() -> dict[str, list[str]]:
    """The words that may follow a command, such as "train iql"; those after "" are the commands."""
    words = {"": [*COMMANDS, "--help", "--version", "--completion"]}
    from_logs = names("a log")
    words |= {"data": list(data.COMMANDS), "train": names(), "sweep": from_logs}
    for name in data.COMMANDS:
        words[f"data {name}"] = _flags(getattr(data, name.title()))
    for name in names():
        words[f"train {name}"] = _flags(train.flags_of(configured(name)[0]))
    for name in from_logs:
        words[f"sweep {name}"] = _flags(sweep.flags_of(configured(name)[0]))
    for name in COMMANDS:
        if name not in words:
            words[name] = _flags(getattr(importlib.import_module(f"tidelog.cli.{name}"), name.title()))
    return words


def _flags(flags: type[Any]) -> list[str]:
    """The flags of a dataclass of flags; arguments without a flag are left to the shell, which completes files."""
    hints = get_type_hints(flags, include_extras=True)
    is_argument = {name for name, hint in hints.items() if tyro.conf.Positional in getattr(hint, "__metadata__", ())}
    groups = [flags, *(hint for hint in get_type_hints(flags).values() if is_dataclass(hint))]
    positive = [name for group in groups for name in get_type_hints(group) if getattr(group, name, None) is True]
    own = [*(name for name in flag_names(flags) if name not in is_argument), *(f"no_{name}" for name in positive)]
    return [*(f"--{name.replace('_', '-')}" for name in own), "--help", "--version"]


def _fish(words: dict[str, list[str]]) -> str:
    lines = [
        f"complete -c tidelog -n __fish_use_subcommand -f -a {name} -d '{COMMANDS[name].replace(chr(39), '')}'"
        for name in COMMANDS
    ]
    for key, next_words in words.items():
        seen = " and ".join(f"__fish_seen_subcommand_from {word}" for word in key.split()).replace(" and ", "; and ")
        for word in next_words if key else ():
            what = f"-l {word[2:]}" if word.startswith("--") else f"-f -a {word}"
            lines.append(f"complete -c tidelog -n '{seen}' {what}")
    return "\n".join([*lines, ""])
