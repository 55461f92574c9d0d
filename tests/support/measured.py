"""A trial measured by the worker in this process, or by a block."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from dynbatch.harness.errors import BenchError
from dynbatch.harness.measuring.block import BlockEntry, measure_block
from dynbatch.harness.measuring.cycles import Progress, is_marked, list_unsettled
from dynbatch.harness.measuring.processes import launch
from dynbatch.harness.measuring.processes.fork_server import ForkServers
from dynbatch.harness.measuring.turns import LAST, MARKED, WHOLE, Command, PassReport, Turns
from dynbatch.harness.measuring.worker import write_measured
from dynbatch.harness.records.record import Record, read_record
from dynbatch.harness.trials.spec import Timing, TrialSpec


class OwnTurns(Turns):
    """Turns of a block of one system, without a parent."""

    def __init__(self, timing: Timing) -> None:
        super().__init__(-1)
        self.progress = Progress(timing)
        self.cycle = -1

    def wait(self) -> Command:
        self.cycle += 1
        if not list_unsettled({0: self.progress}):
            return Command(LAST, self.cycle)
        return Command(MARKED if is_marked(self.cycle) else WHOLE, self.cycle)

    def report(self, done: PassReport) -> None:
        self.progress.add(self.cycle, done)

    def finish(self) -> None:
        """End at once."""


def measure(spec: TrialSpec, folder: Path) -> Record:
    """Run the worker's main function in this process."""
    return measure_at(spec, folder / "r0.json")


def measure_at(spec: TrialSpec, path: Path) -> Record:
    """Run the worker, with its record at a given path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    spec_path = path.with_name("spec.json")
    spec_path.write_text(json.dumps(spec.to_dict()))
    assert write_measured(spec_path, path, "here", OwnTurns(spec.timing)) == 0
    return read_record(path)


@contextmanager
def share_servers() -> Iterator[None]:
    """Let commands and `measure_alone` share fork servers, also servers of different tests."""
    build = launch.build_worker_environment

    def build_shared(spec: TrialSpec) -> dict[str, str]:
        return {k: v for k, v in build(spec).items() if k != "PYTEST_CURRENT_TEST"}

    users = ("harness.api", "harness.commands.bench", "harness.commands.measure")
    with ForkServers() as servers, pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "build_worker_environment", build_shared)
        for module in (*(f"dynbatch.{user}" for user in users), __name__):
            patch.setattr(f"{module}.ForkServers", lambda: nullcontext(servers))
        yield


def measure_alone(
    spec: TrialSpec, path: Path, log: Path, servers: ForkServers | None = None
) -> Record:
    """Measure a round as a block of its own; raise the error with which it was refused."""
    with nullcontext(servers) if servers else ForkServers() as chosen:
        (outcome,) = measure_block([BlockEntry(spec, path, log)], chosen)
    if isinstance(outcome, BenchError):
        raise outcome
    return outcome


MakeSpec = Callable[..., TrialSpec]


def spec_of(make_spec: MakeSpec, kind: str, of: str = "W", **changes: Any) -> TrialSpec:
    """Return a trial of a system of tests.support.saboteurs."""
    options = {"sabotage": kind, "of": of, "precision": changes.pop("precision", "ieee")}
    return make_spec(
        system=kind,
        adapter="tests.support.saboteurs",
        system_options=options,
        model="tree_lstm",
        batch_size=6,
        dataset_options={"n_leaves": 4, "n_instances": 24, "seed": 0},
        timing=Timing(min_seconds=0.0, n_mini_batches=2, min_passes=2, max_warmup=2),
        **changes,
    )
