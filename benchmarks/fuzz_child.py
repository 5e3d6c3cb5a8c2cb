"""The process of `benchmarks/fuzz_readers.py` that reads inputs one after another, and notes what came of them."""

import contextlib
import gc
import hashlib
import importlib.util
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.fuzz_mutations import SEEDS, Files, mutated, unpacked, write_files

BEYOND, SLOWEST = 1 << 30, 10.0  # bytes; processor seconds an input
LONGEST = 1 << 16  # bytes of an input
SAVED_EVERY = 100
REPEATS = 20  # inputs in a row that were read before, on average, until a piece ends


class SlowInput(BaseException):  # no reader may catch it
    """An input took longer than it may."""


class Child:
    """Reads the inputs of one reader in a scratch folder, until it has read `inputs` or used `seconds` of processor."""

    def __init__(self, name: str, reader: Any, work: Path, inputs: int, seconds: float) -> None:
        self.name, self.reader, self.work, self.inputs, self.seconds = name, reader, work, inputs, seconds
        self.counts, self.findings = Counter[str](), Counter[str]()
        self.seen, self.repeats, self.from_second = 0, 0, 0.0
        self.scratch = Path(tempfile.mkdtemp(dir=work))
        self.known_file = (work / "known").open("a+b")
        self.known_file.seek(0)
        content = self.known_file.read()
        self.known = {content[at : at + 8] for at in range(0, len(content), 8)}

    def begin(self) -> None:
        """Allow a little more memory than now, and count time from now; what is loaded is collected no more."""
        gc.collect()
        gc.freeze()
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + BEYOND, size + BEYOND))
        self.from_second = time.process_time()

    def one(self, data: bytes) -> None:
        """Read an input, unless it was read before."""
        key, files = hashlib.blake2b(data, digest_size=8).digest(), unpacked(data)
        if not files or key in self.known:
            self.repeats += 1
            if self.repeats > REPEATS * (self.seen + SAVED_EVERY):
                self.end()
            return
        self.known.add(key)
        self.known_file.write(key)
        (self.work / "input").write_bytes(data)
        found = outcome(self.reader, files, self.scratch)
        self.seen += 1
        self.counts[found if found in ("valid", "caught") else "finding"] += 1
        if found not in ("valid", "caught"):
            self.findings[found] += 1
            keep_input(self.work, self.name, found, data)
        if self.seen >= self.inputs or time.process_time() - self.from_second > self.seconds:
            self.end()
        if self.seen % SAVED_EVERY == 0:
            self.save()

    def save(self) -> None:
        self.known_file.flush()
        state = {"inputs": self.seen, "repeats": self.repeats, "counts": self.counts, "findings": self.findings,
                 "processor": round(time.process_time() - self.from_second, 1)}  # fmt: skip
        (self.work / "state.part").write_text(json.dumps(state))
        (self.work / "state.part").replace(self.work / "state.json")

    def end(self) -> None:
        """Save, and end the process, which a fuzzer would not."""
        self.save()
        sys.stderr.flush()
        os._exit(0)


def outcome(reader: Any, files: Files, scratch: Path, seconds: float = SLOWEST) -> str:
    """`valid`, `caught`, or the name of a finding: its exception and the place where it was raised."""
    from tidelog.errors import TidelogError

    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    write_files(files, scratch)

    def stop(*_: Any) -> None:
        raise SlowInput

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", RuntimeWarning)
            return "valid" if reader.read(scratch) else "caught"
    except TidelogError:
        return "caught"
    except (Exception, SlowInput) as error:
        inside = f"{os.sep}tidelog{os.sep}"
        frames = [one for one in traceback.extract_tb(error.__traceback__) if inside in one.filename]
        place = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "?"
        return f"{type(error).__name__} in {place}"
    except BaseException as error:  # a panic of a library in Rust
        return f"{type(error).__name__}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def keep_input(work: Path, name: str, key: str, data: bytes) -> None:
    """Keep the shortest input of a finding."""
    folder = work.parent / "findings"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name.replace(' ', '_')}-{hashlib.sha256(key.encode()).hexdigest()[:10]}"
    if not path.exists() or len(data) < path.stat().st_size:
        path.write_bytes(data)
        Path(f"{path}.json").write_text(json.dumps({"reader": name, "key": key}))


def child(name: str, folder: str, inputs: int, seconds: float, seed: int) -> None:
    """Read inputs in this process, which ends with them."""
    work = Path(folder)
    pool = [path.read_bytes() for path in sorted((work / "seeds").iterdir())]
    SEEDS.update(unpacked(pool[0]))
    guided = importlib.util.find_spec("atheris") is not None
    with contextlib.ExitStack() as stack:  # reading the seeds loads every module, which measures its coverage then
        if guided:
            import atheris

            stack.enter_context(atheris.instrument_imports(include=["tidelog"]))
        from benchmarks.fuzz_formats import READERS

        one = Child(name, READERS[name], work, inputs, seconds)
        for data in pool:
            found = outcome(one.reader, unpacked(data), one.scratch, 10 * SLOWEST)
            if found != "valid":
                raise SystemExit(f"the seed of {name}: {found}")
    one.begin()
    if not guided:
        rng = random.Random(seed)
        while True:
            one.one(mutated(rng.choice(pool), rng.getrandbits(60)))
    (work / "grown").mkdir(exist_ok=True)
    calls = random.Random(seed)

    def custom(data: bytes, most: int, number: int) -> bytes:
        try:
            start = data if calls.random() < 0.5 else calls.choice(pool)
            changed = mutated(start, calls.getrandbits(60) ^ number)
            return changed if len(changed) <= most else data
        except BaseException:  # libFuzzer would wait for ever
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(3)

    flags = {"runs": -1, "seed": seed % 2**31 or 1, "max_len": LONGEST, "mutate_depth": 1, "len_control": 0,
             "timeout": 600, "rss_limit_mb": 0, "verbosity": 0, "handle_segv": 0, "handle_abrt": 0}  # fmt: skip
    words = [f"-artifact_prefix={work}/", *(f"-{name}={value}" for name, value in flags.items())]
    atheris.Setup([sys.argv[0], *words, str(work / "grown"), str(work / "seeds")], one.one, custom_mutator=custom)
    atheris.Fuzz()
