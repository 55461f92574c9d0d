"""Fewer and longer basic blocks: those that only jump are skipped, others join the one before."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from harness.programs.compiling.kept_lists import FEWEST
from harness.programs.compiling.texts import Lines

MOST_ROOM = 100  # entries of the log, or lists and their items, where blocks are joined
TARGET = re.compile(r"@(\d+)@")


def laid_out(
    blocks: Sequence[Lines], entries: Sequence[int]
) -> tuple[list[int], Mapping[int, Sequence[str]], int]:
    """Numbers of the blocks that anything goes to, the entries first; their lines; the most room
    that any of them takes without a look.
    """
    rooms = [block.n_log + (FEWEST + 1) * block.n_lists for block in blocks]
    bodies = {k: _direct(block.lines, blocks) for k, block in enumerate(blocks)}
    named = Counter(int(found) for k in _reached(bodies, entries) for found in _named(bodies[k]))
    kept = {k for k, block in enumerate(blocks) if block.is_begun_anew} | set(entries)
    for k in _reached(bodies, entries):
        while True:
            target = _only_jump(bodies[k][-2:])
            if target is None or named[target] > 1 or target in kept or target == k:
                break
            if rooms[k] + rooms[target] > MOST_ROOM:
                break
            bodies[k] = [*bodies[k][:-2], *bodies[target]]
            rooms[k] += rooms[target]
    order = _reached(bodies, entries)
    return order, bodies, max(rooms[k] for k in order)


def _direct(lines: Sequence[str], blocks: Sequence[Lines]) -> list[str]:
    """Jumps go where the block that they name goes at once."""

    def end_of(found: re.Match[str]) -> str:
        target, seen = int(found[1]), set[int]()
        while target not in seen:
            seen.add(target)
            following = _only_jump(blocks[target].lines)
            if following is None:
                break
            target = following
        return f"@{target}@"

    return [TARGET.sub(end_of, line) for line in lines]


def _only_jump(lines: Sequence[str]) -> int | None:
    """Where lines go that do nothing but jump."""
    if len(lines) != 2 or lines[1] != "continue":
        return None
    found = re.fullmatch(r"pc = @(\d+)@", lines[0])
    return int(found[1]) if found else None


def _named(lines: Sequence[str]) -> list[str]:
    return [found for line in lines for found in TARGET.findall(line)]


def _reached(bodies: Mapping[int, Sequence[str]], entries: Sequence[int]) -> list[int]:
    found, waiting = dict.fromkeys(entries), list(entries)
    while waiting:
        for target in map(int, _named(bodies[waiting.pop()])):
            if target not in found:
                found[target] = None
                waiting.append(target)
    return list(found)
