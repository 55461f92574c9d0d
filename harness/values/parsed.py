"""Parsed sentences, and the transitions of an arc-hybrid parser that derive their trees.

Source: Kuhlmann, Gomez-Rodriguez and Satta, ACL 2011 (the transition system); Kiperwasser and
Goldberg, TACL 2016 (the features, with leftmost and rightmost children as with the options
userlmost and userl of their parser).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dynbatch.harness.errors import DataError
from dynbatch.harness.values.arrays import IntArray, as_int_array, convert_attributes

SHIFT, LEFT, RIGHT = 0, 1, 2
MISSING = -1
N_STACK = 3  # stack items used as features, starting at the top; followed by the buffer's first
N_FEATURES = 2 * (N_STACK + 1)  # the leftmost and the rightmost child of each item


@dataclass(frozen=True, eq=False, slots=True)
class ParsedSentence:
    """Sentence with its projective dependency tree and the transitions that derive the tree.

    Attributes:
        words: (n + 1,) word ids; the last token is the root.
        tags: (n + 1,) ids of the parts of speech.
        heads: (n,) head of each other token; the root is head n.
        relations: (n,) relation id of each other token to its head.
        kinds: (2 n,) SHIFT, LEFT or RIGHT.
        arcs: (2 n,) relation that each transition assigns, -1 for SHIFT.
        features: (2 n, 8) tokens that are the features of each transition.

    Raises:
        DataError: The heads do not form a tree, or it is not projective.
    """

    words: IntArray
    tags: IntArray
    heads: IntArray
    relations: IntArray
    kinds: IntArray = field(init=False, repr=False)
    arcs: IntArray = field(init=False, repr=False)
    features: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        convert_attributes(self, "words", "tags", "heads", "relations")
        tokens = {"words": self.words, "tags": self.tags}
        arcs = {"heads": self.heads, "relations": self.relations}
        check_ids("a parsed sentence", **tokens, **arcs)
        check_equally_long(**tokens)
        check_equally_long(**arcs)
        n = len(self.heads)
        if len(self.words) != n + 1:
            raise DataError(
                f"a parsed sentence has {len(self.words)} words and {n} heads: expected"
                " one more word, the root, as the last one"
            )
        heads = self.heads.tolist()
        if max(heads) > n or not is_tree(heads):
            raise DataError("heads do not form a tree; every word must reach the root")
        derived = derive_transitions(heads)
        if derived is None:
            raise DataError("a tree is not projective; remove its sentence")
        kinds, attached, features = derived
        relations = [-1 if token < 0 else int(self.relations[token]) for token in attached]
        object.__setattr__(self, "kinds", as_int_array(kinds))
        object.__setattr__(self, "arcs", as_int_array(relations))
        object.__setattr__(self, "features", as_int_array(features))

    @property
    def n_tokens(self) -> int:
        return len(self.words)

    @property
    def n_transitions(self) -> int:
        return len(self.kinds)


def check_ids(what: str, **arrays: IntArray) -> None:
    for name, array in arrays.items():
        if array.ndim != 1 or len(array) == 0:
            raise DataError(f"{what} has no {name}; it needs at least one")
        if array.min() < 0:
            raise DataError(f"{what} has {name} {array.min()}; ids must not be negative")


def check_equally_long(**arrays: IntArray) -> None:
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        counts = " and ".join(f"{length} {name}" for name, length in lengths.items())
        raise DataError(f"a sentence has {counts}; each word needs one of each")


def derive_transitions(heads: Sequence[int]) -> tuple[list[int], list[int], list[list[int]]] | None:
    """Derive the transitions of a tree.

    Args:
        heads: Heads of tokens 0 to n - 1; the root is token n.

    Returns:
        None if the tree is not projective. Otherwise the kind of each transition, the token that it
        attaches (MISSING for SHIFT), and its features (2 n, N_FEATURES). The features are the
        leftmost and the rightmost child so far of the three topmost stack items and of the first
        buffer item: the item itself if it has no child, and MISSING without an item.
    """
    n = len(heads)
    missing = [0] * (n + 1)  # number of children that are not attached yet
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
        features.append([c for t in looked_at for c in _list_children(outermost, t)])
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


def _list_children(outermost: Sequence[Sequence[int]], token: int) -> Sequence[int]:
    return (MISSING, MISSING) if token == MISSING else tuple(outermost[token])


def is_tree(heads: Sequence[int]) -> bool:
    """Return whether every token reaches the root, token n, along its heads."""
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
