"""Forest plot and heat map of the engine's speedups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dynbatch.plots.figures import forest, heat

ENGINE, LEVELS, EAGER, JAX = "Engine", "PyTorch, level batching", "PyTorch, eager", "JAX"


def build_row(workload: str, label: str, speed: float, ends: tuple[float, float]) -> dict[str, Any]:
    engine = 100.0
    return {
        "workload": workload,
        "hidden_size": 64,
        "label": label,
        "framework": label.partition(",")[0],
        "is_engine": label == ENGINE,
        "value": speed,
        "speedup": engine / speed,
        "speedup_low": ends[0],
        "speedup_high": ends[1],
        "speedup_n_rounds": 6,
        "speedup_warnings": "drift" if label == JAX else "",
    }


@pytest.fixture
def answers() -> pd.DataFrame:
    return pd.DataFrame(
        [
            build_row("trees", ENGINE, 100.0, (1, 1)),
            build_row("trees", EAGER, 20.0, (4.8, 5.1)),
            build_row("trees", LEVELS, 50.0, (1.91, 2.19)),
            build_row("trees", JAX, 40.0, (2.4, 2.6)),
            build_row("chains", ENGINE, 100.0, (1, 1)),
            build_row("chains", JAX, 125.0, (0.795, 0.902)),
            {**build_row("lattices", JAX, 1.0, (1, 1)), "value": None, "speedup": None},
        ]
    )


def test_each_framework_has_its_fastest_baseline(answers: pd.DataFrame) -> None:
    marks = forest.select_marks(answers)
    shown = {(row.workload, row.label): row.is_best for row in marks.itertuples()}
    assert shown == {("trees", LEVELS): True, ("trees", JAX): False, ("chains", JAX): True}


def test_a_line_spans_the_interval_of_its_mark(answers: pd.DataFrame) -> None:
    axes = forest.draw_forest(answers, 1.17).axes[0]
    lines = [line for drawn in axes.collections for line in drawn.get_segments()]
    assert [list(line[:, 0]) for line in lines] == [[1.91, 2.19], [2.4, 2.6], [0.795, 0.902]]
    (first, second), (jax, _) = lines[0], lines[1]
    assert first[1] == second[1] != jax[1], "flat, a height for each framework"


def test_cells_are_speedups_and_grey_if_they_may_be_one(answers: pd.DataFrame) -> None:
    numbers = answers[~answers.is_engine]
    numbers = pd.concat([numbers, pd.DataFrame([build_row("chains", LEVELS, 99.0, (0.98, 1.02))])])
    axes = heat.draw_heat(numbers).axes[0]
    shares = np.asarray(axes.collections[0].get_array())
    places = {text.get_text(): text.get_position() for text in axes.texts}
    cells = {text: shares[int(y), int(x)] for text, (x, y) in places.items()}
    assert set(cells) == {"5.00", "2.00", "2.50", "0.80", "1.01"}
    assert cells["1.01"] == 0, "its interval holds 1"
    assert cells["0.80"] < 0 < cells["2.00"] < cells["2.50"] < cells["5.00"]
