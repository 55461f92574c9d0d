"""What becomes of every value of a program: its stage, who reads it, and which kernel computes it.

Additions cost nothing where a matrix product can do them on its way out. A softmax loss and its
gradient are one kernel where nobody else reads the logits: it adds the bias, takes the loss, and
leaves softmax minus one-hot where they were, so that exponentials are computed once, and rows of
thousands of classes stay in the cache meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.engine.lowering.plan import Abilities
from harness.vertex.autodiff import Gradient
from harness.vertex.operators import OPERATORS, Node
from harness.vertex.program import Stage, VertexFunction, ancestors, find_stages

# Nodes that only name a value; they never become a step of their own.
SOURCES = ("gather", "gather_each", "pull", "parameter", "state_gradient")


@dataclass(frozen=True, slots=True)
class Staging:
    """Node ids by stage, each in order of evaluation; sources, slices and dropped nodes left
    out.
    """

    eager: tuple[int, ...]
    batch: tuple[int, ...]
    lazy: tuple[int, ...]
    backward: tuple[int, ...]
    backward_lazy: tuple[int, ...]

    def stage_of(self) -> dict[int, str]:
        """Name of the stage of every node."""
        return {
            node: name
            for name in ("eager", "batch", "lazy", "backward", "backward_lazy")
            for node in getattr(self, name)
        }


def is_step(node: Node) -> bool:
    """Whether a node computes something (slices are views)."""
    return node.op not in SOURCES and node.op != "slice"


def stage_program(
    function: VertexFunction,
    gradient: Gradient | None,
    nodes: tuple[Node, ...],
    *,
    lazy_batching: bool,
    hoisting: bool,
) -> Staging:
    """Apply the analysis of eager and lazy operators to both halves of a program.

    A function without gathers is ready as a whole, so it runs with its batch and writes its state
    there. An operator that the backward half needs belongs to the forward half if it was traced
    there.
    """
    n_forward = len(function.nodes) if gradient is None else gradient.n_forward
    pushed = [i for i in (function.push, function.loss) if i is not None]
    kept = set(range(n_forward)) & _needed(function, gradient, nodes)
    scattered = [i for _, i in function.scatter]
    stages = find_stages(nodes, function.gathers(), scattered, [*pushed, *kept])
    forward = [i for i in range(len(nodes)) if i in kept and is_step(nodes[i])]
    has_gathers = bool(function.gathers())
    eager = [i for i in forward if stages[i] is Stage.EAGER and hoisting and has_gathers]
    lazy = [i for i in forward if stages[i] is Stage.LAZY and lazy_batching and has_gathers]
    apart = {*eager, *lazy}
    batch = [i for i in forward if i not in apart]
    backward, backward_lazy = _stage_backward(gradient, nodes, lazy_batching)
    return Staging(tuple(eager), tuple(batch), tuple(lazy), tuple(backward), tuple(backward_lazy))


def _needed(
    function: VertexFunction, gradient: Gradient | None, nodes: tuple[Node, ...]
) -> set[int]:
    roots = [i for _, i in function.scatter]
    roots += [i for i in (function.push, function.loss) if i is not None]
    if gradient is not None:
        roots += [i for _, i in gradient.gathers] + list(gradient.sinks)
    return ancestors(nodes, roots)


def _stage_backward(
    gradient: Gradient | None, nodes: tuple[Node, ...], lazy_batching: bool
) -> tuple[list[int], list[int]]:
    if gradient is None:
        return [], []
    incoming = [i for i, node in enumerate(nodes) if node.op == "state_gradient"]
    outgoing = [i for _, i in gradient.gathers]
    stages = find_stages(nodes, incoming, outgoing, gradient.sinks)
    mine = [
        i
        for i in range(gradient.n_forward, len(nodes))
        if stages[i] is not Stage.UNUSED and is_step(nodes[i])
    ]
    lazy = {i for i in mine if stages[i] is Stage.LAZY and lazy_batching}
    lazy |= {i for i in mine if OPERATORS[nodes[i].op].sink and lazy_batching}
    return [i for i in mine if i not in lazy], [i for i in mine if i in lazy]


@dataclass(frozen=True, slots=True)
class Results:
    """Values that others than nodes read.

    scatter: (state, node) pairs. shown: nodes that the outside sees.
    gradients: (gather node, node of its gradient) pairs, which are given back to children.
    """

    scatter: tuple[tuple[str, int], ...]
    shown: frozenset[int]
    gradients: tuple[tuple[int, int], ...]

    @property
    def scattered(self) -> frozenset[int]:
        """Nodes whose values are states."""
        return frozenset(i for _, i in self.scatter)

    @property
    def given_back(self) -> frozenset[int]:
        """Nodes whose values are gradients of children's states."""
        return frozenset(i for _, i in self.gradients)

    @property
    def all(self) -> frozenset[int]:
        """All of these nodes."""
        return self.scattered | self.shown | self.given_back


def find_results(function: VertexFunction, gradient: Gradient | None) -> Results:
    """What is read of a vertex function, and of its gradient where there is one."""
    shown = frozenset(i for i in (function.push, function.loss) if i is not None)
    return Results(function.scatter, shown, gradient.gathers if gradient is not None else ())


MATMULS = ("matmul", "matmul_transposed")


@dataclass(frozen=True, slots=True)
class Absorption:
    """Products that also do the addition behind them.

    into: product -> the bias or add node whose value it leaves behind.
    after: product -> the node whose value it adds to, which must come first.
    """

    into: Mapping[int, int]
    after: Mapping[int, int]

    @property
    def merged(self) -> frozenset[int]:
        """Additions that need no step of their own."""
        return frozenset(self.into.values())


def find_absorption(
    nodes: Sequence[Node],
    stage_of: Mapping[int, str],
    pinned: frozenset[int],
    scattered: frozenset[int],
    *,
    absorb_bias: bool,
    biases: frozenset[int] = frozenset(),
) -> Absorption:
    """Find sums x W + b and y + x W in which the parts have no other use.

    pinned: nodes that others than nodes read: scattered, shown outside, gradients of children.
    scattered: nodes whose place is their state's, where no other value can be first.
    biases: additions of a bias that another kernel does where the product left its rows.
    """
    consumers = find_consumers(nodes, {*stage_of, *pinned})
    into: dict[int, int] = {}
    after: dict[int, int] = {}
    for i, node in enumerate(nodes):
        if i not in stage_of or node.op not in ("bias", "add"):
            continue
        if node.op == "bias":
            product = node.inputs[0]
            whole = node.shape[-1:] == nodes[node.inputs[1]].shape
            absorbs = absorb_bias and whole and nodes[product].op in MATMULS
            if i in biases or (absorbs and _sole_use(product, i, consumers, pinned)):
                into[product] = i
            continue
        if i in scattered or any(nodes[k].op == "concat" for k in consumers[i]):
            continue  # its place is chosen for its reader, not for its parts
        for target, product in (node.inputs, node.inputs[::-1]):
            if nodes[product].op not in MATMULS or product in into or product == target:
                continue
            if stage_of.get(product) != stage_of[i]:
                continue  # a product of an earlier stage would come before what it adds to
            if _sole_use(product, i, consumers, pinned) and _may_grow(
                target, i, nodes, stage_of, consumers, pinned
            ):
                into[product], after[product] = i, target
                break
    return Absorption(into, after)


def find_consumers(nodes: Sequence[Node], results: Iterable[int]) -> list[list[int]]:
    """Nodes that read each node, of those that the results depend on."""
    used = set(results)
    for i in reversed(range(len(nodes))):
        if i in used:
            used.update(nodes[i].inputs)
    consumers: list[list[int]] = [[] for _ in nodes]
    for i, node in enumerate(nodes):
        if i in used:
            for operand in dict.fromkeys(node.inputs):
                consumers[operand].append(i)
    return consumers


def _sole_use(
    i: int, user: int, consumers: Sequence[Sequence[int]], pinned: frozenset[int]
) -> bool:
    return list(consumers[i]) == [user] and i not in pinned


def _may_grow(
    target: int,
    user: int,
    nodes: Sequence[Node],
    stage_of: Mapping[int, str],
    consumers: Sequence[Sequence[int]],
    pinned: frozenset[int],
) -> bool:
    """Whether the target's memory may be added to: read by nobody else, and computed in the same
    stage, or hoisted before the batches, where every vertex has a row of its own.
    """
    if not _sole_use(target, user, consumers, pinned):
        return False
    base = target
    if nodes[target].op == "slice":
        base = nodes[target].inputs[0]
        others = [k for k in consumers[base] if k != target]
        if base in pinned or any(_reads_columns(nodes, k, target) for k in others):
            return False
    stages = (stage_of.get(base), stage_of.get(user))
    if stages == ("eager", "batch"):
        return nodes[base].op in (*MATMULS, "add", "bias", "lookup")
    return nodes[base].op in (*MATMULS, "outer", "add") and stages[0] == stages[1]


def _reads_columns(nodes: Sequence[Node], reader: int, target: int) -> bool:
    """Whether a reader of a slice's base sees columns of the slice."""
    if nodes[reader].op != "slice":
        return True
    start, other = nodes[target].index, nodes[reader].index
    return other < start + nodes[target].width and start < other + nodes[reader].width


@dataclass(frozen=True, slots=True)
class SoftmaxLoss:
    """Nodes of one loss.

    bias: the node that adds one to a product, if that is what the logits are. gradient: of the
    logits, None in inference.
    """

    loss: int
    logits: int
    bias: int | None
    gradient: int | None


@dataclass(frozen=True, slots=True)
class Losses:
    """All of them in one program, by the node of the loss."""

    by_loss: Mapping[int, SoftmaxLoss]

    @property
    def biases(self) -> frozenset[int]:
        """Additions of a bias that a loss's kernel does."""
        return frozenset(one.bias for one in self.by_loss.values() if one.bias is not None)

    @property
    def gradients(self) -> Mapping[int, int]:
        """Gradients that a loss's kernel leaves in the place of the logits, and these."""
        return {
            one.gradient: one.logits for one in self.by_loss.values() if one.gradient is not None
        }


def find_losses(
    nodes: Sequence[Node], stage_of: Mapping[int, str], results: Results, *, able: bool
) -> Losses:
    """Find the losses of a program that one kernel can do; able: whether there is such a kernel."""
    if not able:
        return Losses({})
    consumers = find_consumers(nodes, {*stage_of, *results.all})
    found = {}
    for i, node in enumerate(nodes):
        if node.op == "pick_neg_log_softmax" and i in stage_of:
            one = _softmax_loss(nodes, i, stage_of, consumers, results)
            if one is not None:
                found[i] = one
    return Losses(found)


def _softmax_loss(
    nodes: Sequence[Node],
    loss: int,
    stage_of: Mapping[int, str],
    consumers: Sequence[Sequence[int]],
    results: Results,
) -> SoftmaxLoss | None:
    logits = nodes[loss].inputs[0]
    pinned = results.scattered | results.given_back
    if stage_of.get(logits) != stage_of[loss] or logits in pinned:
        return None
    gradients = [k for k in consumers[logits] if k != loss]
    if len(gradients) > 1 or any(not _is_gradient(nodes, k, logits) for k in gradients):
        return None
    if any(k in results.all for k in gradients):
        return None
    bias = None
    if nodes[logits].op == "bias":
        product, parameter = nodes[logits].inputs
        whole = nodes[parameter].shape == nodes[logits].shape
        alone = list(consumers[product]) == [logits] and product not in results.all
        if not whole or not alone:
            return None
        bias, product_node = logits, nodes[product]
    else:
        product_node = nodes[logits]
    if product_node.op not in MATMULS:
        return None
    return SoftmaxLoss(loss, logits, bias, gradients[0] if gradients else None)


def _is_gradient(nodes: Sequence[Node], i: int, logits: int) -> bool:
    """Whether a node is the gradient of the loss itself, summed over the mini-batch."""
    node = nodes[i]
    return (
        node.op == "softmax_minus_one_hot"
        and node.inputs[0] == logits
        and nodes[node.inputs[2]].op == "ones"
    )


Target = tuple[str, int | None]  # state of children, and which child (None: one row an edge)
FusedAdds = Mapping[int, tuple[Target, ...]]


@dataclass(frozen=True, slots=True)
class Uses:
    """Of every value of one program, by node.

    stage_of: where it is computed; sources and slices are not. group_of: the nodes that are
    computed in one kernel with it. consumers: nodes that read it.
    fused_adds: what its kernel adds it to on the spot. given_back: gradients of children that a
    step of their own adds. kept: values that are read where they lie after their stage's operators:
    shown, scattered or given back. losses: those that one kernel does with their gradients.
    """

    nodes: tuple[Node, ...]
    results: Results
    abilities: Abilities
    absorption: Absorption
    stage_of: Mapping[int, str]
    group_of: Mapping[int, tuple[int, ...]]
    consumers: Sequence[Sequence[int]]
    fused_adds: FusedAdds
    given_back: frozenset[int]
    kept: frozenset[int]
    losses: Losses

    def is_slice(self, i: int) -> bool:
        """Whether a value is columns of another."""
        return self.nodes[i].op == "slice"

    def is_elementwise(self, i: int) -> bool:
        """Whether a value is computed position by position."""
        return OPERATORS[self.nodes[i].op].elementwise

    def root(self, i: int) -> int:
        """The node that computes the value of which i is columns."""
        while self.is_slice(i):
            i = self.nodes[i].inputs[0]
        return i

    def is_stored(self, i: int) -> bool:
        """Whether a computed value needs a place: neither summed up nor left in a register."""
        if OPERATORS[self.nodes[i].op].sink or i in self.absorption.into:
            return False
        if i in self.unneeded:
            return False
        if not self.abilities.fuses or not self.is_elementwise(i):
            return True
        if i in self.results.shown or i in self.given_back:
            return True
        return any(k not in self.group_of[i] for k in self.consumers[i])

    @property
    def unneeded(self) -> frozenset[int]:
        """What only gradients read that a loss's kernel computes without it."""
        read = (k for i in self.losses.gradients for k in self.nodes[i].inputs)
        only = (k for k in read if all(r in self.losses.gradients for r in self.consumers[k]))
        return frozenset(k for k in only if k in self.stage_of and k not in self.kept)

    def added_on_the_spot(self, group: tuple[int, ...]) -> tuple[tuple[int, str, int | None], ...]:
        """Results of a fused group that are added to children's gradients by its kernel."""
        return tuple((i, *target) for i in group for target in self.fused_adds.get(i, ()))


def find_uses(
    nodes: tuple[Node, ...],
    results: Results,
    stage_of: Mapping[int, str],
    groups: Sequence[tuple[int, ...]],
    absorption: Absorption,
    abilities: Abilities,
    losses: Losses,
) -> Uses:
    """Uses of all values; groups: of all stages, groups of one where a kernel is one operator."""
    fused_adds = _find_fused_adds(nodes, results, stage_of, absorption, abilities)
    given_back = results.given_back.difference(fused_adds)
    return Uses(
        nodes=nodes,
        results=results,
        abilities=abilities,
        absorption=absorption,
        stage_of=stage_of,
        group_of={i: group for group in groups for i in group},
        consumers=find_consumers(nodes, {*stage_of, *results.all}),
        fused_adds=fused_adds,
        given_back=given_back,
        kept=results.scattered | results.shown | given_back,
        losses=losses,
    )


def _find_fused_adds(
    nodes: Sequence[Node],
    results: Results,
    stage_of: Mapping[int, str],
    absorption: Absorption,
    abilities: Abilities,
) -> FusedAdds:
    """Gradients of children that the kernels which compute them add on the spot."""
    found: dict[int, tuple[Target, ...]] = {}
    if not abilities.adds_to_children:
        return found
    for source, i in results.gradients:
        fusible = OPERATORS[nodes[i].op].elementwise and i not in absorption.merged
        if fusible and i in stage_of:
            gather = nodes[source]
            slot = gather.index if gather.op == "gather" else None
            found[i] = (*found.get(i, ()), (gather.name, slot))
    return found
