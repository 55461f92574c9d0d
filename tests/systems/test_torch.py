"""PyTorch systems: refused trials, compilation, freed memory, and time of computing outputs.

Faster implementations agree with plain ones: matmuls, rows, and the loss. Torchfold has the
attribute that it needs from PyTorch, and computes equal vertices once.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._inductor import config as inductor
from torch.nn import functional

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.contracts.system import System
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.measuring.checks.reference_check import compute_relative_error
from dynbatch.harness.values.instances import Tree
from dynbatch.systems.on_torch import compiled, layers, products
from dynbatch.systems.on_torch.autograd import Adapter as Autograd
from dynbatch.systems.on_torch.compiled import Adapter as Compiled
from dynbatch.systems.on_torch.eager import Adapter as Eager
from dynbatch.systems.on_torch.fused import Adapter as Fused
from dynbatch.systems.on_torch.geometric import Adapter as Geometric
from dynbatch.systems.on_torch.layers import OutputLayer
from dynbatch.systems.on_torch.levels import Adapter as Levels
from dynbatch.systems.on_torch.models.lstm import StepStates, run_lstm_steps
from dynbatch.systems.on_torch.products import FixedProduct, Repeated, SideWeights
from dynbatch.systems.on_torch.rows import arrange_columns
from dynbatch.systems.on_torch.torchfold import Adapter as TorchFold
from dynbatch.systems.on_torch.torchfold import convert_trees, fold_trees
from tests.support.engine_models import tree
from tests.support.fake_time import NullClock
from tests.support.instances import draw_trees
from tests.support.processes import run_python
from tests.support.refusals import check_line
from tests.support.run_adapter import CASES, SIZES, assert_alike, found_by, small_settings, started

Patch = pytest.MonkeyPatch
CPU = torch.device("cpu")
NOT_FOLDED = "FOLDED has no model var_lstm; choose one of tree_fc, tree_lstm"


def prepared(
    adapter: type[System], case: str, mode: str = "train", **options: Any
) -> tuple[System, list[Any]]:
    return started(adapter, CASES[case].model, mode, **options), CASES[case].instances


def no_gradient(*_: Any) -> torch.Tensor:
    raise AssertionError("inference computes a gradient")


@pytest.mark.parametrize("case", ["var_lstm", "var_lstm_layers", "bilstm", "seq2seq", "parser"])
def test_inference_finds_the_same_without_gradients(monkeypatch: Patch, case: str) -> None:
    monkeypatch.setattr(layers, "SLICE_BYTES", 60)
    wanted = found_by(*prepared(Levels, case))
    monkeypatch.setattr(layers, "to_loss_gradient", no_gradient)
    found = found_by(*prepared(Levels, case, "infer"))
    assert_alike(found, {name: wanted[name] for name in ("loss", "outputs")}, 1e-6)


@pytest.mark.parametrize(("n_classes", "n_calls"), [(1, 1), (80, 1), (10_000, 2), (10**6, 64)])
def test_losses_of_few_classes_are_one_call(
    monkeypatch: Patch, n_classes: int, n_calls: int
) -> None:
    calls: list[int] = []
    real = functional.cross_entropy

    def count(scores: Tensor, *given: Tensor, **named: str) -> Tensor:
        calls.append(len(scores))
        return real(scores, *given, **named)

    monkeypatch.setattr(functional, "cross_entropy", count)
    scores, labels = torch.zeros(64, n_classes), torch.zeros(64, dtype=torch.int64)
    loss = layers.sum_losses(scores, labels)
    assert (len(calls), sum(calls)) == (n_calls, 64)
    torch.testing.assert_close(loss, torch.tensor(64 * np.log(n_classes), dtype=torch.float32))


def test_memory_that_is_kept_holds_nothing_of_the_mini_batch_before() -> None:
    """A small mini-batch after a large one has the same results as a first one."""
    system, _ = prepared(Levels, "mv_rnn")
    small, large = draw_trees(SIZES, (3, 1)), draw_trees(SIZES, (9, 4, 13))
    wanted = found_by(system, small)
    found_by(system, large)
    for name, value in found_by(system, small).items():
        assert np.array_equal(value, wanted[name]), name


def test_generated_code_is_in_a_directory_of_the_process(tmp_path: Path) -> None:
    """PyTorch Geometric writes the code of a layer where temporary files are."""
    program = (
        "from dynbatch.systems.on_torch.geometric import Adapter\n"
        "from tests.support.run_adapter import CASES, started\n"
        "started(Adapter, CASES['tree_lstm'].model)"
    )
    run_python("-c", program, TMPDIR=str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_no_process_compiles_in_the_turns_of_other_systems(monkeypatch: Patch) -> None:
    """torch.compile would start a pool of processes, which stays alive."""
    n_threads: list[int] = []
    monkeypatch.setattr(inductor, "compile_threads", 8)
    monkeypatch.setattr(
        compiled, "compile_parts", lambda *_, **__: n_threads.append(inductor.compile_threads)
    )
    prepared(Compiled, "var_lstm")
    assert n_threads == [1]


@pytest.mark.parametrize(
    ("adapter", "case", "words"),
    [
        (Fused, "tree_lstm", "whole sentences"),
        (Fused, "seq2seq", "whole sentences"),
        (Compiled, "tree_gru", "LSTM cells"),
        (TorchFold, "var_lstm", NOT_FOLDED),
    ],
)
def test_unsupported_trial_has_a_reason(adapter: type[System], case: str, words: str) -> None:
    model: Model = CASES[case].model
    check_line(str(adapter.skip(model, small_settings())), (words, model.name))


def test_no_compiler_is_a_reason(monkeypatch: Patch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "C++ compiler" in str(Compiled.skip(CASES["var_lstm"].model, small_settings()))
    on_cuda = small_settings(device="cuda")
    assert "install gcc, or set CC" in str(Compiled.skip(CASES["var_lstm"].model, on_cuda))
    monkeypatch.setattr(shutil, "which", lambda name: name if name == "clang" else None)
    assert "compiler" not in str(Compiled.skip(CASES["var_lstm"].model, on_cuda))


def test_packed_input_makes_no_buckets() -> None:
    with pytest.raises(ConfigError, match=r"buckets=2 .*input=padded"):
        Fused(small_settings(input="packed", buckets=2))


@pytest.fixture
def garbage() -> Iterator[list[object]]:
    """Objects that only the collector of cycles frees, once it is called."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


@pytest.mark.parametrize(
    ("adapter", "case"),
    [
        *((Levels, case) for case in ("tree_lstm", "tree_gru", "mv_rnn", "tree_fc_fold")),
        *((Levels, case) for case in ("tree_lstm_2type", "var_lstm", "bilstm_layers")),
        *((system, "tree_lstm_child_sum") for system in (Levels, Eager, TorchFold)),
        *((Levels, case) for case in ("bilstm_char", "seq2seq", "parser")),
        *((Levels, case) for case in ("lattice_lstm", "lattice_gru")),
        *((Fused, case) for case in ("var_lstm", "bilstm")),
        *((Eager, case) for case in ("tree_lstm", "mv_rnn", "var_lstm")),
        (Autograd, "tree_lstm"),
        *((TorchFold, case) for case in ("tree_lstm", "tree_fc_cavs")),
        *((Geometric, case) for case in ("tree_lstm", "tree_lstm_child_sum")),
    ],
)
def test_no_tensor_is_left_to_the_collector(
    adapter: type[System], case: str, garbage: list[object]
) -> None:
    system, instances = prepared(adapter, case)
    gc.collect()
    garbage.clear()  # from building the system
    for _ in range(3):
        system.load(instances)
        system.run(NullClock())
    gc.collect()
    assert [type(one) for one in garbage if isinstance(one, torch.Tensor)] == []


# --- faster implementations ---

LENGTHS = ([1], [3, 3], [1, 5, 2, 5], [7, 1, 1, 4, 2])


@pytest.mark.parametrize("n_rows", [1, 40])
@pytest.mark.parametrize("in_place", [False, True])
def test_tanh_by_sigmoid_is_tanh(n_rows: int, in_place: bool) -> None:
    """Columns of a wider tensor, with large and tiny numbers."""
    whole = torch.linspace(-30, 30, n_rows * 128).view(n_rows, 128)
    whole[:, 7] = 1e-5
    x, kept = whole[:, 3:99], whole.clone()
    assert (x.numel() < products.LEAST_TANH) == (n_rows == 1)
    expected = torch.tanh(x.double())
    found = products.tanh(x, x if in_place else None)
    assert (found - expected).abs().max() < 2e-7
    if in_place:
        kept[:, 3:99] = found
    assert torch.equal(whole, kept)  # other columns are unchanged


@pytest.mark.parametrize("n_rows", [0, 1, 3, 70])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_a_weight_in_another_layout_gives_the_same_products(
    monkeypatch: pytest.MonkeyPatch, n_rows: int, transposed: bool, packed: bool
) -> None:
    monkeypatch.setattr(products, "ONEDNN", products.HAS_ONEDNN)
    monkeypatch.setattr(products, "LEAST_PACKED", 1 if packed else 1 << 60)
    monkeypatch.setattr(products, "LEAST_BY_PACKED", 2 * 20 * 12)  # numbers of rows use both ways
    torch.manual_seed(0)
    weight = torch.randn(12, 20).t() if transposed else torch.randn(20, 12)
    x = torch.randn(n_rows, 30)[:, 5:17]
    repeated = Repeated(weight)
    assert (repeated.packed is not None) == (packed and products.HAS_ONEDNN)
    torch.testing.assert_close(repeated(x), x @ weight.t())


@pytest.mark.parametrize("turned", [False, True])
def test_a_product_reads_no_matrix_with_gaps(turned: bool) -> None:
    """For matrices with gaps oneDNN uses generic code, which is hundreds of times slower."""
    wide = torch.randn(7, 12)
    weight = wide[:, 2:6].t() if turned else wide[:, 2:6]
    found = products.make_dense(weight)
    assert torch.equal(found, weight)
    assert found.is_contiguous() or found.t().is_contiguous()


@pytest.mark.parametrize("n_sides", [1, 2])
@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("least", [0, 1 << 60])
def test_sides_have_matrices_of_their_own(
    monkeypatch: pytest.MonkeyPatch, n_sides: int, onednn: bool, least: int
) -> None:
    """One call per side, one call for both sides, and their derivatives have the same results."""
    monkeypatch.setattr(products, "ONEDNN", onednn and products.HAS_ONEDNN)
    monkeypatch.setattr(products, "LEAST", least)
    torch.manual_seed(1)
    weights = [torch.randn(4, 3, requires_grad=True) for _ in range(n_sides)]
    bias, x = torch.randn(4, requires_grad=True), torch.randn(5, n_sides, 3, requires_grad=True)
    wanted = torch.stack([x[:, k] @ w.t() + bias for k, w in enumerate(weights)], 1).tanh()
    d = torch.randn_like(wanted)
    own = SideWeights.from_rows(weights, bias)
    with torch.no_grad():
        found = torch.empty_like(wanted)
        own.forward(x, torch.tanh, found)
        assert torch.allclose(found, wanted, atol=1e-6)
        sums = d * (1 - found**2)
        found_by_hand = [own.backward(sums), *own.gradients(sums, x)[0], own.gradients(sums, x)[1]]
    by_torch = torch.autograd.grad(wanted, [x, *weights, bias], d)
    for value, right in zip(found_by_hand, by_torch, strict=True):
        assert torch.allclose(value, right, atol=1e-5)


@pytest.mark.parametrize("n", [1, 64])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("k", [8, 512])
@pytest.mark.parametrize("onednn", [True, False])
def test_products_give_new_memory_or_add(
    monkeypatch: pytest.MonkeyPatch, n: int, k: int, has_bias: bool, onednn: bool
) -> None:
    """Results may be overwritten without changing the next pass or the input."""
    monkeypatch.setattr(products, "ONEDNN", onednn and products.HAS_ONEDNN)
    x, weight = torch.randn(n, k), torch.randn(k, 600) / k**0.5
    bias = torch.randn(600) if has_bias else None
    by, x_before = FixedProduct(weight, bias), x.clone()
    assert (by.packed is None) == (k == 8 or not products.ONEDNN)
    expected = x @ weight
    with torch.inference_mode():
        for _ in range(2):
            found = by(x)
            torch.testing.assert_close(found, expected + (0.0 if bias is None else bias))
            found.fill_(1.0)
            assert by.add_to(found, x) is found
            torch.testing.assert_close(found, expected + 1.0)
    assert torch.equal(x, x_before)


@pytest.mark.parametrize("way", ["in_place", "whole"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("onednn", [True, False])
def test_every_way_to_the_loss_finds_the_same(
    monkeypatch: pytest.MonkeyPatch, way: Any, bias: bool, onednn: bool
) -> None:
    """Cases: several chunks of rows, logits far apart, and a loss scaled after the layer."""
    monkeypatch.setattr(layers, "CHUNK_BYTES", 200)  # 4 rows
    monkeypatch.setattr(products, "ONEDNN", onednn and products.HAS_ONEDNN)
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
        assert compute_relative_error(value.numpy(), wanted.numpy()) < 1e-4


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_steps_of_inference_keep_one_state_a_sentence(lengths: list[int], started: bool) -> None:
    made: list[StepStates] = []

    class Reported(StepStates):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            made.append(self)

    torch.manual_seed(1)
    k, n, h = len(lengths), sum(lengths), 3
    x, W, U, b = (torch.randn(size) for size in [(n, 5), (4 * h, 5), (4 * h, h), (4 * h,)])
    start = torch.randn(k, 2 * h) if started else None
    plan = arrange_columns(np.array(lengths), CPU)
    wanted = run_lstm_steps(x, W, U, b, start, plan, Reported)
    with torch.inference_mode():
        found = run_lstm_steps(x, W, U, b, start, plan, Reported)
    assert all(map(torch.allclose, found, wanted))
    assert [len(states.c) for states in made] == [k + n, k]
    assert [len(states.tanh_c) for states in made] == [n, k]


# --- torchfold ---


def leaf(word: int) -> Tree:
    return tree([word], [-1], [-1])


def pair(first: int, second: int) -> Tree:
    return tree([first, second, -1], [-1, -1, 0], [-1, -1, 1])


def test_importing_the_adapter_patches_nothing_of_pytorch() -> None:
    program = (
        "import torch, torch._dynamo\n"  # PyTorch's own, which any optimizer imports
        "before = {k: id(v) for k, v in vars(torch).items() if k[0] != '_'}\n"
        "import dynbatch.systems.on_torch.torchfold\n"
        "changed = [k for k, v in before.items() if id(vars(torch).get(k)) != v]\n"
        "assert not changed and not hasattr(torch.tensor, '_TensorBase'), changed"
    )
    run_python("-c", program)


class Sums(torch.nn.Module):
    """Module whose states are sums of words; records the number of nodes of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []

    def leaf(self, words: Tensor, *_: Tensor) -> Tensor:
        self.calls.append(("leaf", len(words)))
        return words[:, None].float()

    def internal(self, left: Tensor, right: Tensor) -> Tensor:
        self.calls.append(("internal", len(left)))
        return left + right


TREES = [leaf(5), pair(5, 7), pair(5, 7), pair(7, 5)]


@pytest.mark.parametrize(
    ("share", "calls"),
    [
        (True, [("leaf", 2), ("internal", 2)]),  # pair(5, 7) and pair(7, 5)
        (False, [("leaf", 7), ("internal", 3)]),
    ],
)
def test_equal_nodes_are_computed_once_where_they_are_shared(
    share: bool, calls: list[tuple[str, int]]
) -> None:
    folded = fold_trees(convert_trees(TREES, CPU).trees, share=share, cuda=False)
    net = Sums()
    assert folded.compute_states(net).flatten().tolist() == [5, 5, 7, 12, 5, 7, 12, 7, 5, 12]
    assert net.calls == calls
    assert folded.n_batches == len(calls)
    assert folded.n_computed == sum(n for _, n in calls)
    assert folded.compute_root_states(Sums()).flatten().tolist() == [5, 12, 12, 12]


@pytest.mark.parametrize(
    "case", ["tree_lstm", "tree_lstm_child_sum", "tree_fc_fold", "tree_fc_cavs"]
)
def test_sharing_preserves_results_and_is_reported(case: str) -> None:
    model, trees = CASES[case].model, [*CASES[case].instances, leaf(3), pair(3, 3), pair(3, 3)]
    shared, apart = started(TorchFold, model), started(TorchFold, model, share_equal_nodes=False)
    assert_alike(found_by(apart, trees), found_by(shared, trees))
    n = sum(len(tree.words) for tree in trees)
    assert apart.effective_options() == {
        "share_equal_nodes": "false",
        "nodes_computed": f"{n} of {n}",
    }
    n_computed, _, n_added = shared.effective_options()["nodes_computed"].split()
    assert int(n_computed) < int(n_added) == n


def test_no_facts_before_a_run() -> None:
    system = TorchFold(small_settings())
    assert system.effective_options() == {"share_equal_nodes": "true"}
    assert system.counters().n_batches is None
