"""Engine: vertex functions, lowered once, and executed batch by batch as scheduled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import Weights
from dynbatch.harness.engine.backend import Arrangement, Backend, choose_backend
from dynbatch.harness.engine.lowering.lower import lower
from dynbatch.harness.engine.lowering.plan import Plan
from dynbatch.harness.engine.rows.fields import (
    OUTPUT,
    Reads,
    number_fields,
    reads_of,
    space_of_type,
)
from dynbatch.harness.engine.rows.launches import split_into_launches
from dynbatch.harness.engine.rows.layout import Layout, RowRules, plan_layout
from dynbatch.harness.engine.rows.segments import (
    ALL_ROWS,
    Segment,
    SharedStages,
    plan_segments,
    plan_shared_stages,
)
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.errors import ScheduleError, UnsupportedTrial
from dynbatch.harness.values.arrays import IntArray, as_int_array
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.schedule import Schedule
from dynbatch.harness.vertex.program import VertexFunction
from dynbatch.harness.vertex.shared_products import SharedProducts, share_products


class Engine:
    """Executor of forward, backward and update of mini-batches on one backend.

    Args:
        functions: Vertex functions by type id. Functions that are added later are compiled when a
            mini-batch is arranged (at operator granularity, every number of children has a separate
            sum).
        output: The function that reads MiniBatch.outputs after the last batch (of each segment, if
            the graph has several); None if outputs are vertices.
        weights: Initial float32 values.
        kind: The backend; None: chosen automatically.

    Raises:
        UnsupportedTrial: The backend cannot run a function or a switch.

    Attributes:
        mini_batch: The mini-batch that was arranged last.
        arrangement: Its rows and batches.
        loss: Returns the sum of the losses of the last forward pass, and waits for it if it is on a
            device.
    """

    mini_batch: MiniBatch
    arrangement: Arrangement
    loss: Callable[[], float]

    def __init__(
        self,
        functions: Mapping[int, VertexFunction],
        output: VertexFunction | None,
        weights: Weights,
        switches: Switches,
        device: str,
        *,
        train: bool,
        threads: int = 1,
        kind: type[Backend] | None = None,
    ) -> None:
        of_outputs = {} if output is None else {OUTPUT: output}
        known = (*of_outputs.values(), *functions.values())
        operators = {node.op for function in known for node in function.nodes}
        self.instead_of = ""
        if kind is None:
            kind, self.instead_of = choose_backend(switches, device, operators)
        self.backend = kind(switches, device, threads)
        self.switches = self.backend.switches
        self.functions, self.train = functions, train
        self.backend.load(weights)
        self.plans: dict[int, Plan] = {}
        self.reads: dict[int, Reads] = {}
        self.shared = SharedProducts(functions)
        self._lower(of_outputs)
        self.n_lowered = 0
        if self._shares:
            for function in self.functions.values():
                self._check_kernels(function)
        else:
            self._lower_functions()
        self.has_segments = False
        self._known_around: dict[bytes, SharedStages] = {}

    @property
    def _shares(self) -> bool:
        """True if products may be shared, so that functions wait for the first mini-batch."""
        return self.switches.share_products and self.switches.granularity == "vertex"

    def _lower_functions(self) -> None:
        """Lower the functions that have no plan yet."""
        if len(self.functions) > self.n_lowered:
            self._lower(self.functions)
            self.n_lowered = len(self.functions)

    def _share_products_for(self, mini_batch: MiniBatch) -> None:
        """Share products if this mini-batch has clearly more parents than children."""
        counts = enumerate(np.bincount(mini_batch.functions).tolist())
        self.shared = share_products(self.functions, dict(counts))
        self.functions = self.shared.functions
        if self.shared.blocks:
            self.backend.view_rows(self.shared.blocks)

    def _lower(self, functions: Mapping[int, VertexFunction]) -> None:
        """Plan and compile the functions that have no plan yet, and number all spaces again."""
        abilities = self.backend.abilities
        for type_id, function in functions.items():
            if type_id not in self.plans:
                self.plans[type_id] = lower(function, self.switches, abilities, self.train)
                self.reads[type_id] = reads_of(self.plans[type_id])
        for plan in self.plans.values():
            self._check_kernels(plan)
        self.backend.compile(self.plans)
        last = max(self.functions, default=0)
        written = [
            frozenset(self.plans[t].states if t in self.plans else ()) for t in range(last + 1)
        ]
        spaces = space_of_type(written)
        self.rules = RowRules(
            number_fields(dict(self.reads), len(written)),
            as_int_array(spaces),
            {state: spaces[t] for t, states in enumerate(written) for state in states},
            reorder=self.switches.layout == "read_order",
        )

    def _check_kernels(self, program: Plan | VertexFunction) -> None:
        missing = sorted({node.op for node in program.nodes} - self.backend.abilities.operators)
        if missing:
            raise UnsupportedTrial(
                f"{program.name} needs {missing[0]}, but this backend has no kernel for it"
            )

    def arrange(self, mini_batch: MiniBatch, schedule: Schedule) -> None:
        """Lay out a scheduled mini-batch in memory; part of the schedule phase.

        All graph segments are laid out together, but a later segment never affects the order of an
        earlier one. A program that does not know the later segments can do the same, one by one.

        Raises:
            ScheduleError: The graph has several segments, but the schedule does not have them.
        """
        if mini_batch.segments is not None and schedule.segment_starts is None:
            raise ScheduleError("the graph has several segments; schedule them one by one")
        if self._shares and self.n_lowered == 0:
            self._share_products_for(mini_batch)
        self._lower_functions()
        schedule = split_into_launches(mini_batch, schedule)
        layout = plan_layout(mini_batch, schedule, self.rules)
        same = self._plan_around(layout)
        if schedule.segment_starts is None:
            segments: Sequence[Segment] = [same.make_segment(layout.forth)]
            back = layout.back
        else:
            segments = plan_segments(self.plans, layout, schedule.segment_starts)
            back = np.concatenate([self._list_backward_outputs(layout), layout.batches[::-1]])
        backward = [("backward", back), ("backward_lazy", same.backward_lazy)] if self.train else []
        n_rows = self.rules.count_state_rows(layout.n_rows)
        self.has_segments = schedule.segment_starts is not None
        self.take(mini_batch, Arrangement(layout, n_rows, segments, backward))

    def take(self, mini_batch: MiniBatch, arrangement: Arrangement) -> None:
        """Continue with a mini-batch that is laid out."""
        self.mini_batch, self.arrangement = mini_batch, arrangement
        self.backend.arrange(arrangement)

    def _plan_around(self, layout: Layout) -> SharedStages:
        """Return the stages that all mini-batches with the same functions share."""
        present = layout.present
        if present not in self._known_around:
            self._known_around[present] = plan_shared_stages(self.plans, tuple(layout))
        return self._known_around[present]

    def _list_backward_outputs(self, layout: Layout) -> IntArray:
        """Return the batches of outputs in the backward stage, after all graph segments."""
        n_batches = len(layout.output_segments) if OUTPUT in layout else 0
        at_once = self.switches.lazy_batching and n_batches > 1
        positions = [ALL_ROWS] if at_once else range(n_batches)
        return np.array([(OUTPUT, b) for b in positions], dtype=np.int32).reshape(-1, 2)

    def forward(self) -> None:
        """Run all batches, one graph segment after the other, and set `loss`."""
        tally, begin = self.backend.tally, self.backend.read_ticks()
        tally.n_launches = tally.bytes_copied = 0
        self.loss = self.backend.run_segments(self.arrangement.segments)
        tally.n_cycles += self.backend.read_ticks() - begin

    def backward(self) -> None:
        """Run all batches in reverse, then the deferred parameter gradients.

        All graph segments are complete, so the outputs of all of them may run in one batch.
        """
        begin = self.backend.read_ticks()
        self.backend.clear_gradients()
        self.backend.run_together(self.arrangement.backward)
        self.backend.tally.n_cycles += self.backend.read_ticks() - begin

    def update(self, learning_rate: float) -> None:
        """Take one step of plain SGD."""
        self.backend.update(learning_rate)

    def outputs(self) -> NDArray[np.float32]:
        """Return the pushed values in the order of MiniBatch.outputs (k, d)."""
        plan, layout = self.plans.get(OUTPUT), self.arrangement.types
        if plan is None:
            return self._concatenate_output_states()
        if OUTPUT not in layout:
            return np.zeros((0, 0), dtype=np.float32)
        pushed = [self.backend.read(OUTPUT, plan.refs[node]) for node in plan.pushes]
        result = np.empty(
            (len(pushed[0]), sum(value.shape[1] for value in pushed)), dtype=np.float32
        )
        result[layout.output_order] = np.concatenate(pushed, axis=1)
        return result

    def _concatenate_output_states(self) -> NDArray[np.float32]:
        """Concatenate the states of the vertices that are outputs (k, d)."""
        vertices: IntArray = self.mini_batch.outputs
        functions = self.mini_batch.functions[vertices]
        width = 0
        parts: list[tuple[NDArray[np.bool_], NDArray[np.float32]]] = []
        for type_id in np.unique(functions).tolist():
            plan, mine = self.plans[type_id], functions == type_id
            position = np.empty(len(self.mini_batch.functions), dtype=np.int64)
            members = self.arrangement.types[type_id].vertices
            position[members] = np.arange(len(members))
            own = (state for state in plan.states if state not in self.shared.states)
            refs = [plan.find_state_ref(state) for state in own]
            rows = np.concatenate([self.backend.read(type_id, ref) for ref in refs], axis=1)
            parts.append((mine, rows[position[vertices[mine]]]))
            width = rows.shape[1]
        result = np.zeros((len(vertices), width), dtype=np.float32)
        for mine, rows in parts:
            result[mine] = rows
        return result

    def facts(self) -> dict[str, str]:
        """Return facts about the execution: the effective switches, and the backend's facts."""
        facts = {
            **self.switches.resolve_effective(train=self.train).format_values(),
            **self.backend.facts(),
        }
        facts |= {"instead_of": self.instead_of} if self.instead_of else {}
        if self.shared.blocks:
            names = sorted({block.parameter for block in self.shared.blocks})
            facts["shared_products"] = ", ".join(names)
        return facts | ({"evaluated": "segment by segment"} if self.has_segments else {})
