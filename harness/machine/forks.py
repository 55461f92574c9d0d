"""Work shared with forks of this process, of which nothing comes back but what is on disk."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import TypeVar

from harness.machine.facts import usable_cpus
from harness.machine.lifeline import die_with_parent

_N_AT_WORK = ContextVar("n_at_work", default=0)  # other processes of this one's, each on a CPU
MOST_S = 300  # of a fork: one that waits for a lock that a thread of its parent held never ends

T = TypeVar("T")


def in_forks(work: Callable[[T], object], items: Iterable[T], cost: Callable[[T], float]) -> None:
    """Do all but this process's share of the work in forks, a process for each usable CPU.

    They begin with the most costly items; this process does its own share meanwhile. Where there is
    nothing to share, or no fork, nothing is done. Errors of a fork are nobody's: whoever needs what
    it should have left does the work again.
    """
    free = len(usable_cpus()) - _N_AT_WORK.get()
    own, *others = shares(items, cost, max(1, free))
    if not others or not hasattr(os, "fork"):
        return
    before = _N_AT_WORK.set(_N_AT_WORK.get() + len(others))
    forks = [_fork(work, share) for share in others]
    try:
        for item in own:
            work(item)
    finally:
        for fork in forks:
            with suppress(ChildProcessError):  # somebody else waits for all children
                os.waitpid(fork, 0)
        _N_AT_WORK.reset(before)


def in_a_fork(other: Callable[[], object], own: Callable[[], object]) -> None:
    """Do `other` in a fork, and `own` meanwhile; as in_forks, which does neither if it cannot."""
    in_forks(lambda work: work(), (own, other), lambda work: float(work is own))


def shares(items: Iterable[T], cost: Callable[[T], float], n_most: int) -> list[list[T]]:
    """Each item, the most costly first, to whom has least so far; the first has the most of one."""
    dealt: list[list[T]] = [[]]
    for item in sorted(items, key=cost, reverse=True):
        if len(dealt) < n_most and dealt[0]:
            dealt.append([item])
        else:
            min(dealt, key=lambda share: sum(map(cost, share))).append(item)
    return dealt


def _fork(work: Callable[[T], object], share: Sequence[T]) -> int:
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, which a fork has none of and does not ask for
        fork = os.fork()
    if fork == 0:
        try:
            die_with_parent(parent)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(MOST_S)
            for item in share:
                work(item)
        finally:
            os._exit(0)  # no clean-up of what is the parent's
    return fork
