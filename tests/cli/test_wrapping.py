"""Paragraphs in terminals: lines end between words; nothing changes for a pipe."""

import io

import pytest

from tidelog._text import wrapped

PARAGRAPH = "The policy was compared with the logger on 400 recorded episodes (1,600 decisions), and is better by 0.1. "


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_lines_end_between_words_and_no_word_is_lost():
    text = wrapped(PARAGRAPH * 5, Terminal())
    assert max(map(len, text.split("\n"))) <= 80
    assert text.split() == (PARAGRAPH * 5).split()
    assert len(text.split("\n")) > 5


def test_a_pipe_gets_the_text_as_it_is():
    assert wrapped(PARAGRAPH * 5, io.StringIO()) == PARAGRAPH * 5


def test_indents_and_points_hang():
    lines = wrapped("   " + PARAGRAPH * 2 + "\n- " + PARAGRAPH * 2, Terminal()).split("\n")
    point = next(i for i, line in enumerate(lines) if line.startswith("- "))
    assert all(line.startswith("   ") for line in lines[:point])
    assert all(line.startswith("  ") for line in lines[point + 1 :])


def test_commands_and_paths_stay_whole():
    command = "next: tidelog act runs/iql --data " + "folder/" * 20 + "new.csv --out actions.csv"
    assert wrapped(command, Terminal()) == command
    path = "/".join(["folder"] * 30)
    assert path in wrapped(f"the report is in {path} and can be opened", Terminal()).split()
