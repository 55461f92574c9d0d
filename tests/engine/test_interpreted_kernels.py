"""Kernels of the CUDA backend in Triton's interpreter, with sizes that do not fit tiles.

test_backends.py has the tiles of a GPU. Texts with one injected error must give wrong results;
test_device_programs.py has errors in kinds and loops, which the interpreter does not notice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import numpy as np
import pytest

from dynbatch.harness.contracts.model import Model, ModelSizes, Weights, draw_initial_weights
from dynbatch.harness.engine import engine
from dynbatch.harness.engine.backends.cuda import backend as cuda
from dynbatch.harness.engine.backends.cuda.backend import Backend
from dynbatch.harness.engine.backends.cuda.kinds import MANY, Tile, Tiling
from dynbatch.harness.engine.backends.cuda.launching import Kernel
from dynbatch.harness.engine.backends.cuda.module import KernelModule
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.reference import run_reference
from dynbatch.harness.values.precision import TOLERANCES
from tests.support.engine_models import EXAMPLES, SEQUENCE_MODELS
from tests.support.engine_runs import (
    ON_TWO_STREAMS,
    ONE_BY_ONE,
    SWITCHES,
    Setting,
    disagreements,
    prepared,
    run,
)
from tests.support.instances import build, draw_trees, random_instances
from tests.support.pairwise import pairwise_choices
from tests.support.walked_backend import PoisonedMemory, WalkedBackend

# Tiles smaller than most values; matmuls of more than two rows use the second tile.
SMALL = Tiling(
    products=((2, Tile(2, 4, 8, spread=True)), (MANY, Tile(16, 16, 16))),
    plain=Tile(8, 4, 1),
    sums=Tile(16, 16, 16),
    wide_rows=Tile(4, 2, 1),
)
TOLERANCE = 3e-5  # for float32, as in the contract of backends
MODES = ("train", "infer")
CHOICES = ONE_BY_ONE | ON_TWO_STREAMS


class SmallTiles(Backend):
    """Backend with small tiles, and memory that reveals reads of unwritten values."""

    tiling = SMALL
    change: Callable[[str], str] = staticmethod(lambda text: text)  # modifies a kernel, for tests

    def _make_memory(self, weights: Weights) -> PoisonedMemory:
        return PoisonedMemory(weights, self._device, self._forget_launches)

    def _load_kernel(self, module: KernelModule) -> Kernel:
        return super()._load_kernel(replace(module, text=type(self).change(module.text)))


def wrong(
    model: Model,
    instances: Sequence[Any],
    switches: Switches | None = None,
    mode: str = "train",
    tolerances: Sequence[float] = (TOLERANCE,),
) -> list[str]:
    """Return disagreements of one mini-batch with the reference, within the last tolerance.

    With the other tolerances something must disagree.
    """
    weights = draw_initial_weights(model, 7)
    adapter = prepared(model, weights, switches, "agenda", mode)
    reference = run_reference(model, weights, instances, mode)
    result = run(adapter, instances)
    *too_narrow, wide = (disagreements(result, reference, tolerance) for tolerance in tolerances)
    assert all(too_narrow)
    return wide


def wrong_steps(kind: type[Backend], model: Model, instances: list[Any]) -> list[str]:
    """Return disagreements of one step of SGD with the reference, or else of a second one."""
    setting = Setting((model, instances, draw_initial_weights(model, 7)), kind=kind)
    return setting.step(instances, TOLERANCE) or setting.step(instances, TOLERANCE)


@pytest.fixture
def changeable(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[SmallTiles]]:
    if (reason := Backend.explain_unavailable(Switches(), "cpu")) is not None:
        pytest.skip(reason)
    own = type("Own", (SmallTiles,), {})
    monkeypatch.setattr(engine, "choose_backend", lambda *_: (own, ""))
    with np.errstate(all="ignore"):  # masked rows are computed, too
        yield own


@pytest.fixture
def interpreted(changeable: type[SmallTiles]) -> None:
    """Let the engine use small tiles, with texts as they are."""


# Columns of less than one tile; more than one; more than two. Fewer rows where these take long.
@pytest.mark.parametrize(
    ("name", "hidden_size", "n_leaves"),
    [("tree_lstm", 5, (1, 5, 3)), ("tree_gru", 20, (3, 2)), ("tree_lstm", 37, (1, 3))],
)
def test_sizes_need_not_fit_tiles(
    name: str, hidden_size: int, n_leaves: tuple[int, ...], changeable: type[SmallTiles]
) -> None:
    sizes = ModelSizes(hidden_size, {"words": 11, "classes": 5}, embedding_size=hidden_size)
    assert wrong_steps(changeable, build(name, sizes), draw_trees(sizes, n_leaves)) == []


def test_lower_precision_rounds_the_factors_of_products(interpreted: None) -> None:
    sizes = ModelSizes(20, {"words": 11, "classes": 5})
    switches, tolerances = Switches(precision="bf16"), (TOLERANCE, TOLERANCES["bf16"].array)
    model, trees = build("tree_lstm", sizes), draw_trees(sizes, (5, 3))
    assert wrong(model, trees, switches, tolerances=tolerances) == []


@pytest.mark.slow
def test_batches_of_one_and_of_hundreds(interpreted: None) -> None:
    sizes = ModelSizes(6, {"words": 11, "classes": 5})
    assert wrong(build("tree_lstm", sizes), draw_trees(sizes, (1,))) == []
    assert wrong(build("tree_lstm", sizes), draw_trees(sizes, [3] * 50)) == []


# Switches that change kernels for edges to several children; NumPy runs all switches below.
@pytest.mark.slow
@pytest.mark.parametrize("switch", ["lazy_batching", "fusion", "none", "stream"])
def test_switches_with_several_children_at_once(switch: str, interpreted: None) -> None:
    model, instances = EXAMPLES["child_sum"]
    assert wrong(model, instances, Switches(**CHOICES[switch])) == []


# Every other switch changes the input of this backend or its launches.
UNUSED = ("granularity", "share_products", "loop")
CHANGING = {name: values for name, values in SWITCHES.items() if name not in UNUSED}


@pytest.mark.slow
@pytest.mark.parametrize("chosen", pairwise_choices(CHANGING | {"mode": MODES}), ids=str)
def test_switches_by_pairs(chosen: dict[str, Any], interpreted: None) -> None:
    model, instances = EXAMPLES["tree_lstm"]
    asked = dict(chosen)
    mode = asked.pop("mode")
    assert wrong(model, instances[1:], Switches(**asked), mode) == []


SIZES = ModelSizes(5, {"words": 7, "classes": 3})
PROGRAMS = [
    build("birnn", SIZES),
    build("stack_rnn", SIZES),
    build("nested_rnn", SIZES, fewest=2, most=4),
    build("drnn", SIZES, p_child=0.9, generations=3),
]
# Sentences have one and two words: more words repeat the same batches for seconds.
CASES: dict[str, tuple[Model, Sequence[Any]]] = {
    **{
        name: (model, instances[:3:2] if name in SEQUENCE_MODELS else instances[:2])
        for name, (model, instances) in EXAMPLES.items()
        if name not in ("tree_lstm", "child_sum")  # tests above run them
    },
    **{
        model.name: (model, random_instances(model.instance_kind, (3, 2), model.sizes, seed=1))
        for model in PROGRAMS
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_model_in_the_interpreter(name: str, interpreted: None) -> None:
    """The next test runs the examples in inference, too."""
    for mode in MODES if name == "birnn" else ("train",):
        assert wrong(*CASES[name], mode=mode) == [], mode


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_switch_and_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy runs the programs, because Triton's interpreter takes seconds.

    Every model has each switch in one mode, and every switch has both modes on other models.
    """
    monkeypatch.setattr(engine, "choose_backend", lambda *_: (WalkedBackend, ""))
    model, instances = EXAMPLES[name]
    weights = draw_initial_weights(model, 7)
    references = {mode: run_reference(model, weights, instances, mode) for mode in MODES}
    first = list(EXAMPLES).index(name)
    one_mode = zip(CHOICES, islice(cycle(MODES), first, None), strict=False)
    for switch, mode in (*one_mode, ("all", "train"), ("all", "infer")):
        switches = Switches(**CHOICES[switch])
        if name == "passes_on" and switches.outputs == "vertices":
            continue  # its loss reads states that are not pushed
        found = run(prepared(model, weights, switches, "frontier", mode), instances)
        assert disagreements(found, references[mode], TOLERANCE) == [], (switch, mode)


def test_reason_for_unavailability_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(cuda.util, "find_spec", lambda _: object())
    for switches, device, words in (
        (Switches(profile=True), "cuda", "use backend=compiled on a CPU"),
        (Switches(blas="openblas"), "cuda", "use blas=auto"),
        (Switches(granularity="operator"), "cuda", "use backend=stepwise"),
        (Switches(), "cpu", "TRITON_INTERPRET=1"),
    ):
        assert words in str(Backend.explain_unavailable(switches, device))
    monkeypatch.setattr(cuda.util, "find_spec", lambda _: None)
    assert "pip install triton" in str(Backend.explain_unavailable(Switches(), "cuda"))


@pytest.mark.parametrize(
    ("triton", "numpy", "goes"),
    [("3.6.0", "2.3.5", True), ("3.6.0", "2.4.6", False), ("3.7.1", "2.4.6", True)],
)
def test_incompatible_versions_are_named(
    monkeypatch: pytest.MonkeyPatch, triton: str, numpy: str, goes: bool
) -> None:
    versions = {"triton": triton, "numpy": numpy}
    monkeypatch.setattr(cuda.metadata, "version", lambda package: versions[package])
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    reason = Backend.explain_unavailable(Switches(), "cpu")
    assert goes == (reason is None)
    assert goes or f"Triton {triton}" in str(reason)
    assert goes or "install numpy<2.4" in str(reason)


TREE_SIZES = ModelSizes(5, {"words": 11, "classes": 5}, embedding_size=5)


def test_a_loss_keeps_its_digits_if_logits_are_large(interpreted: None) -> None:
    model, sentences = EXAMPLES["var_lstm"]
    weights = draw_initial_weights(model, 7)
    n_words = len(weights["b_out"])
    large = (1e4 + np.arange(n_words) / 8).astype(np.float32)  # in float32 without rounding
    weights = {**weights, "W_out": np.zeros_like(weights["W_out"]), "b_out": large}
    found = run(prepared(model, weights, None, "agenda", "train"), sentences[:1])
    expected = run_reference(model, weights, sentences[:1], "train")
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)
    biases = found.gradients["b_out"], expected.gradients["b_out"]
    np.testing.assert_allclose(*biases, rtol=1e-5, atol=1e-6)


# Regular expressions of correct text, and the wrong replacements, applied everywhere.
CHANGES = {
    "the other child": (r"rows \* 2 \+ 1,", "rows * 2,"),
    "the other child's block of weights": (r"\(5 \+ k\[:, None\]\)", "(0 + k[:, None])"),
    "the other slot's block, backward": (r"\* 10 \+ 5 \+ cols", "* 10 + 0 + cols"),
    "a part of a sum less": (r"part \* size", "0 * size"),
    "an old transposed copy": (r"mask=tl.trans\(there\)", "mask=tl.trans(there) & (i < 0)"),
    "the next gate": (r"\* 15 \+ 10 \+ cols", "* 15 + 5 + cols"),
    "no mask of readers": (r"mask=o\d+\[:, None\]", "mask=live[:, None]"),
    "no mask of the inner dimension": (r"\(k < 5\)", "(k < 4)"),
    "no mask of columns": (r"inside = \(cols < 5\)", "inside = (cols < 4)"),
    "a row less": (r"live = m < n\b", "live = m < n - 1"),
    "a tile less": (r"range\(mine, n_tiles,", "range(mine, n_tiles - 1,"),
    "no first tile": (r"range\(mine, n_tiles,", "range(mine + 1, n_tiles,"),
    "a term less, of few rows": (r"ws0 \+= a", "ws0 += 0 * a"),
    "a term less, of many rows": (r"s0 = tl\.dot\(a, w, s0,", "s0 = tl.dot(a, w, s0 * 0,"),
    "an instruction less": (r"range\(first, last\)", "range(first + 1, last)"),
    "an edge less": (r"for j in range\(0, t", "for j in range(1, t"),
    "rows as states": (r"\bstates\[:, None\]", "rows[:, None]"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_wrong_text_is_found(changeable: type[SmallTiles], change: str) -> None:
    """test_sizes_need_not_fit_tiles is the same test without changes."""
    count: list[int] = []

    def replace_part(text: str) -> str:
        changed, n_replaced = re.subn(*CHANGES[change], text)
        count.append(n_replaced)
        return changed

    changeable.change = staticmethod(replace_part)
    of_edges = change == "an edge less"
    trees = build("tree_lstm", TREE_SIZES), draw_trees(TREE_SIZES, (5, 3))
    model, instances = EXAMPLES["child_sum"] if of_edges else trees
    try:
        found = wrong_steps(changeable, model, instances)
    except IndexError:
        found = ["a row that there is not"]
    assert found
    assert sum(count) > 0
