"""A process that measures when it is told to; of Python alone, for any environment."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any


def answer(facts: dict[str, Any], advance: Callable[[], Any], counts: int = 0) -> None:
    """Print facts, then for every line, a number of seconds, what was done in them: what calls return, or `counts`."""
    print(json.dumps(facts), flush=True)
    for line in sys.stdin:
        seconds, done = float(line), 0
        begin, used = time.perf_counter(), time.process_time()
        while time.perf_counter() - begin < seconds:
            made = advance()
            done += counts or made
        taken = {"seconds": time.perf_counter() - begin, "processor_seconds": time.process_time() - used}
        print(json.dumps({"updates": done} | taken), flush=True)
