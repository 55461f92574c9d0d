"""Programs and updates of the CUDA backend: tests find injected errors, with every executor.

tests/support/walked_backend.py runs the programs with NumPy; test_backends.py compares it and
Triton's interpreter with the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain, pairwise, product
from typing import Any

import numpy as np
import pytest
import torch

from dynbatch.harness.contracts.model import Weights
from dynbatch.harness.engine.backends.cuda.kinds import (
    Kind,
    Product,
    Row,
    RowList,
    Tile,
    TileKind,
    Tiling,
    TransposeKind,
    UnbatchedKind,
    has_state_rows,
)
from dynbatch.harness.engine.backends.cuda.model import KERNELS, ModelKinds
from dynbatch.harness.engine.backends.cuda.module import KernelModule
from dynbatch.harness.engine.backends.cuda.stage import PlacedKind
from dynbatch.harness.engine.backends.cuda.text import AHEAD, EXPRESSIONS
from dynbatch.harness.engine.backends.cuda.words import (
    ChildOf,
    DistinctWordsOf,
    TransposedOf,
    Words,
)
from dynbatch.harness.engine.backends.stepwise.kernels import KERNELS as TORCH_KERNELS
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.vertex.operators import Node
from tests.support.engine_runs import Setting
from tests.support.walked_backend import (
    NAMES,
    Phase,
    WalkedBackend,
    modules_of,
    read_program,
    walked_setting,
)

Change = Callable[[TileKind], TileKind]
Keep = Callable[[UnbatchedKind], bool]
N_STEPS = 3


class Sabotaged(WalkedBackend):
    """Backend that changes kinds before they are written, and phases before they run."""

    change: Change = staticmethod(lambda kind: kind)
    keep: Keep = staticmethod(lambda update: True)
    change_phases: Callable[[list[Phase]], list[Phase]] = staticmethod(lambda phases: phases)

    def load(self, weights: Weights) -> None:
        super().load(weights)
        find = self._preparation.find_kinds
        self._preparation.find_kinds = lambda: self._changed(find())  # type: ignore[method-assign]

    def _changed(self, kinds: ModelKinds) -> ModelKinds:
        own = type(self)

        def changed(one: PlacedKind) -> PlacedKind:
            if not isinstance(one.kind, TileKind):
                return one
            return replace(one, kind=own.change(one.kind))

        stages = {
            stage: {t: [changed(one) for one in found] for t, found in of_type.items()}
            for stage, of_type in kinds.stages.items()
        }
        updates = [one for one in kinds.unbatched["update"] if own.keep(one)]
        return replace(kinds, stages=stages, unbatched={**kinds.unbatched, "update": updates})

    def phases(self, module: KernelModule, words: Words) -> list[Phase]:
        return type(self).change_phases(super().phases(module, words))


@pytest.fixture
def sabotaged() -> type[Sabotaged]:
    """Return a backend class of one test only."""
    return type("Mine", (Sabotaged,), {})


def is_right(
    name: str, kind: type[Sabotaged], switches: Switches | None = None, n_steps: int = 1
) -> bool:
    """Return whether a model trains right on its own mini-batch."""
    setting = Setting(name, switches, kind)
    return trains_right(setting, setting.instances, n_steps)


def trains_right(setting: Setting, instances: list[Any], n_steps: int = 1) -> bool:
    """Return whether steps of SGD equal the reference, and no rule is violated."""
    try:
        return not any(setting.step(instances, 1e-3) for _ in range(n_steps))
    except (AssertionError, IndexError):  # written twice, or missing rows
        return False


def each_product(change: Callable[[Product], Product]) -> Change:
    return lambda kind: replace(kind, products=tuple(map(change, kind.products)))


def each_row(change: Callable[[Any], Any]) -> Change:
    """Change how the products of a kind find their rows."""
    return each_product(lambda one: replace(one, x=replace(one.x, row=change(one.x.row))))


def of_other_child(row: Any) -> Any:
    is_child = isinstance(row, Row) and isinstance(row.through, ChildOf)
    return replace(row, at=(row.at + 1) % row.stride) if is_child else row


def of_other_slot(one: Product) -> Product:
    """Use the matrix block of the other child for the gradient of one child."""
    return replace(one, column=0) if isinstance(one.weight, TransposedOf) else one


def with_rows_of(row: RowList) -> RowList:
    return replace(row, starts=row.items or row.starts)


CHANGES: dict[str, Change] = {
    "a product less": lambda kind: replace(kind, products=kind.products[:-1]),
    "of the other child": each_row(of_other_child),
    "of the other slot": each_product(of_other_slot),
    # Rows without readers get the gradient of row 0.
    "no mask": each_row(lambda row: Row(row.base) if getattr(row, "optional", False) else row),
    # The columns of a gate are shifted to the left by one.
    "the next column": each_product(lambda one: replace(one, column=max(0, one.column - 1))),
    "a store less": lambda kind: replace(kind, stores=kind.stores[1:]),
}
# Changes for states that are read more than once.
OF_LISTS: dict[str, Change] = {
    # States get the gradient of the row with their number, not those of their readers.
    "no list": each_row(lambda row: Row(row.base) if isinstance(row, RowList) else row),
    # A list has the starts of another array.
    "any readers": each_row(lambda row: with_rows_of(row) if isinstance(row, RowList) else row),
}


@pytest.mark.parametrize("change", [*CHANGES, *OF_LISTS])
def test_a_wrong_kernel_is_found(sabotaged: type[Sabotaged], change: str) -> None:
    name = "shared_children" if change in OF_LISTS else "tree_lstm"
    assert is_right(name, sabotaged)
    sabotaged.change = staticmethod((CHANGES | OF_LISTS)[change])
    assert not is_right(name, sabotaged)


def test_kernels_are_rewritten_when_a_state_is_first_read_twice(sabotaged: type[Sabotaged]) -> None:
    setting = Setting("shared_children", kind=sabotaged)
    shared, alone, _ = setting.instances
    modules = []
    for instances in ([alone], [shared], [alone]):
        assert trains_right(setting, instances)
        modules.append(setting.backend._preparation.modules["backward"])
    assert modules[0] is not modules[1]
    assert modules[1] is modules[2]


def test_phases_that_do_not_wait_are_found(sabotaged: type[Sabotaged]) -> None:
    def merged(phases: list[Phase]) -> list[Phase]:
        return [
            [one for phase in phases[k : k + 2] for one in phase] for k in range(0, len(phases), 2)
        ]

    sabotaged.change_phases = staticmethod(merged)
    assert not is_right("tree_lstm", sabotaged)


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("name", ["tree_lstm", "lattice_lstm", "child_sum"])
def test_the_order_of_a_phase_is_of_no_matter(
    sabotaged: type[Sabotaged], name: str, step: int
) -> None:
    """Instructions that run one after another read what those before them wrote."""
    sabotaged.change_phases = staticmethod(
        lambda phases: [[one] for phase in phases for one in phase[::step]]
    )
    assert is_right(name, sabotaged)


# --- phases, uploads and tiles ---


ONE_PHASE = ("tree_lstm", "tree_fc_fold", "lattice_lstm")
TWO_PHASES = ("tree_gru", "lattice_gru", "gated_lattice_lstm")


@pytest.mark.parametrize("name", [*ONE_PHASE, *TWO_PHASES])
def test_a_level_has_few_phases(name: str) -> None:
    """A level has one phase if no matmul reads values of the level itself, else two."""
    backend: Any = walked_setting(name).backend
    most = 1 if name in ONE_PHASE else 2
    for stage in ("batch", "backward"):
        for type_id, found in backend._preparation.kinds.stages[stage].items():
            if type_id > 0 and found:
                assert max(one.phase for one in found) + 1 <= most, (stage, type_id)


def test_a_mini_batch_is_one_upload() -> None:
    setting = walked_setting("tree_lstm")
    backend = setting.backend
    before = backend._staging.n_uploads
    setting.train(setting.instances)
    setting.engine.update(0.1)
    assert backend._staging.n_uploads == before + 1


def test_rows_that_several_products_read_are_loaded_once() -> None:
    """An internal vertex has eight matmuls of two children, but one loop for each child."""
    module = modules_of(64)["forward"]
    kinds = module.text.split("def kind_")[1:]
    n_products = []
    for text, entry in zip(kinds, module.entries, strict=True):
        if isinstance(entry.kind, TileKind) and entry.kind.products:
            n_products.append(len(entry.kind.products))
            assert text.count("for k0 in") == len({(p.x, p.k) for p in entry.kind.products})
    assert max(n_products) == 8


def test_impossible_tiles_are_refused() -> None:
    with pytest.raises(ValueError, match="powers of two"):
        Tile(48, 32, 32)
    with pytest.raises(ValueError, match="in ascending order"):
        Tiling(products=((16, Tile(16, 16, 16)),))


@pytest.mark.parametrize("op", EXPRESSIONS)
def test_cuda_expression_matches_torch(op: str) -> None:
    """Expressions of the CUDA backend agree with operators of the stepwise backend."""
    rng = np.random.default_rng(5)
    x, y = (rng.uniform(0.2, 0.9, (4, 3)).astype(np.float32) for _ in range(2))
    x[0], y[0] = (-x[0], -y[0]) if "relu" in op or op in ("tanh", "sigmoid") else (x[0], y[0])
    y = y[0] if op == "bias" else y
    node = Node(op, (0, 1), (3,), value=0.75)
    out = torch.empty(4, 3)
    TORCH_KERNELS[op](node, [torch.from_numpy(x), torch.from_numpy(y)], out)
    text = EXPRESSIONS[op].format("x", "y", value=node.value, sum="x + y")
    np.testing.assert_allclose(eval(text, NAMES, {"x": x, "y": y}), out.numpy(), rtol=1e-5)


# --- instructions: which rows they cover, and how few they are ---


def test_stage_words_cover_every_row_exactly_once() -> None:
    backend: Any = walked_setting("tree_lstm").backend
    phases = read_program(backend._preparation.modules["forward"], backend._prepared.programs[0])
    assert all(phases), "no phase is empty"
    covered: dict[Kind, list[tuple[int, int]]] = {}
    for instruction in chain(*phases):
        start, n = instruction.rows.start, instruction.rows.n
        covered.setdefault(instruction.kind, []).append((start, start + n))
    for ranges in covered.values():
        ends = sorted(ranges)
        assert ends[0][0] == 0
        assert all(a[1] == b[0] for a, b in pairwise(ends))


@pytest.mark.parametrize("name", ["lattice_lstm", "lattice_gru"])
def test_a_kind_that_accesses_no_state_has_one_instruction_in_a_phase(name: str) -> None:
    """Lattices have functions whose rows are not consecutive among the rows of the states."""
    backend: Any = walked_setting(name).backend
    n_seen = 0
    for number, kernel in enumerate(KERNELS):
        module = backend._preparation.modules[kernel]
        for phase in read_program(module, backend._prepared.programs[number]):
            kinds = [instruction.kind for instruction in phase]
            without = [kind for kind in kinds if not has_state_rows(kind)]
            assert len(without) == len(set(without))
            n_seen += len(without)
    assert n_seen > 0


# --- operators on a second stream ---

STREAM = Switches(hoisting="stream")
# var_lstm: Cavs's Fig. 10 (a) streams it.
STREAMED = ("var_lstm", "lattice_lstm", "child_sum", "gated_lattice_lstm", "parser")
ALL_BEFORE = 10**6  # phases: the second stream has ended before the first batch


@pytest.mark.parametrize("slack", [0, ALL_BEFORE])
@pytest.mark.parametrize("name", STREAMED)
def test_a_second_stream_may_be_as_late_or_as_early_as_events_allow(
    sabotaged: type[Sabotaged], name: str, slack: int
) -> None:
    sabotaged.slack = slack
    assert is_right(name, sabotaged, STREAM, N_STEPS)


@pytest.mark.parametrize("name", STREAMED)
def test_a_batch_that_does_not_wait_for_the_second_stream_is_found(
    sabotaged: type[Sabotaged], name: str
) -> None:
    sabotaged.slack = -1
    assert not is_right(name, sabotaged, STREAM)


@pytest.mark.parametrize("name", STREAMED)
def test_two_streams_run_the_rows_of_one(name: str) -> None:
    ahead, lag = list_covered_rows(name, "stream")
    assert lag is not None
    assert (ahead, None) == list_covered_rows(name, True)


def list_covered_rows(name: str, hoisting: Any) -> tuple[dict[Kind, set[int]], int | None]:
    """Return the rows of each kind of the forward pass, each once, and the lag of its streams."""
    setting = Setting(name, Switches(hoisting=hoisting), WalkedBackend)
    setting.train(setting.instances)
    backend: Any = setting.backend
    rows: dict[Kind, set[int]] = {}
    for program in (0, AHEAD):
        for instruction in chain(*read_forward(backend, program)):
            mine, covered = instruction.rows, rows.setdefault(instruction.kind, set())
            new = set(range(mine.start, mine.start + mine.n))
            assert not covered & new
            covered |= new
    return rows, backend._preparation.lag


def read_forward(backend: Any, slot: int) -> list[Phase]:
    return read_program(backend._preparation.modules["forward"], backend._prepared.arrays[slot])


@pytest.mark.parametrize(("name", "n_streams"), [("child_sum", "2"), ("tree_lstm", "1")])
def test_a_record_says_whether_a_second_stream_ran(name: str, n_streams: str) -> None:
    setting = Setting(name, STREAM, WalkedBackend)
    setting.train(setting.instances)
    assert setting.backend.facts()["streams"] == n_streams
    assert "streams" not in walked_setting(name).backend.facts()


def test_batches_overlap_on_the_second_stream() -> None:
    """The parser's words take two phases, but a batch of the program may have one."""
    setting = Setting("parser", STREAM, WalkedBackend)
    setting.train(setting.instances)
    backend: Any = setting.backend
    assert backend._preparation.lag == 1
    assert any(len({one.kind for one in phase}) > 1 for phase in read_forward(backend, AHEAD))


# --- updates ---


PACKED = [
    Switches(layout=layout, fusion=False, pre_gather_parameters=pre_gather)
    for layout, pre_gather in product(("pq", "dynet"), (True, False))
]
FOLLOWED = [
    *product(("tree_lstm", "tree_gru", "lattice_lstm", "matrices"), [None]),
    *product(("tree_lstm", "child_sum", "lattice_lstm"), PACKED),
    # Sums of gradients that add to what is there.
    ("tree_lstm", Switches(lazy_batching=False)),
]


@pytest.mark.parametrize(("name", "switches"), FOLLOWED, ids=str)
def test_parameters_copies_and_packs_follow_the_reference(
    sabotaged: type[Sabotaged], name: str, switches: Switches | None
) -> None:
    assert is_right(name, sabotaged, switches, N_STEPS)


@pytest.mark.parametrize(
    "keep",
    [
        lambda one: not isinstance(one.kind, TransposeKind),
        lambda one: not isinstance(one.n_rows, DistinctWordsOf),
        lambda one: not isinstance(one.kind, TileKind) or isinstance(one.n_rows, DistinctWordsOf),
    ],
    ids=["no transposes", "no tables", "no dense parameters"],
)
def test_an_incomplete_update_is_found(sabotaged: type[Sabotaged], keep: Keep) -> None:
    sabotaged.keep = staticmethod(keep)
    assert not is_right("tree_lstm", sabotaged, n_steps=N_STEPS)
