"""What plans a mini-batch is compiled by a fork, while what lays it out is compiled here."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from harness.engine.switches import Switches
from harness.machine import forks
from harness.machine.machine_code import NotKeptError
from harness.policies import frontier
from harness.values.graph import Graph
from harness.values.schedule import Schedule
from systems.on_core import prepared as prepared_module
from systems.on_core.prepared import Prepared
from systems.on_core.vertex import Adapter
from tests.support.engine_models import example
from tests.support.engine_runs import prepared, run

MODEL, INSTANCES, WEIGHTS = example("tree_lstm")


class Policy:
    """Is compiled by its second call, and writes down who made it."""

    def __init__(self, folder: Path, *, is_kept: bool) -> None:
        self.folder, self.is_kept = folder, is_kept

    def __call__(self, graph: Graph) -> Schedule:
        if not self.is_kept:
            self.is_kept = True
            raise NotKeptError("policy")
        (self.folder / str(os.getpid())).touch()
        return frontier.schedule(graph)

    @property
    def called_by(self) -> list[int]:
        return [int(path.name) for path in self.folder.iterdir()]


@pytest.fixture
def laid_out(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches each schedule has that this process lays out."""
    found: list[int] = []
    monkeypatch.setattr(forks, "usable_cpus", lambda: (0, 1))
    return found


def compiled_by(policy: Policy, laid_out: list[int]) -> Adapter:
    adapter = prepared(MODEL, WEIGHTS, Switches())
    run(adapter, INSTANCES)  # so that nothing but the policy has anything to compile
    engine = adapter.engine
    lay_out = engine.lay_out

    def seen(mini_batch: object, schedule: Schedule) -> object:
        laid_out.append(schedule.n_batches)
        return lay_out(mini_batch, schedule)  # type: ignore[arg-type]

    engine.lay_out = seen  # type: ignore[assignment,method-assign]
    adapter.policy = policy
    adapter._prepared.compile_in_two(INSTANCES, policy)
    return adapter


def test_a_policy_that_is_not_kept_is_compiled_by_a_fork(
    laid_out: list[int], tmp_path: Path
) -> None:
    policy = Policy(tmp_path, is_kept=False)
    adapter = compiled_by(policy, laid_out)
    assert len(policy.called_by) == 1
    assert policy.called_by != [os.getpid()]
    n_vertices = adapter.model.mini_batch(INSTANCES).graph.n_vertices
    assert laid_out == [n_vertices], "by the schedule that takes no compiler"


def test_nothing_is_started_for_what_is_kept(
    laid_out: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "_fork", lambda *_: pytest.fail("a fork was started"))
    policy = Policy(tmp_path, is_kept=True)
    compiled_by(policy, laid_out)
    assert policy.called_by == [os.getpid()]
    assert len(laid_out) == 1


def test_nothing_is_started_where_nothing_can_be_kept(
    laid_out: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "_fork", lambda *_: pytest.fail("a fork was started"))
    monkeypatch.setattr(prepared_module, "cache_folder", lambda _: None)
    compiled_by(Policy(tmp_path, is_kept=False), laid_out)
    assert laid_out == []


@pytest.mark.parametrize(("device", "n"), [("cpu", 1), ("cuda", 0)])
def test_only_what_is_on_a_cpu_is_compiled_in_two(
    monkeypatch: pytest.MonkeyPatch, device: str, n: int
) -> None:
    asked: list[object] = []
    adapter = prepared(MODEL, WEIGHTS, Switches())
    adapter.settings = replace(adapter.settings, device=device)
    monkeypatch.setattr(Prepared, "compile_in_two", lambda *given: asked.append(given))
    adapter.compile_for(INSTANCES)
    assert len(asked) == n


def test_one_cpu_compiles_as_it_runs(
    laid_out: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "usable_cpus", lambda: (0,))
    policy = Policy(tmp_path, is_kept=False)
    compiled_by(policy, laid_out)
    assert (policy.called_by, laid_out) == ([], [])
