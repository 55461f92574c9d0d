"""Analysis of the values of a program: the stage, the readers and the kernel of each.

Groups of elementwise operators become one kernel.

Source: Xu et al., "Cavs", ATC 2018, Sec. 3.5 (groups of elementwise operators).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dynbatch.harness.engine.lowering.absorption import Absorption, Readers, SoftmaxLoss
from dynbatch.harness.engine.lowering.plan import STAGES, Abilities
from dynbatch.harness.errors import ScheduleError
from dynbatch.harness.vertex.autodiff import Gradient
from dynbatch.harness.vertex.operators import OPERATORS, Node
from dynbatch.harness.vertex.program import (
    OperatorStage,
    VertexFunction,
    find_ancestors,
    find_consumers,
    find_stages,
)

# Nodes that only name a value; they never become a step.
SOURCES = ("gather", "gather_each", "pull", "parameter", "state_gradient")
Target = tuple[str, int | None]  # a state, and the child's slot (None: one row per edge)
Group = tuple[int, ...]  # nodes that one kernel computes


@dataclass(frozen=True, slots=True)
class Uses:
    """Stages, kernels and readers of the values of one program, by node.

    Attributes:
        stage_of: The stage that computes a value; sources and slices have none.
        orders: The kernels of every stage, in order.
        fused_adds: The children's gradients to which a value's kernel adds it.
        given_back: Gradients of children that a separate step adds.
        kept: Values that are read in their buffer after the operators of their stage: results
            of the function, and gradients of children that a separate step adds.
        losses: Losses that one kernel computes together with their gradients, by the node of the
            loss.
        unneeded: Values that only the gradients of such losses read.
    """

    function: VertexFunction
    nodes: tuple[Node, ...]
    abilities: Abilities
    absorption: Absorption
    stage_of: Mapping[int, str]
    orders: Mapping[str, Sequence[Group]]
    group_of: Mapping[int, Group]
    consumers: Sequence[Sequence[int]]
    fused_adds: Mapping[int, tuple[Target, ...]]
    given_back: frozenset[int]
    kept: frozenset[int]
    losses: Mapping[int, SoftmaxLoss]
    unneeded: frozenset[int]

    @property
    def loss_gradients(self) -> Mapping[int, int]:
        """Gradients that a loss's kernel stores over the logits, with these logits."""
        return _map_gradients(self.losses)

    @property
    def loss_biases(self) -> frozenset[int]:
        """Additions of a bias that a loss's kernel does."""
        return _collect_biases(self.losses)

    def is_slice(self, i: int) -> bool:
        """Return whether a value is a slice of another."""
        return self.nodes[i].op == "slice"

    def is_elementwise(self, i: int) -> bool:
        """Return whether an operator is elementwise."""
        return OPERATORS[self.nodes[i].op].elementwise

    def find_root(self, i: int) -> int:
        """Return the node of which i is a slice, through all slices."""
        while self.is_slice(i):
            i = self.nodes[i].inputs[0]
        return i

    def is_stored(self, i: int) -> bool:
        """Return whether a computed value needs memory: neither summed nor only in a register."""
        if OPERATORS[self.nodes[i].op].sink or i in self.absorption.into:
            return False
        if i in self.unneeded:
            return False
        if not self.abilities.fuses or not self.is_elementwise(i):
            return True
        if i in self.function.shown or i in self.given_back:
            return True
        return any(k not in self.group_of[i] for k in self.consumers[i])

    def list_fused_adds(self, group: Group) -> tuple[tuple[int, str, int | None], ...]:
        """Return the results of a fused group that its kernel adds to children's gradients."""
        return tuple((i, *target) for i in group for target in self.fused_adds.get(i, ()))


def find_uses(
    function: VertexFunction,
    gradient: Gradient | None,
    abilities: Abilities,
    *,
    lazy_batching: bool,
    hoisting: bool,
) -> Uses:
    """Analyze all values of a function, and of its gradient if there is one."""
    nodes = function.nodes if gradient is None else gradient.nodes
    stages = _stage_forward(function, gradient, nodes, lazy_batching, hoisting)
    stages |= _stage_backward(gradient, nodes, lazy_batching)
    stage_of = {i: stage for stage in STAGES for i in stages[stage]}
    gathers = () if gradient is None else gradient.gathers
    given = frozenset(i for _, i in gathers)
    results = function.results | given
    consumers = find_consumers(nodes, {*stage_of, *results})
    scattered = frozenset(i for _, i in function.scatter)
    readers = Readers(nodes, stage_of, consumers, results, scattered)
    losses = readers.find_losses(scattered | given) if abilities.fuses else {}
    absorption = readers.find_absorption(_collect_biases(losses), abilities)
    orders = {
        stage: order_stage(nodes, stages[stage], absorption, fuse=abilities.fuses)
        for stage in STAGES
    }
    fused_adds = dict[int, tuple[Target, ...]]()
    if abilities.adds_to_children:
        fused_adds = _find_fused_adds(nodes, gathers, stage_of, absorption)
    given_back = given.difference(fused_adds)
    kept = function.results | given_back
    return Uses(
        function=function,
        nodes=nodes,
        abilities=abilities,
        absorption=absorption,
        stage_of=stage_of,
        orders=orders,
        group_of={i: group for order in orders.values() for group in order for i in group},
        consumers=consumers,
        fused_adds=fused_adds,
        given_back=given_back,
        kept=kept,
        losses=losses,
        unneeded=readers.find_unneeded(_map_gradients(losses)) - kept,
    )


def _map_gradients(losses: Mapping[int, SoftmaxLoss]) -> dict[int, int]:
    return {loss.gradient: loss.logits for loss in losses.values() if loss.gradient is not None}


def _collect_biases(losses: Mapping[int, SoftmaxLoss]) -> frozenset[int]:
    return frozenset(loss.bias for loss in losses.values() if loss.bias is not None)


def _is_step(node: Node) -> bool:
    """Return whether a node computes something (slices are views)."""
    return node.op not in SOURCES and node.op != "slice"


def _stage_forward(
    function: VertexFunction,
    gradient: Gradient | None,
    nodes: tuple[Node, ...],
    lazy_batching: bool,
    hoisting: bool,
) -> dict[str, list[int]]:
    """Return the nodes of every forward stage, in order of evaluation.

    A function without gathers is ready as a whole, so it runs with its batch and writes its state
    there. An operator that the backward half needs belongs to the forward half if it was traced
    there.
    """
    roots = set(function.results)
    if gradient is not None:
        roots.update(i for _, i in gradient.gathers)
        roots.update(gradient.sinks)
    n_forward = len(function.nodes) if gradient is None else gradient.n_forward
    kept = set(range(n_forward)) & find_ancestors(nodes, roots)
    scattered = [i for _, i in function.scatter]
    stages = find_stages(nodes, function.find_gathers(), scattered, [*function.shown, *kept])
    has_gathers = bool(function.find_gathers())
    apart = {
        OperatorStage.EAGER: "eager" if hoisting and has_gathers else "batch",
        OperatorStage.LAZY: "lazy" if lazy_batching and has_gathers else "batch",
    }
    staged: dict[str, list[int]] = {"eager": [], "batch": [], "lazy": []}
    for i, node in enumerate(nodes):
        if i in kept and _is_step(node):
            staged[apart.get(stages[i], "batch")].append(i)
    return staged


def _stage_backward(
    gradient: Gradient | None, nodes: tuple[Node, ...], lazy_batching: bool
) -> dict[str, list[int]]:
    staged: dict[str, list[int]] = {"backward": [], "backward_lazy": []}
    if gradient is None:
        return staged
    incoming = [i for i, node in enumerate(nodes) if node.op == "state_gradient"]
    outgoing = [i for _, i in gradient.gathers]
    stages = find_stages(nodes, incoming, outgoing, gradient.sinks)
    for i in range(gradient.n_forward, len(nodes)):
        if stages[i] is not OperatorStage.UNUSED and _is_step(nodes[i]):
            may_wait = stages[i] is OperatorStage.LAZY or OPERATORS[nodes[i].op].sink
            staged["backward_lazy" if may_wait and lazy_batching else "backward"].append(i)
    return staged


def _find_fused_adds(
    nodes: Sequence[Node],
    gathers: Sequence[tuple[int, int]],
    stage_of: Mapping[int, str],
    absorption: Absorption,
) -> dict[int, tuple[Target, ...]]:
    """Find gradients that the kernels which compute them also add to those of children."""
    fused_adds: dict[int, tuple[Target, ...]] = {}
    for source, i in gathers:
        fusible = OPERATORS[nodes[i].op].elementwise and i not in absorption.merged
        if fusible and i in stage_of:
            gather = nodes[source]
            slot = gather.index if gather.op == "gather" else None
            fused_adds[i] = (*fused_adds.get(i, ()), (gather.name, slot))
    return fused_adds


def order_stage(
    nodes: Sequence[Node], stage: Sequence[int], absorption: Absorption, *, fuse: bool
) -> list[Group]:
    """Order the nodes of one stage; with `fuse`, join elementwise nodes of equal shape and domain.

    Other operators run as early as possible, so that groups grow.

    Returns:
        Tuples of node ids; a tuple of several is one fused group.

    Raises:
        ScheduleError: The operators depend on each other in a cycle.
    """
    inside = set(stage)
    pending = list(stage)
    done: set[int] = set()

    def is_available(i: int) -> bool:
        if nodes[i].op == "slice":
            return is_available(nodes[i].inputs[0])
        return i in done or i not in inside

    def is_ready(i: int) -> bool:
        first = absorption.after.get(i)
        return all(map(is_available, nodes[i].inputs)) and (first is None or is_available(first))

    def is_fusible(i: int) -> bool:
        return fuse and OPERATORS[nodes[i].op].elementwise and i not in absorption.merged

    ordered: list[Group] = []
    while pending:
        alone = [i for i in pending if not is_fusible(i) and is_ready(i)]
        groups: list[Group] = [(i,) for i in alone] or [
            _grow_group(nodes, pending, is_fusible, is_available)
        ]
        if not groups[0]:
            raise ScheduleError(f"operators {pending} depend on each other; report this function")
        ordered += groups
        done.update(i for group in groups for i in group)
        pending = [i for i in pending if i not in done]
    return ordered


def _grow_group(
    nodes: Sequence[Node],
    pending: Sequence[int],
    fusible: Callable[[int], bool],
    available: Callable[[int], bool],
) -> Group:
    group: list[int] = []
    for i in pending:
        node = nodes[i]
        first = nodes[group[0]] if group else node
        same = (node.shape, node.domain) == (first.shape, first.domain)
        if fusible(i) and same and all(k in group or available(k) for k in node.inputs):
            group.append(i)
    return tuple(group)
