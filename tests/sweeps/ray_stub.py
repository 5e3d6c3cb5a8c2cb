"""A stand-in for Ray in tests: actors are objects of this process, and a call is done when it is made."""

from types import ModuleType, SimpleNamespace


class RayError(Exception): ...


class RayTaskError(RayError): ...


class OutOfMemoryError(RayError): ...


class Lost(Exception):
    """Raised by a call whose actor is lost; it has the error that Ray raises then."""


class Stub(ModuleType):
    """What the engine uses of Ray; `nodes_list` are the nodes, `actors` and `killed` what happened."""

    def __init__(self, gcs="127.0.0.1:1", processors=(2,)):
        super().__init__("ray")
        names = ("0a", "0b", "0c")
        self.nodes_list = [
            {"NodeID": name, "Alive": True, "Resources": {"CPU": float(one)}}
            for name, one in zip(names, processors, strict=False)
        ]
        self.actors, self.killed, self.asked, self.options, self.initialized = [], [], [], None, False
        self.exceptions = SimpleNamespace(
            RayError=RayError, RayTaskError=RayTaskError, OutOfMemoryError=OutOfMemoryError
        )
        affinity = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: node)
        self.util = SimpleNamespace(scheduling_strategies=affinity)
        self.fail_init = None
        self._gcs = gcs

    def init(self, **options):
        if self.fail_init is not None:
            raise self.fail_init
        self.options, self.initialized = options, True

    def is_initialized(self):
        return self.initialized

    def shutdown(self):
        self.initialized = False

    def get_runtime_context(self):
        return SimpleNamespace(gcs_address=self._gcs, get_node_id=lambda: "0a")

    def nodes(self):
        return self.nodes_list

    def remote(self, **options):
        def of(what):
            return _ActorClass(self, what, options) if isinstance(what, type) else _Function(self, what)

        return of

    def wait(self, references, num_returns, timeout):
        done = [one for one in references if one.outcome is not None]
        return done[:num_returns], []

    def get(self, reference):
        if isinstance(reference.outcome, Exception):
            raise reference.outcome
        return reference.outcome

    def kill(self, actor):
        self.killed.append(actor)


class _Reference:
    def __init__(self, outcome):
        self.outcome = outcome


class _Method:
    def __init__(self, function):
        self._function = function

    def remote(self, *arguments):
        try:
            return _Reference(self._function(*arguments))
        except Lost as lost:
            return _Reference(lost.args[0])


class _Actor:
    def __init__(self, body):
        self.describe, self.run = _Method(body.describe), _Method(body.run)


class _ActorClass:
    def __init__(self, stub, cls, options):
        self._stub, self._cls, self.options = stub, cls, options

    def remote(self):
        actor = _Actor(self._cls())
        self._stub.actors.append(actor)
        return actor


class _Function:
    def __init__(self, stub, function):
        self._stub = stub

    def options(self, scheduling_strategy):
        return SimpleNamespace(remote=lambda process: self._stub.asked.append((scheduling_strategy, process)))
