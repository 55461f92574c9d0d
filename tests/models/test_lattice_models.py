"""Values of lattice models stay in range for lattices of any length."""

from __future__ import annotations

import numpy as np

from dynbatch.harness.contracts.model import ModelSizes, draw_initial_weights
from dynbatch.harness.models.gated_lattice_lstm import GatedLatticeLSTM
from dynbatch.harness.models.lattice_gru import LatticeGRU
from dynbatch.harness.models.lattice_lstm import LatticeLSTM
from dynbatch.harness.reference import run_reference
from tests.support.instances import lattice as grid


def test_states_of_the_longest_lattices_stay_small() -> None:
    words = [(end - 2 - end % 2, end) for end in range(3, 200)]
    sizes = ModelSizes(16, {"words": 8, "characters": 8, "classes": 4})
    for kind in (LatticeLSTM, LatticeGRU, GatedLatticeLSTM):
        model = kind(sizes)
        result = run_reference(model, draw_initial_weights(model, 0), [grid(words, 200)], "train")
        assert np.abs(result.outputs).max() < 100, kind.name
        assert max(np.abs(gradient).max() for gradient in result.gradients.values()) < 1e5, (
            kind.name
        )


def test_initial_weights_may_have_a_mean_for_each_part() -> None:
    model = LatticeGRU(ModelSizes(4, {"words": 8, "characters": 8, "classes": 4}))
    r, z, n = np.split(draw_initial_weights(model, 0)["b_char"], 3)
    assert np.abs(z + 2.0).max() <= 0.1 + 1e-6
    assert max(np.abs(r).max(), np.abs(n).max()) <= 0.1 + 1e-6
