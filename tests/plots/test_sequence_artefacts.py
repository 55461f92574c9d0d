"""Artefacts of sequences: phases a sentence, throughputs, peers, and curves without an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.errors import ConfigError
from harness.planning.artefacts import Choices, PlannedTrial, plan_artefact
from harness.planning.compose import Composer
from harness.values.places import CONF_DIR
from plots.drawing.style import use_style
from plots.figures import phases
from plots.numbers.artefact import Artefact
from plots.numbers.gather import gather, read_stand_ins
from plots.numbers.lines import published_lines
from plots.numbers.panels import panels_of
from plots.numbers.points import measure_of
from plots.numbers.presentation import read_presentation
from plots.numbers.published_rows import read_published_rows
from plots.numbers.series import PUBLISHED
from plots.tables import peers, speedups, throughputs
from plots.words.notes import title_of
from plots.words.trial_cells import find
from tests.support.artefacts import lines_of
from tests.support.made_up_records import Change, write_made_up_records

pytestmark = pytest.mark.slow  # all of them together take seconds


@pytest.fixture
def planned(choices: Choices, composer: Composer) -> Any:
    def planned(name: str, change: Change | None = None) -> Artefact:
        trials = plan_artefact(name, choices, composer)
        write_made_up_records(trials, choices, change)
        return gather(name, choices, trials)

    return planned


def test_dynets_gains_are_those_of_its_abstract() -> None:
    """Its prose: 3.6 to 9.2 times on the CPU, 2.7 to 8.6 times on the GPU."""
    table = read_published_rows("dynet_table1")
    for device, low, high in (("cpu", 3.6, 9.3), ("gpu", 2.7, 8.7)):
        gains = [
            (table.value(task, f"{device}_agenda") or 0) / (table.value(task, f"{device}_off") or 1)
            for task in table.rows
        ]
        assert (round(min(gains), 1), round(max(gains), 1)) == (low, pytest.approx(high, abs=0.11))


def test_phases_of_a_sentence_are_those_of_a_mini_batch_by_its_size(planned: Any) -> None:
    artefact = planned("dynet_fig2")
    point = find(artefact, system="vertex")
    for phase in ("construct", "schedule", "forward", "backward", "update"):
        whole = measure_of(point, f"{phase}_ms").summary
        each = measure_of(point, f"{phase}_ms_per_instance").summary
        assert each.median == pytest.approx(whole.median / 16)


def test_each_section_shows_its_systems_and_the_papers_totals(planned: Any) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        if not trial.settings["system"].startswith("dynet_manual"):
            return {}
        return {"phases_s": {"construct": 1.6, "forward": 3.2, "backward": 4.8, "update": 0.16}}

    artefact = planned("dynet_fig2", change)
    alone, batched, by_hand = phases.sections_of(artefact)
    assert [bar.label for bar in phases.bars_of(artefact, by_hand, "strategies")] == []
    (bar, *_) = phases.bars_of(artefact, by_hand, "systems")
    parts = {"construct": 100, "forward_together": 200, "backward": 300, "update": 10}
    assert dict(bar.parts) == pytest.approx(parts)
    assert bar.words == "610"
    published = {
        label: [bar.length for bar in phases.bars_of(artefact, section, PUBLISHED)]
        for label, section in (("alone", alone), ("batched", batched), ("by hand", by_hand))
    }
    assert published == {"alone": [193, 54.6], "batched": [16.9, 5.03], "by hand": [13.3, 2.86]}
    use_style()
    figure = phases.draw_phases(artefact)
    hidden = [axes for axes in figure.axes if not axes.get_visible()]
    assert len(figure.axes) == 9
    assert len(hidden) == 2, (
        "no strategy of ours batches by hand, and this scale has none unbatched"
    )


def test_a_phase_that_failed_prints_its_status(planned: Any) -> None:
    failed = {"status": "timeout", "reason": "made up", "phases_s": {}}
    artefact = planned("dynet_fig2", lambda trial, _: failed)
    for section in phases.sections_of(artefact):
        for group in artefact.compare:
            measured = [
                b.words for b in phases.bars_of(artefact, section, group) if b.words != "not run"
            ]
            assert set(measured) <= {"timeout"}


def test_a_system_has_a_column_for_each_of_its_policies(planned: Any, choices: Choices) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        if trial.settings["model"] == "parser":
            return {"status": "unsupported", "reason": "made up"}
        return {"instances_per_s": 200.0 if trial.settings.get("policy") else 100.0}

    artefact = planned("dynet_table1", change)
    table = throughputs.table_of(artefact, "strategies")
    place = {column.label: i for i, column in enumerate(table.columns) if not column.published}
    cells = dict(table.rows)["BiLSTM"]
    assert cells[place["DyNet's policy"]].text == "100"
    assert cells[place["DyNet's policy: depth"]].text == "200"
    assert dict(table.rows)["Parser"][place["Vertex engine"]].text == "unsupported"
    assert dict(table.rows)["Parser"][place["DyNet's policy"]].text == "\N{EN DASH}"
    theirs = [str(cell) for cell in dict(table.rows)["Parser"][-6:]]
    assert theirs == ["16.8", "61", "61.2", "33", "89.5", "90.1"]
    assert [column.published for column in table.columns[-6:]] == [True] * 6
    use_style()
    throughputs.make(artefact, choices.results_dir)
    rows = lines_of(choices.results_dir / "tables/dynet_table1_systems.csv")
    ours = {row["system"] for row in rows if row["status"]}
    assert "dynet_policy" not in ours
    assert {"vertex", "dynet", "dynet_off", "torch_levels"} <= ours


def test_peers_are_told_by_how_much_they_are_behind(planned: Any) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        system = trial.settings["system"]
        if system == "torch_rnn":
            return {"status": "oom", "reason": "made up"}
        memory = {"peak_memory_bytes": 300 << 20, "baseline_memory_bytes": 100 << 20}
        memory |= {
            "compile_s": 2.5,
            "bytes_copied": 2560,
            "warnings": ("busy",) if system == "cavs" else (),
        }
        return {"instances_per_s": {"vertex": 300.0}.get(system, 200.0), **memory}

    artefact = planned("headline_var_lstm", change)
    table = peers.table_of(artefact, "systems")
    groups = dict.fromkeys(column.group for column in table.columns)
    assert list(groups) == ["1000 words"], "what this scale has no trial of has no columns"
    rows = {header: [str(cell) for cell in cells] for header, cells in table.rows}
    assert rows["Vertex engine"] == ["300", "1", "200", "2.50"]
    assert rows["DyNet agenda"] == ["200", "1.50", "200", "2.50"]
    assert set(rows["PyTorch nn.LSTM"]) == {"oom"}
    strategies = dict(peers.table_of(artefact, "strategies").rows)
    assert [str(cell) for cell in strategies["Cavs preset"]] == [
        "200†",
        "1.50†",
        "200†",
        "2.50†",
        "2.50",
    ]
    assert {column.group for column in table.columns if column.published} == set()


def test_memory_on_a_gpu_is_that_of_the_gpu(planned: Any) -> None:
    artefact = planned("headline_var_lstm", lambda *_: {"peak_memory_bytes": 300 << 20})
    (record, *_) = artefact.records
    point = artefact.points[0]
    assert measure_of(point, "peak_memory_mib").status == "not told", "no baseline on a CPU"
    on_gpu = record.model_copy(update={"trial": record.trial.model_copy(update={"device": "cuda"})})
    moved = type(point)(point.settings, (on_gpu,))
    summary = measure_of(moved, "peak_memory_mib").summary
    assert summary is not None
    assert summary.median == 300


def test_a_throughput_needs_no_epoch_and_a_time_does(
    planned: Any, choices: Choices, tmp_path: Path
) -> None:
    artefact = planned("dynet_fig3")
    assert not artefact.presentation.epoch_words
    *ours, theirs = panels_of(artefact, "throughput")
    assert {series.label for series in theirs.series} >= {"TF Fold, GPU", "DyNet agenda, CPU"}
    assert ours
    (line,) = (
        line for line in published_lines(artefact) if (line.system, line.x) == ("dynet_gpu", 256)
    )
    assert (line.value, line.unit) == (838, "instances/s")
    (tmp_path / "experiment").mkdir()
    content = yaml.safe_load((CONF_DIR / "experiment/dynet_fig3.yaml").read_text())
    content["quantities"] = ["epoch_s"]
    (tmp_path / "experiment/no_epoch.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match="has no epoch"):
        read_presentation("no_epoch", tmp_path)


def test_a_note_with_a_colon_is_told_to_be_no_text(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    content = yaml.safe_load((CONF_DIR / "experiment/dynet_fig3.yaml").read_text())
    content["notes"] = [{"Sorted": "by length"}]
    (tmp_path / "experiment/odd.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match="is no text; put it in quotes"):
        read_presentation("odd", tmp_path)


def test_serial_is_what_batching_is_divided_by(planned: Any) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        return {"instances_per_s": 60.0 if trial.settings["system"] == "cavs" else 5.0}

    table = speedups.table_of(planned("cavs_serial", change), "strategies")
    rows = {header: [str(cell) for cell in cells] for header, cells in table.rows}
    assert rows["64"][2:] == ["12.0", "25"]
    assert rows["128"][2:] == ["\N{EN DASH}", "36"], "the paper's beside what is not of this scale"


def test_only_generated_data_are_called_synthetic(planned: Any, conf_dir: Path) -> None:
    stand_ins = read_stand_ins(conf_dir)
    assert stand_ins["ptb_synthetic"] == "chain"
    assert "ptb_dev" not in stand_ins, "a stand-in, and real"
    assert title_of(planned("cavs_fig8b")).endswith("(synthetic sentences)")
    assert "synthetic" not in title_of(planned("dynet_fig2")), "the paper's own workload"
