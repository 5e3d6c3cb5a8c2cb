"""The help of every command: it fits a terminal, says what each value is, and has one name for one thing."""

import dataclasses
import re

import pytest

from tests.cli.conftest import Done
from tidelog.algorithms.hyperparameters import MAIN, field, groups_of, hyperparameters
from tidelog.algorithms.names import ALGORITHMS, configured
from tidelog.cli import COMMANDS
from tidelog.cli.flags import parse, verb_flags
from tidelog.cli.train import LogFlags

HELPS = [
    *([name] for name in COMMANDS if name not in ("log", "train")),
    *(["log", name] for name in ("inspect", "check", "convert")),
    *(["train", name] for name in ALGORITHMS),
]
SHOWN = ("iql", "ppg", "recommender-bcq")
TYPES = re.compile(r"\b(STR|INT|FLOAT|BOOL|TUPLE|None)\b|\{None\}")
FLAG = re.compile(
    r"^  (--?[a-z]\S*.*?|[A-Z]\S*(?: \[.+\])?)(?:  +(\S.*))?$"
)  # its words, and its text if that is in the same line


def plain(text):
    """A help page with headings and indents in place of boxes, whatever the terminal can draw."""
    text = re.sub(r"^╭─ (.+?) ─*╮$", r" \1\n ---", text, flags=re.MULTILINE)
    text = re.sub(r"^│ (.*?) *│$", r"  \1", text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in re.sub(r"^╰─*╯$", "", text, flags=re.MULTILINE).splitlines())


def rows(text):
    """The words of every flag and argument in a help page, each with its description."""
    found, begun = [], False
    for line in text.splitlines():
        begun = begun or line.startswith(" ---")
        flag = FLAG.match(line)
        if flag and begun:
            found.append([flag[1], flag[2] or ""])
        elif line.startswith("    ") and found:
            found[-1][1] += " " + line.strip()
    return [(words, text.strip()) for words, text in found]


@pytest.fixture
def page(tidelog, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def get(words, help="--help-all") -> Done:
        done = tidelog(*words, help)
        assert done.code == 0, done.err
        return done._replace(out=plain(done.out))

    return get


@pytest.mark.sample(
    *(" ".join(one) for one in HELPS if one[0] != "train" or one[1] in ("iql", "ppg", "recommender-bcq"))
)
@pytest.mark.parametrize("words", HELPS, ids=" ".join)
def test_every_flag_says_what_it_is(words, page):
    text = page(words).out
    assert f"usage: tidelog {' '.join(words)}" in " ".join(text.split())
    assert [flag in text for flag in ("--quiet", "--json")] == [True, words != ["serve"]], "serve runs until it ends"
    assert max(len(line) for line in text.splitlines() if not line.startswith("usage:")) <= 80
    found = rows(text)
    assert ("-h, --help", "show this help message and exit") in found
    assert ("--version", "print the version of tidelog") in found
    assert not any(flag.startswith("--preset") and "None" in flag for flag, _ in found)
    for flag, description in found:
        assert re.sub(r"\(.*\)", "", description).strip(), f"{flag} has no description"
        value = re.sub(r"\|None\b", "", flag.split(" ", 1)[1]) if " " in flag and "--" in flag else flag
        assert not TYPES.search(value), flag
        assert "(default: )" not in description
    for flag in ("--log", "--format", "--deterministic"):
        assert not any(flag in one.split() for one, _ in found)


SHORT = {"train iql": 20, "train discrete-bcq": 20, "train ppg": 20, "judge": 18, "sweep": 20}


@pytest.mark.parametrize("command", SHORT)
def test_help_shows_the_common_flags_and_says_how_many_more_there_are(command, page):
    text = page(command.split(), "--help").out
    common, every = rows(text), rows(page(command.split()).out)
    assert len(common) <= SHORT[command] < len(every)
    assert {flag for flag, _ in common} <= {flag for flag, _ in every}
    assert f"`tidelog {command} --help-all` shows {len(every) - len(common)} more flags." in " ".join(text.split())


def test_every_hyper_parameter_has_its_help():
    fields = [one for name in ALGORITHMS for group in groups_of(configured(name)[0]).values() for one in group]
    assert [one.name for one in fields if not one.metadata["help"]] == []


def test_groups_come_from_declarations():
    """A hyper-parameter is where its declaration puts it, whatever its name, also if it is the name of a group."""

    @hyperparameters
    class Own:
        plain: float = 1.0
        value: float = field(2.0, help="h", group="odd")
        odd: int = field(3, help="h", group=MAIN)

    flags = verb_flags("fit", LogFlags, groups_of(Own), seeds=7)
    nested = [one.name for one in dataclasses.fields(flags) if one.name.endswith("_options")]
    assert nested == ["main_options", "algorithm_options", "odd_options", "run_options"]
    options = parse(flags, ["--data", "a", "b", "--data", "c", "--odd", "5", "--value", "0.5"], "train own")
    assert (options.odd, options.value, options.plain, options.seeds) == (5, 0.5, 1.0, 7)
    assert options.data == (("a", "b"), ("c",))
    assert parse(flags, ["--data", "a"], "train own", {"value": 0.25}).value == 0.25
