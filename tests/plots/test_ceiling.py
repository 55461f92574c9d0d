"""The share of the ceiling: of the fastest calibration, which is never a peer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

from harness.planning.artefacts import Choices, PlannedTrial, plan_artefact
from harness.planning.compose import Composer
from harness.planning.grid import SCALES, expand, experiment_names
from harness.planning.kinds import read_systems
from harness.values.places import CONF_DIR
from plots.drawing.style import use_style
from plots.drawing.table import draw_table
from plots.numbers.artefact import Artefact
from plots.numbers.best_peer import best_peer, peer_names
from plots.numbers.ceiling import calibration_names, ceiling_of, share_of
from plots.numbers.gather import gather
from plots.numbers.points import Point
from plots.numbers.presentation import read_presentation
from plots.numbers.table import Table
from plots.tables import peers, walks
from plots.words.best_peers import lines_of
from plots.words.ceiling_cells import BEYOND, CEILING, NO_CEILING, NOTE, SHARE_LABEL
from tests.support.artefacts import lines_of as lines_of_csv
from tests.support.made_up_records import Change, write_made_up_records
from tests.support.plain_records import plain_record

CALIBRATIONS = {"whole", "cut"}
WITH_BOTH = "headline_var_lstm"  # has either calibration at medium scale
HEADLINES = [name for name in experiment_names() if name.startswith("headline_")]
SPEEDS = {"products": 400.0, "products_cut": 500.0, "vertex": 300.0, "torch_levels": 150.0}


def point(system: str, *speeds: float, **changes: Any) -> Point:
    records = [
        plain_record(k, {"instances_per_s": speed, **changes}, system=system)
        for k, speed in enumerate(speeds)
    ]
    return Point({"system": system}, tuple(records))


def test_the_faster_calibration_is_the_ceiling() -> None:
    whole, cut = point("whole", 400, 400), point("cut", 500, 500)
    assert ceiling_of([point("ours", 900), whole, cut], CALIBRATIONS) is cut
    failed = replace(cut, records=(None, None))
    assert ceiling_of([failed, whole], CALIBRATIONS) is whole
    assert ceiling_of([failed], CALIBRATIONS) is failed, "whose status says why"
    assert ceiling_of([point("ours", 900)], CALIBRATIONS) is None


def test_a_share_is_paired_by_round() -> None:
    """A machine that is twice as slow in one round reaches the same share there."""
    share = share_of(point("cut", 500, 250, 500), point("ours", 300, 150, 300))
    assert share.summary is not None
    numbers = (share.summary.median, share.summary.low, share.summary.high)
    assert numbers == pytest.approx((60, 60, 60))
    assert share.summary.ends == "range"


def test_a_share_without_either_number_says_why() -> None:
    ours, failed = point("ours", 300), point("cut", 500, status="unsupported", reason="made up")
    assert share_of(failed, ours).status == "unsupported"
    assert share_of(ours, failed).status == "unsupported"
    assert share_of(None, ours).status == "not run"


def test_a_calibration_is_never_a_peer() -> None:
    names = calibration_names(CONF_DIR)
    assert names == {"products", "products_cut"}
    assert not names & peer_names(CONF_DIR)
    points = [point("vertex", 300), point("dynet", 100), point("products", 900)]
    best = best_peer(points, "vertex", peer_names(CONF_DIR))
    assert best is not None
    assert (best.system, best.n_peers) == ("dynet", 1)


def test_what_computes_nothing_of_a_workload_is_no_ceiling() -> None:
    kinds = {system.name: system.kind for system in read_systems(CONF_DIR)}
    assert kinds["null"] == kinds["reference"] == "control"


@pytest.mark.parametrize("scale", SCALES)
def test_no_artefact_compares_a_calibration_with_systems(scale: str) -> None:
    for name in experiment_names():
        shown = read_presentation(name, CONF_DIR)
        compared = {system for group in shown.compare.values() for system in group}
        assert not compared & calibration_names(CONF_DIR), name
        measured = {str(one["system"]) for one in expand(name, scale).settings}
        assert shown.shows_ceiling or not measured & calibration_names(CONF_DIR), name


@pytest.mark.parametrize("scale", ["medium", "paper"])
@pytest.mark.parametrize("name", HEADLINES)
def test_every_workload_of_a_headline_has_its_ceiling(name: str, scale: str) -> None:
    """Beside the engine, in each of its points, a calibration with the same settings.

    Both at the papers' scale; at medium, for its minutes, the second where arrays of 10 000 words
    do not stay in the cache.
    """

    def without(system: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((k, str(v)) for k, v in system.items() if k != "system"))

    settings = expand(name, scale).settings
    ours = {without(one) for one in settings if one["system"] == "vertex"}
    assert ours
    both = scale == "paper" or {one["model"] for one in settings} == {"var_lstm"}
    for calibration in ("products", "products_cut") if both else ("products",):
        assert {without(one) for one in settings if one["system"] == calibration} == ours


def planned(
    name: str, choices: Choices, composer: Composer, change: Change, scale: str = "medium"
) -> Artefact:
    chosen = replace(choices, scale=scale)
    trials = plan_artefact(name, chosen, composer)
    write_made_up_records(trials, chosen, change)
    return gather(name, chosen, trials)


def of_speeds(speeds: Mapping[str, float], **failing: str) -> Change:
    """Made-up speeds by system, and statuses of those that fail."""

    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        system = trial.settings["system"]
        made_up: dict[str, Any] = {"instances_per_s": speeds.get(system, 100.0)}
        made_up |= {"peak_memory_bytes": 300 << 20, "baseline_memory_bytes": 100 << 20}
        if system in failing:
            made_up |= {"status": failing[system], "reason": "made up"}
        return made_up

    return change


def column(table: Table, label: str) -> dict[str, str]:
    (place,) = (i for i, one in enumerate(table.columns) if one.label == label)
    return {header: str(cells[place]) for header, cells in table.rows}


@pytest.mark.slow
def test_a_headline_shows_each_share_and_names_the_ceiling(
    choices: Choices, composer: Composer
) -> None:
    name = WITH_BOTH
    artefact = planned(name, choices, composer, of_speeds(SPEEDS))
    for comparison in artefact.compare:
        table = peers.table_of(artefact, comparison)
        shares = column(table, SHARE_LABEL)
        assert shares["Vertex engine"] == "60.0"
        assert shares[CEILING] == "100"
        assert column(table, "sentences/s")[CEILING] == "Products alone, cut: 500"
        headers = [header for header, _ in table.rows]
        assert headers.count(CEILING) == 1
        assert not [header for header in headers if header.startswith("Products")]
        assert any(note == f"{NOTE}." for note in table.notes), "nothing is above 100 %"
    systems = peers.table_of(artefact, "systems")
    assert column(systems, "sentences/s")[peers.BEST] == "PyTorch levels: 150"
    rows = [*peers.rows_of(artefact, "systems")]
    named = {row["quantity"] for row in rows if row["system"] == "products_cut"}
    assert named == {CEILING}
    (told,) = (row for row in rows if row["quantity"] == CEILING)
    assert told["value"] == 500.0


@pytest.mark.slow
def test_another_calibration_record_is_another_share(choices: Choices, composer: Composer) -> None:
    for speed, words in ((500.0, "60.0"), (600.0, "50.0"), (250.0, "75.0")):  # 400 is the other's
        change = of_speeds(SPEEDS | {"products_cut": speed})
        artefact = planned(WITH_BOTH, choices, composer, change)
        table = peers.table_of(artefact, "systems")
        assert column(table, SHARE_LABEL)["Vertex engine"] == words


@pytest.mark.slow
def test_more_than_the_ceiling_is_explained(choices: Choices, composer: Composer) -> None:
    change = of_speeds(SPEEDS | {"vertex_shared": 600.0})
    artefact = planned(WITH_BOTH, choices, composer, change)
    table = peers.table_of(artefact, "systems")
    assert column(table, SHARE_LABEL)[artefact.label("vertex_shared")] == "120"
    assert any(BEYOND in note for note in table.notes)
    strategies = peers.table_of(artefact, "strategies")
    assert not any(BEYOND in note for note in strategies.notes), "where it is not"


@pytest.mark.slow
def test_a_ceiling_that_failed_says_so(choices: Choices, composer: Composer) -> None:
    both = {"products": "unsupported", "products_cut": "unsupported"}
    artefact = planned(WITH_BOTH, choices, composer, of_speeds(SPEEDS, **both))
    table = peers.table_of(artefact, "systems")
    assert column(table, SHARE_LABEL)["Vertex engine"] == "unsupported"
    assert column(table, "sentences/s")[CEILING] == "Products alone: unsupported"
    assert column(table, SHARE_LABEL)[CEILING] == ""
    assert any("Products alone: unsupported: made up" in note for note in table.notes)


@pytest.mark.slow
def test_a_workload_without_a_calibration_has_a_dash(choices: Choices, composer: Composer) -> None:
    """In its column, not in those of another workload."""
    speeds = of_speeds(SPEEDS)
    artefact = planned("headline_bilstm", choices, composer, speeds, "paper")  # has both models
    names = calibration_names(CONF_DIR)
    kept = tuple(
        point
        for point in artefact.points
        if point.settings["model"] == "bilstm" or point.settings["system"] not in names
    )
    table = peers.table_of(replace(artefact, points=kept), "systems")
    shares = [i for i, one in enumerate(table.columns) if one.label == SHARE_LABEL]
    rows = dict(table.rows)
    assert [str(rows["Vertex engine"][i]) for i in shares] == ["60.0", "\N{EN DASH}"]
    assert [str(rows[CEILING][i]) for i in shares] == ["100", ""]
    assert any("not part of this scale" in note for note in table.footnotes)


@pytest.mark.slow
def test_a_scale_without_a_calibration_says_so(choices: Choices, composer: Composer) -> None:
    trials = plan_artefact(WITH_BOTH, choices, composer)  # at smoke scale
    write_made_up_records(trials, choices)
    table = peers.table_of(gather(WITH_BOTH, choices, trials), "systems")
    assert SHARE_LABEL not in {one.label for one in table.columns}
    assert CEILING not in dict(table.rows)
    assert NO_CEILING in table.notes


@pytest.mark.slow
def test_a_calibrations_warnings_are_told(choices: Choices, composer: Composer) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        system = trial.settings["system"]
        warned = ("drift",) if system == "products_cut" else ()
        return {"instances_per_s": SPEEDS.get(system, 100.0), "warnings": warned}

    artefact = planned(WITH_BOTH, choices, composer, change)
    table = peers.table_of(artefact, "strategies")
    assert column(table, SHARE_LABEL)["Vertex engine"] == "60.0\N{DAGGER}"
    assert any("drift (1)" in note for note in table.notes)


@pytest.mark.slow
def test_the_table_still_fits_its_page(choices: Choices, composer: Composer) -> None:
    """Nothing of the picture lies outside of it."""
    artefact = planned("headline_bilstm", choices, composer, of_speeds(SPEEDS))
    use_style()
    for comparison in artefact.compare:
        figure = draw_table(peers.table_of(artefact, comparison))
        figure.canvas.draw()
        texts = [text for axes in figure.axes for text in axes.texts] + list(figure.texts)
        boxes = [text.get_window_extent() for text in texts if text.get_text()]
        assert min(box.x0 for box in boxes) >= 0
        assert max(box.x1 for box in boxes) <= figure.bbox.x1
        plt.close(figure)


@pytest.mark.slow
def test_a_walk_shows_how_each_step_comes_closer(
    choices: Choices, composer: Composer, tmp_path: Path
) -> None:
    speeds = {"products": 400.0, "products_cut": 200.0, "cavs_dynet": 100.0, "vertex": 300.0}
    artefact = planned("switch_walks", choices, composer, of_speeds(speeds))
    lines = walks.lines_of(artefact)
    table = walks.table_of(artefact, lines)
    shares = column(table, SHARE_LABEL)
    assert shares["Cavs DyNet preset"] == "25.0"
    (end,) = {text for header, text in shares.items() if header.endswith("= Vertex engine")}
    assert end == "75.0"
    assert column(table, "ms per mini-batch")[CEILING].startswith("Products alone: ")
    assert any(note == f"{NOTE}." for note in table.notes)
    use_style()
    walks.make(artefact, tmp_path)
    told = lines_of_csv(tmp_path / "tables/switch_walks.csv")
    assert [row["system"] for row in told if row["quantity"] == CEILING] == ["products"]


def test_bench_says_what_share_is_reached() -> None:
    speeds = {"vertex": 300, "dynet": 200, "products": 400, "products_cut": 500}
    records = [
        plain_record(round_, {"instances_per_s": speed}, system=system)
        for system, speed in speeds.items()
        for round_ in range(2)
    ]
    peer, ceiling = lines_of(records, "vertex", CONF_DIR)
    assert "the only peer DyNet" in peer
    workload, _, words = ceiling.partition(": ")
    assert workload == "tree_fc complete_trees bs=2 h=8 train"
    assert words == (
        "ceiling Products alone, cut with 500 instances/s; Vertex engine reaches 60.0 [60.0-60.0] %"
        " of it"
    )
    alone = [record for record in records if record.trial.system != "dynet"]
    assert list(lines_of(alone, "vertex", CONF_DIR)) == [ceiling], "with a peer or without"
