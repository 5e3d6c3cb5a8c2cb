"""Every value of every JSON file that tidelog reads back, deleted or changed: read, or refused by its own error."""

import itertools

import pytest

from tests import saved_files
from tests.saved_files import FILES, outcome, texts
from tidelog import ConfigError
from tidelog._files import parse_saved
from tidelog.errors import CheckpointError
from tidelog.schema import decode
from tidelog.sinks import read_rows
from tidelog.training.record import CheckpointFields

SAMPLE = {"run.json": 331, "checkpoint": 41, "log": 97, "ledger": 29, "acting.json": 31}  # one change of so many
# one of so many in the full tier, which then takes three minutes of a processor; of the other files every change
FULL_SAMPLE = {"run.json": 5, "run.json, played": 8, "checkpoint, played": 2, "policy": 2, "best policy": 2}


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    root = tmp_path_factory.mktemp("samples")
    saved_files.write_samples(root)
    return root


def check(name, samples, work, step=1, first=0):
    file = FILES[name]
    assert outcome(file, samples, (samples / file.path).read_text(), work) == "read"
    counts = {"read": 0, "refused": 0}
    for change, text in itertools.islice(texts(file, samples), first, None, step):
        found = outcome(file, samples, text, work)
        assert found in counts, f"{file.path}, {change}: {found}"
        counts[found] += 1
    assert counts["refused"] > counts["read"] / 4
    return counts


@pytest.mark.parametrize("name", SAMPLE)
def test_some_changes_are_read_or_refused(name, samples, tmp_path):
    check(name, samples, tmp_path / "work", SAMPLE[name], first=5)


@pytest.mark.full
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2, 3))])
@pytest.mark.parametrize("name", FILES)
def test_every_change_is_read_or_refused(name, part, samples, tmp_path):
    each = FULL_SAMPLE.get(name, 1)
    check(name, samples, tmp_path / "work", 4 * each, part * each)


GOOD = '{"position": [0, 0, 0], "memory": {"best": {"0": 1.5}, "waited": {"0": 2}}, "metrics": {"metrics.jsonl": 3}}'


def test_a_record_is_decoded_without_conversions():
    fields = decode(GOOD, CheckpointFields, "manifest.json")
    assert fields.memory.best == {0: 1.5}
    assert fields.position == (0, 0, 0)


@pytest.mark.parametrize(("old", "new", "said"), [
    ("[0, 0, 0]", '[0, "0", 0]', r"manifest.json: position\[1\]: Expected `int`, got `str`\. fix: restore the file"),
    ("[0, 0, 0]", "[0, -1, 0]", "position"),
    ("[0, 0, 0]", "[0, 1.0, 0]", "position"),
    ("[0, 0, 0]", "[0, true, 0]", "position"),
    ('"metrics": {"metrics.jsonl": 3}', '"x": 1', "required field `metrics`"),
    ("1.5", "NaN", "not finite"),
    ("1.5", "1e999", "not finite"),
    ("1.5", "1e305", "best"),
    ("3}}", "30000000000000000000}}", "beyond 64 bits"),
    ('"0": 1.5', '"0": 1.5, "0": 1.5', "the key '0' is repeated"),
])  # fmt: skip
def test_the_error_names_file_field_and_fix(old, new, said):
    assert old in GOOD
    with pytest.raises(CheckpointError, match=said) as error:
        decode(GOOD.replace(old, new), CheckpointFields, "manifest.json")
    assert "manifest.json" in str(error.value)
    assert ". fix: restore the file" in str(error.value)
    with pytest.raises(ConfigError, match="fix: go"):
        decode(GOOD.replace(old, new), CheckpointFields, "manifest.json", ConfigError, "go")


def test_saved_numbers_may_be_nan_where_they_were_written_so():
    assert parse_saved("[NaN, 18446744073709551615]", nan=True)[1] == 2**64 - 1
    with pytest.raises(ValueError, match="beyond 64 bits"):
        parse_saved("[-9223372036854775809]", nan=True)


def test_a_repeated_metric_is_refused(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"update": 1, "member": 0, "seed": 0, "loss": NaN, "loss": 1.0}\n')
    with pytest.raises(CheckpointError, match="repeated"):
        read_rows(path, 10)
