"""Values that take the place of others: of what a product adds to, or of an operand that dies."""

from __future__ import annotations

from harness.engine.lowering.placed import Placed, place_alone, place_view
from harness.engine.lowering.plan import Memory, Ref
from harness.engine.lowering.uses import Uses


def place_value(uses: Uses, placed: Placed, i: int) -> Placed:
    """Give a node the place of another where it can have that, and else a buffer of its own."""
    if i in placed.refs:
        return placed
    if uses.is_slice(i):
        return place_view(uses, place_value(uses, placed, uses.nodes[i].inputs[0]), i)
    target = _sum_grows_from(uses, i)
    if target is not None:
        placed = place_value(uses, placed, target)
        return placed.at(i, placed.refs[target])
    if not uses.abilities.reuses_places:
        return place_alone(uses, placed, i)
    return _place_over_operand(uses, placed, i)


def _sum_grows_from(uses: Uses, i: int) -> int | None:
    """What products add to that leave this sum behind, if i is one."""
    targets = uses.absorption.after.items()
    return next((to for product, to in targets if uses.absorption.into[product] == i), None)


def _place_over_operand(uses: Uses, placed: Placed, i: int) -> Placed:
    """Place a node over an operand of its group whose place is free once the group has run."""
    if not uses.is_elementwise(i) or i in uses.absorption.merged:
        return place_alone(uses, placed, i)
    group = uses.group_of[i]
    taken = {ref for k, ref in placed.refs.items() if k in group}
    operands = [k for member in group for k in uses.nodes[member].inputs]
    read = {ref for k in operands if (ref := _columns_of(uses, placed, k)) is not None}
    for operand in operands:
        root = uses.root(operand)
        if root not in placed.refs or uses.stage_of.get(root) != uses.stage_of[i]:
            continue
        placed = place_view(uses, placed, operand)
        ref = placed.refs[operand]
        fits = ref not in taken and ref.width == uses.nodes[i].width
        shifted = any(_overlap(ref, other) and ref != other for other in read)
        if fits and not shifted and _becomes_free(uses, placed, operand, group):
            return placed.at(i, ref)
    return place_alone(uses, placed, i)


def _columns_of(uses: Uses, placed: Placed, i: int) -> Ref | None:
    """Where a value lies, its own place or that of the value it is a slice of, if that is settled.

    A group reads and writes column by column: a result over columns that another operand reads
    shifted would be read in place of what stood there.
    """
    if i in placed.refs or not uses.is_slice(i):
        return placed.refs.get(i)
    node = uses.nodes[i]
    whole = _columns_of(uses, placed, node.inputs[0])
    return None if whole is None else whole.columns(node.index, node.width)


def _becomes_free(uses: Uses, placed: Placed, operand: int, group: tuple[int, ...]) -> bool:
    """Whether nobody but the group reads the columns of a placed operand, nor the outside."""
    ref, root = placed.refs[operand], uses.root(operand)
    if placed.buffers[ref.buffer].memory not in (Memory.SCRATCH, Memory.SAVED):
        return False
    if ref.buffer.is_gathered or root in group:
        return False
    if root in uses.results.shown or root in uses.absorption.into:
        return False
    others = [k for k, other in placed.refs.items() if _overlap(ref, other)]
    return all(_dies_in(uses, k, group) for k in others) and _slices_die_in(uses, root, group)


def _overlap(one: Ref, other: Ref) -> bool:
    apart = one.start + one.width <= other.start or other.start + other.width <= one.start
    return one.buffer == other.buffer and not apart


def _dies_in(uses: Uses, i: int, group: tuple[int, ...]) -> bool:
    """Whether a group is the last to read a value, but for its slices."""
    readers = [k for k in uses.consumers[i] if not uses.is_slice(k)]
    return i not in uses.kept and all(k in group for k in readers)


def _slices_die_in(uses: Uses, root: int, group: tuple[int, ...]) -> bool:
    """Whether a group is the last to read a value and its slices, placed or not."""
    slices = [k for k in uses.consumers[root] if uses.is_slice(k)]
    own = [k for k in uses.consumers[root] if not uses.is_slice(k)]
    readers = [*own, *(reader for k in slices for reader in uses.consumers[k])]
    return all(k not in uses.kept for k in slices) and all(k in group for k in readers)
