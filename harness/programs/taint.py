"""Which blocks depend on no recurrent value, and so may run before everything else.

A block is recurrent where what it computes can reach itself, through any blocks; tainted are
recurrent blocks and all that they reach. Others have a static depth: how many of them may come
before it. Which block feeds which is taken from recordings, so that the analysis is as exact as the
programs that were met; a mini-batch that shows a new edge is recorded again.

Source: ACRoBat, MLSys 2024, B.1 (a 1-context-sensitive taint analysis of the program's text; here
a context is a block, and a function called with other weights is another block).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.values.arrays import IntArray

TAINTED = -1
Feeds = NDArray[np.bool_]


def fed_in(
    types: Sequence[int] | IntArray,
    arg_ends: Sequence[int] | IntArray,
    args: Sequence[int] | IntArray,
    n_types: int,
) -> Feeds:
    """Which type's vertices are arguments of which type's (n_types, n_types)."""
    feeds = np.zeros((n_types, n_types), dtype=np.bool_)
    of, known = np.array(types, dtype=np.int32), _vertices(args, len(types))
    users = of.repeat(np.diff(arg_ends))
    is_known = known[: len(users)] >= 0
    feeds[of[known[: len(users)][is_known]], users[is_known]] = True
    return feeds


def _vertices(args: Sequence[Any] | IntArray, n: int) -> IntArray:
    """Arguments as vertices, -1 for what is none: a program that is wrong may give anything."""
    try:
        found = np.array(args, dtype=np.int32)
    except (TypeError, ValueError, OverflowError):
        found = np.array([a if type(a) is int and a < n else -1 for a in args], dtype=np.int32)
    found[found >= n] = -1
    return found


def static_depths(feeds: Feeds) -> list[int]:
    """Of every type its depth among untainted ones, from 0; TAINTED where it has none."""
    reaches = feeds.copy()
    for middle in range(len(feeds)):
        reaches |= reaches[:, middle, None] & reaches[None, middle]
    recurrent = reaches.diagonal()
    tainted = recurrent | reaches[recurrent].any(axis=0)
    found = np.where(tainted, TAINTED, 0)
    for _ in range(len(feeds)):  # no path among untainted types is longer
        for user in np.flatnonzero(~tainted):
            before = found[feeds[:, user]]
            found[user] = before.max(initial=-1) + 1
    depths: list[int] = found.tolist()
    return depths
