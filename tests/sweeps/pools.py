"""Pools for tests: jobs run in this process, and some of them are lost; and a stand-in for Ray."""

from concurrent.futures import Future
from types import ModuleType, SimpleNamespace

from tidelog.sweeps.sweep import train_trial


class Lost(Exception):
    """What a pool says of a job whose process was lost."""


class InProcess:
    """Runs each job at once; `lost` says of which jobs nothing comes, `stop` after how many Ctrl-C is pressed."""

    def __init__(self, lost=lambda job: False, stop=None):
        self.jobs, self._busy, self._lost, self._stop = [], False, lost, stop

    def free(self):
        free, self._busy = not self._busy, False
        return free

    def submit(self, function, job, *rest):
        if len(self.jobs) == self._stop:
            raise KeyboardInterrupt
        self.jobs.append(job)
        future, self._busy = Future(), True
        if self._lost(job):
            future.set_exception(Lost("killed by signal 9"))
        else:
            future.set_result(train_trial(job))
        return future

    def close(self): ...


# A stand-in for Ray in tests: a task is done in this process, when it is made.


class Waits(Exception):
    """Raised by a task that goes on until it is cancelled."""


class TaskCancelledError(Exception):
    """What Ray says of a cancelled task."""


class Stub(ModuleType):
    """What the pool uses of Ray; `processors` are those of its nodes, `tasks` and `cancelled` what happened."""

    def __init__(self, gcs="127.0.0.1:1", processors=(2,)):
        super().__init__("ray")
        self.processors, self.tasks, self.cancelled, self.options = list(processors), [], [], None
        self.initialized, self.fail_init, self.task_options, self._gcs = False, None, None, gcs

    def init(self, **options):
        if self.fail_init is not None:
            raise self.fail_init
        self.options, self.initialized = options, True

    def is_initialized(self):
        return self.initialized

    def shutdown(self):
        self.initialized = False

    def get_runtime_context(self):
        return SimpleNamespace(gcs_address=self._gcs)

    def nodes(self):
        return [{"Alive": True, "Resources": {"CPU": float(one)}} for one in self.processors]

    def cluster_resources(self):
        return {"CPU": float(sum(self.processors))}

    def remote(self, **options):
        self.task_options = options
        return lambda function: SimpleNamespace(remote=lambda *arguments: self._begin(function, arguments))

    def cancel(self, task, force=False):
        self.cancelled.append((task, force))
        if force and not task.done.done():
            task.done.set_exception(TaskCancelledError())

    def _begin(self, function, arguments):
        done = Future()
        task = SimpleNamespace(future=lambda: done, done=done)
        self.tasks.append(task)
        try:
            done.set_result(function(*arguments))
        except Waits:
            pass
        except Exception as error:
            done.set_exception(error)
        return task
