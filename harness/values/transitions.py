"""Arc-hybrid parsing: the transitions that lead to a dependency tree, and what they look at.

Kuhlmann, Gomez-Rodriguez and Satta, ACL 2011 (the transition system); features as in Kiperwasser
and Goldberg, TACL 2016, with leftmost and rightmost children (the options userlmost and userl of
their parser).
"""

from __future__ import annotations

from collections.abc import Sequence

SHIFT, LEFT, RIGHT = 0, 1, 2
MISSING = -1
N_STACK = 3  # items of the stack that are looked at, the top first; then the buffer's first
N_FEATURES = 2 * (N_STACK + 1)  # of each its leftmost and its rightmost child


def derive(heads: Sequence[int]) -> tuple[list[int], list[int], list[list[int]]] | None:
    """Return the transitions to a tree: kind, the token that each attaches, and its features.

    heads: of tokens 0 to n - 1; the root is token n, behind them. A SHIFT attaches none (MISSING).
    Features (2 n, N_FEATURES): for the three topmost items of the stack and the first of the buffer
    the outermost child on the left and on the right that it has so far, itself where it has none,
    MISSING where there is no item. None where no sequence leads to the tree: it is not projective.
    """
    n = len(heads)
    missing = [0] * (n + 1)  # children that are not attached yet
    for head in heads:
        missing[head] += 1
    outermost = [[token, token] for token in range(n + 1)]
    stack: list[int] = []
    front = 0
    kinds: list[int] = []
    attached: list[int] = []
    features: list[list[int]] = []
    while front < n or stack:
        looked_at = [*stack[: -N_STACK - 1 : -1], *[MISSING] * (N_STACK - len(stack)), front]
        features.append([c for t in looked_at for c in _children(outermost, t)])
        top = stack[-1] if stack and missing[stack[-1]] == 0 else MISSING
        if top != MISSING and heads[top] == front:
            kind, side, head = LEFT, 0, front
        elif top != MISSING and len(stack) > 1 and heads[top] == stack[-2]:
            kind, side, head = RIGHT, 1, stack[-2]
        elif front < n:
            kind = SHIFT
        else:
            return None
        kinds.append(kind)
        attached.append(MISSING if kind == SHIFT else top)
        if kind == SHIFT:
            stack.append(front)
            front += 1
            continue
        stack.pop()
        missing[head] -= 1
        outermost[head][side] = top
    return kinds, attached, features


def _children(outermost: Sequence[Sequence[int]], token: int) -> Sequence[int]:
    return (MISSING, MISSING) if token == MISSING else tuple(outermost[token])


def is_tree(heads: Sequence[int]) -> bool:
    """Whether every token reaches the root, token n, along its heads."""
    n = len(heads)
    reaches = [False] * n + [True]
    for token in range(n):
        path: list[int] = []
        while not reaches[token] and token not in path:
            path.append(token)
            token = heads[token]
        if not reaches[token]:
            return False
        for passed in path:
            reaches[passed] = True
    return True
