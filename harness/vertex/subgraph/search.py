"""Batching of a block's operators: DyNet's agenda, or a search for the fewest kernels.

Both always execute all ready operators of one type, as in ED-Batch's release, src/pattern_cache.cc.
"""

from __future__ import annotations

from collections.abc import Iterator

from dynbatch.harness.vertex.subgraph.block import OperatorBatch, OperatorBlock

Cost = tuple[int, int]  # kernels, copied elements
# After the first number of partial schedules the search executes a type's last operator immediately
# (as the release always does); after the second it stops with the best schedule found.
MANY, TOO_MANY = 2_000, 10_000


def batch_by_agenda(block: OperatorBlock) -> tuple[OperatorBatch, ...]:
    """Execute the type whose remaining operators have the smallest average depth, repeatedly.

    The averages are over the remaining operators, as in get_batch_ids_dynet of ED-Batch's release;
    ties go to the smaller type.

    Source: Neubig, Goldberg and Dyer, "On-the-fly Operation Batching in Dynamic Computation
    Graphs", NIPS 2017.
    """
    depth, waiting = _compute_depths(block), dict.fromkeys(block.variables)
    batches = []
    while waiting:

        def average(type_id: int) -> float:
            depths = [depth[i] for i in waiting if block.type_of[i] == type_id]
            return sum(depths) / len(depths)

        ready = [i for i in waiting if not any(k in waiting for k in block.nodes[i].inputs)]
        chosen = min(sorted({block.type_of[i] for i in ready}), key=average)
        batches.append(block.batch([i for i in ready if block.type_of[i] == chosen]))
        for i in batches[-1].members:
            del waiting[i]
    return tuple(batches)


def find_fewest_kernels(block: OperatorBlock) -> tuple[OperatorBatch, ...]:
    """Search all schedules depth-first with branch and bound.

    get_batch_ids_ooc of ED-Batch's release (Chen et al., ICML 2023) counts batches. Here a copy
    that no layout can avoid also counts as a kernel, and the number of copied elements breaks ties.
    Two matmuls are then better executed separately than batched after a copy of their operands,
    while three are not. Only this reproduces the published counts of copies (their Table 2).
    """
    return _Search(block).run()


def find_unavoidable_copies(block: OperatorBlock, batch: OperatorBatch) -> list[tuple[int, ...]]:
    """Return the operands that no layout makes contiguous: those with inputs or repeated values.

    Parameters are excluded, as they are gathered once, before the first call.
    """
    if len(batch.members) == 1:
        return []
    computed = block.type_of
    return [
        operand
        for k, operand in enumerate(batch.operands)
        if not all(map(block.is_parameter, operand))
        and not block.is_shared(batch, k)
        and (len(set(operand)) < len(operand) or any(i not in computed for i in operand))
    ]


def _compute_depths(block: OperatorBlock) -> dict[int, int]:
    """Return the length of the longest path of operators that ends in each variable."""
    depth: dict[int, int] = {}
    for i in block.variables:
        depth[i] = 1 + max((depth.get(k, 0) for k in block.nodes[i].inputs), default=0)
    return depth


class _Search:
    """Branch and bound search; sets of variables are bit masks."""

    def __init__(self, block: OperatorBlock) -> None:
        self.block = block
        self.needs = {i: self._mask(block.nodes[i].inputs) for i in block.variables}
        self.of_type: dict[int, int] = {}
        for i, type_id in block.type_of.items():
            self.of_type[type_id] = self.of_type.get(type_id, 0) | 1 << i
        self.chains = self._compute_chains()
        self.n_visits = 0
        self.best: Cost | None = None
        self.found: tuple[OperatorBatch, ...] = ()
        self.seen: dict[int, Cost] = {}

    def run(self) -> tuple[OperatorBatch, ...]:
        everything = self._mask(self.block.variables)
        self._visit(everything, (), (0, 0))
        return self.found

    def _mask(self, nodes: tuple[int, ...]) -> int:
        return sum(1 << i for i in set(nodes) if i in self.block.type_of)

    def _compute_chains(self) -> list[list[tuple[int, int]]]:
        """Return each type's variables with the longest chain of the type that starts at each."""
        longest: dict[int, dict[int, int]] = {i: {} for i in self.block.variables}
        by_type: dict[int, list[tuple[int, int]]] = {}
        for i in reversed(self.block.variables):
            own = self.block.type_of[i]
            longest[i][own] = longest[i].get(own, 0) + 1
            by_type.setdefault(own, []).append((longest[i][own], 1 << i))
            for k in self.block.nodes[i].inputs:
                for type_id, length in longest[i].items():
                    if k in longest:
                        longest[k][type_id] = max(longest[k].get(type_id, 0), length)
        return [sorted(chains, reverse=True) for chains in by_type.values()]

    def _visit(self, waiting: int, path: tuple[OperatorBatch, ...], cost: Cost) -> None:
        self.n_visits += 1
        bound = (cost[0] + self._bound(waiting), cost[1])
        if self.best is not None and (bound >= self.best or self.n_visits > TOO_MANY):
            return
        if waiting in self.seen and self.seen[waiting] <= cost:
            return
        self.seen[waiting] = cost
        if not waiting:
            self.best, self.found = cost, path
            return
        for members in self._list_choices(waiting):
            batch = self.block.batch(members)
            copies = find_unavoidable_copies(self.block, batch)
            copied = sum(map(self.block.count_elements, copies))
            done = self._mask(batch.members)
            after = (cost[0] + 1 + len(copies), cost[1] + copied)
            self._visit(waiting & ~done, (*path, batch), after)

    def _list_choices(self, waiting: int) -> Iterator[list[int]]:
        """Yield the ready operators of each type."""
        by_type: dict[int, list[int]] = {}
        for i, needed in self.needs.items():
            if waiting >> i & 1 and not needed & waiting:
                by_type.setdefault(self.block.type_of[i], []).append(i)
        if self.n_visits > MANY:
            for type_id, members in by_type.items():
                if (self.of_type[type_id] & waiting).bit_count() == 1:
                    yield members
                    return
        yield from by_type.values()

    def _bound(self, waiting: int) -> int:
        """Return a lower bound on the remaining batches: the longest chain of every type."""
        return sum(
            next((length for length, variable in chains if variable & waiting), 0)
            for chains in self.chains
        )
