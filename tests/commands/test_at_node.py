"""What a node does as its head node ordered: trials in their rounds, counts, and nothing twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.commands import at_node
from harness.machine import folders
from harness.machine.facts import usable_cpus
from harness.planning.nodes import Nodes
from harness.planning.orders import Order, code_of_this_machine, order_path
from harness.records.measured import sitting_path
from harness.records.record import find_record, path_of, read_record
from harness.terminal.status import at_work
from harness.trials.spec import TrialSpec

MakeSpec = Callable[..., TrialSpec]


@pytest.fixture(autouse=True)
def own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns of its own, so that no run beside the tests is waited for."""
    (tmp_path / "memory").mkdir()
    monkeypatch.setattr(folders, "MEMORY", tmp_path / "memory")


@pytest.fixture
def nodes() -> Nodes:
    return Nodes("small", n_cpus=len(usable_cpus()), memory_gib=0.5)


def done_by(order: Order, results: Path) -> int:
    order.write(order_path(results, "some"))
    typed = [str(order_path(results, "some")), "--done", str(sitting_path(results, "some", 0))]
    return at_node.main(typed)


def test_a_block_is_measured_round_by_round(
    make_spec: MakeSpec, nodes: Nodes, tmp_path: Path
) -> None:
    specs = [make_spec(batch_size=size, round=k) for k in (0, 1) for size in (1, 2)]
    results = tmp_path / "results"
    code = code_of_this_machine()
    order = Order(results, nodes, code, trials=(tuple(specs[:2]), tuple(specs[2:])))
    assert done_by(order, results) == 0
    paths = [path_of(results, spec.trial_id, spec.round) for spec in specs]
    assert [read_record(path).status for path in paths] == ["ok"] * 4
    in_time = sorted(paths, key=lambda path: path.stat().st_mtime_ns)
    assert [read_record(path).trial.round for path in in_time] == [0, 0, 1, 1]
    named = json.loads(sitting_path(results, "some", 0).read_text())["records"]
    assert named == [str(path) for path in paths]
    assert not list(at_work(results))

    before = [path.read_bytes() for path in paths]
    paths[3].unlink()
    assert done_by(order, results) == 0, "as after a node's death"
    assert [path.read_bytes() for path in paths[:3]] == before[:3]
    assert paths[3].exists()


def test_another_machine_than_was_planned_for_is_a_status(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    spec = make_spec()
    nodes = Nodes("big", n_cpus=4096, memory_gib=0.5)
    results = tmp_path / "results"
    code = code_of_this_machine()
    assert done_by(Order(results, nodes, code, trials=((spec,),)), results) == 0
    path = path_of(results, spec.trial_id, 0)
    record = read_record(path)
    assert record.status == "other_machine"
    assert "is no big: it lets us use" in str(record.reason)
    assert not record.samples_s

    right = Nodes("small", n_cpus=len(usable_cpus()), memory_gib=0.5)
    assert done_by(Order(results, right, code, trials=((spec,),)), results) == 0
    assert read_record(path).status == "ok"
    assert done_by(Order(results, nodes, code, trials=((spec,),)), results) == 0
    assert read_record(path).status == "ok", "what is measured stays"


def test_other_code_measures_nothing(
    make_spec: MakeSpec, nodes: Nodes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spec = make_spec()
    results = tmp_path / "results"
    assert done_by(Order(results, nodes, "3.11.0-beef", trials=((spec,),)), results) == 1
    assert find_record(path_of(results, spec.trial_id, 0)) is None
    assert not sitting_path(results, "some", 0).exists()
    (line,) = capfd.readouterr().err.splitlines()
    assert "the head node runs another version of the code" in line


def test_a_count_is_done_as_ordered(nodes: Nodes, tmp_path: Path) -> None:
    results, out = tmp_path / "results", tmp_path / "results/counts/some.json"
    words = (
        *("model=tree_lstm", "dataset=sst_synthetic", "batch_size=2", "policy=agenda"),
        *("timing.min_seconds=0", f"records={results}/raw/counts", f"out={out}"),
    )
    order = Order(results, nodes, code_of_this_machine(), count=words, shares_machine=True)
    assert done_by(order, results) == 0
    (row,) = json.loads(out.read_text())
    assert row["policy"] == "agenda"
    assert not list(at_work(results))


@pytest.mark.parametrize(("counted", "code"), [(0, 0), (1, 1), (2, 2), (3, 0)])
def test_a_policy_that_fails_does_not_fail_the_job(
    counted: int, code: int, nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_node.subprocess, "call", lambda command: counted)
    order = Order(tmp_path, nodes, code_of_this_machine(), count=("policy=agenda",))
    assert done_by(order, tmp_path) == code
