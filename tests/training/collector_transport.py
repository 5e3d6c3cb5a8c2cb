"""Collectors in this process, for tests: messages are answered when they are waited for."""

from tidelog.training.online.collectors.collector import begin
from tidelog.training.online.collectors.transport import Lost


class InProcess:
    """`losses` are the numbers of the requests whose collector is lost, at work on its environments."""

    losses = ()

    def __init__(self, plans, stall_seconds):
        self._plans, self._made, self._waiting, self.sent, self.started = plans, {}, {}, 0, 0

    def cores(self):
        return 1

    def start(self, block):
        self.started += 1
        self._made[block], reply = begin(self._plans[block])
        self._waiting[block] = [reply]

    def running(self, block):
        return block in self._made

    def send(self, block, message):
        reply = self._made[block].answer(message)
        self.sent += 1
        if self.sent - 1 in self.losses:
            reply = Lost("taken away")
            del self._made[block]
        self._waiting[block].append(reply)

    def wait(self, seconds):
        found = [(block, one) for block, messages in self._waiting.items() for one in messages]
        self._waiting = {block: [] for block in self._waiting}
        return found

    def stop(self, block):
        self._made.pop(block, None)

    def close(self):
        self._made.clear()
