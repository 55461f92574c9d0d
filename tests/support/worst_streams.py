"""Streams whose work is postponed, and done in the worst order that marks allow."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from dynbatch.harness.engine.backends.cuda.launching import Mark, Stream, Streams, Work

Choose = Callable[[list[Stream]], Stream]  # selects one of the streams that can continue


def first(stream: Stream) -> Choose:
    """Select a stream as long as it can continue, and the other one when it must."""
    return lambda ready: stream if stream in ready else ready[0]


def drawn(seed: int) -> Choose:
    """Select a stream at random."""
    rng = np.random.default_rng(seed)
    return lambda ready: ready[int(rng.integers(len(ready)))]


ORDERS = {
    "copies as early as they may": first(Stream.COPY),
    "copies as late as they may": first(Stream.COMPUTE),
    **{f"drawn {seed}": drawn(seed) for seed in range(4)},
}


class WorstStreams(Streams):
    """Streams that postpone all work until a wait, and then do no more than the wait needs.

    Args:
        choose: selects the stream that continues.
        eager: stream whose work is done as soon as marks permit, as on a fast device.
    """

    def __init__(self, choose: Choose, eager: Stream | None = None) -> None:
        self._choose, self._eager = choose, eager
        self._queues: dict[Stream, deque[Work | Mark]] = {stream: deque() for stream in Stream}
        self._reached: set[int] = set()
        self._n_marks = self.n_waits = 0

    def do(self, stream: Stream, work: Work) -> None:
        self._queues[stream].append(work)
        self._hurry()

    def mark(self, stream: Stream) -> Mark:
        self._n_marks += 1
        number = self._n_marks
        self._queues[stream].append(lambda: self._reached.add(number))
        self._hurry()
        return number

    def wait(self, stream: Stream, mark: Mark) -> None:
        if mark is not None:
            self._queues[stream].append(mark)

    def reach(self, mark: Mark) -> None:
        self.n_waits += 1
        while mark is not None and mark not in self._reached:
            self._step()

    def synchronize(self) -> None:
        self.n_waits += 1
        while any(self._queues.values()):
            self._step()

    def _hurry(self) -> None:
        while self._eager is not None and self._eager in self._ready():
            self._go(self._eager)

    def _ready(self) -> list[Stream]:
        return [
            stream
            for stream, queue in self._queues.items()
            if queue and not (isinstance(queue[0], int) and queue[0] not in self._reached)
        ]

    def _step(self) -> None:
        ready = self._ready()
        assert ready, "two streams wait for each other"
        self._go(self._choose(ready))

    def _go(self, stream: Stream) -> None:
        one = self._queues[stream].popleft()
        if not isinstance(one, int):
            one()
