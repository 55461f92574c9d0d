"""TensorFlow on sentences: padding, traces, XLA, and facts about a run."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dynbatch.harness.contracts.model import ModelSizes
from dynbatch.harness.contracts.system import System, load_adapter
from dynbatch.harness.errors import UnsupportedTrial
from dynbatch.harness.measuring.checks.reference_check import compute_relative_error
from tests.support.fake_time import NullClock
from tests.support.instances import build, random_instances
from tests.support.refusals import expect_refusal
from tests.support.run_adapter import CASES, assert_alike, found_by, small_settings, started

tf = pytest.importorskip("tensorflow")
static = pytest.importorskip("dynbatch.systems.on_tensorflow.static")
block = pytest.importorskip("dynbatch.systems.on_tensorflow.block")
dynamic = pytest.importorskip("dynbatch.systems.on_tensorflow.dynamic")
layers = pytest.importorskip("dynbatch.systems.on_tensorflow.layers")
runtime = pytest.importorskip("dynbatch.systems.on_tensorflow.runtime")

pytestmark = pytest.mark.slow  # importing TensorFlow takes seconds

SIZES = ModelSizes(6, {"words": 11, "classes": 4}, embedding_size=5)
VAR_LSTM = build("var_lstm", SIZES)
PADDED = {"layout": "padded", "round_up_to": 4}
WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "unrolled": (static, {"round_up_to": 2}),
    "loop": (dynamic, {}),
    "loop_buckets": (dynamic, {**PADDED, "buckets": 2}),
    "block": (block, {}),
    "loop_xla": (dynamic, {**PADDED, "xla": True}),
}


def prepared(way: str, model: Any, mode: str = "train", **others: Any) -> System:
    module, options = WAYS[way]
    return started(module.Adapter, model, mode, **{**options, **others})


def sentences(*lengths: int) -> list[Any]:
    return random_instances("chain", lengths, SIZES, seed=len(lengths), share_spelled=0.0)


@pytest.mark.parametrize(("way", "mode", "counts"), [
    ("unrolled", "train",
     {(2, 1): 1, (1,): 1, (2, 2, 1): 1, (3, 1): 2, (4,): 2, (1, 2): 2, (5,): 3}),
    ("loop", "train", {(4, 1): 1, (3,): 1, (9, 2, 2): 1}),
    ("loop_xla", "infer", {(4, 1): 1, (3, 2): 1, (5, 1): 2, (5, 1, 1): 3, (70, 70): 4, (5, 8): 4}),
])  # fmt: skip
def test_programs_are_traced_for_new_shapes(
    way: str, mode: str, counts: dict[tuple[int, ...], int]
) -> None:
    """Unrolled: once for each rounded length. XLA: for columns, rounded steps and rows."""
    system, found = prepared(way, VAR_LSTM, mode), []
    assert system.n_compilations() == 0
    for lengths in counts:
        system.compile_for(sentences(*lengths))
        found.append(system.n_compilations())
    assert found == list(counts.values())


@pytest.mark.parametrize("case", ["parser", "seq2seq", "seq2seq_at_once"])
def test_steps_of_two_kinds_are_refused_if_they_are_padded(case: str) -> None:
    for way in ("loop_buckets", "block"):
        with pytest.raises(UnsupportedTrial, match="no padded layout"):
            prepared(way, CASES[case].model)


@pytest.mark.parametrize(("way", "expected"), [("loop", 1), ("unrolled", 4)])
def test_only_steps_along_sentences_are_unrolled(way: str, expected: int) -> None:
    """Decisions are in a loop, so their number needs no trace; sentences have a root, too."""
    system = prepared(way, CASES["parser"].model)
    for lengths in ((2, 1), (1,), (2, 2, 2), (4,), (5, 1), (6, 6)):
        sizes = CASES["parser"].model.sizes
        system.compile_for(random_instances("parsed_sentence", lengths, sizes, 0, 0.0))
    assert system.n_compilations() == expected


@pytest.mark.parametrize("way", ["loop", "loop_xla", "block"])
def test_compile_for_runs_nothing_that_is_there(way: str) -> None:
    """The loss remains that of the last mini-batch that ran: the first of these shapes."""
    system = prepared(way, VAR_LSTM)
    system.compile_for(sentences(4, 1))
    loss = system.last_loss()
    system.compile_for(sentences(4, 2))
    assert system.last_loss() == loss
    assert system.n_compilations() == 1


def test_nothing_is_traced_after_compile_for() -> None:
    """Running and reading results trace nothing; compiling changes no weights."""
    system = prepared("unrolled", VAR_LSTM)
    instances = sentences(4, 2)
    before = found_by(system, instances)
    system.compile_for(instances)
    assert_alike(found_by(system, instances), before)
    n_traced = system.n_compilations()
    system.run(NullClock())
    assert found_by(system, instances)["loss"] < before["loss"]
    assert system.n_compilations() == n_traced


@pytest.mark.parametrize("way", list(WAYS))
def test_the_update_is_part_of_the_program(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After compile_for, a step calls no operation outside of the program."""
    system, instances = prepared(way, VAR_LSTM), sentences(4, 2)
    before = system.parameters()
    system.compile_for(instances)
    system.load(instances)
    system.run(NullClock(), update=False)
    kept, gradients = system.parameters(), system.result().gradients
    monkeypatch.setattr(runtime, "subtract", lambda *_: pytest.fail("an update in Python"))
    system.run(NullClock(), update=True)
    for name, stepped in system.parameters().items():
        assert np.array_equal(before[name], kept[name]), name
        rate = system.settings.learning_rate
        assert stepped == pytest.approx(before[name] - rate * gradients[name], abs=1e-6), name


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("apart", [0.1, 40.0])
def test_the_loss_is_that_of_tensorflow(bias: bool, apart: float) -> None:
    """Cases: logits close together and far apart, uncounted rows, a loss scaled afterwards."""
    rng = np.random.default_rng(0)
    hidden, W, b = (rng.normal(0, apart, shape) for shape in ((13, 5), (5, 11), (11,)))
    labels = rng.integers(-1, 11, size=13).astype(np.int32)
    assert (labels < 0).any()
    own = [tf.constant(x, tf.float32) for x in ((hidden, W, b) if bias else (hidden, W))]
    exact = [tf.constant(x.numpy(), tf.float64) for x in own]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([*own, *exact])
        loss = 2.5 * layers.compute_linear_cross_entropy(*own, *(() if bias else (None,)), labels)
        scores = exact[0] @ exact[1] + (exact[2] if bias else 0.0)
        kept = tf.boolean_mask(scores, labels >= 0), labels[labels >= 0]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=kept[0], labels=kept[1])
        wanted = 2.5 * tf.reduce_sum(losses)
    assert float(loss) == pytest.approx(float(wanted), rel=1e-5)
    for value, right in zip(tape.gradient(loss, own), tape.gradient(wanted, exact), strict=True):
        assert compute_relative_error(value.numpy(), right.numpy()) < 1e-4


def test_the_process_is_set_as_asked() -> None:
    system = prepared("loop", VAR_LSTM)
    assert tf.config.threading.get_intra_op_parallelism_threads() == 1
    assert tf.config.threading.get_inter_op_parallelism_threads() == 1
    assert not tf.config.experimental.tensor_float_32_execution_enabled()
    facts = system.versions()
    assert facts["tensorflow"] == tf.__version__
    assert (facts["tensorflow_threads"], facts["tensorflow_xla"]) == ("1", "off")
    assert facts["tensorflow_onednn"] in ("on", "off")


@pytest.mark.parametrize(
    ("mode", "phases"),
    [("train", ("construct",)), ("infer", ("construct", "forward"))],
)
def test_phases_of_one_program_are_not_separable(mode: str, phases: Any) -> None:
    system = prepared("loop", VAR_LSTM, mode)
    assert system.phases == phases
    assert (found_by(system, sentences(3, 1)).keys() == {"loss", "outputs"}) == (mode == "infer")


def test_unsupported_trial_or_version_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    skip = static.Adapter.skip
    assert skip(VAR_LSTM, small_settings()) is None
    assert "tree_fc" in str(skip(CASES["tree_fc_fold"].model, small_settings()))
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    assert skip(VAR_LSTM, small_settings(device="cuda")) == "tensorflow finds no CUDA device"
    monkeypatch.setattr(tf, "__version__", "2.15.1")
    with pytest.raises(UnsupportedTrial, match=r" tensorflow 2.15.1: .*pip install.*\[tensorflow]"):
        load_adapter("dynbatch.systems.on_tensorflow.static")


@pytest.mark.parametrize(
    ("adapter", "options", "reason"),
    [
        (dynamic, {"buckets": 2}, "expected 1; set 1, or system.options.layout=padded"),
        (dynamic, {"xla": True}, "xla=true: expected padded"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    adapter: ModuleType, options: dict[str, Any], reason: str
) -> None:
    with expect_refusal(reason):
        adapter.Adapter(small_settings(**options))
