"""`python -m benchmarks` lists the studies and what each measures; `python -m benchmarks NAME [options]` runs one.

A study is the function `study` of a module of this folder. Its options are those of its signature, and
`python -m benchmarks NAME --help` prints them; what it returns is printed.
"""

import argparse
import ast
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

FOLDER = Path(__file__).parent
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


def studies() -> dict[str, str]:
    """Return the claim of each study, the first lines of a program in this folder, by its name."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("[!_]*.py"))}
    return {
        name: " ".join((ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].split())
        for name, text in texts.items()
        if "\ndef study(" in text
    }


def parser_of(study: Callable[..., Any], name: str, about: str = "") -> argparse.ArgumentParser:
    """Return the command line of a study.

    A parameter before `/` or after `*` is a word, another one an option. Of a sequence the words of the default are
    those that can be chosen, if it has some; a `Literal` names them as well.
    """
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(f"python -m benchmarks {name}", description=about, formatter_class=layout)
    hints = get_type_hints(study)
    for one in inspect.signature(study).parameters.values():
        kind: Any = next(part for part in (get_args(hints[one.name]) or (hints[one.name],)) if part is not NoneType)
        if get_origin(hints[one.name]) is Literal:
            kind = hints[one.name]
        several = get_origin(hints[one.name]) is Sequence or get_origin(kind) is Sequence or one.kind is POSITIONAL[1]
        kind = get_args(kind)[0] if get_origin(kind) is Sequence else kind
        default = None if one.default is one.empty else one.default
        facts: dict[str, Any] = {"default": default, "type": kind}
        if get_origin(kind) is Literal:
            facts |= {"type": type(get_args(kind)[0]), "choices": get_args(kind)}
        elif several and default:
            facts["choices"] = default
        if several or (one.kind in POSITIONAL and one.default is not one.empty):
            facts["nargs"] = "*" if several else "?"
        if one.kind in POSITIONAL:
            parser.add_argument(one.name, **(facts | ({"default": ()} if several else {})))
        elif kind is bool:
            parser.add_argument(f"--{one.name.replace('_', '-')}", action="store_true")
        else:
            required = one.default is one.empty
            parser.add_argument(f"--{one.name.replace('_', '-')}", **facts, required=required, help="(%(default)s)")
    return parser


def run(study: Callable[..., Any], name: str, about: str, words: list[str]) -> Any:
    """Run a study with the words of a command line."""
    given = vars(parser_of(study, name, about).parse_args(words))
    parameters = inspect.signature(study).parameters
    positional = [given.pop(one) for one in parameters if parameters[one].kind is POSITIONAL[0]]
    for one in [one for one in parameters if parameters[one].kind is POSITIONAL[1]]:
        positional += given.pop(one)
    return study(*positional, **given)


def main(words: list[str]) -> int:
    """Run the study that the first word names with the words that follow; list them all without a word."""
    known = studies()
    if not words or words[0] in ("-h", "--help"):
        print(*(f"{name:<24}{claim}" for name, claim in known.items()), sep="\n")
        return 0
    if words[0] not in known:
        near = get_close_matches(words[0], known, 1)
        fix = f"`python -m benchmarks {near[0]}`" if near else "`python -m benchmarks` lists them"
        print(f"benchmarks: no study {words[0]!r}. fix: {fix}", file=sys.stderr)
        return 2
    module = importlib.import_module(f"benchmarks.{words[0]}")
    found = run(module.study, words[0], module.__doc__ or "", words[1:])
    if found is not None:
        print(found if isinstance(found, str) else json.dumps(found, indent=1, default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
