"""Programs of the CUDA backend: tests find injected errors, with every executor.

tests/support/walked_backend.py runs the programs with NumPy; test_backends.py compares it and
Triton's interpreter with the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
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
    has_state_rows,
)
from dynbatch.harness.engine.backends.cuda.model import KERNELS, ModelKinds
from dynbatch.harness.engine.backends.cuda.module import WORDS, KernelModule
from dynbatch.harness.engine.backends.cuda.program import Phase, read_program
from dynbatch.harness.engine.backends.cuda.stage import PlacedKind
from dynbatch.harness.engine.backends.cuda.text import EXPRESSIONS
from dynbatch.harness.engine.backends.cuda.words import ChildOf, TransposedOf, Words
from dynbatch.harness.engine.backends.stepwise.kernels import ELEMENTWISE
from dynbatch.harness.vertex.operators import Node
from tests.support.engine_setting import Setting
from tests.support.tree_lstm_kernels import modules_of
from tests.support.walked_backend import NAMES, WalkedBackend, walked_setting

Change = Callable[[TileKind], TileKind]


class Sabotaged(WalkedBackend):
    """Backend that changes kinds before they are written, and phases before they run."""

    change: Change = staticmethod(lambda kind: kind)
    change_phases: Callable[[list[Phase]], list[Phase]] = staticmethod(lambda phases: phases)
    n_changed = 0

    def load(self, weights: Weights) -> None:
        super().load(weights)
        find = self._preparation.find_kinds
        self._preparation.find_kinds = lambda: self._changed_kinds(find())  # type: ignore[method-assign]

    def _changed_kinds(self, kinds: ModelKinds) -> ModelKinds:
        stages = {
            stage: {t: [self._changed(one) for one in found] for t, found in of_type.items()}
            for stage, of_type in kinds.stages.items()
        }
        return replace(kinds, stages=stages)

    def _changed(self, one: PlacedKind) -> PlacedKind:
        if not isinstance(one.kind, TileKind):
            return one
        changed = type(self).change(one.kind)
        type(self).n_changed += changed != one.kind
        return replace(one, kind=changed)

    def phases(self, module: KernelModule, words: Words) -> list[Phase]:
        return type(self).change_phases(super().phases(module, words))


@pytest.fixture
def sabotaged() -> type[Sabotaged]:
    """Return a backend class of one test only."""
    return type("Mine", (Sabotaged,), {})


def is_right(name: str, kind: type[Sabotaged]) -> bool:
    """Return whether a mini-batch's loss and gradients equal the reference, within the rules."""
    setting = Setting(name, kind=kind)
    return trains_right(setting, setting.instances)


def trains_right(setting: Setting, instances: list[Any]) -> bool:
    """Return whether loss and gradients equal the reference, and no rule is violated."""
    try:
        return setting.wrong(instances, 1e-3) == []
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
    assert sabotaged.n_changed > 0


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


@pytest.mark.parametrize("name", ["tree_lstm", "lattice_lstm", "child_sum"])
def test_the_order_of_a_phase_is_of_no_matter(sabotaged: type[Sabotaged], name: str) -> None:
    sabotaged.change_phases = staticmethod(lambda phases: [phase[::-1] for phase in phases])
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
    before = backend.n_uploads
    setting.train(setting.instances)
    setting.engine.update(0.1)
    assert backend.n_uploads == before + 1


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
    ELEMENTWISE[op](node, [torch.from_numpy(x), torch.from_numpy(y)], out)
    text = EXPRESSIONS[op].format("x", "y", value=node.value, sum="x + y")
    np.testing.assert_allclose(eval(text, NAMES, {"x": x, "y": y}), out.numpy(), rtol=1e-5)


# --- instructions: which rows they cover, and how few they are ---


def test_stage_words_cover_every_row_exactly_once() -> None:
    backend: Any = walked_setting("tree_lstm").backend
    words = backend._prepared.programs[0]
    module = backend._preparation.modules["forward"]
    n_phases = int(words[0])
    bounds = words[1 : 2 + n_phases]
    table = words[2 + n_phases :].reshape(-1, WORDS)
    assert len(table) == bounds[-1]
    assert (np.diff(bounds) > 0).all()
    covered: dict[Kind, list[tuple[int, int]]] = {}
    for number, start, n, _, n_tiles, *rest in table.tolist():
        assert n_tiles > 0
        assert rest == [0, 0, 0]
        kind = module.entries[number].kind
        covered.setdefault(kind, []).append((start, start + n))
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
