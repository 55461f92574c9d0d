"""Ready lists per type: the compiled core of policies that choose one type after another.

A vertex is ready once its arguments are executed. `commit` executes all ready vertices of a type as
one batch (a single vertex if the type is unbatchable), and then those that must follow them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.values.arrays import Ints
from dynbatch.harness.values.graph import NO_TYPE, UNBATCHABLE

N_EXECUTED, N_BATCHES, N_ACTIVATIONS = 0, 1, 2


class Ready(NamedTuple):
    """State of a run, as arrays that compiled functions can change in place.

    Attributes:
        user_start, users: (n + 1,) and (m,), the users of each vertex, in increasing order of ids.
        missing: (n,), number of argument edges whose vertex is not executed yet.
        queue: (n,), vertices of type t are in queue[first[t]:first[t + 1]], in the order in which
            they become ready; those in queue[head[t]:tail[t]] are ready and not executed.
        followers: (k,), types with a leader, in increasing order.
        leader: (n_types,), Graph.follows.
        since: (n_types,), the activation in which each type last got its first ready vertex.
        batch_of: (n,), batch of each executed vertex.
        counts: (3,), numbers of executed vertices, batches and activations so far.
    """

    types: Ints
    user_start: Ints
    users: Ints
    missing: Ints
    queue: Ints
    first: Ints
    head: Ints
    tail: Ints
    since: Ints
    leader: Ints
    followers: Ints
    batch_of: Ints
    counts: Ints


@helper
def find_users(n: int, arg_start: Ints, args: Ints) -> tuple[Ints, Ints]:
    """Return the reversed edges: users[user_start[v]:user_start[v + 1]] use vertex v."""
    user_start = np.zeros(n + 1, np.int32)
    for edge in range(len(args)):
        user_start[args[edge] + 1] += 1
    for v in range(n):
        user_start[v + 1] += user_start[v]
    free = user_start[:n].copy()
    users = np.empty(len(args), np.int32)
    for v in range(n):
        for edge in range(arg_start[v], arg_start[v + 1]):
            users[free[args[edge]]] = v
            free[args[edge]] += 1
    return user_start, users


@helper
def find_followers(follows: Ints) -> Ints:
    """Return the types that follow another, in increasing order."""
    followers = np.empty(len(follows), np.int32)
    n_followers = 0
    for t in range(len(follows)):
        if follows[t] != NO_TYPE:
            followers[n_followers] = t
            n_followers += 1
    return followers[:n_followers]


@compiled
def start(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> Ready:
    """Return the state before the first batch."""
    user_start, users = find_users(len(types), arg_start, args)
    n, n_types = len(types), len(follows)
    first = np.zeros(n_types + 1, np.int32)
    for v in range(n):
        first[types[v] + 1] += 1
    for t in range(n_types):
        first[t + 1] += first[t]
    head, tail = first[:n_types].copy(), first[:n_types].copy()
    ready = Ready(
        types, user_start, users, np.empty(n, np.int32), np.empty(n, np.int32),
        first, head, tail, np.zeros(n_types, np.int32), follows, find_followers(follows),
        np.empty(n, np.int32), np.zeros(3, np.int32),
    )  # fmt: skip
    for v in range(n):
        ready.missing[v] = arg_start[v + 1] - arg_start[v]
        if ready.missing[v] == 0:
            append(ready, v)
    return ready


@helper
def append(ready: Ready, v: int) -> None:
    """Append a vertex that became ready to its type's list."""
    t = ready.types[v]
    if ready.head[t] == ready.tail[t]:
        ready.since[t] = ready.counts[N_ACTIVATIONS]
        ready.counts[N_ACTIVATIONS] += 1
    ready.queue[ready.tail[t]] = v
    ready.tail[t] += 1


@helper
def execute(ready: Ready, t: int, size: int) -> None:
    """Execute the `size` oldest ready vertices of type t as one batch."""
    begin = ready.head[t]
    ready.head[t] = begin + size
    for position in range(begin, begin + size):
        v = ready.queue[position]
        ready.batch_of[v] = ready.counts[N_BATCHES]
        for edge in range(ready.user_start[v], ready.user_start[v + 1]):
            user = ready.users[edge]
            ready.missing[user] -= 1
            if ready.missing[user] == 0:
                append(ready, user)
    ready.counts[N_EXECUTED] += size
    ready.counts[N_BATCHES] += 1


@helper
def commit(ready: Ready, t: int) -> None:
    """Execute all ready vertices of type t (type 0: the oldest), then those that must follow."""
    execute(ready, t, 1 if t == UNBATCHABLE else ready.tail[t] - ready.head[t])
    for follower in ready.followers:
        if ready.leader[follower] == t and ready.tail[follower] > ready.head[follower]:
            execute(ready, follower, ready.tail[follower] - ready.head[follower])


@helper
def count_ready(ready: Ready, t: int) -> int:
    """Return |F_t|, the number of ready vertices of type t."""
    size: int = ready.tail[t] - ready.head[t]
    return size


@helper
def order_batches(batch_of: Ints, n_batches: int) -> tuple[Ints, Ints]:
    """Return order and starts of a schedule, with the vertices of a batch in increasing order."""
    starts = np.zeros(n_batches + 1, np.int32)
    for v in range(len(batch_of)):
        starts[batch_of[v] + 1] += 1
    for batch in range(n_batches):
        starts[batch + 1] += starts[batch]
    free = starts[:n_batches].copy()
    order = np.empty(len(batch_of), np.int32)
    for v in range(len(batch_of)):
        order[free[batch_of[v]]] = v
        free[batch_of[v]] += 1
    return order, starts


@helper
def order_used_batches(batch_of: Ints, n_batches: int) -> tuple[Ints, Ints]:
    """Return order and starts of a schedule, without its empty batches."""
    order, starts = order_batches(batch_of, n_batches)
    n_used = 0
    for batch in range(n_batches):
        if starts[batch + 1] > starts[batch]:
            n_used += 1
            starts[n_used] = starts[batch + 1]
    return order, starts[: n_used + 1]


@helper
def finish(ready: Ready) -> tuple[Ints, Ints]:
    """Return order and starts after every vertex is executed."""
    return order_batches(ready.batch_of, ready.counts[N_BATCHES])
