"""`bench-schedule`: counts, pictures, sweeps, and the file of its rows.

Learned policies are learned, saved, loaded and printed, also in trials.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from dynbatch.harness.commands.schedule import main
from dynbatch.harness.contracts.home import SPLITS
from dynbatch.harness.contracts.policy import LearningSettings, list_policy_names
from dynbatch.harness.counts.counting import GraphPair, build_scheduler, count_batches
from dynbatch.harness.counts.request import expand_points
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.trials.spec import TrialSpec
from tests.support.corpora import write
from tests.support.measured import MakeSpec, measure
from tests.support.policies import figure, learn
from tests.support.refusals import Output, read_refusal

pytestmark = pytest.mark.slow  # together they take seconds

WORKLOAD = ("model=tree_lstm", "dataset=sst_synthetic", "batch_size=4", "timing.min_seconds=0")
FIELDS = [
    *("n_vertices", "n_batches", "lower_bound", "n_nodes_ed", "n_batches_ed", "lower_bound_ed"),
    *("n_unbatchable_ed", "schedule_s"),
]
LABELS = [
    *("status", "model", "dataset", "split", "batch_size", "granularity", "outputs", "offset"),
    *("policy", "model_options", "cpu", "count_id", "source_sha256", "counted_at"),
]
RATIOS = ["ratio", "ratio_ed"]


def printed_rows(capsys: Output, *arguments: str) -> list[dict[str, Any]]:
    assert main([*arguments[:1], "--json", *arguments[1:]]) == 0
    return json.loads(capsys.readouterr().out)


def rows_of(capsys: Output, *arguments: str) -> list[dict[str, Any]]:
    return printed_rows(capsys, *WORKLOAD, *arguments)


def test_json_holds_the_promised_fields(capsys: Output) -> None:
    rows = rows_of(capsys, "batch_size=4", "policy=sufficient,unbatched")
    assert [row["policy"] for row in rows] == ["sufficient", "unbatched"]
    for row in rows:
        assert list(row) == [*LABELS, *FIELDS, *RATIOS]
        assert row["status"] == "ok"
        assert row["schedule_s"] > 0
    assert rows[1]["n_batches"] == rows[1]["n_vertices"]
    assert rows[1]["n_batches_ed"] == rows[1]["n_nodes_ed"]
    assert rows[0]["n_batches"] == rows[0]["lower_bound"]


def test_all_policies_are_shown_unless_some_are_named(capsys: Output) -> None:
    assert [row["policy"] for row in rows_of(capsys, "batch_size=2")] == list(list_policy_names())


def test_operators_are_vertices_at_operator_granularity(capsys: Output) -> None:
    arguments = ("batch_size=3", "policy=depth,agenda", "outputs=stage")
    coarse = rows_of(capsys, *arguments)
    fine = rows_of(capsys, *arguments, "granularity=operator")
    for one, other in zip(coarse, fine, strict=True):
        assert other["n_vertices"] > 10 * one["n_vertices"]
        assert other["n_batches"] > one["n_batches"]
        assert all(one[key] == other[key] for key in FIELDS if key.endswith("_ed"))


def test_outputs_are_vertices_unless_they_are_to_be_a_stage(capsys: Output) -> None:
    (with_outputs,) = rows_of(capsys, "batch_size=2", "policy=depth")
    (without,) = rows_of(capsys, "batch_size=2", "policy=depth", "outputs=stage")
    assert with_outputs["n_vertices"] == 3 * without["n_vertices"]
    assert with_outputs["n_batches_ed"] == without["n_batches_ed"]


def test_the_table_of_the_specification(data_root: Path, capsys: Output) -> None:
    arguments = ["model=tree_lstm", "dataset=sst", f"data_root={data_root}", "batch_size=8"]
    agenda, sufficient = printed_rows(capsys, *arguments, "policy=agenda,sufficient")
    for row, n_batches, n_batches_ed in ((agenda, 54, 92), (sufficient, 20, 58)):
        assert row["n_vertices"] == 3 * 414  # each vertex has an output and a loss
        assert row["n_batches"] == n_batches
        assert row["lower_bound"] == 20
        assert row["n_nodes_ed"] == 2072
        assert row["n_batches_ed"] == n_batches_ed
        assert row["lower_bound_ed"] == 58


def test_pictures_have_the_format_of_their_name_and_repeat(tmp_path: Path, capsys: Output) -> None:
    for name, magic in (("a.pdf", b"%PDF"), ("a.png", b"\x89PNG"), ("a.svg", b"<?xml")):
        file = tmp_path / name
        rows_of(capsys, "batch_size=1", "policy=agenda", "--draw", str(file))
        assert file.read_bytes().startswith(magic)
    before = file.read_bytes()
    rows_of(capsys, "batch_size=1", "policy=agenda", "--draw", str(file))
    assert file.read_bytes() == before


def test_other_data_under_the_same_name_are_counted_again(tmp_path: Path, capsys: Output) -> None:
    counts = []
    for name, text in (("first", "(1 (0 a) (2 b))"), ("second", "(1 (0 a) (2 (1 b) (1 a)))")):
        write(tmp_path / name / "sst", dict.fromkeys(SPLITS, f"{text}\n" * 2), ".txt")
        words = ["model=tree_lstm", "dataset=sst", "dataset.options.sha256=null", "batch_size=2"]
        places = [f"data_root={tmp_path / name}", f"records={tmp_path / 'records'}"]
        for kept in (0, 1):
            assert main([*words, *places, "policy=agenda", "timing.min_seconds=0", "--json"]) == 0
            printed = capsys.readouterr()
            assert f"{kept} reused" in printed.err
        counts.append(json.loads(printed.out)[0]["n_vertices"])
    assert counts[0] < counts[1]
    # Both counts have one name, so that drawing finds records without their data.
    assert len(list((tmp_path / "records").glob("*.json"))) == 1


# --- sweeps ---

GENERATED = "dataset=sst_synthetic,lattice_synthetic"
ONE = ["model=tree_lstm", "dataset=sst_synthetic", "batch_size=8", "policy=agenda,depth"]
SIZE_CHANGES_SLOWEST = [
    ["hidden_size=4", f"batch_size={size}", f"granularity={granularity}"]
    for size in (8, 64)
    for granularity in ("vertex", "operator")
]


@pytest.mark.parametrize(
    ("settings", "points"),
    [
        (ONE, [ONE]),
        (["granularity=vertex,operator", "batch_size=8,64", "hidden_size=4"], SIZE_CHANGES_SLOWEST),
        (["batch_size=8,8,16"], [["batch_size=8"], ["batch_size=16"]]),
        (
            ["model=tree_lstm,lattice_lstm,tree_gru", GENERATED],
            [
                ["model=tree_lstm", "dataset=sst_synthetic"],
                ["model=lattice_lstm", "dataset=lattice_synthetic"],
                ["model=tree_gru", "dataset=sst_synthetic"],
            ],
        ),
    ],
)
def test_models_meet_datasets_of_their_kind(settings: list[str], points: list[list[str]]) -> None:
    assert expand_points(settings, Composer()) == points


UNLIKE = "differ in the kind of instances"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([*ONE[1:2], "model=tree_lstm,lattice_gru"], f"model=lattice_gru and .* dataset {UNLIKE}"),
        ([*ONE[:1], GENERATED], f"dataset=lattice_synthetic and .* model {UNLIKE}"),
        (["model=tree_lstm,no_such", GENERATED], "model=no_such is unknown; choose one of"),
    ],
)
def test_settings_without_a_match_are_named(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        expand_points(settings, Composer())


SWEEP = ("model=tree_lstm,lattice_lstm", GENERATED, "granularity=vertex,operator")
SMALL = ("hidden_size=4", "timing.min_seconds=0")
SIZES = ("batch_size=2,3", *SMALL, "policy=agenda,sufficient")
# Only durations and the time of day differ between two counts of the same mini-batch.
TIMES = ("schedule_s", "counted_at")


def test_rows_identify_the_counted_settings(capsys: Output, tmp_path: Path) -> None:
    file = tmp_path / "new" / "rows.json"
    rows = printed_rows(capsys, *SWEEP, *SIZES, f"out={file}")
    assert json.loads(file.read_text()) == rows
    keys = ("model", "dataset", "batch_size", "granularity", "policy")
    pairs = (("tree_lstm", "sst_synthetic"), ("lattice_lstm", "lattice_synthetic"))
    expected = [
        (model, dataset, size, granularity, policy)
        for model, dataset in pairs
        for size in (2, 3)
        for granularity in ("vertex", "operator")
        for policy in ("agenda", "sufficient")
    ]
    assert [tuple(row[key] for key in keys) for row in rows] == expected
    for row in rows:
        assert row["ratio"] == row["n_batches"] / row["lower_bound"] >= 1.0
        assert row["ratio_ed"] == row["n_batches_ed"] / row["lower_bound_ed"] >= 1.0
        assert row["n_unbatchable_ed"] == (1 if row["model"] == "tree_lstm" else 3)
        assert (row["split"], row["offset"]) == ("train", 0)


def test_a_row_of_a_sweep_is_that_of_its_mini_batch(capsys: Output) -> None:
    def rows(*arguments: str) -> list[dict[str, object]]:
        found = printed_rows(capsys, *arguments, *SMALL, "policy=depth")
        return [{k: v for k, v in row.items() if k not in TIMES} for row in found]

    one = ("model=lattice_lstm", "dataset=lattice_synthetic", "batch_size=3")
    assert rows(*one, "granularity=operator")[0] in rows(*SWEEP, "batch_size=2,3")


@pytest.mark.parametrize("name", ["--draw", "--draw-policy", "save_policy"])
def test_drawing_and_saving_need_one_mini_batch(name: str, tmp_path: Path, capsys: Output) -> None:
    file = f"{name}={tmp_path / 'a.png'}"
    assert main([*SWEEP, "batch_size=2", "policy=fsm_sort", file]) == 1
    assert f"{name} expects one mini-batch, got 4" in capsys.readouterr().err


def test_csv_output_path_gives_csv_rows(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "rows.csv"
    rows = rows_of(capsys, "batch_size=2", "policy=depth,fsm_sort", "n_following=1", f"out={file}")
    with file.open(newline="") as lines:
        found = list(csv.DictReader(lines))
    assert [row["policy"] for row in found] == ["depth", "fsm_sort"]
    for row, reported in zip(found, rows, strict=True):
        assert float(row["n_batches"]) == reported["n_batches"]
        assert float(row["following.ratio"]) == reported["following"]["ratio"]


# --- learned policies ---


def test_learned_rows_tell_of_learning(capsys: Output) -> None:
    agenda, machine = rows_of(capsys, "policy=agenda,fsm_sort")
    assert set(machine) - set(agenda) == {"learning"} | {
        f"{name}{suffix}"
        for name in ("learn_s", "n_trials", "unseen_fraction")
        for suffix in ("", "_ed")
    }
    assert machine["learn_s"] > 0
    assert machine["n_trials"] == 50
    assert machine["unseen_fraction"] == machine["unseen_fraction_ed"] == 0.0
    assert machine["n_batches"] == machine["lower_bound"]
    assert machine["n_batches_ed"] == machine["lower_bound_ed"]


def test_following_mini_batches_are_counted(capsys: Output) -> None:
    depth, machine = rows_of(capsys, "policy=depth,fsm_sort", "n_following=3")
    for index in range(3):
        alone = rows_of(capsys, "policy=depth", f"offset={4 * (index + 1)}")[0]
        assert depth["following"]["n_batches"][index] == alone["n_batches"]
        assert machine["following_ed"]["lower_bound"][index] == alone["lower_bound_ed"]
    assert depth["following"]["unseen_fraction"] is None
    for row in (depth, machine):
        after = row["following"]
        ratios = [n / b for n, b in zip(after["n_batches"], after["lower_bound"], strict=True)]
        assert after["ratio"] == pytest.approx(sum(ratios) / 3)


def test_states_absent_from_learning_are_unseen_in_next_mini_batch(capsys: Output) -> None:
    """The result equals that of the mini-batch alone with the policy learned on the first one."""
    arguments = ("policy=fsm_sort", "learning.trials=1", "granularity=operator")
    (row,) = rows_of(capsys, *arguments, "n_following=1")
    (alone,) = rows_of(capsys, *arguments, "offset=4", "learn_offset=0")
    assert row["following"]["n_batches"] == [alone["n_batches"]]
    assert row["following"]["unseen_fraction"] == alone["unseen_fraction"] > 0
    assert alone["unseen_fraction"] != row["unseen_fraction"]


def test_a_policy_is_saved_and_used_again(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "machine.json"
    (saved,) = rows_of(capsys, "policy=fsm_sort", f"save_policy={file}")
    (loaded,) = rows_of(capsys, "policy=fsm_sort", f"learning.file={file}")
    assert "learn_s" not in loaded
    assert loaded["n_batches"] == saved["n_batches"]
    # The released graph has types that this policy does not know; no other policy is learned.
    assert "n_batches_ed" in saved
    assert not {"n_batches_ed", "learn_s_ed", "unseen_fraction_ed", "ratio_ed"} & set(loaded)
    assert loaded["lower_bound_ed"] == saved["lower_bound_ed"]
    assert loaded["reason_ed"].startswith(f"{file} was learned on other types")
    assert main([*WORKLOAD, "policy=agenda,fsm_sort", f"learning.file={file}"]) == 0
    *_, machine, last, _, legend = capsys.readouterr().out.splitlines()
    assert "  unsupported  " in machine
    assert "(ED)" in legend
    assert last == f"fsm_sort (ED): unsupported: {loaded['reason_ed']}"
    for other, words in (
        ("model=tree_gru", "got 'tree_lstm, vertex granularity, outputs as vert"),
        ("outputs=stage", "expected workload 'tree_lstm, vertex granularity, outputs as stage'"),
    ):
        assert main([*WORKLOAD, "policy=fsm_sort", f"learning.file={file}", other]) == 1
        read_refusal(capsys, words)


def test_a_saved_policy_is_used_for_a_released_graph_of_the_same_types(tmp_path: Path) -> None:
    machine = learn()
    machine.save(tmp_path / "machine.json")
    settings = LearningSettings(file=str(tmp_path / "machine.json"))
    graphs = GraphPair(plain=figure(), released=figure())
    one = build_scheduler("fsm_sort", settings, machine.workload, graphs)
    assert one.released == one.plain
    assert one.plain.learned == machine
    counts = count_batches(one, graphs, [graphs], enough_s=0.0)
    assert counts.n_batches_ed == counts.n_batches == machine(figure()).n_batches
    assert counts.following_ed == counts.following is not None
    assert (counts.reason_ed, counts.learn_s_ed) == (None, None)


def test_the_machine_is_shown_and_drawn(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "machine.svg"
    arguments = ["policy=agenda,fsm_sort", "--show-policy", f"--draw-policy={file}"]
    assert main([*WORKLOAD, *arguments]) == 0
    table, _, words = capsys.readouterr().out.partition("\n\nfsm_sort, tree_lstm, vertex")
    assert "learn (s)" in table
    assert "-> internal" in words
    assert file.exists()


def test_learning_is_part_of_a_trial_of_a_learned_policy_only(make_spec: MakeSpec) -> None:
    other = LearningSettings(seed=1)
    for options in ({}, {"policy": "agenda"}):
        plain = make_spec(system_options=options)
        assert "learning" not in plain.identity
        assert plain.trial_id == make_spec(system_options=options, learning=other).trial_id
    for changes in ({"policy": "fsm_sort"}, {"system_options": {"policy": "fsm_sort"}}):
        spec = make_spec(**changes, learning=other)
        assert spec.trial_id != make_spec(**changes).trial_id
        assert TrialSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_a_saved_policy_is_identified_by_its_content(tmp_path: Path) -> None:
    def trial_id(file: Path) -> str:
        chosen = {"system": "edbatch", "learning.file": str(file), "threads": 1}
        return Composer().resolve_trial(chosen).trial_id

    machine = learn()
    files = [tmp_path / name for name in ("a", "b", "c")]
    for file in files[:2]:
        machine.save(file)
    learn(seed=1).save(files[2])
    first, second, third = map(trial_id, files)
    assert first == second != third


ENGINE = {
    "system": "edbatch",
    "adapter": "dynbatch.systems.on_core.vertex",
    "model": "tree_lstm",
    "dataset": "sst_synthetic",
    "dataset_options": {},
}
# Learning does not depend on the backend; the default one takes seconds to compile.
PLAIN = {"fusion": False, "backend": "stepwise"}


@pytest.mark.parametrize("granularity", ["vertex", "operator"])
def test_learning_precedes_timing(granularity: str, make_spec: MakeSpec, tmp_path: Path) -> None:
    options = {"policy": "fsm_sort", "granularity": granularity, **PLAIN}
    learning = LearningSettings(trials=20)
    record = measure(make_spec(**ENGINE, system_options=options, learning=learning), tmp_path)
    assert (record.status, record.reason) == ("ok", None)
    assert record.learn_s is not None
    assert record.compile_s is not None
    other = make_spec(**ENGINE, system_options={"policy": "agenda", **PLAIN})
    assert measure(other, tmp_path).learn_s is None


def test_a_trial_takes_a_saved_policy(make_spec: MakeSpec, tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "machine.json"
    rows_of(capsys, "policy=fsm_base", "outputs=stage", f"save_policy={file}")
    learning = LearningSettings(file=str(file))
    changes = {"system_options": {"policy": "fsm_base", **PLAIN}, "learning": learning}
    record = measure(make_spec(**ENGINE, **changes), tmp_path)
    assert (record.status, record.learn_s) == ("ok", None)
