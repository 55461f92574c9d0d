"""PyTorch on sentences: rows, padding, chunks of the loss, and what is told of a run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from harness.contracts.model import Model, initial_weights
from harness.contracts.system import RunSettings, System
from harness.errors import ConfigError
from harness.measuring.clock import NullClock
from harness.measuring.reference_check import relative_error
from systems.on_torch.compiled import Adapter as Compiled
from systems.on_torch.fused import Adapter as Fused
from systems.on_torch.levels import Adapter as Levels
from systems.on_torch.parts import output_layer, products
from systems.on_torch.parts.lstm import StepStates, lstm_steps
from systems.on_torch.parts.output_layer import OutputLayer
from systems.on_torch.parts.rows import buckets, columns
from tests.support.run_adapter import CASES

CPU = torch.device("cpu")
WAYS = {
    "columns": (Levels, {}),
    "padded": (Fused, {"input": "padded", "buckets": 1}),
    "bucketed": (Fused, {"input": "padded", "buckets": 2}),
    "one_each": (Fused, {"input": "padded", "buckets": 9}),
    "packed": (Fused, {"input": "packed"}),
}
LENGTHS = ([1], [3, 3], [1, 5, 2, 5], [7, 1, 1, 4, 2])


def settings(mode: str = "train", **options: Any) -> RunSettings:
    return RunSettings(mode, "cpu", 1, 4, 0.2, 0, options=options)


def prepared(
    adapter: type[System], case: str, mode: str = "train", **options: Any
) -> tuple[System, list[Any]]:
    system = adapter(settings(mode, **options))
    system.prepare(CASES[case].model, initial_weights(CASES[case].model, seed=0))
    return system, CASES[case].instances


def found_by(system: System, instances: Sequence[Any]) -> dict[str, Any]:
    system.load(instances)
    system.run(NullClock(), update=False)
    result = system.result()
    return {"loss": np.array(result.loss), "outputs": result.outputs, **result.gradients}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", ["var_lstm_layers", "bilstm_layers", "bilstm_char"])
def test_padding_never_changes_a_result(case: str, way: str) -> None:
    """A short sentence among long ones: outputs are its own, gradients add up."""
    system, instances = prepared(WAYS[way][0], case, **WAYS[way][1])
    together = found_by(system, instances)
    alone = [found_by(system, [instance]) for instance in instances]
    outputs = np.concatenate([one.pop("outputs") for one in alone])
    assert relative_error(outputs, together.pop("outputs")) < 1e-5
    for name, value in together.items():
        assert relative_error(np.sum([one[name] for one in alone], axis=0), value) < 1e-5, name


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("n_buckets", [1, 2, 99])
def test_rows_lead_back_to_their_places(lengths: list[int], n_buckets: int) -> None:
    sizes = np.array(lengths)
    for order in orders(sizes, n_buckets):
        x = torch.randn(sizes.sum(), 3, requires_grad=True)
        back = order.restore(order.arrange(x))
        assert torch.equal(back, x)
        weights = torch.randn_like(back)
        (back * weights).sum().backward()
        assert x.grad is not None
        assert torch.equal(x.grad, weights)


def orders(sizes: np.ndarray, n_buckets: int) -> Iterator[Any]:
    for plan in (columns(sizes, CPU), buckets(sizes, n_buckets, CPU)):
        yield from (plan.along, plan.against)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_every_row_follows_its_own_sentence(lengths: list[int]) -> None:
    """The state before a row is that of the place before it, or the sentence's first state."""
    plan = columns(np.array(lengths), CPU)
    assert plan.sizes == sorted(plan.sizes, reverse=True)
    k, starts = len(lengths), np.cumsum(lengths) - lengths
    for row, (place, before) in enumerate(
        zip(plan.along.places.tolist(), plan.before.tolist(), strict=True)
    ):
        sentence = int(np.searchsorted(starts, place, side="right")) - 1
        if place == starts[sentence]:
            assert before == int(plan.ranks[sentence])
        else:
            assert plan.along.places[before - k] == place - 1, row
    ends = plan.along.places[plan.last][plan.ranks].tolist()
    assert ends == (np.cumsum(lengths) - 1).tolist()


@pytest.mark.parametrize("way", ["in_place", "chunked", "whole"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("onednn", [True, False])
def test_every_way_to_the_loss_finds_the_same(
    monkeypatch: pytest.MonkeyPatch, way: Any, bias: bool, onednn: bool
) -> None:
    """Several chunks of rows, logits far apart, and a loss that is scaled behind the layer."""
    monkeypatch.setattr(output_layer, "CHUNK_BYTES", 200)  # 4 rows
    monkeypatch.setattr(products, "ONEDNN", onednn and products.ONEDNN)
    torch.manual_seed(1)
    layer = OutputLayer(5, 11, bias=bias, way=way)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=40.0)
    hidden, labels = torch.randn(13, 5, requires_grad=True), torch.randint(11, (13,))
    leaves = [hidden, *layer.parameters()]
    found = torch.autograd.grad(2.5 * layer.loss(hidden, labels), leaves)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    logits = exact[0] @ exact[1] + (exact[2] if bias else 0.0)
    loss = functional.cross_entropy(logits, labels, reduction="sum")
    assert layer.loss(hidden, labels).item() == pytest.approx(loss.item(), rel=1e-5)
    for value, wanted in zip(found, torch.autograd.grad(2.5 * loss, exact), strict=True):
        assert relative_error(value.numpy(), wanted.numpy()) < 1e-4


def no_gradient(*_: Any) -> torch.Tensor:
    raise AssertionError("inference computes a gradient")


@pytest.mark.parametrize("case", ["var_lstm", "var_lstm_layers", "bilstm", "seq2seq", "parser"])
def test_inference_finds_the_same_without_gradients(
    monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr(output_layer, "SLICE_ROWS", 3)
    wanted = found_by(*prepared(Levels, case))
    monkeypatch.setattr(output_layer, "to_loss_gradient", no_gradient)
    found = found_by(*prepared(Levels, case, "infer"))
    assert set(found) == {"loss", "outputs"}
    for name, value in found.items():
        assert relative_error(value, wanted[name]) < 1e-6, name


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_steps_of_inference_keep_one_state_a_sentence(lengths: list[int], started: bool) -> None:
    made: list[StepStates] = []

    class Told(StepStates):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            made.append(self)

    torch.manual_seed(1)
    k, n, h = len(lengths), sum(lengths), 3
    x, W, U, b = (torch.randn(size) for size in [(n, 5), (4 * h, 5), (4 * h, h), (4 * h,)])
    start = torch.randn(k, 2 * h) if started else None
    plan = columns(np.array(lengths), CPU)
    wanted = lstm_steps(x, W, U, b, start, plan, Told)
    with torch.inference_mode():
        found = lstm_steps(x, W, U, b, start, plan, Told)
    assert all(map(torch.allclose, found, wanted))
    assert [len(states.c) for states in made] == [k + n, k]
    assert [len(states.tanh_c) for states in made] == [n, k]


@pytest.mark.parametrize("case", ["var_lstm", "seq2seq", "parser"])
def test_outputs_are_those_of_the_weights_before_the_step(case: str) -> None:
    system, instances = prepared(Levels, case)
    before = found_by(system, instances)["outputs"]
    system.run(NullClock(), update=True)
    assert relative_error(system.result().outputs, before) < 1e-6
    assert relative_error(found_by(system, instances)["outputs"], before) > 1e-3


@pytest.mark.parametrize(
    ("adapter", "case", "words"),
    [
        (Fused, "tree_lstm", "whole sentences"),
        (Fused, "seq2seq", "whole sentences"),
        (Compiled, "tree_gru", "the LSTM cell"),
    ],
)
def test_what_cannot_run_is_told(adapter: type[System], case: str, words: str) -> None:
    model: Model = CASES[case].model
    reason = adapter.skip(model, settings())
    assert reason is not None
    assert words in reason
    assert model.name in reason


def test_no_compiler_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    reason = Compiled.skip(CASES["var_lstm"].model, settings())
    assert reason is not None
    assert "C++ compiler" in reason


def test_packed_input_makes_no_buckets() -> None:
    with pytest.raises(ConfigError, match=r"buckets=2 .*input=padded"):
        Fused(settings(input="packed", buckets=2))


@pytest.mark.slow
def test_new_lengths_compile_nothing_again() -> None:
    system, instances = prepared(Compiled, "var_lstm")
    n_before = system.n_compilations()
    assert n_before > 0
    for chosen in (instances, instances[:1], instances[2:], instances[1:3]):
        found_by(system, chosen)
    assert system.n_compilations() == n_before


@pytest.mark.parametrize("turned", [False, True])
def test_a_product_reads_no_matrix_with_gaps(turned: bool) -> None:
    """oneDNN would read it in its plain code, hundreds of times slower."""
    wide = torch.randn(7, 12)
    weight = wide[:, 2:6].t() if turned else wide[:, 2:6]
    found = products.dense(weight)
    assert torch.equal(found, weight)
    assert found.is_contiguous() or found.t().is_contiguous()
