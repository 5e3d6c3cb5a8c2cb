"""`python -m benchmarks` lists the studies and what each measures; `python -m benchmarks NAME [options]` runs one.

`python -m benchmarks NAME --help` prints a study's options, where it has some.
"""

import ast
import runpy
import sys
from difflib import get_close_matches
from pathlib import Path

FOLDER = Path(__file__).parent


def studies() -> dict[str, str]:
    """Return the claim of each study, the first lines of a program in this folder, by its name."""
    texts = {path.stem: path.read_text() for path in sorted(FOLDER.glob("[!_]*.py"))}
    return {
        name: " ".join((ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].split())
        for name, text in texts.items()
        if '__name__ == "__main__"' in text
    }


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
    sys.argv = words
    runpy.run_module(f"benchmarks.{words[0]}", run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
