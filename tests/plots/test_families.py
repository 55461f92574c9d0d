"""Variants of a system: figures show the fastest at each point, tables of peers all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.planning.artefacts import Choices, PlannedTrial, plan_artefact
from harness.planning.compose import Composer
from plots.numbers.artefact import Artefact
from plots.numbers.families import Family, families_of
from plots.numbers.gather import gather, read_variants
from plots.numbers.lines import measured_lines
from plots.numbers.panels import panels_of
from plots.tables.peers import table_of as peers_table
from plots.tables.speedups import table_of as speedups_table
from plots.words.notes import notes_of
from tests.support.made_up_records import write_made_up_records

HEAD, VARIANT = "torch_levels", "dynet"  # made one of the other's variants here


def test_families_keep_the_order_and_variants_that_stand_alone_their_names() -> None:
    variant_of = {"b_fast": "b", "b_odd": "b", "c_fast": "c"}
    families = families_of(["a", "b_fast", "c_fast", "b", "d"], variant_of)
    assert families == (
        Family("a", ("a",)),
        Family("b", ("b_fast", "b")),
        Family("c_fast", ("c_fast",)),
        Family("d", ("d",)),
    )
    assert families_of(["b_fast", "b_odd"], variant_of) == (Family("b", ("b_fast", "b_odd")),)


Make = Callable[[str, dict[int, str]], Artefact]


@pytest.fixture
def artefact_of(choices: Choices, composer: Composer) -> Make:
    """Draws from records in which both do 10 instances a second, the winner of a batch size 20."""

    def make(name: str, winners: dict[int, str]) -> Artefact:
        def change(trial: PlannedTrial, _: int) -> dict[str, Any]:
            wins = winners.get(trial.settings["batch_size"]) == trial.settings["system"]
            return {"instances_per_s": 20.0 if wins else 10.0}

        trials = plan_artefact(name, choices, composer)
        write_made_up_records(trials, choices, change)
        return replace(gather(name, choices, trials), variant_of={VARIANT: HEAD})

    return make


def test_a_figure_shows_the_fastest_variant_at_each_point(artefact_of: Make) -> None:
    artefact = artefact_of("cavs_fig8d", {16: HEAD, 64: VARIANT})
    (systems,) = (p for p in panels_of(artefact, "epoch_s") if p.group == "systems")
    assert [one.system for one in systems.series].count(HEAD) == 1
    assert VARIANT not in [one.system for one in systems.series]
    (series,) = (one for one in systems.series if one.system == HEAD)
    assert series.label == artefact.label(HEAD)
    seconds = {mark.x: mark.summary.median for mark in series.marks if mark.summary}
    assert seconds == {4: 8544 / 10, 16: 8544 / 20, 64: 8544 / 20}
    lines = [x for x in measured_lines(artefact, "systems") if x.system in (HEAD, VARIANT)]
    assert {(x.x, x.system) for x in lines} == {(4, VARIANT), (16, HEAD), (64, VARIANT)}
    words = f"the faster of {artefact.label(VARIANT)} and {artefact.label(HEAD)} at each point"
    assert sum(words in note for note in notes_of(artefact)) == 1
    assert not any("faster of" in note for note in notes_of(artefact, "strategies"))


def test_a_variant_without_a_number_gives_way(artefact_of: Make) -> None:
    artefact = artefact_of("cavs_fig8d", {})
    points = []
    for point in artefact.points:
        fails = point.settings["system"] == VARIANT
        records = [r.model_copy(update={"status": "oom"}) for r in point.records if r]
        points.append(replace(point, records=tuple(records)) if fails else point)
    failing = replace(artefact, points=tuple(points))
    family = Family(HEAD, (VARIANT, HEAD))
    assert failing.fastest(family, 16) == HEAD
    assert failing.fastest(family, 4) == VARIANT  # which alone is in the grid there
    assert failing.measured("epoch_s", VARIANT, 4).status == "oom"
    assert failing.fastest(family, 5) is None


def test_a_table_of_speedups_has_one_column_for_both(artefact_of: Make) -> None:
    artefact = artefact_of("cavs_table1_tree_lstm", {16: HEAD, 64: VARIANT})
    table = speedups_table(artefact, "systems")
    labels = [column.label for column in table.columns if not column.published]
    assert labels.count(artefact.label(HEAD)) == 2  # a time and a speed-up
    assert artefact.label(VARIANT) not in labels
    place = max(i for i, c in enumerate(table.columns) if c.label == artefact.label(HEAD))
    ours = {header: row[place].text for header, row in table.rows if header in ("4", "16", "64")}
    ratios = {header: round(float(text.split()[0]), 1) for header, text in ours.items()}
    assert ratios == {"4": 1.0, "16": 0.5, "64": 0.5}


def test_a_table_of_peers_has_a_row_for_each(artefact_of: Make) -> None:
    artefact = artefact_of("headline_bilstm", {})
    headers = [header for header, _ in peers_table(artefact, "systems").rows]
    assert {artefact.label(HEAD), artefact.label(VARIANT)} <= set(headers)
    assert not any("faster of" in note for note in notes_of(artefact))


@pytest.mark.parametrize("name", ["cavs_fig8a", "dynet_fig2"])
def test_where_one_of_both_is_listed_nothing_changes(name: str, artefact_of: Make) -> None:
    with_variant = artefact_of(name, {})
    without = replace(with_variant, variant_of={})
    assert not {HEAD, VARIANT} <= set(with_variant.compare["systems"])
    assert notes_of(with_variant) == notes_of(without)
    if with_variant.presentation.quantities:
        assert panels_of(with_variant, "epoch_s") == panels_of(without, "epoch_s")


def test_a_yaml_says_of_what_its_system_is_a_variant(tmp_path: Path) -> None:
    (tmp_path / "system").mkdir()
    for name, more in (("plain", {}), ("quick", {"variant_of": "plain"})):
        content = {"name": name, "label": name, "kind": "framework", **more}
        (tmp_path / "system" / f"{name}.yaml").write_text(yaml.safe_dump(content))
    assert read_variants(tmp_path) == {"quick": "plain"}
