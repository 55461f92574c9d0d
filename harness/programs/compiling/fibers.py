"""Fibers of a mini-batch in the compiler's language: their memory and their scheduler.

All of their data is reached from one address, `state`: an array of words, each with one of the
names below. Names in groups of three are the address of a buffer, its number of used entries, and
its capacity. Python reallocates a buffer on request, so no address within it may be stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynbatch.harness.compiler.pointers import (
    WORD_BYTES,
    add_to_word,
    call_for_number,
    put_word,
    read_word,
    view_array,
)
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.programs.log import DONE, END, FORK, RESUME, SEGMENT, UNDONE

LOG, N_LOG, LOG_ROOM, ITEMS, N_ITEMS, ITEMS_ROOM, LISTS, N_LISTS, LISTS_ROOM = range(9)
FRAMES, N_FRAMES, FRAMES_ROOM, READY, N_READY, WAITING, N_WAITING, FREE, N_FREE = range(9, 18)
INTS, REALS, SEEDS, RESULTS, GROW, WIDTH, N_INSTANCES, N, N_FIBERS, N_ALIVE = range(18, 28)
RUNNING, FIRST_OF_SEGMENT, N_SEGMENTS, IS_NEXT_SEGMENT, LEFT_OVER = range(28, 33)
MAX_ALIVE, MAX_VERTICES, MAX_SEGMENTS, HAS_PHASES, HAS_GHOSTS = range(33, 38)
SEGMENT_AT, SEGMENTS, N_STATE = range(38, 41)
# Words of a frame before its slots: the point where it continues, its number as a fiber, its
# instance, its parent, the word of the parent that gets its result, and its number of unfinished
# branches.
PC, NUMBER, INSTANCE, PARENT, RESULT, LEFT, FIRST_SLOT = range(7)
WAITS, HAS_ENDED = 1, 0  # results of `resume`; a fiber that forks counts as ended until its join
ENDED, SEGMENT_ENDED = range(2)  # results of `run`


@helper
def resume(state: int, fiber: int) -> int:
    """Run a fiber until it waits, forks or ends; replaced by the code of the model's program."""
    raise NotImplementedError("there is a program")


@helper
def view_longs(state: int, at: int) -> Any:
    """Return an array at an address of the state."""
    return view_array(read_word(state, at), 0, np.int64)


@helper
def locate_frame(state: int, fiber: int) -> int:
    """Return the address of a frame."""
    return read_word(state, FRAMES) + WORD_BYTES * read_word(state, WIDTH) * fiber


@helper(apart=True)
def grow(state: int, at: int, n: int) -> None:
    """Extend a buffer so that it has at least n free entries."""
    if call_for_number(read_word(state, GROW), (at, read_word(state, at + 1) + n)) != 0:
        raise MemoryError("a program does not terminate")


@helper
def reserve(state: int, at: int, n: int) -> None:
    """Extend a buffer if it has fewer than n free entries."""
    if read_word(state, at + 1) + n > read_word(state, at + 2):
        grow(state, at, n)


@helper
def add_entries(state: int, first: int, second: int, n: int) -> None:
    """Add two or three entries to the log; a negative third one is omitted."""
    reserve(state, LOG, 3)
    log, n_log = view_array(read_word(state, LOG), 0, np.int32), read_word(state, N_LOG)
    log[n_log], log[n_log + 1], log[n_log + 2] = first, second, n
    put_word(state, N_LOG, n_log + (3 if n >= 0 else 2))


@helper
def push(state: int, stack: int, fiber: int) -> None:
    """Push a fiber onto a stack, which has capacity for all fibers."""
    view_longs(state, stack)[read_word(state, stack + 1)] = fiber
    add_to_word(state, stack + 1, 1)


@helper
def pop(state: int, stack: int) -> int:
    """Pop the top fiber of a stack."""
    add_to_word(state, stack + 1, -1)
    return int(view_longs(state, stack)[read_word(state, stack + 1)])


@helper(apart=True)
def make_fiber(state: int, parent: int, pc: int, k: int, result: int) -> int:
    """Return a new fiber, the k-th branch of another, with its operands still to be set."""
    if read_word(state, N_FREE) > 0:
        fiber = pop(state, FREE)
    else:
        fiber = read_word(state, N_FRAMES)
        add_to_word(state, N_FRAMES, 1)
    frame = locate_frame(state, fiber)
    put_word(frame, PC, pc)
    put_word(frame, NUMBER, read_word(state, N_FIBERS) + k)
    put_word(frame, INSTANCE, read_word(locate_frame(state, parent), INSTANCE))
    put_word(frame, PARENT, parent)
    put_word(frame, RESULT, result)
    return fiber


@helper(apart=True)
def fork(state: int, fiber: int, pc: int, n: int) -> None:
    """Let a fiber wait for n branches, and then continue at `pc`."""
    frame = locate_frame(state, fiber)
    put_word(frame, LEFT, n)
    put_word(frame, PC, pc)
    add_entries(state, FORK, read_word(state, N_FIBERS), n)
    put_word(state, RUNNING, read_word(state, N_FIBERS))
    add_to_word(state, N_FIBERS, n)
    add_to_word(state, N_ALIVE, n)
    if read_word(state, N_ALIVE) > read_word(state, MAX_ALIVE):
        raise OverflowError("too many fibers")


@helper(apart=True)
def join(state: int, fiber: int, result: int) -> None:
    """End a branch: pass its result to its parent, which continues after the last branch."""
    frame = locate_frame(state, fiber)
    parent = locate_frame(state, read_word(frame, PARENT))
    put_word(parent, read_word(frame, RESULT), result)
    add_entries(state, END, read_word(parent, NUMBER), -1)
    add_to_word(state, N_ALIVE, -1)
    push(state, FREE, fiber)
    add_to_word(parent, LEFT, -1)
    if read_word(parent, LEFT) == 0:
        push(state, READY, read_word(frame, PARENT))


@helper(apart=True)
def end(state: int, fiber: int, result: int) -> None:
    """End a program, whose result is a list."""
    view_longs(state, RESULTS)[read_word(locate_frame(state, fiber), INSTANCE)] = result
    add_to_word(state, N_ALIVE, -1)


@helper
def _begin_segment(state: int) -> None:
    """Start the next graph segment: resume all waiting fibers, the last one first."""
    reserve(state, LOG, 1)
    view_array(read_word(state, LOG), 0, np.int32)[read_word(state, N_LOG)] = SEGMENT
    add_to_word(state, N_LOG, 1)
    n, ready, waiting = (
        read_word(state, N_WAITING),
        view_longs(state, READY),
        view_longs(state, WAITING),
    )
    for k in range(n):
        ready[k] = waiting[n - 1 - k]
    put_word(state, N_READY, n)
    put_word(state, N_WAITING, 0)
    put_word(state, FIRST_OF_SEGMENT, read_word(state, N))
    put_word(state, RUNNING, -1)
    add_to_word(state, N_SEGMENTS, 1)
    put_word(state, IS_NEXT_SEGMENT, 0)


@helper
def _is_made(state: int) -> bool:
    """Have the log's segment planned and run; return True if nothing of it is left to do."""
    if read_word(state, N) > read_word(state, MAX_VERTICES):
        return False
    arguments = (read_word(state, SEGMENTS), read_word(state, N_LOG))
    left = call_for_number(read_word(state, SEGMENT_AT), arguments)
    if left == DONE:
        put_word(state, N_LOG, 0)
        return True
    put_word(state, LEFT_OVER, left)
    return False


@helper
def run(state: int) -> int:
    """Run all fibers until they have ended, or until others must run the rest of a segment."""
    n_segments = 0
    put_word(state, LEFT_OVER, UNDONE)
    while True:
        if read_word(state, IS_NEXT_SEGMENT) != 0:
            _begin_segment(state)
        if read_word(state, N_READY) == 0:
            if read_word(state, N_WAITING) == 0:
                return ENDED
            if read_word(state, SEGMENT_AT) != 0:
                n_segments += 1
                if n_segments > read_word(state, MAX_SEGMENTS) or not _is_made(state):
                    return SEGMENT_ENDED
            put_word(state, IS_NEXT_SEGMENT, 1)
            continue
        fiber = pop(state, READY)
        number = read_word(locate_frame(state, fiber), NUMBER)
        if number != read_word(state, RUNNING):
            put_word(state, RUNNING, number)
            add_entries(state, RESUME, number, -1)
        if resume(state, fiber) == WAITS:
            push(state, WAITING, fiber)
