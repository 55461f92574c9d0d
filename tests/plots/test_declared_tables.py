"""Declared tables of trials: numbers, statuses and labels of made-up records, and errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pandas as pd
import pytest

from dynbatch.harness.planning.artifacts import PlannedTrial
from dynbatch.harness.planning.grid import (
    expand,
    list_experiment_names,
    read_experiment,
    read_walks,
)
from dynbatch.harness.records.numbers import NOT_MEASURED, NOT_SEPARABLE
from dynbatch.harness.values.paths import CONF_DIR
from dynbatch.plots.captions import describe_failures
from dynbatch.plots.declaration import DECLARED, TableDeclaration, read_declaration
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.published import PUBLISHED
from dynbatch.plots.tables.cells import DAGGER, EN_DASH, Table, format_number
from dynbatch.plots.tables.declared import average_rows
from tests.support.experiments import Load, build_tables, change_systems, select_number
from tests.support.records import Change

HEADLINE, SWEEP = "headline_var_lstm", "cavs_short_table1_tree_lstm"
HEADLINES = [name for name in list_experiment_names() if name.startswith("headline_")]


def make_speeds(speeds: Mapping[str, float], **failing: str) -> Change:
    """Return a change that sets speeds by system, and statuses of systems that fail."""

    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        system = trial.settings["system"]
        values: dict[str, Any] = {"instances_per_s": speeds.get(system, 100.0)}
        values |= {"peak_memory_bytes": 300 << 20, "baseline_memory_bytes": 100 << 20}
        values |= {"compile_s": 2.5, "bytes_copied": 2560}
        if system in failing:
            values |= {"status": failing[system], "reason": "made up"}
        return values

    return change


def find_table(experiment: Experiment, ending: str = "") -> Table:
    (table,) = (table for table in build_tables(experiment) if table.stem.endswith(ending))
    return table


def get_row(table: Table, *heads: str) -> list[str]:
    key = heads if len(heads) > 1 else heads[0]
    return [str(text) for text in table.cells.loc[[key]].iloc[0]]


def test_a_headline_compares_speed_memory_and_setup(load: Load) -> None:
    experiment = load(HEADLINE, make_speeds({"vertex": 300.0}, torch_rnn="oom"))
    table = find_table(experiment, "systems")
    assert get_row(table, "Vertex engine") == ["300", "1", "200", "2.50"]
    assert get_row(table, experiment.label("dynet")) == ["100", "3.00", "200", "2.50"]
    assert set(get_row(table, experiment.label("torch_rnn"))) == {"oom"}
    assert set(table.cells.columns.get_level_values(0)) == {"1,000 words"}, "of this scale"
    strategies = find_table(experiment, "strategies")
    assert get_row(strategies, "Cavs preset")[-1] == "2.50", "copied kB, of strategies only"


def test_the_fastest_baseline_and_the_bound_have_rows(load: Load) -> None:
    speeds = {"products": 400.0, "products_cut": 500.0, "vertex": 300.0, "torch_levels": 150.0}
    table = find_table(load(HEADLINE, make_speeds(speeds), "medium"), "systems")
    best = select_number(table.numbers, role="best_baseline", quantity="instance_s over base")
    assert (best.system, best.value) == ("torch_levels", 2.0)
    bound = select_number(table.numbers, role="ceiling", quantity="throughput")
    assert (bound.system, bound.value) == ("products_cut", 500.0)
    share = select_number(table.numbers, system="vertex", quantity="throughput over ceiling")
    assert (share.value, share.n_rounds) == (pytest.approx(0.6), expand(HEADLINE, "medium").rounds)
    assert get_row(table, "Vertex engine")[:3] == ["300", "1", "60.0"]
    row = get_row(table, "fastest baseline")[:3]
    assert row == ["PyTorch levels: 150", "2.00 (2.00 to 2.00)", "30.0"]
    assert get_row(table, "matmul bound")[0].endswith(": 500")


@pytest.mark.slow
def test_failed_or_exceeded_bound_is_shown(load: Load) -> None:
    failed = make_speeds({}, products="unsupported", products_cut="unsupported")
    table = find_table(load(HEADLINE, failed, "medium"), "systems")
    assert get_row(table, "Vertex engine")[2] == "unsupported"
    beaten = find_table(load(HEADLINE, make_speeds({"vertex": 200.0}), "medium"), "systems")
    assert get_row(beaten, "Vertex engine")[2] == "200"
    assert any("More than 100%: a system omits matmuls" in note for note in beaten.notes)


def test_a_failed_baseline_is_not_the_fastest(load: Load) -> None:
    speeds = {"vertex": 300.0, "torch_rnn": 900.0, "dynet": 200.0}
    table = find_table(load(HEADLINE, make_speeds(speeds, torch_rnn="timeout")), "systems")
    best = select_number(table.numbers, role="best_baseline", quantity="throughput")
    assert (best.system, best.value) == ("dynet", 200.0)
    alone = make_speeds({}, **dict.fromkeys(set(table.numbers.system) - {"vertex"}, "timeout"))
    none = find_table(load(HEADLINE, alone), "systems")
    best = select_number(none.numbers, role="best_baseline", quantity="throughput")
    assert best.status == "timeout"


def test_warnings_leave_a_dagger_on_both_sides_of_a_ratio(load: Load) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        slow_build = {"versions": {"dynet_build": "wheel 2.1.2"}}
        changes = {"cavs": {"warnings": ("background_load",)}, "dynet": slow_build}
        speed = {"instances_per_s": 300.0 if trial.settings["system"] == "vertex" else 100.0}
        return speed | changes.get(trial.settings["system"], {})

    experiment = load(HEADLINE, change)
    strategies = find_table(experiment, "strategies")
    assert [text[-1] for text in get_row(strategies, "Cavs preset")[:2]] == [DAGGER, DAGGER]
    assert strategies.notes[0].startswith(f"{DAGGER} Warnings: background_load (")
    systems = find_table(experiment, "systems")
    speed, ratio, *_ = get_row(systems, experiment.label("dynet"))
    assert (speed[-1] != DAGGER, ratio[-1]) == (True, DAGGER), "of the slow build, ratios only"
    assert systems.notes[0].startswith(f"{DAGGER} Warnings: dynet_without_blas (")
    assert "make dynet-native builds DyNet with one" in systems.notes[0]


def test_a_note_on_a_system_is_shown_only_with_the_system(load: Load) -> None:
    experiment = load(HEADLINE)
    dynet, absent = experiment.label("dynet"), experiment.label("tf_trees")
    notes = (f"{dynet}: a", f'"{dynet}" b', f"{absent}: c", f'"{absent}" d', f"Unlike {absent}, e")
    experiment = replace(experiment, declaration=replace(experiment.declaration, notes=notes))
    shown = {name: find_table(experiment, name).notes for name in ("strategies", "systems")}
    assert [note in shown["systems"] for note in notes] == [True, True, False, False, True]
    assert [note in shown["strategies"] for note in notes] == [False, False, False, False, True]


def test_the_warning_of_a_number_over_rounds_is_named(load: Load) -> None:
    """Records without warnings of their own, whose speeds differ from round to round."""

    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        return {"instances_per_s": 100.0 * (1 + round_ * (trial.settings["system"] == "vertex"))}

    table = find_table(load(HEADLINE, change, "medium"), "systems")
    assert get_row(table, "Vertex engine")[0][-1] == DAGGER
    assert table.notes[0].startswith(f"{DAGGER} Warnings: wide_interval (")


def test_a_range_of_memory_replaces_number_and_warning(load: Load) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        return {"peak_memory_bytes": 2**30 * (1 + round_), "baseline_memory_bytes": 0}

    table = find_table(load(HEADLINE, change, "medium"), "systems")
    assert "1,020 to 3,080" in get_row(table, "Vertex engine")
    assert any(note.startswith("A range in place of a number") for note in table.notes)
    is_wide = table.numbers.warnings == "wide_interval"
    n_wide = is_wide[table.numbers.quantity == "throughput"].sum()
    assert 0 < n_wide < is_wide.sum()
    assert f"{DAGGER} Warnings: wide_interval ({n_wide})" in table.notes[0]


def test_a_partly_measured_system_has_the_number_of_its_rounds(load: Load) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any] | None:
        return None if trial.settings["system"] == "dynet" and round_ > 1 else {}

    table = find_table(load(HEADLINE, change, "medium"), "systems")
    number = select_number(table.numbers, system="dynet", quantity="throughput")
    assert (number.n_rounds, bool(number.is_partial)) == (2, True)
    assert any(note.startswith("[n]: only n rounds") for note in table.notes)


def test_the_number_of_rounds_is_that_of_the_tables_numbers(load: Load) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any] | None:
        return None if trial.settings["system"] == "dynet" and round_ else {}

    strategies, systems = build_tables(load(SWEEP, change, "medium"))
    text = "interleaved rounds; intervals: range over rounds."
    assert f"Median of 3 {text}" in strategies.notes, "DyNet is in the other table"
    assert f"Median of 1 to 3 {text}" in systems.notes


def test_a_mean_has_the_fewest_rounds_and_the_warnings_of_its_rows() -> None:
    shared = {"model": "parser", "quantity": "throughput", "status": "ok", "is_partial": True}
    rows = [
        {**shared, "batch_size": 8, "value": 1.0, "n_rounds": 3, "warnings": "disturbed"},
        {**shared, "batch_size": 64, "value": 3.0, "n_rounds": 2, "warnings": ""},
    ]
    declaration = TableDeclaration(rows=["model", "batch_size"], values={"throughput": "1/s"})
    (mean,) = (row for _, row in average_rows(pd.DataFrame(rows), declaration).iterrows())
    assert format_number(mean) == f"2.00{DAGGER} [2]"


@pytest.mark.slow
def test_a_setting_without_a_record_is_named_and_has_no_columns(load: Load) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any] | None:
        return None if trial.settings["model.options.variant"] == "fold" else {}

    table = find_table(load("headline_tree_fc", change, "paper"), "systems")
    assert set(table.numbers.setting) == {"all vertices"}
    assert "Not measured: leaf table." in table.notes


def test_slower_unseen_mini_batches_are_noted(load: Load) -> None:
    change = change_systems({"dynet": {"unseen_slowdown": 1.25}}, unseen_slowdown=1.01)
    table = find_table(load(HEADLINE, change), "systems")
    (note,) = (note for note in table.notes if "reordered" in note)
    assert "take 1.01 times" in note
    assert "at most 1.25 times (DyNet agenda)" in note
    assert select_number(table.numbers, quantity="unseen_slowdown", system="dynet").value == 1.25


def test_sizes_of_the_paper_and_of_trials_are_merged_in_order(load: Load) -> None:
    table = find_table(load(SWEEP), "systems")
    labels = ("computation (s/epoch)", "graph construction (s/epoch)", "overall speedup of Cavs")
    computation, construction, speedup = (
        pd.concat(
            [cells for heading, cells in table.split_parts() if heading.startswith(label)], axis=1
        )
        for label in labels
    )
    sizes = ["1", "4", "16", "32", "64", "128", "256"]
    for part in (computation, construction):
        assert list(part.columns) == [f"batch size {size}" for size in sizes]
    assert computation.loc["paper: TF Fold", "batch size 1"] == "550"
    assert computation.loc["paper: Cavs", "batch size 4"] == EN_DASH
    assert speedup.loc["Cavs preset", "batch size 16"] == "1"
    parts = [
        select_number(table.numbers, role="", system="vertex", quantity=quantity, batch_size=16)
        for quantity in ("computation_s", "construction_s")
    ]
    assert parts[1].value / (parts[0].value + parts[1].value) == pytest.approx(0.15)


def test_times_are_of_an_epoch_and_a_paper_keeps_its_own(load: Load) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        return {"instances_per_s": 5.0 if trial.settings.get("policy") == "unbatched" else 60.0}

    table = find_table(load("cavs_serial", change))
    ours = select_number(table.numbers, quantity="instance_s", setting="batched", batch_size=64)
    assert ours.value == pytest.approx(14524 / 60)
    point = {"setting": "serial policy", "batch_size": 64, "role": ""}
    ratio = select_number(table.numbers, quantity="instance_s over base", **point)
    assert (ratio.value, ratio.warnings) == (pytest.approx(12), "")
    theirs = select_number(table.numbers, status=PUBLISHED, batch_size=64)
    assert (theirs.value, theirs.system) == (25, "serial policy")


def test_inseparable_phases_are_marked(load: Load) -> None:
    same = {"instances_per_s": 8 / 0.01, "n_instances": 16, "n_mini_batches": 2}
    phases = {"construct": 0.001, "forward": 0.004}
    others = same | {"phases_s": phases | {"schedule": 0.002}}
    change = change_systems({"dynet": same | {"phases_s": phases}}, **others)
    table = find_table(load("acrobat_table5", change)).numbers
    row = {"model": "birnn"}
    assert select_number(table, system="acrobat", quantity="schedule_ms", **row).value == 2
    dynet = select_number(table, system="dynet", quantity="schedule_ms", **row)
    assert dynet.status == NOT_SEPARABLE
    execution = {name: select_number(table, system=name, quantity="execution_ms", **row).value
                 for name in ("acrobat", "dynet")}  # fmt: skip
    assert execution == {"acrobat": pytest.approx(7), "dynet": pytest.approx(9)}


def test_quantities_without_a_number_name_the_reason(load: Load) -> None:
    """Time of CUDA calls is the paper's alone; DyNet counts neither kernel calls nor copies."""
    failed = {"status": "oom", "reason": "made up"}
    counted = {"n_launches": 1240.0, "bytes_copied": 2048}
    own = {"acrobat_ahead": failed, "acrobat": counted}
    change = change_systems(own, **dict.fromkeys(counted))
    table = find_table(load("acrobat_table5", change, "paper"))
    numbers = table.numbers[table.numbers.status != PUBLISHED]
    small = numbers[(numbers.model == "tree_lstm") & (numbers.hidden_size == 256)]
    of = small.set_index(["quantity", "system"])
    for system in ("acrobat", "dynet"):
        assert set(of.loc[["copy_ms", "api_ms"], :].status[:, system]) == {NOT_MEASURED}
    assert of.value["n_launches", "acrobat"] == 1240
    assert of.value["copied_kb", "acrobat"] == 2
    assert of.status["n_launches", "dynet"] == of.status["copied_kb", "dynet"] == NOT_MEASURED
    assert set(of.status[:, "acrobat_ahead"]) == {"oom"}
    launches = get_row(table, "Tree-LSTM", "256", "64", "kernel calls")
    assert launches == ["1,240", "oom", "not measured", "1,653", "183"]
    assert get_row(table, "Tree-LSTM", "256", "64", "CUDA API (ms)")[-2:] == ["16.5", "3.9"]
    text = " ".join(table.notes)
    for label in ("CUDA API (ms)", "memory copies (ms)", "kernel calls", "copied (kB)"):
        assert f"Not measured, {label}: " in text
    assert "Another machine" in text


def test_a_reason_that_rounds_share_is_one_line(load: Load) -> None:
    """A later round repeats that of an earlier one, or has another number in it."""
    reasons = ["used 9 MiB", "as in round 0: used 9 MiB", "used 8 MiB", "a leak"]
    rows = [("vertex", "ok", ""), *(("cavs", "oom", reason) for reason in reasons)]
    rows += [("cavs", "crash", "used 9 MiB"), ("torch_rnn", "oom", "used 7 MiB")]
    data = pd.DataFrame(rows, columns=["system", "status", "reason"])
    experiment = load(HEADLINE)
    cavs, rnn = map(experiment.label, ("cavs", "torch_rnn"))
    assert describe_failures(experiment, data, "system") == [
        f"{cavs}: oom: used 9 MiB",
        f"{cavs}: oom: a leak",
        f"{cavs}: crash: used 9 MiB",
        f"{rnn}: oom: used 7 MiB",
    ]


def test_systems_that_are_not_planned_at_a_scale_have_no_column(load: Load) -> None:
    experiment = load("cavs_table1_tree_lstm")
    systems = ("cavs", "dynet", "fold", "torch_levels", "torchfold", "vertex")
    assert experiment.compare["systems"] == systems
    assert set(experiment.declaration.compare["systems"]) > set(systems)


def test_columns_of_other_systems_show_no_ratio_of_the_base(load: Load) -> None:
    table = find_table(load("acrobat_table7"))
    ratios = table.numbers[table.numbers.quantity == "instance_s over base"]
    assert set(ratios.system) == {"acrobat_gathers"}
    paper = {group for group, label in table.cells.columns if label.startswith("paper: ")}
    assert paper <= {"ms per mini-batch"}


def test_a_policy_of_a_system_has_a_row_of_its_own(load: Load) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        if trial.settings["model"] == "parser":
            return {"status": "unsupported", "reason": "made up"}
        return {"instances_per_s": 200.0 if trial.settings.get("policy") else 100.0}

    experiment = load("dynet_table1", change)
    table = find_table(experiment, "strategies")
    bilstm = ("sentences/s", experiment.label("bilstm"))
    assert table.cells.loc[("DyNet's policy", ""), bilstm] == "100"
    assert table.cells.loc[("DyNet's policy", "depth"), bilstm] == "200"
    parser = ("sentences/s", experiment.label("parser"))
    assert table.cells.loc[("Vertex engine", ""), parser] == "unsupported"
    assert table.cells.loc[("DyNet's policy", ""), parser] == EN_DASH
    assert table.cells.loc[("paper: Depth, CPU", ""), parser] == "61"
    assert "dynet_policy" not in set(find_table(experiment, "systems").numbers.system)


@pytest.mark.slow
def test_variants_of_a_system_are_one_column(load: Load) -> None:
    """A column shows the fastest variant at each point; tables by system show both variants."""
    speeds = {"tf_static": 90.0, "tf_static_xla": 120.0}
    experiment = load("headline_bilstm", make_speeds(speeds), "paper")
    rows = find_table(experiment, "systems")
    assert {"tf_static", "tf_static_xla"} <= set(rows.numbers.system)
    turned: dict[str, Any] = {"rows": ["model"], "columns": ["quantity", "system", "policy"]}
    turned["values"] = {"throughput": "1/s"}
    shown = replace(experiment.declaration, table={**turned, "kind": DECLARED})
    table = find_table(replace(experiment, declaration=shown), "systems")
    labels = [label for _, label in table.cells.columns]
    assert experiment.label("tf_static") in labels
    assert experiment.label("tf_static_xla") not in labels
    of_both = table.numbers[table.numbers.model == "bilstm"]  # the other tagger has no variants
    assert "tf_static_xla" in set(of_both.system)
    assert "tf_static" not in set(of_both.system)


def test_epoch_times_have_batch_sizes_and_hidden_sizes_of_every_workload(load: Load) -> None:
    numbers = find_table(load("epoch_times", lambda *_: None, "paper")).numbers
    assert set(numbers.quantity) == {"instance_s"}
    workloads = ("Fixed-LSTM", "Var-LSTM", "Tree-FC", "Tree-LSTM", "Lattice")
    for workload, size in product(workloads, ("batch_size", "hidden_size")):
        axis = f" by {size.replace('_', ' ')}"
        setting = numbers.setting.str
        ours = numbers[setting.startswith(workload) & setting.endswith(axis)]
        shown = ours[ours.system == "vertex"].groupby("setting")[size].nunique()
        assert len(shown), (workload, axis)
        assert shown.min() >= 5, (workload, axis)
        assert ours.system.nunique() >= 4, (workload, axis)


def test_the_ablation_has_each_switch_alone_off_and_alone_on(load: Load) -> None:
    """Both walks give the switches, since one of them does not change the granularity."""
    shown = set(find_table(load("ablation", lambda *_: None, "paper")).numbers.setting)
    declared = read_declaration("ablation", CONF_DIR).table["settings"]
    assert shown == set(declared)
    content = read_experiment("switch_walks")
    steps = {
        s.option for w in read_walks("switch_walks", content, CONF_DIR).values() for s in w.steps
    }
    for option in steps:
        key = f"system.options.{option}"
        single = [one for one in declared.values() if key in one and not isinstance(one[key], list)]
        is_policy = option == "policy"  # agenda alone off: see the comment in the file
        assert is_policy or {one["system"] for one in single} & {"vertex"}, option
        assert {one["system"] for one in single} & {"cavs_dynet", "dynet_policy"}, option
    assert {"all on (Engine)", "all off (Cavs DyNet strategy)", "policy agenda"} <= shown


@pytest.mark.parametrize("scale", ["medium", "paper"])
@pytest.mark.parametrize("name", HEADLINES)
def test_every_workload_of_a_headline_has_its_bound(name: str, scale: str) -> None:
    """Both bounds are run at the papers' scale; at medium, the second one for Var-LSTM only."""

    def drop_system(settings: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((k, str(v)) for k, v in settings.items() if k != "system"))

    settings = expand(name, scale).settings
    ours = {drop_system(one) for one in settings if one["system"] == "vertex"}
    assert ours
    both = scale == "paper" or {one["model"] for one in settings} == {"var_lstm"}
    for calibration in ("products", "products_cut") if both else ("products",):
        assert {drop_system(one) for one in settings if one["system"] == calibration} == ours


def test_no_comparison_has_a_calibration() -> None:
    for name in list_experiment_names():
        for systems in read_declaration(name, CONF_DIR).compare.values():
            assert not {"products", "products_cut"} & set(systems), name
