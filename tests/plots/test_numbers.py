"""From records to numbers: which records, which ratios, which sums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.errors import ConfigError, RecordError
from harness.planning.artefacts import Choices, PlannedTrial, plan_artefact
from harness.planning.compose import Composer
from harness.values.places import CONF_DIR
from plots.numbers.gather import gather
from plots.numbers.points import Point, measure_of, speedup_of
from plots.numbers.presentation import read_presentation
from tests.support.artefacts import FIGURE, TABLE, measured, run_draw
from tests.support.made_up_records import MACHINE, made_up_record


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("machine", {**MACHINE, "cpu": "another CPU"}),
        ("machine", {**MACHINE, "memory_bytes": 1 << 30}),
        ("versions", {"made_up": "2.0"}),
        ("source_sha256", "1" * 64),
    ],
)
def test_unlike_records_are_refused(
    field: str, value: object, choices: Choices, composer: Composer
) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        return {field: value} if trial.settings["batch_size"] == 64 else {}

    trials = measured(FIGURE, choices, composer, change)
    with pytest.raises(RecordError, match=r"unlike|differ"):
        gather(FIGURE, choices, trials)
    assert run_draw(FIGURE, choices) == 1


def test_a_speedup_is_of_pairs_of_a_round_with_their_range(
    choices: Choices, composer: Composer
) -> None:
    base, other = plan_artefact(TABLE, choices, composer)[:2]

    def point(trial: PlannedTrial, seconds: tuple[float, ...]) -> Point:
        records = [made_up_record(trial, r, instances_per_s=100 / s) for r, s in enumerate(seconds)]
        return Point(trial.settings, tuple(records))

    # Later rounds were slow for both. The ratio of medians would be 2.
    fast, slow = point(base, (1.0, 2.0, 4.0)), point(other, (3.0, 4.0, 16.0))
    ratio = speedup_of(slow, fast, "epoch_s", 100)
    assert ratio.summary is not None
    assert ratio.summary.median == pytest.approx(3.0)
    assert (ratio.summary.low, ratio.summary.high) == (pytest.approx(2.0), pytest.approx(4.0))
    assert ratio.summary.ends == "range"
    longer = speedup_of(point(other, (3.0, 4.0, 16.0, 99.0)), fast, "epoch_s", 100)
    assert longer.summary == ratio.summary, "of the fourth round there is no pair"
    assert speedup_of(None, fast, "epoch_s", 100).status == "not run"


def test_construction_and_computation_add_up_to_the_epoch(
    choices: Choices, composer: Composer
) -> None:
    trial = plan_artefact(TABLE, choices, composer)[0]
    point = Point(trial.settings, (made_up_record(trial, 0),))
    parts = [measure_of(point, name, 8544).summary for name in ("construction_s", "computation_s")]
    whole = measure_of(point, "epoch_s", 8544).summary
    assert whole is not None
    assert sum(p.median for p in parts if p) == pytest.approx(whole.median)


@pytest.mark.parametrize("key", ["draw", "quantities", "axis", "epoch", "compare"])
def test_an_experiment_without_a_key_says_which(key: str, tmp_path: Path) -> None:
    content = yaml.safe_load((CONF_DIR / f"experiment/{FIGURE}.yaml").read_text())
    del content[key]
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment/broken.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=key):
        read_presentation("broken", tmp_path)
