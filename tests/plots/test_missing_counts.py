"""Counts that failed: the cell bears the status, a note the reason, and all else is drawn."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from harness.planning.artefacts import Choices, choices_from, plan_artefact, plan_counts
from harness.planning.compose import Composer
from plots.drawing.style import use_style
from plots.figures import batches as figure_of_batches
from plots.figures import counts as figure_of_counts
from plots.figures import states as figure_of_states
from plots.numbers.artefact import Artefact
from plots.numbers.gather import gather
from plots.numbers.published_rows import read_published_rows
from plots.numbers.table import Table
from plots.tables import counts as table_of_counts
from plots.tables import generalisation as table_of_generalisation
from plots.tables import learning as table_of_learning
from plots.tables import policies as table_of_policies
from plots.tables import ratios as table_of_ratios
from plots.writing.sheet import sheet_of
from tests.support.made_up_counts import failed_row, write_made_up_counts, write_real_counts

REASON = "not done within limits.time_s=600"
NOTE = f"fsm_sort: timeout: {REASON}"
OF_ANOTHER_GRAPH = "machine.json was learned on other types"


@pytest.fixture
def choices(tmp_path: Path) -> Choices:
    config = {"scale": "smoke", "device": "cpu", "data_root": "none", "results_dir": tmp_path}
    return choices_from(config, {})


def fails(row: dict[str, Any]) -> dict[str, Any]:
    """One policy that is too slow for one model."""
    slow = row["policy"] == "fsm_sort" and row["model"] == "lattice_gru"
    return failed_row(row, "timeout", REASON) if slow else row


def is_of_another_graph(row: dict[str, Any]) -> dict[str, Any]:
    """A saved policy that does not know the types of the released graph."""
    if row["policy"] != "fsm_sort":
        return row
    here = {k: v for k, v in row.items() if not k.endswith("_ed")}
    graph = {k: row[k] for k in ("n_nodes_ed", "lower_bound_ed", "n_unbatchable_ed")}
    return here | graph | {"n_batches_ed": None, "reason_ed": OF_ANOTHER_GRAPH}


def counted(name: str, choices: Choices, change: Any = fails) -> Artefact:
    sweeps = plan_counts(name, choices)
    write_made_up_counts(sweeps, choices.results_dir, change)
    return gather(name, choices, plan_artefact(name, choices, Composer()), sweeps)


def table_of(name: str, artefact: Artefact) -> Table:
    published = artefact.presentation.show.get("published")
    rest = [read_published_rows(published)] if published else []
    modules = {
        "edbatch_fig9_counts": table_of_counts,
        "edbatch_generalisation": table_of_generalisation,
        "edbatch_learning": table_of_learning,
        "policies_batch_counts": table_of_policies,
        "policies_ratios": table_of_ratios,
    }
    return modules[name].table_of(artefact, *rest)


TABLES = (
    "edbatch_fig9_counts",
    "edbatch_generalisation",
    "edbatch_learning",
    "policies_batch_counts",
    "policies_ratios",
)
OF_THE_RELEASED_GRAPH = tuple(name for name in TABLES if name != "policies_batch_counts")


def words_of(table: Table) -> list[str]:
    return [str(cell) for _, cells in table.rows for cell in cells]


@pytest.mark.parametrize("name", TABLES)
def test_a_failed_count_is_marked_in_its_cells_and_explained_once(
    name: str, choices: Choices
) -> None:
    good = words_of(table_of(name, counted(name, choices, lambda row: row)))
    table = table_of(name, counted(name, choices))
    changed = [(a, b) for a, b in zip(good, words_of(table), strict=True) if a != b]
    assert changed
    assert {now for _, now in changed} == {"timeout"}
    assert "timeout" not in good
    assert table.notes.count(NOTE) == 1


@pytest.mark.parametrize("name", OF_THE_RELEASED_GRAPH)
def test_a_policy_of_another_graph_is_marked_and_explained(name: str, choices: Choices) -> None:
    table = table_of(name, counted(name, choices, is_of_another_graph))
    assert "unsupported" in words_of(table)
    assert f"fsm_sort: unsupported: {OF_ANOTHER_GRAPH}" in table.notes


def test_what_the_graph_tells_stands_although_the_first_policy_failed(choices: Choices) -> None:
    def first_fails(row: dict[str, Any]) -> dict[str, Any]:
        return failed_row(row, "crash", "a fault") if row["policy"] == "depth" else row

    artefact = counted("edbatch_fig9_counts", choices, first_fails)
    table = table_of("edbatch_fig9_counts", artefact)
    labels = [column.label for column in table.columns]
    cells = dict(zip(labels, map(str, table.rows[0][1]), strict=True))
    assert cells["depth"] == "crash"
    assert cells["nodes"].isdecimal()
    assert cells["bound"][0].isdecimal()


def test_the_csv_names_the_status(choices: Choices) -> None:
    table_of_ratios.make(counted("policies_ratios", choices), choices.results_dir)
    with (choices.results_dir / "tables/policies_ratios.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    failed = [row for row in rows if row["status"] != "ok"]
    assert {(row["model"], row["policy"], row["status"]) for row in failed} == {
        ("lattice_gru", "fsm_sort", "timeout")
    }
    assert {row["ratio"] + row["n_batches"] + row["lower_bound"] for row in failed} == {""}


def test_bars_give_way_to_the_status(choices: Choices) -> None:
    use_style()
    figure = figure_of_counts.draw_counts(counted("edbatch_fig9", choices))
    panels = {axes.get_title(loc="left").split(",")[0]: axes for axes in figure.axes}
    shown = {name: [t.get_text() for t in axes.texts] for name, axes in panels.items()}
    assert [name for name, texts in shown.items() if "timeout" in texts] == ["Lattice-GRU"]
    foot = " ".join(text.get_text() for text in figure.texts)
    assert NOTE in foot.replace("\n", " ")


def test_the_report_counts_statuses(choices: Choices) -> None:
    artefact = counted("policies_ratios", choices)
    statuses = sheet_of(artefact, "")["statuses"]
    assert statuses["timeout"] == 2 * 5, "batch sizes and seeds"
    assert statuses["ok"] == len(artefact.counted)


def fail_in_files(name: str, choices: Choices, *policies: str) -> Artefact:
    """Real counts, of which those of some policies failed."""
    sweeps = plan_counts(name, choices)
    write_real_counts(sweeps, choices.results_dir)
    for path in (sweep.path(choices.results_dir) for sweep in sweeps):
        rows = json.loads(path.read_text())
        rows = [failed_row(r, "timeout", REASON) if r["policy"] in policies else r for r in rows]
        path.write_text(json.dumps(rows))
    return gather(name, choices, (), sweeps)


@pytest.mark.slow
def test_a_picture_of_batches_leaves_out_what_failed(choices: Choices) -> None:
    name = "edbatch_fig1"
    artefact = fail_in_files(name, choices, "fsm_sort")
    figure_of_batches.make(artefact, choices.results_dir)
    assert (choices.results_dir / f"figures/{name}.png").stat().st_size > 0
    with (choices.results_dir / f"figures/{name}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = {(row["policy"], row["status"]) for row in rows}
    ok = {("depth", "ok"), ("agenda", "ok"), ("critical_share", "ok")}
    assert found == {*ok, ("fsm_sort", "timeout")}


@pytest.mark.slow
def test_pictures_of_nothing_but_failures_say_so(choices: Choices) -> None:
    for name, module in (("edbatch_fig1", figure_of_batches), ("edbatch_fig2", figure_of_states)):
        policies = ("depth", "agenda", "fsm_sort", "critical_share")
        artefact = fail_in_files(name, choices, *policies)
        module.make(artefact, choices.results_dir)
        for suffix in (".pdf", ".png"):
            assert (choices.results_dir / f"figures/{name}{suffix}").stat().st_size > 0
        with (choices.results_dir / f"figures/{name}.csv").open(newline="") as file:
            assert {row["status"] for row in csv.DictReader(file)} == {"timeout"}
