"""Achieved operations and bytes per second stand under the roofs that were measured beside them."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import pytest

from harness.planning.artefacts import Choices, PlannedTrial
from harness.planning.compose import Composer
from plots.drawing.style import use_style
from plots.figures import roofline
from plots.numbers.gather import gather
from plots.numbers.rates import flop_per_byte, gbyte_per_s, gflop_per_s, graph_ms
from tests.support.artefacts import lines_of, measured, run_draw
from tests.support.plain_records import plain_record

WORK = {"n_flop": 6e9, "bytes_touched": 2e9}
PHASES = {"construct": 0.001, "schedule": 0.002, "forward": 1.0, "backward": 0.5, "update": 9.0}


def test_rates_are_of_forward_and_backward_alone() -> None:
    record = plain_record(changes={**WORK, "phases_s": PHASES})
    assert gflop_per_s(record) == pytest.approx(4.0)
    assert gbyte_per_s(record) == pytest.approx(2e9 / 1.5 / 1e9)
    assert flop_per_byte(record) == pytest.approx(3.0)
    assert graph_ms(record) == pytest.approx(3.0)


def test_what_is_not_told_has_no_rate() -> None:
    record = plain_record(changes={"phases_s": {"forward": None}})
    for rate in (gflop_per_s, gbyte_per_s, flop_per_byte, graph_ms):
        assert rate(record) is None
    untimed = plain_record(changes={**WORK, "phases_s": {"forward": None, "construct": 0.5}})
    assert gflop_per_s(untimed) is None
    assert graph_ms(untimed) == pytest.approx(500)


def change(trial: PlannedTrial, _: int) -> dict[str, Any]:
    system, n_bytes = trial.settings["system"], trial.settings.get("system.options.n_bytes")
    phases = {"forward": 1.0}
    if system == "copies":
        return {"phases_s": phases, "bytes_touched": 4e10 if n_bytes == 131072 else 1e10}
    n_flop = {"products": 9e10, "vertex": 7e10}.get(system, 1e10)
    touched = None if system == "products" else 1e10
    return {"phases_s": phases, "n_flop": n_flop, "bytes_touched": touched}


def test_roofs_are_those_of_the_same_machine_and_run(choices: Choices, composer: Composer) -> None:
    trials = measured("roofline", choices, composer, change)
    artefact = gather("roofline", choices, trials)
    roofs = {roof.words: (roof.height, roof.is_flat) for roof in roofline.roofs_of(artefact)}
    assert roofs == {
        "matrix products alone": (pytest.approx(90.0), True),
        "copies in memory": (pytest.approx(10.0), False),
        "copies in a cache of a core": (pytest.approx(40.0), False),
    }
    assert run_draw("roofline", choices) == 0
    rows = lines_of(choices.results_dir / "figures" / "roofline.csv")
    heights = {row["of"]: float(row["value"]) for row in rows if row["quantity"] == "gflop_per_s"}
    assert heights["Tree-LSTM training, h 64"] == pytest.approx(70.0)


def test_it_is_drawn_without_roofs_and_without_marks(choices: Choices, composer: Composer) -> None:
    trials = measured("roofline", choices, composer, lambda *_: None)
    artefact = gather("roofline", choices, trials)
    use_style()
    figure = roofline.draw_roofline(artefact)
    assert figure.axes[0].get_lines() == []
    plt.close(figure)
