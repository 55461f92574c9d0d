"""Learned policies in bench-schedule and in trials: learning, saving, loading and printing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dynbatch.harness.commands.schedule import main
from dynbatch.harness.contracts.policy import LearningSettings
from dynbatch.harness.counts.counting import GraphPair, build_scheduler, count_batches
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.trials.spec import TrialSpec
from tests.support.measured import MakeSpec, measure
from tests.support.policies import figure, learn
from tests.support.refusals import read_refusal

pytestmark = pytest.mark.slow  # together they take seconds

Output = pytest.CaptureFixture[str]
WORKLOAD = ("model=tree_lstm", "dataset=sst_synthetic", "batch_size=4", "timing.min_seconds=0")


def rows_of(capsys: Output, *arguments: str) -> list[dict[str, Any]]:
    assert main([*WORKLOAD, *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


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


def test_a_policy_may_learn_elsewhere(capsys: Output) -> None:
    arguments = ("policy=fsm_sort", "learning.trials=1", "granularity=operator")
    (row,) = rows_of(capsys, *arguments, "learn_offset=40")
    (here,) = rows_of(capsys, *arguments)
    assert row["n_vertices"] == here["n_vertices"]
    assert row["unseen_fraction"] > 0


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


def test_following_instances_wrap_around_the_file(capsys: Output) -> None:
    lattices = ("model=tree_fc", "dataset=complete_trees", "dataset.options.n_instances=4")
    (row,) = rows_of(capsys, *lattices, "policy=depth", "n_following=2")
    assert row["following"]["n_batches"] == [row["n_batches"]] * 2


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
    *_, machine, last = capsys.readouterr().out.splitlines()
    assert "  unsupported  " in machine
    assert last == f"fsm_sort (ED): unsupported: {loaded['reason_ed']}"
    for other, words in (
        ("model=tree_gru", "got 'tree_lstm, vertex granularity, outputs as vert"),
        ("outputs=stage", "expected workload 'tree_lstm, vertex granularity, outputs as stage'"),
    ):
        assert main([*WORKLOAD, "policy=fsm_sort", f"learning.file={file}", other]) == 1
        read_refusal(capsys, words)


def test_a_saved_policy_is_used_for_the_released_graph_where_it_has_the_same_types(
    tmp_path: Path,
) -> None:
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


# Trials.


def test_learning_is_part_of_a_trial_of_a_learned_policy_only(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
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
def test_a_trial_learns_before_it_is_timed(
    granularity: str, make_spec: MakeSpec, tmp_path: Path
) -> None:
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
