"""Engines for tests: jobs run in this process, and some of them are lost."""

from tidelog.sweeps.attempt import run_attempt
from tidelog.sweeps.engines import Ended


class InProcess:
    """Runs each job at once; `lost` says of which jobs nothing comes, `stop` after how many Ctrl-C is pressed."""

    def __init__(self, lost=lambda job: False, stop=None):
        self.jobs, self._ended, self._lost, self._stop = [], [], lost, stop

    def free(self):
        return not self._ended

    def submit(self, job):
        if len(self.jobs) == self._stop:
            raise KeyboardInterrupt
        self.jobs.append(job)
        if self._lost(job):
            self._ended.append(Ended(job, "killed by signal 9"))
        else:
            self._ended.append(Ended(job, f"ended with code {run_attempt(job)}"))

    def wait(self, seconds):
        ended, self._ended = self._ended, []
        return ended

    def cancel(self, job): ...
    def close(self): ...
