"""Words on their way to the device: one copy a mini-batch, from memory that is pinned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from harness.engine.backends.cuda.arrays import Words
from harness.engine.backends.cuda.memory import GROWTH
from harness.engine.backends.cuda.streams import Mark, Stream, Streams

N_PINNED = 2  # so that one is filled while the device still reads the other


@dataclass(frozen=True, eq=False, slots=True)
class Upload:
    """Words in one of the buffers on the device, once a mark is reached."""

    buffer: int
    mark: Mark


class Staging:
    """Brings the words of a mini-batch to the device before they are needed.

    on_move: called before words get another place on the device; has to wait for all work.
    ahead: whether words are uploaded while those of the last mini-batch are still read, by a stream
    of their own and to a second buffer. n_uploads: copies so far. current: the buffer that is read.
    The words' places on the device stay until they no longer fit.
    """

    def __init__(
        self, device: torch.device, streams: Streams, on_move: Callable[[], None], *, ahead: bool
    ) -> None:
        self._device, self._streams, self._on_move = device, streams, on_move
        self._stream = Stream.COPY if ahead else Stream.COMPUTE
        self.n_uploads = self.current = 0
        n_buffers = 2 if ahead else 1
        self.buffers = [torch.zeros(1, dtype=torch.int32, device=device) for _ in range(n_buffers)]
        self._pinned = [self._pinned_room(1) for _ in range(N_PINNED)]
        self._copied: list[Mark] = [None] * N_PINNED  # reached when a pinned buffer was read
        self._released: list[Mark] = [None] * n_buffers  # reached when a mini-batch was computed

    @property
    def words(self) -> Tensor:
        """Those of the mini-batch that is computed."""
        return self.buffers[self.current]

    def upload(self, arrays: Sequence[Words]) -> Upload:
        """Bring arrays to the buffer that is not read, behind a header of where each begins."""
        starts = starts_of(arrays)
        n = int(starts[-1]) + len(arrays[-1])
        target = (self.current + 1) % len(self.buffers)
        self._make_room(target, n)
        k = self.n_uploads % N_PINNED
        self._streams.reach(self._copied[k])  # of the copy before the last; over since long
        if len(self._pinned[k]) < n:
            self._pinned[k] = self._pinned_room(len(self.buffers[target]))
        source, out = self._pinned[k][:n], self.buffers[target][:n]
        np.concatenate([starts, *arrays], out=cast(Words, source.numpy()))
        self._streams.wait(self._stream, self._released[target])
        self._streams.do(self._stream, lambda: out.copy_(source, non_blocking=True))
        self._copied[k] = self._streams.mark(self._stream)
        self.n_uploads += 1
        return Upload(target, self._copied[k])

    def take(self, upload: Upload) -> None:
        """Compute with what was uploaded from here on, and no more with what was before."""
        self._released[self.current] = self._streams.mark(Stream.COMPUTE)
        self._streams.wait(Stream.COMPUTE, upload.mark)
        self.current = upload.buffer

    def _make_room(self, target: int, n: int) -> None:
        if n <= len(self.buffers[target]):
            return
        self._on_move()  # waits for what reads or writes memory that goes away
        self.buffers[target] = torch.zeros(
            int(n * GROWTH) + 1, dtype=torch.int32, device=self._device
        )
        self._released[target] = self._streams.mark(Stream.COMPUTE)  # its zeros are written there

    def _pinned_room(self, n: int) -> Tensor:
        return torch.zeros(n, dtype=torch.int32, pin_memory=self._device.type == "cuda")


def starts_of(arrays: Sequence[Words]) -> Words:
    """Where arrays begin that lie one behind the other, and behind these words themselves."""
    sizes = [len(arrays), *map(len, arrays)]
    return np.cumsum(sizes[:-1]).astype(np.int32)
