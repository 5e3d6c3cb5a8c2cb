"""What a reader does: paste each block into an open Python session or an open terminal.

`tests/first_hour/blocks.py` runs this text with `python -c`, so that it imports as an open session does. The arguments
are a file with the blocks, and a file for the results: blocks may print anything.
"""

import contextlib
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import types


def _paste(blocks, shell, seconds):
    results, here = [], types.ModuleType("__main__")  # an open session: without what this module imports
    sys.modules["__main__"] = here
    for block in blocks:
        code, said, start = block["code"], io.StringIO(), time.monotonic()
        print(f"--- {block['place']}", file=sys.stderr, flush=True)
        if block["file"]:
            ok = True
            with pathlib.Path(block["file"]).open("a") as file:
                file.write(code + "\n")
        elif block["language"] == "python":
            ok = _in_python("\n" * block["line"] + code, block["page"], here, said)
        else:
            ok = _in_shell(code, shell, seconds, said)
        results.append({"said": said.getvalue(), "ok": ok, "seconds": time.monotonic() - start})
        pathlib.Path(sys.argv[2]).write_text(json.dumps(results))
        if not ok:
            sys.exit(1)


def _in_python(code, page, here, said):
    try:
        with contextlib.redirect_stdout(said):
            exec(compile(code, page, "exec"), vars(here))
    except BaseException:
        traceback.print_exc()
        return False
    return True


def _in_shell(code, variables, seconds, said):
    """Run a block; what it leaves running ends with it, such as a server where a later line fails."""
    words = ["bash", "-euo", "pipefail", "-c", code]
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(words, stdout=out, env=variables, start_new_session=True)
        try:
            return process.wait(timeout=seconds) == 0
        except subprocess.TimeoutExpired:
            print(f"the block took more than {seconds} s", file=sys.stderr)
            return False
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            out.seek(0)
            said.write(out.read())


if __name__ == "__main__":
    _paste(**json.loads(pathlib.Path(sys.argv[1]).read_text()))
