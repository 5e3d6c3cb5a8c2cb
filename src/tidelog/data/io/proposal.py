"""A proposed mapping of a table, which each inference adds to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tidelog.data.io.table_fields import Field
from tidelog.data.validation.clusters import name_words


@dataclass
class Proposal:
    """A proposed mapping with notes, and the roles of an interaction table if the table looks like one."""

    mapping: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)  # suggested lines of TOML
    interactions: dict[str, str] = field(default_factory=dict)
    interaction_notes: list[str] = field(default_factory=list)  # those of the notes that are about interactions
    actions: list[str] = field(default_factory=list)  # columns of which any may be the action
    own_roles: frozenset[str] = frozenset()  # roles that somebody named
    ends: list[str] = field(default_factory=list)  # flags that are 1 on last rows of episodes only, without a role

    def leave_out(self, name: str) -> None:
        """Take a column, with its next one, out of the observations."""
        position = self.mapping["observation"].index(name)
        for role in ("observation", "next_observation"):
            self.mapping[role] = [one for i, one in enumerate(self.mapping.get(role, ())) if i != position]
        self.mapping["categorical"] = [one for one in self.mapping.get("categorical", ()) if one != name]
        self.mapping["other"] = {one: rows for one, rows in self.mapping.get("other", {}).items() if one != name}
        for role in ("observation", "next_observation", "categorical", "other"):
            if not self.mapping[role]:
                del self.mapping[role]


_SETTINGS = ("actions", "bounds", "categorical", "na_values", "other")


def roles_of(mapping: dict[str, Any]) -> dict[str, str]:
    """Column -> its role in a mapping."""
    listed = {role: [value] if isinstance(value, str) else value for role, value in mapping.items()}
    return {name: role for role, names in listed.items() if isinstance(names, list) and role not in _SETTINGS
            for name in names}  # fmt: skip


def own_columns(named: Iterable[Field], proposal: Proposal, role: str) -> list[Field]:
    """The columns that somebody named for a role, in that order."""
    by_name, names = {one.name: one for one in named}, proposal.mapping[role]
    return [by_name[name] for name in ([names] if isinstance(names, str) else names)]


def unused_columns(
    named: Iterable[Field], proposal: Proposal, belongs: Callable[[list[str], Field], bool]
) -> list[Field]:
    """The columns without a role to which something belongs, by the words of their names and their values."""
    used = roles_of(proposal.mapping)
    return [one for one in named if one.name not in used and belongs(name_words(one.name), one)]
