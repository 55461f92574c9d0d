"""Program that runs systems on every case and writes the results of each to an .npz file.

Arguments: the folder of the results, options (JSON) that override those of the files, the device,
and the files of conf/system. What fails is the system's result "crash", and the next one runs.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import yaml

from dynbatch.harness.contracts.model import Model, ModelSizes, Weights, draw_initial_weights
from dynbatch.harness.contracts.options import format_options
from dynbatch.harness.contracts.system import Result, RunSettings, System
from dynbatch.harness.measuring.checks.reference_check import compute_relative_error
from dynbatch.harness.reference import ReferenceResult
from dynbatch.harness.values.instances import Tree
from tests.support.fake_time import NullClock
from tests.support.instances import build, random_instances

# Cases of systems that are slow to compile. torch.compile takes seconds per hidden size, so its
# cases have the same one. XLA compiles for all lengths and batches, unrolled steps are traced for
# seconds, workers start for every case, and gradients of all weights for every vertex are slow.
ONLY = {
    "torch_compiled": (
        *("tree_lstm", "tree_lstm_child_sum", "var_lstm", "var_lstm_layers"),
        *("bilstm_layers", "seq2seq"),
    ),
    "jax_scan": (
        *("tree_lstm", "tree_lstm_child_sum", "tree_fc_fold", "tree_fc_cavs", "lattice_lstm"),
        *("var_lstm_layers", "bilstm_layers", "bilstm_char", "bilstm_char_none_spelled"),
        *("seq2seq", "seq2seq_at_once", "parser"),
    ),
    "fold_workers": ("tree_lstm",),
    "tf_trees": (
        *("tree_lstm", "tree_lstm_child_sum", "tree_lstm_leaves"),
        *("tree_fc_fold", "tree_fc_cavs"),
    ),
    "tf_static": (
        *("var_lstm", "var_lstm_one_word", "bilstm_layers"),
        *("seq2seq", "seq2seq_at_once", "parser"),
    ),
    "tf_block": ("var_lstm", "var_lstm_one_word", "bilstm_layers"),
    "tf_block_bucketed": ("var_lstm_layers", "bilstm_layers"),
    "tf_dynamic_xla": ("bilstm_layers",),
    "tf_static_xla": ("bilstm_layers",),
}
# Cases with large arrays are for DyNet, whose memory pools grow, and for one system of each other
# way to batch one: no array of torch_eager grows with it. With `reference` they would compare the
# reference with itself for 9 s.
LARGE_TOO = (
    *("dynet", "dynet_depth", "dynet_off", "dynet_manual", "dynet_cpp"),
    *("vertex", "cavs", "fold", "torch_levels", "torch_rnn", "native_levels"),
)
# Fewer loops per program to compile, and fewer steps in each.
SMALL = {
    "jax_scan": {"chunk": 16, "widths": 2},
    "tf_dynamic_xla": {"round_up_to": 4, "buckets": 2},
    "tf_static_xla": {"round_up_to": 4},
}
S = TypeVar("S", bound=System)
FRAMEWORKS = ("torch", "dynet", "tensorflow", "jax")


@dataclass(frozen=True)
class Case:
    """A model, a learning rate, and the sizes of a mini-batch of random instances."""

    model: Model
    sizes: tuple[int, ...]  # leaves of trees, characters of lattices, or words of sentences
    learning_rate: float
    share_spelled: float = 0.5  # fraction of spelled words in chains with characters
    scale: float = 4.0  # of initial weights, so that no parameter's step is lost in rounding

    @property
    def weights(self) -> Weights:
        own = draw_initial_weights(self.model, seed=0)
        return {name: values * np.float32(self.scale) for name, values in own.items()}

    @property
    def instances(self) -> list[Any]:
        kind, sizes, seed = self.model.instance_kind, self.model.sizes, len(self.sizes)
        return random_instances(kind, self.sizes, sizes, seed, self.share_spelled)


SIZES = ModelSizes(6, {"words": 11, "classes": 4})
UNEQUAL = ModelSizes(6, {"words": 11, "characters": 8, "classes": 4}, embedding_size=5)
NO_LETTERS = ModelSizes(6, {"words": 11, "classes": 4}, embedding_size=5)
LETTERS = ModelSizes(6, {"words": 11, "characters": 8, "classes": 4}, embedding_size=4)
PAIRS = ModelSizes(6, {"source_words": 9, "target_words": 7}, embedding_size=5)
PARSED = ModelSizes(6, {"words": 11, "tags": 4, "relations": 3}, embedding_size=5)
MANY_WORDS = ModelSizes(8, {"words": 20_000})
LARGE = ModelSizes(256, {"words": 50, "classes": 5})
SPELLER = build("bilstm_char", LETTERS)
BERXIT = build("berxit", SIZES, layers=4, tokens=3, head_size=3, p_exit=0.3)
CASES = {
    "tree_lstm": Case(build("tree_lstm", UNEQUAL), (1, 2, 9, 4, 13), 0.3),
    "tree_lstm_leaves": Case(build("tree_lstm", SIZES), (1, 1), 0.3),
    "tree_fc_fold": Case(build("tree_fc", SIZES, variant="fold"), (1, 8, 3, 11), 0.02, scale=1.0),
    "tree_fc_cavs": Case(build("tree_fc", SIZES, variant="cavs"), (1, 8, 3, 11), 0.02, scale=1.0),
    "tree_lstm_2type": Case(build("tree_lstm_2type", UNEQUAL, type_seed=3), (1, 2, 9, 4, 13), 0.3),
    "tree_lstm_child_sum": Case(build("tree_lstm_child_sum", UNEQUAL), (1, 2, 9, 4, 13), 0.3),
    "tree_lstm_child_sum_leaves": Case(build("tree_lstm_child_sum", SIZES), (1, 1), 0.3),
    "tree_gru": Case(build("tree_gru", SIZES), (1, 2, 9, 4, 13), 0.3),
    "mv_rnn": Case(build("mv_rnn", SIZES), (1, 2, 9, 4, 13), 0.1, scale=1.0),
    "lattice_lstm": Case(build("lattice_lstm", UNEQUAL), (1, 7, 2, 12), 0.1),
    "lattice_gru": Case(build("lattice_gru", UNEQUAL), (1, 7, 2, 12), 0.1, scale=2.0),
    "gated_lattice_lstm": Case(build("gated_lattice_lstm", UNEQUAL), (1, 7, 2, 12), 0.3),
    "var_lstm": Case(build("var_lstm", NO_LETTERS), (1, 5, 3, 2, 5), 0.1),
    "var_lstm_layers": Case(build("var_lstm", NO_LETTERS, layers=3), (4, 1, 2), 0.1),
    "var_lstm_equal": Case(build("var_lstm", SIZES), (4, 4, 4), 0.1),
    "var_lstm_one_word": Case(build("var_lstm", SIZES), (1, 1), 0.3),
    "bilstm": Case(build("bilstm", NO_LETTERS), (1, 5, 3, 2, 5), 0.1),
    "bilstm_layers": Case(build("bilstm", NO_LETTERS, layers=2, mlp_size=7), (4, 1, 2), 0.1),
    "bilstm_char": Case(SPELLER, (1, 5, 3, 2, 5), 0.1),
    "bilstm_char_none_spelled": Case(SPELLER, (2, 1, 4), 0.1, share_spelled=0.0),
    "bilstm_char_all_spelled": Case(SPELLER, (2, 1, 4), 0.1, share_spelled=1.0),
    "seq2seq": Case(build("seq2seq", PAIRS), (1, 5, 3, 2, 5), 0.1),
    "seq2seq_at_once": Case(build("seq2seq_at_once", PAIRS), (1, 5, 3, 2, 5), 0.1),
    "parser": Case(build("parser", PARSED, tag_size=3, mlp_size=7), (1, 4, 2, 3, 4), 0.1),
    "birnn": Case(build("birnn", NO_LETTERS), (1, 5, 3, 2, 5), 0.1),
    "stack_rnn": Case(build("stack_rnn", NO_LETTERS), (1, 5, 3, 2, 5), 0.05, scale=2.0),
    "nested_rnn": Case(build("nested_rnn", SIZES, fewest=1, most=3), (1, 5, 3, 2), 0.05, scale=2.0),
    "drnn": Case(build("drnn", SIZES, p_child=0.9, generations=3), (1, 5, 3, 2), 0.05, scale=2.0),
    "berxit": Case(BERXIT, (1, 5, 3, 2, 4), 0.05, scale=1.5),
    # Backward passes that need more than DyNet's initial 16 MiB.
    "tree_lstm_large": Case(build("tree_lstm", LARGE), (300, 400, 2), 0.05, scale=1.0),
    # One array larger than that: the logits of all words.
    "var_lstm_large": Case(build("var_lstm", MANY_WORDS), (250, 2), 0.02, scale=1.0),
}


def trees_of(leaves: Sequence[int]) -> list[Tree]:
    """Draw trees of SIZES with these numbers of leaves."""
    return random_instances("tree", leaves, SIZES, seed=len(leaves))


def prefixed(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}/{name}": value for name, value in values.items()}


def run_case(
    adapter: type[System], case: Case, device: str, options: dict[str, Any]
) -> dict[str, Any]:
    """Evaluate twice (runs must be independent), one instance alone, step, and evaluate again.

    In inference, and without a step, if the system does not train the model.
    """
    size, rate = len(case.sizes), case.learning_rate
    modes = {
        mode: RunSettings(mode, device, 1, size, rate, 0, options=options)
        for mode in ("train", "infer")
    }
    skips = {mode: adapter.skip(case.model, own) for mode, own in modes.items()}
    mode = "infer" if skips["train"] is not None else "train"
    if skips[mode] is not None:
        return {"skip": skips[mode]}
    found: dict[str, Any] = {"mode": mode}
    system = prepared(adapter, case, modes[mode])
    n_ahead = [system.n_compilations()]
    for prefix in ("first", "again"):
        found |= prefixed(prefix, found_by(system, case.instances))
    found["effective options"] = json.dumps(system.effective_options())
    found["options"] = json.dumps(format_options(system.options))
    found |= prefixed("alone", found_by(system, case.instances[-1:]))
    system.load(case.instances)
    found |= prefixed("kept", system.parameters())
    if mode == "train":
        system.run(NullClock(), update=True)
        found |= prefixed("stepped parameters", system.parameters())
        found |= prefixed("stepped", found_by(system, case.instances))
    n_later = [system.n_compilations()]
    inference = prepared(adapter, case, modes["infer"])
    n_ahead.append(inference.n_compilations())
    found |= prefixed("inferred", found_by(inference, case.instances))
    found_by(inference, case.instances[-1:])
    n_later.append(inference.n_compilations())
    return found | {"compiled ahead": json.dumps(n_ahead), "compiled": json.dumps(n_later)}


def prepared(adapter: type[System], case: Case, own: RunSettings) -> System:
    system = adapter(own)
    system.prepare(case.model, case.weights)
    if system.learns:
        system.learn(case.instances)
    return system


def small_settings(mode: str = "train", device: str = "cpu", **options: Any) -> RunSettings:
    return RunSettings(mode, device, 1, 4, 0.2, 0, options=options)


def started(adapter: type[S], model: Model, mode: str = "train", **options: Any) -> S:
    """Prepare a system for its own tests."""
    system = adapter(small_settings(mode, **options))
    system.prepare(model, draw_initial_weights(model, seed=0))
    return system


def found_by(system: System, instances: Sequence[Any]) -> dict[str, Any]:
    """Return loss, outputs and gradients of a run without a step."""
    system.load(instances)
    system.run(NullClock(), update=False)
    return values_of(system.result())


def values_of(result: Result | ReferenceResult) -> dict[str, Any]:
    gradients = {f"gradient of {name}": value for name, value in result.gradients.items()}
    found = {"loss": result.loss, "outputs": result.outputs, **gradients}
    return {name: np.asarray(value) for name, value in found.items()}


def assert_alike(found: dict[str, Any], expected: dict[str, Any], most: float = 1e-5) -> None:
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert compute_relative_error(found[name], value) < most, name


def run_all(values: dict[str, Any], device: str, overrides: dict[str, Any]) -> dict[str, Any]:
    adapter = importlib.import_module(values["adapter"]).Adapter
    found: dict[str, Any] = {}
    for name, case in CASES.items():
        is_left_out = name.endswith("_large") and values["name"] not in LARGE_TOO
        if name not in ONLY.get(values["name"], CASES) or is_left_out:
            found[f"{name}/skip"] = "it would take seconds"
            continue
        options = (values.get("options") or {}) | SMALL.get(values["name"], {}) | overrides
        results = run_case(adapter, case, device, options)
        found |= {f"{name}/{key}": value for key, value in results.items()}
    return found


def main(folder: str, overrides: str, device: str, *configs: str) -> None:
    for config in configs:
        values = yaml.safe_load(Path(config).read_text(encoding="utf-8"))
        try:
            found = run_all(values, device, json.loads(overrides))
        except Exception:
            found = {"crash": traceback.format_exc()}
        found["loaded"] = [name for name in FRAMEWORKS if name in sys.modules]
        arrays = {key: np.asarray(value) for key, value in found.items()}
        np.savez(Path(folder, f"{values['name']}.npz"), **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
