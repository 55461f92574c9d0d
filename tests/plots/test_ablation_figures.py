"""What optimisations are worth: alone over a base, and one after another."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import pytest

from harness.planning.artefacts import Choices, PlannedTrial, choices_from
from harness.planning.compose import Composer
from harness.planning.grid import expand
from plots.drawing.style import use_style
from plots.figures import gains, steps
from plots.numbers.artefact import Artefact
from plots.numbers.gather import gather
from tests.support.artefacts import lines_of, measured, run_draw

LAZY, FUSION, HOISTING = (
    f"system.options.{name}" for name in ("lazy_batching", "fusion", "hoisting")
)
# Times that switches save, in percent of the time without any.
SAVED = {LAZY: 20, FUSION: 10, HOISTING: 5}


@pytest.fixture
def medium(choices: Choices, conf_dir: Any) -> Choices:
    places = {key: getattr(choices, key) for key in ("data_root", "results_dir")}
    return choices_from({"scale": "medium", "device": "cpu", "conf_dir": conf_dir, **places}, {})


def in_percent(trial: PlannedTrial, round_: int) -> dict[str, Any]:
    """Each round is slower than the one before, which ratios within rounds do not see."""
    saved = sum(percent for key, percent in SAVED.items() if trial.settings.get(key))
    seconds = (100 - saved) * 1e-3 * (1 + round_)
    size = trial.settings["batch_size"]
    phases = {"construct": 0.0, "schedule": 0.0, "forward": seconds}
    return {"instances_per_s": size / seconds, "phases_s": phases}


def drawn(name: str, medium: Choices, composer: Composer, change: Any) -> Artefact:
    return gather(name, medium, measured(name, medium, composer, change))


@pytest.mark.parametrize("name", ["cavs_fig10a", "cavs_fig10b"])
def test_a_gain_is_the_base_over_the_trial_with_it(
    name: str, medium: Choices, composer: Composer
) -> None:
    artefact = drawn(name, medium, composer, in_percent)
    for x in gains.xs_of(artefact):
        found = {
            words: gains.gain_of(artefact, words, x)
            for words in artefact.presentation.show["gains"]
        }
        values = {words: one.summary.median for words, one in found.items() if one.summary}
        assert values == pytest.approx(
            {
                "lazy batching": 100 / 80,
                "fusion": 100 / 90,
                "hoisting, in place of streaming": 100 / 95,
                "all together": 100 / 65,
            }
        )
        for one in found.values():
            assert one.summary is not None
            assert one.summary.low == pytest.approx(one.summary.high), "ratios are by round"


def test_a_gain_that_a_scale_lacks_is_left_out(choices: Choices, composer: Composer) -> None:
    trials = measured("cavs_fig10a", choices, composer)
    panel = gains.panel_of(gather("cavs_fig10a", choices, trials))
    assert [series.label for series in panel.series] == ["all together"]


def test_bars_are_relative_to_the_start_of_the_walk(medium: Choices, composer: Composer) -> None:
    """Every option that differs from the start's saves a tenth."""

    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        options = sum(key.startswith("system.options.") for key in trial.settings)
        n_steps = 7 if trial.settings["system"] == "vertex" else options
        return {"instances_per_s": trial.settings["batch_size"] / (10 - n_steps) / (1 + round_)}

    artefact = drawn("ablation_steps", medium, composer, change)
    walk = steps.walk_of(artefact)
    for group in steps.settings_of(artefact):
        bars = steps.bars_of(artefact, walk, group)
        assert [bar.n_steps for bar in bars] == list(range(8))
        relative = [bar.relative.summary.median for bar in bars if bar.relative.summary]
        assert relative == pytest.approx([1 - 0.1 * n for n in range(8)])


def test_along_a_walk_are_its_own_trials_alone() -> None:
    grid = expand("ablation_steps", "medium")
    per_model = [one for one in grid.settings if one["model"] == "tree_lstm"]
    assert len(per_model) == 8
    assert per_model[0]["system"] == "dynet_policy"
    assert per_model[-1]["system"] == "vertex"
    n_options = [sum(key.startswith("system.options") for key in one) for one in per_model]
    assert n_options == [0, 1, 2, 3, 4, 5, 6, 0]


@pytest.mark.parametrize("name", ["cavs_fig10a", "ablation_steps"])
def test_they_are_drawn_with_what_is_missing(
    name: str, medium: Choices, composer: Composer
) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any] | None:
        if trial.settings.get(FUSION) and not trial.settings.get(LAZY):
            return {"status": "oom", "reason": "made up", "instances_per_s": None}
        return None if trial.settings["system"] == "vertex" else {}

    artefact = drawn(name, medium, composer, change)
    assert run_draw(name, medium) == 0
    rows = lines_of(medium.results_dir / "figures" / f"{name}.csv")
    assert {row["status"] for row in rows} >= {"ok", "oom"}
    use_style()
    figure = gains.draw_gains(artefact) if "fig10" in name else steps.draw_steps(artefact)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert "oom" in texts
    plt.close(figure)
