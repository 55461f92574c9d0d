"""Lowering of a vertex function and its gradient to a plan: stages, steps and columns of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dynbatch.harness.engine.lowering.absorption import MATMULS
from dynbatch.harness.engine.lowering.analysis import Uses, find_uses
from dynbatch.harness.engine.lowering.fusion import narrow_function, sink_all_slices
from dynbatch.harness.engine.lowering.placement import log_sum, place
from dynbatch.harness.engine.lowering.plan import (
    STAGES,
    Abilities,
    CopyStep,
    ElementwiseStep,
    MatmulStep,
    OperatorStep,
    PackStep,
    Plan,
    Ref,
    ScatterAddStep,
    SinkStep,
    SoftmaxLossStep,
    Step,
)
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.vertex.autodiff import Gradient, differentiate
from dynbatch.harness.vertex.folding import FoldedTable, fold_tables
from dynbatch.harness.vertex.operators import OPERATORS
from dynbatch.harness.vertex.program import OperatorStage, VertexFunction, find_consumers
from dynbatch.harness.vertex.subgraph.columns import LaidOutFunction, Pack, lay_out


def lower(function: VertexFunction, switches: Switches, abilities: Abilities, train: bool) -> Plan:
    """Plan one vertex function for training (F and dF) or inference (F only).

    Args:
        abilities: Those of the backend that will execute the plan.
    """
    tables: tuple[FoldedTable, ...] = ()
    if switches.fold_tables and not train:
        function, tables = fold_tables(function)
    if not switches.fusion:  # every operator is a separate kernel
        abilities = Abilities(abilities.operators, reuses_places=abilities.reuses_places)
    if switches.blas != "auto":
        # A library rearranges the parameter in each of its matmul calls.
        abilities = replace(abilities, largest_in_place=0)
    if not switches.gather_fusion:
        abilities = replace(abilities, reads_children=False, adds_to_children=False)
    plan = _plan_function(_lay_out_function(function, switches), switches, abilities, train)
    return replace(plan, tables=tables)


def _plan_function(
    laid_out: LaidOutFunction, switches: Switches, abilities: Abilities, train: bool
) -> Plan:
    function = laid_out.function
    if abilities.narrows:
        function = narrow_function(function)
    gradient = differentiate(function) if train else None
    if abilities.fuses:
        function, gradient = sink_all_slices(function, gradient)
    if gradient is not None and abilities.gives_back_parts:
        gradient = replace(gradient, gathers=_split_gradients(gradient))
    uses = find_uses(
        function,
        gradient,
        abilities,
        lazy_batching=switches.lazy_batching,
        hoisting=switches.hoists,
    )
    anew = switches.lays_out_subgraphs and not switches.pre_gather_parameters
    return _Lowering(laid_out, uses, laid_out.packs if anew else (), gradient).plan()


def _split_gradients(gradient: Gradient) -> tuple[tuple[int, int], ...]:
    """Return the children's gradients; a sum without other readers is replaced by its parts."""
    nodes = gradient.nodes
    consumers = find_consumers(nodes, range(len(nodes)))
    given = [i for _, i in gradient.gathers]
    parts: list[tuple[int, int]] = []
    waiting = list(gradient.gathers[::-1])
    while waiting:
        gather, i = waiting.pop()
        if nodes[i].op == "add" and not consumers[i] and given.count(i) == 1:
            waiting += [(gather, k) for k in nodes[i].inputs[::-1]]
        else:
            parts.append((gather, i))
    return tuple(parts)


def _lay_out_function(function: VertexFunction, switches: Switches) -> LaidOutFunction:
    """Return the function, with its inner operators batched if a switch requests it."""
    if not switches.lays_out_subgraphs:
        return LaidOutFunction(function, (), {})
    apart = [OperatorStage.EAGER] * switches.hoists + [OperatorStage.LAZY] * switches.lazy_batching
    joined = switches.pre_gather_parameters
    return lay_out(function, switches.layout, apart=apart, joined=joined)


class _Lowering:
    """Lowering of one function.

    Attributes:
        packed_anew: Packs that are copied again before each run of steps that read them.
    """

    def __init__(
        self,
        laid_out: LaidOutFunction,
        uses: Uses,
        packed_anew: Sequence[Pack],
        gradient: Gradient | None,
    ) -> None:
        self.uses, self.nodes, self.function = uses, uses.nodes, uses.function
        self.packs, self.packed_anew, self.gradient = laid_out.packs, packed_anew, gradient
        self.placement = place(uses, laid_out.columns)

    def plan(self) -> Plan:
        steps = {stage: self._plan_steps(stage) for stage in STAGES}
        if self.gradient is not None:
            steps["backward"] += self._lower_scatter_adds()
        return Plan(
            name=self.function.name,
            nodes=self.nodes,
            buffers=self.placement.buffers,
            refs=self.placement.refs,
            slots=self.placement.slots,
            steps={stage: tuple(of_stage) for stage, of_stage in steps.items()},
            pushes=() if self.function.push is None else (self.function.push,),
            loss=self.function.loss,
            packs=self.packs,
        )

    def _plan_steps(self, stage: str) -> list[Step]:
        steps: list[Step] = []
        if stage == "batch":
            steps += self.placement.gather_steps
        for group in self.uses.orders[stage]:
            steps += self._step(group)
        if stage == "batch":
            steps += self.placement.state_copies
        return steps if stage.startswith("backward") else [*self._pack_steps(steps), *steps]

    def _pack_steps(self, steps: Sequence[Step]) -> list[Step]:
        """Return the copies of parameters that must precede these steps."""
        read = set[str | None]()
        for step in steps:
            if isinstance(step, MatmulStep):
                read |= {step.parameter, step.bias}
            elif isinstance(step, ElementwiseStep):
                read |= {self.nodes[k].name for i in step.nodes for k in self.nodes[i].inputs}
        return [PackStep(pack) for pack in self.packed_anew if pack.name in read]

    def _step(self, group: tuple[int, ...]) -> Iterable[Step]:
        node = self.nodes[group[0]]
        if group[0] in self.uses.absorption.merged or group[0] in self.uses.unneeded:
            return []
        if group[0] in self.uses.loss_gradients:
            return []
        if group[0] in self.uses.losses:
            return [self._lower_softmax_loss(group[0])]
        if OPERATORS[node.op].elementwise:
            return [ElementwiseStep(group, self.uses.list_fused_adds(group))]
        if OPERATORS[node.op].sink:
            return [SinkStep(group[0])]
        if node.op in MATMULS:
            return [self._lower_matmul(group[0])]
        if node.op == "concat":
            return self._lower_concat(group[0])
        return [OperatorStep(group[0])]

    def _lower_matmul(self, i: int) -> MatmulStep:
        x, weight = self.nodes[i].inputs
        merged_into = self.uses.absorption.into.get(i)
        bias, accumulate, out = None, False, i
        if merged_into is not None:
            out = merged_into
            if out in self.uses.loss_biases:
                pass  # the kernel of the loss adds it
            elif self.nodes[out].op == "bias":
                bias = self.nodes[self.nodes[out].inputs[1]].name
            else:
                accumulate = True
        return MatmulStep(
            x=self.placement.refs[x],
            parameter=self.nodes[weight].name,
            out=self.placement.refs[out],
            transposed=self.nodes[i].op == "matmul_transposed",
            bias=bias,
            accumulate=accumulate,
        )

    def _lower_softmax_loss(self, i: int) -> SoftmaxLossStep:
        loss = self.uses.losses[i]
        bias = None if loss.bias is None else self.nodes[self.nodes[loss.bias].inputs[1]].name
        return SoftmaxLossStep(
            logits=self.placement.refs[loss.logits],
            bias=bias,
            label=self.nodes[self.nodes[i].inputs[1]].name,
            loss=self.placement.refs[i],
            log_sum=log_sum(i),
            leaves_gradient=loss.gradient is not None,
        )

    def _lower_concat(self, i: int) -> list[Step]:
        if len(self.nodes[i].shape) > 1:
            raise ConfigError(f"{self.function.name} joins matrices; expected vectors")
        whole, start = self.placement.refs[i], 0
        steps: list[Step] = []
        for part in self.nodes[i].inputs:
            source, width = self.placement.refs[part], self.nodes[part].width
            if source != whole.slice_columns(start, width):
                last = steps.pop() if steps else None
                out = whole.slice_columns(start, width)
                if isinstance(last, CopyStep) and _are_adjacent(last, source, out):
                    source, out = last.source.extend(width), last.out.extend(width)
                elif last is not None:
                    steps.append(last)
                steps.append(CopyStep(source, out))
            start += width
        return steps

    def _lower_scatter_adds(self) -> list[Step]:
        """Return the additions to children's gradients, state by state.

        If a slot has several parts, each is added by a separate step.
        """
        assert self.gradient is not None
        steps: list[Step] = []
        by_state: dict[str, dict[int, list[int]]] = {}
        for source, i in self.gradient.gathers:
            if i in self.uses.fused_adds:
                continue
            gather = self.nodes[source]
            if gather.op == "gather_each":
                steps.append(ScatterAddStep(self.placement.refs[i], gather.name, None))
            else:
                by_state.setdefault(gather.name, {}).setdefault(gather.index, []).append(i)
        for state, parts in by_state.items():
            for k in range(max(map(len, parts.values()))):
                by_slot = {slot: values[k] for slot, values in parts.items() if k < len(values)}
                steps += self._lower_scatter_add(state, by_slot)
        return steps

    def _lower_scatter_add(self, state: str, gradients: Mapping[int, int]) -> list[Step]:
        """Return one step for all slots of a state if their gradients are adjacent."""
        slots = tuple(sorted(gradients))
        refs = [self.placement.refs[gradients[slot]] for slot in slots]
        whole = replace(refs[0], width=sum(ref.width for ref in refs))
        width = refs[0].width
        adjacent = [whole.slice_columns(k * width, width) for k in range(len(refs))] == refs
        if adjacent and slots == self.placement.slots[state]:
            return [ScatterAddStep(whole, state, slots)]
        return [ScatterAddStep(ref, state, (slot,)) for ref, slot in zip(refs, slots, strict=True)]


def _are_adjacent(last: CopyStep, source: Ref, out: Ref) -> bool:
    """Return whether both sides of a copy continue those of the previous copy."""
    return source == last.source.take_next(source.width) and out == last.out.take_next(out.width)
