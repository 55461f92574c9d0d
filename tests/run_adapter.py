"""Run as a program: one system on every case, all that it computes written to an .npz file.

Arguments: conf/system's file, the .npz file, options (JSON) that override the file's, the device.
One process for each system, because frameworks have settings of a whole process.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from harness.clock import NullClock
from harness.instances import Tree
from harness.models.base import Model, ModelSizes, initial_weights
from harness.models.tree_fc import TreeFC
from harness.models.tree_lstm import TreeLSTM
from systems.base import Result, RunSettings, System

FRAMEWORKS = ("torch", "dynet", "tensorflow", "numba")


@dataclass(frozen=True)
class Case:
    """A model, the numbers of leaves of a mini-batch of random trees, and a step's size."""

    model: Model
    n_leaves: tuple[int, ...]
    learning_rate: float

    @property
    def trees(self) -> list[Tree]:
        rng = np.random.default_rng(len(self.n_leaves))
        return [random_tree(n, self.model.sizes, rng) for n in self.n_leaves]


SIZES = ModelSizes(hidden_size=6, vocab_size=11, n_classes=4)
UNEQUAL = ModelSizes(hidden_size=6, vocab_size=11, n_classes=4, embedding_size=5)
LARGE = ModelSizes(hidden_size=256, vocab_size=50)
CASES = {
    "tree_lstm": Case(TreeLSTM(UNEQUAL), (1, 2, 9, 4, 13), 0.3),
    "tree_lstm_leaves": Case(TreeLSTM(SIZES), (1, 1), 0.3),
    "tree_fc_fold": Case(TreeFC(SIZES, variant="fold"), (1, 8, 3, 11), 0.02),
    "tree_fc_cavs": Case(TreeFC(SIZES, variant="cavs"), (1, 8, 3, 11), 0.02),
    # Backward passes of more than DyNet's first 16 MiB.
    "tree_lstm_large": Case(TreeLSTM(LARGE), (300, 400, 2), 0.05),
}


def random_tree(n_leaves: int, sizes: ModelSizes, rng: np.random.Generator) -> Tree:
    """Join neighbouring subtrees at random until one is left."""
    words: list[int] = []
    children: list[tuple[int, int]] = []

    def grow(n: int) -> int:
        if n == 1:
            words.append(int(rng.integers(sizes.vocab_size)))
            children.append((-1, -1))
        else:
            n_left = int(rng.integers(1, n))
            own = (grow(n_left), grow(n - n_left))
            words.append(-1)
            children.append(own)
        return len(words) - 1

    grow(n_leaves)
    left, right = zip(*children, strict=True)
    labels = rng.integers(sizes.n_classes, size=len(words))
    return Tree(np.array(words), labels, np.array(left), np.array(right))


def settings(case: Case, mode: str, device: str, options: dict[str, Any]) -> RunSettings:
    return RunSettings(
        mode=mode,
        device=device,
        threads=1,
        batch_size=len(case.n_leaves),
        learning_rate=case.learning_rate,
        seed=0,
        options=options,
    )


def named(result: Result, prefix: str) -> Iterator[tuple[str, Any]]:
    yield f"{prefix}/loss", result.loss
    yield f"{prefix}/outputs", result.outputs
    for name, gradient in result.gradients.items():
        yield f"{prefix}/gradient of {name}", gradient


def evaluate(system: System, trees: Sequence[Tree], prefix: str) -> Iterator[tuple[str, Any]]:
    system.load(trees)
    system.run(NullClock(), update=False)
    yield from named(system.result(), prefix)


def run_case(
    adapter: type[System], case: Case, device: str, options: dict[str, Any]
) -> dict[str, Any]:
    """Evaluate twice (nothing may leak from a run into the next), step, evaluate, and singly."""
    found: dict[str, Any] = {}
    training = settings(case, "train", device, options)
    reason = adapter.skip(case.model, training)
    if reason is not None:
        return {"skip": reason}
    weights = initial_weights(case.model, seed=0)
    system = adapter(training)
    system.prepare(case.model, weights)
    for prefix in ("first", "again"):
        found |= evaluate(system, case.trees, prefix)
    for number, tree in enumerate(case.trees):
        found |= evaluate(system, [tree], f"single{number}")
    system.load(case.trees)
    system.run(NullClock(), update=True)
    found |= evaluate(system, case.trees, "stepped")
    inference = adapter(settings(case, "infer", device, options))
    inference.prepare(case.model, weights)
    found |= evaluate(inference, case.trees, "inferred")
    return found


def main(config: str, out: str, overrides: str, device: str) -> None:
    values = yaml.safe_load(Path(config).read_text(encoding="utf-8"))
    adapter = importlib.import_module(values["adapter"]).Adapter
    options = (values.get("options") or {}) | json.loads(overrides)
    found = {
        f"{name}/{key}": value
        for name, case in CASES.items()
        for key, value in run_case(adapter, case, device, options).items()
    }
    found["loaded"] = [name for name in FRAMEWORKS if name in sys.modules]
    np.savez(out, **{key: np.asarray(value) for key, value in found.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
