"""Analysis of the values of a program: the stage, the readers and the kernel of each.

An addition costs nothing if a matmul can do it while it writes its result. A softmax loss and its
gradient are one kernel if no other operator reads the logits. This kernel adds the bias, computes
the loss, and replaces the logits by softmax minus one-hot. Exponentials are thus computed once, and
rows of thousands of classes stay in the cache. Groups of elementwise operators become one kernel.

Source: Xu et al., "Cavs", ATC 2018, Sec. 3.5 (groups of elementwise operators).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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
MATMULS = ("matmul", "matmul_transposed")
Target = tuple[str, int | None]  # a state, and the child's slot (None: one row per edge)
Group = tuple[int, ...]  # nodes that one kernel computes


@dataclass(frozen=True, slots=True)
class Absorption:
    """Matmuls that also do the addition that follows.

    Attributes:
        into: From a matmul to the bias or add node whose value the matmul computes.
        after: From a matmul to the node whose value it adds to, which must be computed first.
    """

    into: Mapping[int, int]
    after: Mapping[int, int]

    @property
    def merged(self) -> frozenset[int]:
        """Additions that need no separate step."""
        return frozenset(self.into.values())


@dataclass(frozen=True, slots=True)
class SoftmaxLoss:
    """Nodes of one loss.

    Attributes:
        bias: The node that adds a bias to a matmul, if the logits are such a sum.
        gradient: The gradient of the logits; None in inference.
    """

    loss: int
    logits: int
    bias: int | None
    gradient: int | None


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
    readers = _Readers(nodes, stage_of, consumers, results, scattered)
    losses = readers.find_losses(scattered | given) if abilities.fuses_losses else {}
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


@dataclass(frozen=True, slots=True)
class _Readers:
    """Readers of the values of one program.

    Attributes:
        results: Values that are also read outside of the program, such as states and outputs.
    """

    nodes: Sequence[Node]
    stage_of: Mapping[int, str]
    consumers: Sequence[Sequence[int]]
    results: frozenset[int]
    scattered: frozenset[int]

    def find_absorption(self, biases: frozenset[int], abilities: Abilities) -> Absorption:
        """Find sums x W + b and y + x W whose parts have no other use.

        A fused kernel of the same stage that reads x W + b adds the bias itself.

        A scattered sum is stored in its state row, where no other value can be computed first.

        Args:
            biases: Biases of losses, whose kernels add them in place.
        """
        nodes, into, after = self.nodes, dict[int, int](), dict[int, int]()
        for i, node in enumerate(nodes):
            if i not in self.stage_of or node.op not in ("bias", "add"):
                continue
            if node.op == "bias":
                product = node.inputs[0]
                whole = node.shape[-1:] == nodes[node.inputs[1]].shape
                absorbs = not abilities.fuses or (
                    abilities.starts_from_biases and not self._has_elementwise_reader(i, i)
                )
                is_sum = whole and nodes[product].op in MATMULS and self._is_sole_use(product, i)
                if i in biases or (absorbs and is_sum):
                    into[product] = i
                continue
            if i in self.scattered or any(nodes[k].op == "concat" for k in self.consumers[i]):
                continue  # the reader determines its columns, not its parts
            for target, product in (node.inputs, node.inputs[::-1]):
                if nodes[product].op not in MATMULS or product in into or product == target:
                    continue
                if self.stage_of.get(product) != self.stage_of[i]:
                    continue  # a matmul of an earlier stage would run before its addend is computed
                if self._is_sole_use(product, i) and self._may_grow(target, i):
                    into[product], after[product] = i, target
                    break
        return Absorption(into, after)

    def _has_elementwise_reader(self, i: int, value: int) -> bool:
        """Return whether an elementwise operator of i's stage reads a value or its slices."""
        return any(
            self._has_elementwise_reader(i, k)
            if self.nodes[k].op == "slice"
            else OPERATORS[self.nodes[k].op].elementwise
            and self.stage_of.get(k) == self.stage_of[i]
            for k in self.consumers[value]
        )

    def _is_sole_use(self, i: int, user: int) -> bool:
        return list(self.consumers[i]) == [user] and i not in self.results

    def _may_grow(self, target: int, user: int) -> bool:
        """Return whether a matmul may add to the target's memory.

        The target must have no other reader. It must be computed in the same stage, or hoisted
        before the batches, where every vertex has its own row.
        """
        nodes, base = self.nodes, target
        if not self._is_sole_use(target, user):
            return False
        if nodes[target].op == "slice":
            base = nodes[target].inputs[0]
            others = [k for k in self.consumers[base] if k != target]
            if base in self.results or any(self._reads_columns(k, target) for k in others):
                return False
        stages = (self.stage_of.get(base), self.stage_of.get(user))
        if stages == ("eager", "batch"):
            return nodes[base].op in (*MATMULS, "add", "bias", "lookup")
        return nodes[base].op in (*MATMULS, "outer", "add") and stages[0] == stages[1]

    def _reads_columns(self, reader: int, target: int) -> bool:
        """Return whether a reader of a slice's base reads columns of the slice."""
        sliced, other = self.nodes[target], self.nodes[reader]
        if other.op != "slice":
            return True
        return (
            other.index < sliced.index + sliced.width and sliced.index < other.index + other.width
        )

    def find_losses(self, pinned: frozenset[int]) -> dict[int, SoftmaxLoss]:
        """Find the losses that one kernel can compute together with their gradients.

        Args:
            pinned: Values whose columns are determined otherwise.
        """
        losses = {}
        for i, node in enumerate(self.nodes):
            if node.op == "pick_neg_log_softmax" and i in self.stage_of:
                loss = self._match_softmax_loss(i, pinned)
                if loss is not None:
                    losses[i] = loss
        return losses

    def _match_softmax_loss(self, loss: int, pinned: frozenset[int]) -> SoftmaxLoss | None:
        nodes, consumers = self.nodes, self.consumers
        logits = nodes[loss].inputs[0]
        if self.stage_of.get(logits) != self.stage_of[loss] or logits in pinned:
            return None
        gradients = [k for k in consumers[logits] if k != loss]
        if len(gradients) > 1 or any(not self._is_gradient(k, logits) for k in gradients):
            return None
        if any(k in self.results for k in gradients):
            return None
        bias, product = None, logits
        if nodes[logits].op == "bias":
            product, parameter = nodes[logits].inputs
            whole = nodes[parameter].shape == nodes[logits].shape
            if not whole or not self._is_sole_use(product, logits):
                return None
            bias = logits
        if nodes[product].op not in MATMULS:
            return None
        return SoftmaxLoss(loss, logits, bias, gradients[0] if gradients else None)

    def _is_gradient(self, i: int, logits: int) -> bool:
        """Return whether a node is the gradient of the loss itself, summed over the mini-batch."""
        node = self.nodes[i]
        return (
            node.op == "softmax_minus_one_hot"
            and node.inputs[0] == logits
            and self.nodes[node.inputs[2]].op == "ones"
        )

    def find_unneeded(self, gradients: Mapping[int, int]) -> frozenset[int]:
        """Find values that only gradients of losses read; a loss's kernel does not need them."""
        read = (k for i in gradients for k in self.nodes[i].inputs)
        only = (k for k in read if all(r in gradients for r in self.consumers[k]))
        return frozenset(k for k in only if k in self.stage_of)


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
