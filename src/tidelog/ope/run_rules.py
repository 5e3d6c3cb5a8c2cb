"""The simple rules of a run: learnt from its training episodes once, and stored in its folder, one JSON file each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidelog.data.log import Log
from tidelog.data.sources.files import source_text
from tidelog.disk import write_folder
from tidelog.errors import CheckpointError, ConfigError, LogError
from tidelog.ope.rules import CONSTANT, TREE, has_rules, simple_rules
from tidelog.policies.declared import as_declared
from tidelog.recommend.interactions.readers import reopen_any
from tidelog.runtime.rule import RULE, Rule, load_rule
from tidelog.training.runs.episode_split import EpisodeSplit
from tidelog.training.runs.record import Record

FOLDER = "rules"
FILES = {CONSTANT: "constant.json", TREE: "tree.json"}
WORDS = {"constant": CONSTANT, "tree": TREE}  # of commands


def rules_of_run(folder: Path, record: Record, log: Any = None) -> dict[str, Rule]:
    """The simple rules of a run by their names; they act as they were judged, if they were.

    They are read from the run's folder. If it has none, they are learnt from the run's training episodes and stored;
    `log` is the run's log if it is open already. Raises ConfigError for actions without rules, ConfigError and LogError
    where the log is absent or has changed.
    """
    where = folder / FOLDER
    if not where.is_dir():
        rules = _learnt(folder, record, log)
        files = {FILES[name]: RULE.text(rule.manifest, {}) for name, rule in rules.items()}
        write_folder(where, files, lambda _: {}, CheckpointError)
    stored = {name: load_rule(where / file) for name, file in FILES.items() if (where / file).exists()}
    return {name: as_declared(folder, rule) for name, rule in stored.items()}


def rule_of_run(folder: Path, word: str) -> Rule:
    """The rule of a run that a command names; where no question is worth asking, the tree is the single action.

    Raises ConfigError for another word than `constant` or `tree`, and as `rules_of_run`.
    """
    name, rules = rule_name(word), rules_of_run(folder, Record.read(folder))
    return rules.get(name) or rules[CONSTANT]


def rule_name(word: str) -> str:
    """The name of the rule of a word; ConfigError for another word than `constant` or `tree`."""
    if word not in WORDS:
        raise ConfigError(f"--rule {word}: expected one of {', '.join(WORDS)}. fix: use --rule tree")
    return WORDS[word]


def _learnt(folder: Path, record: Record, log: Any) -> dict[str, Rule]:
    if not has_rules(record.spec):
        raise ConfigError(f"{folder} has no simple rules: they choose one of at most 20 actions. fix: drop --rule")
    if log is None or log.fingerprint() != record.data.fingerprint:
        origin: Any = record.data.origin
        if origin is None:
            raise ConfigError(
                f"the log of {folder} was in memory only, and simple rules learn from it. fix: drop --rule"
            )
        log = reopen_any(origin)
        if log.fingerprint() != record.data.fingerprint:
            raise LogError(
                f"{source_text(origin)} is no longer the log that {folder} was trained on: its content has changed. "
                "fix: restore it"
            )
    if not isinstance(log, Log):
        raise ConfigError(f"{folder} learnt from interactions, which have counting rules. fix: drop --rule")
    options = record.options
    part = EpisodeSplit(log, options.held_out, options.split_seed, options.selection_share, options.data_share)
    return simple_rules(part.training_log, seed=options.seeds[0], origin=record.origin(run=folder.name))
