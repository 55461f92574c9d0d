"""Matrices of children are multiplied where they lie, vectors and large products excepted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.contracts.model import Model, ModelSizes, initial_weights, traced_functions
from harness.engine.backends.compiled.backend import Backend
from harness.engine.backends.compiled.operators import Places
from harness.engine.cpu_kernels.vectors import SMALL
from harness.engine.lowering.lower import lower
from harness.engine.lowering.plan import BufferName, GatherStep, Memory, Plan, Role, state_buffer
from harness.engine.switches import Switches
from harness.models.mv_rnn import MVRNN
from tests.support.engine_models import EXAMPLES, tree
from tests.support.engine_runs import prepared, run

ON, CROSSED = Switches(), tree([1, 2, -1], [-1, -1, 1], [-1, -1, 0])
T, WORDS = BufferName(Role.GATHER, "T"), {"words": 7, "classes": 3}


def plan_of(model: Model, function: str, switches: Switches = ON, *, train: bool = True) -> Plan:
    return lower(traced_functions(model)[function], switches, Backend.abilities, train)


def gathered(plan: Plan) -> set[str]:
    return {step.state for step in plan.batch if isinstance(step, GatherStep)}


@pytest.mark.parametrize("train", [True, False])
def test_children_s_matrices_have_no_memory_and_no_gather(train: bool) -> None:
    plan = plan_of(MVRNN(ModelSizes(4, WORDS)), "internal", train=train)
    assert gathered(plan) == {"v"}
    assert plan.buffers[T].memory is Memory.CHILDREN


@pytest.mark.parametrize("off", [{"gather_fusion": False}, {"fusion": False}])
def test_without_gather_fusion_they_are_copied(off: dict[str, bool]) -> None:
    plan = plan_of(MVRNN(ModelSizes(4, WORDS)), "internal", replace(ON, **off))
    assert gathered(plan) == {"v", "T"}
    assert plan.buffers[T].memory is Memory.SAVED


@pytest.mark.parametrize(("hidden_size", "copied"), [(128, {"v"}), (129, {"v", "T"})])
def test_a_large_parameter_multiplies_all_rows_at_once(hidden_size: int, copied: set[str]) -> None:
    """Up to 128 x 128 a product by itself costs no more than one of all rows."""
    assert SMALL == 128 * 128
    plan = plan_of(MVRNN(ModelSizes(hidden_size, WORDS)), "internal", train=False)
    assert gathered(plan) == copied


@pytest.mark.parametrize("library", [{"precision": "bf16"}, {"blas": "openblas"}])
def test_a_library_multiplies_all_rows_at_once(library: dict[str, str]) -> None:
    """It would rearrange the parameter for each vertex."""
    plan = plan_of(MVRNN(ModelSizes(4, WORDS)), "internal", replace(ON, **library), train=False)
    assert gathered(plan) == {"v", "T"}


def test_what_has_no_memory_is_read_row_by_row_only() -> None:
    plan = plan_of(MVRNN(ModelSizes(4, WORDS)), "internal", train=False)
    (ref,) = {ref for ref in plan.refs.values() if ref.buffer == T and ref.start == 0}
    places = Places(1, plan, {})
    with pytest.raises(ValueError, match="has no memory"):
        places.operand(ref)
    states, index = places.row_operands(ref)
    assert (states.array, index) == (places.array(state_buffer("T")), places.index_operand((0, 1)))


def test_matrices_of_any_number_of_children_are_copied() -> None:
    assert "T" in gathered(plan_of(EXAMPLES["matrix_sum"][0], "vertex"))


def test_a_crossed_pair_copies_vectors_only() -> None:
    """Its children do not follow one another in the order that their parent reads them."""
    model = EXAMPLES["mv_rnn"][0]
    kept_order, h = replace(ON, layout="policy"), model.sizes.hidden_size
    copied = []
    for switches in (kept_order, replace(kept_order, gather_fusion=False)):
        adapter = prepared(model, initial_weights(model, 0), switches, mode="infer")
        copied.append(run(adapter, [CROSSED]).counters.bytes_copied)
    assert copied == [4 * 2 * h, 4 * 2 * (h + h * h)]
