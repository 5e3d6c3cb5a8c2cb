"""Fuzz every reader: damaged files give a log, a report or an error of tidelog, soon, and with little memory.

    python -m benchmarks fuzz_readers --seconds 600          # pieces over all readers; they add up
    python -m benchmarks fuzz_readers --readers csv npz --inputs 5000

Inputs are mutated from small valid files: by structure (JSON values, names, sizes, members of archives, columns of
tables, data sets of HDF5, manifests with repaired checksums) and by bytes, guided by coverage of tidelog where
`atheris` is installed. A child process reads many inputs one after another, with 1 GB of address space beyond its start
and 10 processor seconds an input. A finding is any exception that is not a TidelogError, a report that contradicts its
log, a changed policy with a valid signature, a slow input, or the end of the process. An input that was read before, in
any piece of this work folder, is neither read nor counted again. The
shortest input of each finding is in `findings` of the work folder, under the name that it needs in tests/data/corpus.
Results, with the version and the checksum of the source that each batch of seeds was read by:
benchmarks/results/fuzz_readers.json.
"""

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tidelog
from benchmarks.fuzz_child import child, keep_input
from benchmarks.fuzz_formats import READERS
from benchmarks.fuzz_mutations import files_in, packed
from benchmarks.keep import RESULTS as FOLDER
from benchmarks.keep import known
from benchmarks.spread import words_of
from tidelog._machine import this_machine

RESULTS = FOLDER / "fuzz_readers.json"
COMMAND = "python -m benchmarks fuzz_readers --seconds 600"
SHARED_MEMORY = Path("/dev/shm")
SILENT = 30.0  # processor seconds on the same input until the child is killed


def processor_seconds(process: int) -> float:
    """What a process has used, 0 if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_piece(name: str, base: Path, inputs: int, seconds: float, seed: int) -> dict[str, Any]:
    """Run one child, and add the end of its process to the findings if it was not orderly."""
    work = base / name.replace(" ", "_")
    (work / "seeds").mkdir(parents=True, exist_ok=True)
    if not any((work / "seeds").iterdir()):
        with tempfile.TemporaryDirectory() as made:
            READERS[name].seed(Path(made))
            (work / "seeds" / "0").write_bytes(packed(files_in(Path(made))))
    for path in (work / "state.json", work / "input"):
        path.unlink(missing_ok=True)
    words = words_of(child, name, str(work), inputs, seconds, seed)
    last, used = 0.0, 0.0  # when the last input began, and what the child had used then
    with (work / "messages").open("wb") as messages:
        process = subprocess.Popen(words, stdout=messages, stderr=messages)
        while process.poll() is None:
            time.sleep(0.5)
            now = (work / "input").stat().st_mtime if (work / "input").exists() else 0.0
            if now != last:
                last, used = now, processor_seconds(process.pid)
            elif now and (processor_seconds(process.pid) - used > SILENT or time.time() - now > 20 * SILENT):
                process.kill()
                process.wait()
    empty: dict[str, Any] = {"inputs": 0, "repeats": 0, "processor": 0.0, "counts": {}, "findings": {}}
    state = json.loads((work / "state.json").read_text()) if (work / "state.json").exists() else empty
    if process.returncode and (work / "input").exists():
        key = f"the process ended with {process.returncode}"
        state["findings"][key] = 1
        keep_input(work, name, key, (work / "input").read_bytes())
    elif process.returncode:
        raise SystemExit((work / "messages").read_text())
    for folder in work.glob("tmp*"):
        shutil.rmtree(folder, ignore_errors=True)
    return state


def source_checksum() -> str:
    """A checksum of tidelog's source, to tell which program read the inputs."""
    total, root = hashlib.sha256(), Path(tidelog.__file__).parent
    for path in sorted(root.rglob("*.py")):
        total.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()[:16]


def add(results: dict[str, Any], name: str, state: dict[str, Any], seconds: float, seed: int, batch: Any) -> None:
    """Add a piece to the batch of its reader that the same program has read, and keep the results."""
    batches = results["readers"].setdefault(name, [])
    one = next((one for one in batches if all(one[key] == value for key, value in batch.items())), None)
    if one is None:
        one = {**batch, "inputs": 0, "repeats": 0, "processor": 0.0, "seconds": 0.0, "counts": {}, "findings": {},
               "seeds": []}  # fmt: skip
        batches.append(one)
    for part in ("inputs", "repeats", "processor"):
        one[part] = round(one[part] + state[part], 1)
    one["seconds"] = round(one["seconds"] + seconds, 1)
    one["seeds"].append(seed)
    for part in ("counts", "findings"):
        for key, count in state[part].items():
            one[part][key] = one[part].get(key, 0) + count
    results["inputs"] = sum(one["inputs"] for batches in results["readers"].values() for one in batches)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def study(
    readers: Sequence[str] = tuple(READERS),
    inputs: int = 50_000,
    piece: float = 30.0,
    seconds: float = 0.0,
    seed: int | None = None,
    work: Path | None = None,
) -> None:
    """Read pieces of at most so many inputs and processor seconds, reader after reader, for so many seconds."""
    shared = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    base = work or shared / "tidelog-fuzz"
    guided = importlib.util.find_spec("atheris") is not None
    batch = {"tidelog": tidelog.__version__, "source": source_checksum(), "guided by coverage": guided}
    results = {"command": COMMAND, "machine": this_machine(), "readers": {}, **known("fuzz_readers")}
    end = time.time() + seconds
    while True:
        for name in readers:
            used = [number for one in results["readers"].get(name, ()) for number in one["seeds"]]
            number = seed if seed is not None else max(used, default=0) + 1
            begun = time.time()
            state = run_piece(name, base, inputs, piece, number)
            add(results, name, state, time.time() - begun, number, batch)
            rate = state["inputs"] / max(0.1, state["processor"])
            print(
                f"{name}: {state['inputs']:,} inputs, {rate:.0f} a processor second, {state['repeats']:,} repeated, "
                f"{state['findings'] or 'nothing found'}; {results['inputs']:,} in all",
                flush=True,
            )
            if seconds and time.time() > end:
                return
        if time.time() > end:
            return
