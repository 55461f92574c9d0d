"""The text of a translated program: one loop over fibers, and in it one branch a basic block."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.programs.compiling.joining import laid_out
from harness.programs.compiling.texts import NUMBER, PC
from harness.programs.compiling.translation import Translation
from harness.programs.log import RESUME, ROUND

# What `go_on` returns: that all have ended; that a round has; that a number of an earlier round is
# asked for; that there is too little room: less than the margin, or than the log, items of lists,
# or fibers need.
CODES = ("ENDED", "ROUND_ENDED", "ASKED", "MORE", "MORE_LOG", "MORE_ITEMS", "MORE_FRAMES")
ENDED, ROUND_ENDED, ASKED, MORE, MORE_LOG, MORE_ITEMS, MORE_FRAMES = range(len(CODES))
# What became of a round that it had made by itself: all, or nothing yet. Else see who made it.
DONE, UNDONE = 0, -1
MANY = 100  # rounds, after which Python comes by: a signal is heard there
# What it keeps in `state`, in this order, and takes from there.
COUNTS = (
    *("n_log", "n", "n_items", "n_lists", "n_ready", "n_waiting", "n_free", "n_frames"),
    *("n_fibers", "n_alive", "n_asked", "running", "first_of_round", "n_rounds", "f"),
    "want",
)
# What else stands there.
RULES = (
    *("most_alive", "is_live", "has_phases", "has_ghosts", "is_next_round", "odd", "left"),
    *("most_vertices", "round_at", "rounds"),
)
PLACES: Mapping[str, int] = {name: k for k, name in enumerate((*COUNTS, *RULES))}
ARRAYS: Mapping[str, str] = {  # that it is given, and what each is
    **{"state": "Longs", "log": "IntArray", "F": "LongTable", "R": "FloatTable"},
    **{"items": "Longs", "lists": "LongTable"},
    **{"ready": "Longs", "waiting": "Longs", "free": "Longs", "asked": "LongTable"},
    **{"results": "Longs", "ints": "Longs", "reals": "Floats", "counts": "LongTable"},
    "seeds": "UnsignedLongs",
}
HEAD = f"""\
from harness.compiler.compiled import compiled
from harness.compiler.pointers import call_for_number
from harness.programs.compiling.kept_lists import *
from harness.programs.compiling.kept_numbers import *
from harness.values.arrays import {", ".join(sorted(set(ARRAYS.values())))}

{", ".join(CODES)} = range({len(CODES)})
MARGIN, MANY = {{margin}}, {MANY}

@compiled
def go_on({", ".join(f"{name}: {kind}" for name, kind in ARRAYS.items())}) -> int:
    {", ".join(COUNTS)} = {", ".join(f"state[{k}]" for k in range(len(COUNTS)))}
    most_alive, has_phases = state[{PLACES["most_alive"]}], state[{PLACES["has_phases"]}] != 0
    has_ghosts, odd = state[{PLACES["has_ghosts"]}] != 0, 0
    is_live, is_next_round = state[{PLACES["is_live"]}] != 0, state[{PLACES["is_next_round"]}] != 0
    most_vertices, round_at = state[{PLACES["most_vertices"]}], state[{PLACES["round_at"]}]
    rounds, left, n_by_itself = state[{PLACES["rounds"]}], {UNDONE}, 0
    S, T = F[max(f, 0)], R[max(f, 0)]
    pc = S[{PC}]
    while True:
        if f < 0:
            if is_next_round:
                log[n_log] = {ROUND}
                n_log += 1
                for k in range(n_waiting):
                    ready[k] = waiting[n_waiting - 1 - k]
                n_ready, n_waiting, first_of_round, running = n_waiting, 0, n, -1
                n_rounds += 1
                is_next_round = False
            if n_ready == 0:
                if n_waiting == 0:
                    code = ENDED
                    break
                if is_live:
                    if round_at != 0 and odd == 0 and n <= most_vertices and n_by_itself < MANY:
                        n_by_itself += 1
                        left = call_for_number(round_at, (rounds, n_log))
                        if left == {DONE}:
                            n_log = 0
                            if n_asked == 0:
                                left, is_next_round = {UNDONE}, True
                                continue
                    code = ROUND_ENDED
                    break
                is_next_round = True
                if n_log + MARGIN > len(log):
                    want, code = 0, MORE
                    break
                continue
            if n_log + MARGIN > len(log):
                want, code = 0, MORE
                break
            n_ready -= 1
            f = ready[n_ready]
            S, T = F[f], R[f]
            pc = S[{PC}]
            if S[{NUMBER}] != running:
                running = S[{NUMBER}]
                log[n_log], log[n_log + 1] = {RESUME}, running
                n_log += 2
        if (
            n_log + MARGIN > len(log)
            or n_items + MARGIN > len(items)
            or n_lists + MARGIN > len(lists)
        ):
            want, code = 0, MORE
            break
"""
TAIL = f"""\
    if f >= 0:
        S[{PC}] = pc
    {"; ".join(f"state[{k}] = {name}" for k, name in enumerate(COUNTS))}
    state[{PLACES["is_next_round"]}] = is_next_round
    state[{PLACES["odd"]}] |= odd
    state[{PLACES["left"]}] = left
    return code
"""
INDENT = " " * 4
OF_EVENTS = 8  # entries of a log that are written between blocks, and more


@dataclass(frozen=True, slots=True)
class Written:
    """text: of a module whose `go_on` runs all fibers as far as they come. margin: room that it
    takes in the log, and in lists, without a look.
    """

    text: str
    margin: int


def written(translation: Translation) -> Written:
    """Write a translation down."""
    order, bodies, room = laid_out(translation.blocks, translation.entries)
    numbers = {str(block): str(k) for k, block in enumerate(order)}
    named = functools.partial(re.sub, r"@(\d+)@", lambda found: numbers[found[1]])
    texts = [[named(line) for line in bodies[block]] for block in order]
    margin = room + OF_EVENTS
    return Written(HEAD.format(margin=margin) + "".join(_chosen(texts, 0, 2)) + TAIL, margin)


def _chosen(bodies: Sequence[Sequence[str]], first: int, depth: int) -> list[str]:
    """The body of block `pc`, found by halves."""
    if len(bodies) == 1:
        return [f"{INDENT * depth}{line}\n" for line in bodies[0]]
    half = len(bodies) // 2
    return [
        f"{INDENT * depth}if pc < {first + half}:\n",
        *_chosen(bodies[:half], first, depth + 1),
        f"{INDENT * depth}else:\n",
        *_chosen(bodies[half:], first + half, depth + 1),
    ]
