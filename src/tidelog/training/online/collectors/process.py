"""A collector's process: `python -m tidelog.training.online.collectors.process SOCKET [CORE]`.

It keeps to its core before anything imports NumPy or JAX, which size their threads by it. Standard input stays open as
long as the run's process lives; at its end this process ends, too.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time

STEP_SECONDS = 1.0  # at least, between two signs that steps go on


def main(words: list[str]) -> None:
    """Answer requests until the connection ends."""
    if len(words) > 1:
        os.sched_setaffinity(0, [int(words[1])])
    threading.Thread(target=_end_with_run, daemon=True).start()
    from multiprocessing.connection import Connection

    with contextlib.suppress(EOFError, ConnectionError), Connection(int(words[0])) as run:
        plan = run.recv_bytes()
        from tidelog.training.online.collectors.collector import begin
        from tidelog.training.online.collectors.messages import Reply, pack

        collector, reply = begin(plan)
        run.send_bytes(reply)
        if collector is None:
            return
        said = time.monotonic()

        def say_step() -> None:
            nonlocal said
            if time.monotonic() - said > STEP_SECONDS:
                said = time.monotonic()
                run.send_bytes(pack(Reply("step")))

        collector.on_step = say_step
        while True:
            run.send_bytes(collector.answer(run.recv_bytes()))


def _end_with_run() -> None:
    os.read(0, 1)  # not `sys.stdin`, whose lock a thread must not hold when the interpreter ends
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
