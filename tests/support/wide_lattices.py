"""Run as a program: a system on lattices with a hidden size of 130; prints the worst errors.

Arguments: the adapter's module and its options as JSON. For each model that the system runs, a
line of JSON: its name, and the largest relative error of loss, outputs and every gradient.
"""

from __future__ import annotations

import importlib
import json
import sys

import numpy as np

from harness.contracts.model import ModelSizes
from harness.measuring.reference_check import relative_error
from harness.models.gated_lattice_lstm import GatedLatticeLSTM
from harness.models.lattice_gru import LatticeGRU
from harness.models.lattice_lstm import LatticeLSTM
from harness.oracle import run_reference
from tests.support.run_adapter import Case, named, run_case

WIDE = ModelSizes(130, {"words": 11, "characters": 8, "classes": 4}, embedding_size=5)


def main(module: str, options: str) -> None:
    adapter = importlib.import_module(module).Adapter
    for kind in (LatticeLSTM, LatticeGRU, GatedLatticeLSTM):
        case = Case(kind(WIDE), (1, 7, 2), 0.1, scale=1.0)
        found = run_case(adapter, case, "cpu", json.loads(options))
        if "skip" in found:
            continue
        truth = run_reference(case.model, case.weights, case.instances, "train")
        pairs = [(np.asarray(found[name]), np.asarray(v)) for name, v in named(truth, "first")]
        print(json.dumps([kind.name, max(relative_error(*pair) for pair in pairs)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
