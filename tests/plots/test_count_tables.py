"""Tables and figures of batch counts: what they print is what the rows say."""

from __future__ import annotations

import csv
import json
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import ConfigError, RecordError
from harness.planning.artefacts import Choices, choices_from, plan_artefact, plan_counts
from harness.planning.compose import Composer
from harness.planning.grid import SCALES, experiment_names
from harness.records.count_row import CountRow, parse_count
from harness.values.places import CONF_DIR
from plots.drawing.style import use_style
from plots.figures import batches as figure_of_batches
from plots.figures import counts as figure_of_counts
from plots.figures import states as figure_of_states
from plots.numbers.artefact import Artefact
from plots.numbers.gather import gather
from plots.numbers.presentation import read_presentation
from plots.numbers.published_rows import read_published_rows
from plots.tables import counts as table_of_counts
from plots.tables import generalisation as table_of_generalisation
from plots.tables import learning as table_of_learning
from plots.tables import policies as table_of_policies
from plots.tables import ratios as table_of_ratios
from plots.words.count_cells import cell_over_seeds
from plots.words.notes import subtitle_of, title_of
from tests.support.made_up_counts import (
    Change,
    failed_row,
    write_made_up_counts,
    write_real_counts,
)

COUNTED = [name for name in experiment_names() if "counts:" in (
    CONF_DIR / f"experiment/{name}.yaml"
).read_text()]  # fmt: skip


@pytest.fixture
def choices(tmp_path: Path) -> Choices:
    config = {"scale": "smoke", "device": "cpu", "data_root": "none", "results_dir": tmp_path}
    return choices_from(config, {})


def counted(
    name: str, choices: Choices, *, missing: bool = False, change: Change = lambda row: row
) -> Artefact:
    """An artefact with made-up counts, or with none."""
    sweeps = plan_counts(name, choices)
    if not missing:
        write_made_up_counts(sweeps, choices.results_dir, change)
    return gather(name, choices, plan_artefact(name, choices, Composer()), sweeps)


def test_counts_stand_above_the_simulation(choices: Choices) -> None:
    artefact = counted("edbatch_fig9_counts", choices)
    published = read_published_rows("simulated_batch_counts")
    table = table_of_counts.table_of(artefact, published)
    labels = [column.label for column in table.columns]
    headers = [header for header, _ in table.rows]
    place = headers.index("Lattice-LSTM, B = 32")
    ours, theirs = (
        dict(zip(labels, map(str, table.rows[place + i][1]), strict=True)) for i in (0, 1)
    )
    row = artefact.count(model="lattice_lstm", batch_size=32, policy="agenda")
    assert row is not None
    assert ours["agenda"] == f"{row.n_batches_ed} ({row.n_batches_ed - 3})"
    assert ours["parameters"] == "3"
    assert (theirs["agenda"], theirs["bound"], theirs["nodes"]) == ("1302", "516", "11625")
    assert headers[place + 1] == "independent simulation"
    assert "synthetic lattices, sentence pairs, sentences and trees" in title_of(artefact)
    assert "Made-up CPU" in subtitle_of(artefact)


def test_the_simulation_never_has_fewer_batches_than_its_bound() -> None:
    published = read_published_rows("simulated_batch_counts")
    for name, values in published.rows.items():
        row = dict(zip(published.columns, values, strict=True))
        bound = row["lower_bound"]
        counts = [v for k, v in row.items() if k not in ("n_nodes", "lower_bound")]
        assert bound is not None
        assert all(value is None or value >= bound for value in counts), name


def test_ratios_and_their_mean(choices: Choices) -> None:
    artefact = counted("policies_ratios", choices)
    table = table_of_ratios.table_of(artefact)
    rows = {header: [str(cell) for cell in cells] for header, cells in table.rows}
    place = [column.label for column in table.columns].index("agenda")
    found = [artefact.count(model="lattice_gru", batch_size=b, policy="agenda") for b in (8, 32)]
    ratios = [row.n_batches_ed / row.lower_bound_ed for row in found if row is not None]
    assert rows["Lattice-GRU, train, B = 8"][place] == f"{ratios[0]:.2f}"
    assert rows["Lattice-GRU, mean"][place] == f"{sum(ratios) / 2:.3f}"


def test_a_file_too_small_for_a_mini_batch_has_no_row_for_it(choices: Choices) -> None:
    table = table_of_ratios.table_of(counted("policies_ratios", replace(choices, scale="paper")))
    headers = [header for header, _ in table.rows]
    assert "Lattice-LSTM, test, B = 128" in headers
    assert "Lattice-LSTM, dev, B = 128" not in headers  # it has 113
    assert "missing" not in {str(cell) for _, cells in table.rows for cell in cells}


def test_learning_shows_the_largest_mini_batch_and_the_paper(choices: Choices) -> None:
    artefact = counted("edbatch_learning", choices)
    table = table_of_learning.table_of(artefact, read_published_rows("edbatch_learning"))
    rows = dict(table.rows)
    assert table.columns[0].group == "fsm_sort, B = 32"
    assert [str(cell) for cell in rows["Lattice-LSTM"][1:3]] == ["0.500", "50"]
    assert [str(cell) for cell in rows["Lattice-LSTM"][-2:]] == ["21.733", "1000"]
    assert any("variant released, fallback last" in note for note in table.notes)
    assert any(note.endswith("at most 1000 trials, seeds 0, 1, 2, 3, 4.") for note in table.notes)
    assert any("NVIDIA V100" in note for note in table.notes)


def test_generalisation_tells_unseen_states_of_learned_policies_only(choices: Choices) -> None:
    table = table_of_generalisation.table_of(counted("edbatch_generalisation", choices))
    unseen = [c.label for c in table.columns if "unseen" in c.group]
    assert unseen == ["fsm_sort"]
    assert {str(cells[-1]) for _, cells in table.rows} == {"12.50"}


def test_learned_policies_show_the_spread_over_their_seeds(choices: Choices) -> None:
    artefact = counted("policies_batch_counts", replace(choices, scale="medium"))
    table = table_of_policies.table_of(artefact)
    found = artefact.counts_with(
        model="tree_fc", granularity="vertex", batch_size=16, policy="fsm_max"
    )
    n_batches = sorted(row.n_batches for row in found if isinstance(row, CountRow))
    assert len(n_batches) == 5
    low, _, middle, _, high = n_batches
    assert low < high
    rows = dict(table.rows)
    assert rows["fsm_max"][0].text == f"{middle} [{low} to {high}]"
    assert rows["agenda"][0].text.isdecimal()


def test_a_seed_without_a_number_leaves_the_cell_without_one(choices: Choices) -> None:
    artefact = counted("policies_batch_counts", choices)
    good, *others = artefact.counts_with(
        model="tree_fc", granularity="vertex", batch_size=4, policy="fsm_max"
    )
    assert isinstance(good, CountRow)
    failed = parse_count(json.dumps(failed_row(good.to_dict(), "timeout", "made up")).encode())
    assert cell_over_seeds([good, *others], lambda row: row.n_batches).text[0].isdecimal()
    assert cell_over_seeds([good, failed], lambda row: row.n_batches).text == "timeout"
    assert cell_over_seeds([], lambda row: row.n_batches).text == "missing"
    assert cell_over_seeds([good, *others], lambda row: None).text == "\N{EN DASH}"


def test_policies_end_with_the_bound(choices: Choices) -> None:
    table = table_of_policies.table_of(counted("policies_batch_counts", choices))
    assert table.rows[-1][0] == "lower bound"
    assert [group for group, _ in table.groups] == [
        "batches, vertex granularity, B = 4",
        "batches, operator granularity, B = 4",
    ]
    assert "batches" in table.title
    (learned,) = (note for note in table.notes if note.startswith("fsm_"))
    assert "at most 1000 trials" in learned


def test_learning_has_all_its_trials_at_every_scale(choices: Choices) -> None:
    for name in COUNTED:
        for scale in SCALES:
            for sweep in plan_counts(name, replace(choices, scale=scale)):
                assert "learning.trials" not in sweep.settings, name


@pytest.mark.parametrize(
    ("name", "has_dash"), [("policies_batch_counts", False), ("edbatch_learning", True)]
)
def test_a_dash_is_explained_where_there_is_one(
    name: str, has_dash: bool, choices: Choices
) -> None:
    artefact = counted(name, choices)
    if has_dash:
        published = read_published_rows(artefact.presentation.show["published"])
        none = {model: (None,) * len(published.columns) for model in published.rows}
        table = table_of_learning.table_of(artefact, replace(published, rows=none))
    else:
        table = table_of_policies.table_of(artefact)
    assert any("not part of this scale" in note for note in table.footnotes) == has_dash


def test_missing_counts_are_called_missing(choices: Choices) -> None:
    artefact = counted("edbatch_fig9_counts", choices, missing=True)
    table = table_of_counts.table_of(artefact, read_published_rows("simulated_batch_counts"))
    assert {str(cell) for cell in table.rows[0][1]} == {"missing"}
    use_style()
    figure_of_counts.make(counted("edbatch_fig9", choices, missing=True), choices.results_dir)
    assert (choices.results_dir / "figures/edbatch_fig9.png").exists()


@pytest.mark.slow
def test_bars_are_the_counts(choices: Choices) -> None:
    use_style()
    artefact = counted("edbatch_fig9", choices)
    figure = figure_of_counts.draw_counts(artefact)
    panel = next(
        axes for axes in figure.axes if axes.get_title(loc="left").startswith("Lattice-LSTM")
    )
    shown = [text.get_text() for text in panel.texts]
    families = artefact.presentation.show["families"]
    policies = [policy for group in families.values() for policy in group]
    found = [artefact.counts_with(model="lattice_lstm", batch_size=32, policy=p) for p in policies]
    counts = [[row.n_batches_ed for row in rows if isinstance(row, CountRow)] for rows in found]
    assert [len(one) for one in counts].count(5) == 3, "of learned policies a count for each seed"
    assert shown == [str(statistics.median(n for n in one if n is not None)) for one in counts]
    figure_of_counts.make(artefact, choices.results_dir)
    with (choices.results_dir / "figures/edbatch_fig9.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 8 * sum(map(len, counts))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["edbatch_fig1", "edbatch_fig1_lattice"])
def test_a_picture_has_the_batches_that_were_counted(name: str, choices: Choices) -> None:
    sweeps = plan_counts(name, choices)
    write_real_counts(sweeps, choices.results_dir)
    artefact = gather(name, choices, (), sweeps)
    figure_of_batches.make(artefact, choices.results_dir)
    with (choices.results_dir / f"figures/{name}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for count in artefact.counts:
        batches = [int(row["batch"]) for row in rows if row["policy"] == count.policy]
        assert len(batches) == count.n_vertices <= 50
        assert set(batches) == set(range(1, count.n_batches + 1))
    best = min(artefact.counts, key=lambda row: row.n_batches)
    depth = artefact.count(policy="depth")
    assert depth is not None
    assert best.n_batches < depth.n_batches


def test_a_picture_of_outdated_counts_is_refused(choices: Choices) -> None:
    artefact = counted("edbatch_fig1", choices)  # made up
    with pytest.raises(RecordError, match="delete its file and count again"):
        figure_of_batches.make(artefact, choices.results_dir)


@pytest.mark.slow
def test_a_state_machine_is_drawn_with_its_transitions(choices: Choices) -> None:
    sweeps = plan_counts("edbatch_fig2", choices)
    write_real_counts(sweeps, choices.results_dir)
    artefact = gather("edbatch_fig2", choices, (), sweeps)
    figure_of_states.make(artefact, choices.results_dir)
    with (choices.results_dir / "figures/edbatch_fig2.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(int(row["n_times"]) for row in rows) == artefact.counts[0].n_batches
    assert rows[0]["takes"] == "start"


@pytest.mark.parametrize("name", COUNTED)
def test_shown_policies_are_counted(name: str, choices: Choices) -> None:
    show = read_presentation(name, CONF_DIR).show
    families = show.get("families", {})
    shown = [*show.get("policies", ()), *(p for group in families.values() for p in group)]
    counted_at_smoke = {v for s in plan_counts(name, choices) for v in s.values("policy")}
    assert set(shown) <= counted_at_smoke


def test_published_rows_of_the_wrong_length_are_named(tmp_path: Path) -> None:
    words = "paper: a\nwhere: b\nshort: c\nhardware: d\n"
    (tmp_path / "one.yaml").write_text(words + "columns: [x, y]\nrows: {gru: [1]}\n")
    with pytest.raises(ConfigError, match="row gru has 1 numbers for 2"):
        read_published_rows("one", tmp_path)
    with pytest.raises(ConfigError, match="choose one of: one"):
        read_published_rows("two", tmp_path)
