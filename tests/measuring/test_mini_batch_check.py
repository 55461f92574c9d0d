"""Comparison of whole mini-batches with their parts, and their fingerprints; readers of clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from dynbatch.harness.contracts.model import Model, ModelSizes
from dynbatch.harness.contracts.system import Counters, Result, RunSettings
from dynbatch.harness.measuring.checks import mini_batch_check
from dynbatch.harness.measuring.checks.mini_batch_check import (
    compute_fingerprint,
    find_clock_fault,
    find_clock_reads,
    find_not_finite,
    find_parts_fault,
    find_whole_step_fault,
    hash_workload,
    is_kinked,
    prove,
)
from dynbatch.harness.measuring.checks.reference import Reference
from dynbatch.harness.measuring.checks.reference_check import run_once
from dynbatch.harness.models.tree_fc import TreeFC
from dynbatch.harness.models.tree_lstm import TreeLSTM
from dynbatch.harness.records.fingerprint import (
    KINK_TOLERANCE,
    TOLERANCE,
    Fingerprint,
    find_difference,
    sketch_result,
)
from dynbatch.harness.trials.spec import Timing, TrialSpec
from dynbatch.harness.trials.workload import Workload, build_run_settings, load_workload
from dynbatch.harness.values.paths import ROOT
from tests.support import saboteurs
from tests.support.instances import draw_trees
from tests.support.measured import MakeSpec

Patch = pytest.MonkeyPatch


@pytest.fixture
def spec(make_spec: MakeSpec) -> TrialSpec:
    options = {"n_leaves": 2, "n_instances": 64, "seed": 0}
    timing = Timing(min_seconds=0.0, n_mini_batches=3)
    return make_spec(batch_size=16, dataset_options=options, timing=timing, learning_rate=0.1)


@pytest.fixture
def workload(spec: TrialSpec) -> Workload:
    return load_workload(spec)


def prepared(kind: str, spec: TrialSpec, workload: Workload, of: str = "W") -> saboteurs.Honest:
    settings: RunSettings = build_run_settings(replace(spec, system_options={"of": of}))
    system: saboteurs.Honest = getattr(saboteurs, kind)(settings)
    system.prepare(workload.model, workload.weights)
    return system


def find_fault(system: Any, instances: Sequence[Any], n_at_once: int, **facts: Any) -> str | None:
    """Compare the sketches of a mini-batch with those of its parts.

    Args:
        facts: Further fields of the fingerprint.
    """
    result = run_once(system, instances, update=False).result()
    sketches = {name: (sketch,) for name, sketch in sketch_result(result).items()}
    whole = Fingerprint(workload="w", losses=(result.loss,), sketches=sketches, **facts)
    return find_parts_fault(system, instances, n_at_once, whole)


@pytest.mark.parametrize("n", [1, 2, 4, 5, 16])
def test_parts_add_up(spec: TrialSpec, workload: Workload, n: int) -> None:
    system = prepared("Honest", spec, workload)
    assert find_fault(system, workload.mini_batches[0][:n], 1) is None
    assert find_fault(system, workload.mini_batches[0][:n], 4) is None


@pytest.mark.parametrize("n_from", [2, 3, 4, 5, 8, 16])
def test_a_fault_shows_whatever_size_it_depends_on(
    spec: TrialSpec, workload: Workload, n_from: int
) -> None:
    system: Any = prepared("WrongForMany", spec, workload, of="b")
    system.is_wrong = lambda instances: len(instances) >= n_from
    fault = find_fault(system, workload.mini_batches[0], 1)
    assert str(fault).startswith("gradient of b of ")


def test_whole_mini_batches_and_parts_run_once(
    spec: TrialSpec, workload: Workload, monkeypatch: Patch
) -> None:
    """In inference, no other check runs instances."""
    spec = replace(spec, mode="infer", adapter=saboteurs.__name__)
    system: Any = prepared("Honest", spec, workload)
    load = Mock(wraps=system.load)
    monkeypatch.setattr(system, "load", load)
    reference = Reference(spec, workload)
    assert prove(system, spec, workload, reference)[0].status == "ok"
    first, n = workload.mini_batches[0], len(reference.instances)
    assert n == 4
    parts = [first[k : k + 8] for k in (0, 8)], [first[k : k + 4] for k in (0, 4)]
    expected = [reference.instances, *workload.mini_batches, *parts[0], *parts[1]]
    assert [call.args[0] for call in load.call_args_list] == expected


def test_a_step_of_many_is_looked_at(spec: TrialSpec, workload: Workload) -> None:
    rate = build_run_settings(spec).learning_rate
    assert find_whole_step_fault(prepared("Honest", spec, workload), workload, rate) is None
    fault = find_whole_step_fault(prepared("SkipsAnUpdate", spec, workload), workload, rate)
    assert str(fault).startswith("with 16 instances, one step changes W ")


def test_fingerprint_identifies_incorrect_mini_batch(spec: TrialSpec, workload: Workload) -> None:
    honest = compute_fingerprint(prepared("Honest", spec, workload), workload, "w")
    assert len(honest.losses) == 3
    arrays = {"outputs", *(f"gradient of {name}" for name in workload.weights)}
    assert {name: len(found) for name, found in honest.sketches.items()} == dict.fromkeys(arrays, 3)
    assert find_not_finite(honest) is None
    for name in workload.weights:
        system = prepared("WrongForTheSecond", spec, workload, of=name)
        wrong = compute_fingerprint(system, workload, "w")
        found = find_difference(wrong, honest)
        assert (found.what, found.mini_batch) == (f"gradient of {name}", 1)


def test_large_results_are_kept_of_the_first_mini_batches(
    spec: TrialSpec, workload: Workload, monkeypatch: Patch
) -> None:
    system = prepared("Honest", spec, workload)
    result = compute_fingerprint(system, workload, "w") and system.result()
    n_each = result.outputs.size + sum(g.size for g in result.gradients.values())
    for most, n_kept in ((0, 1), (2 * n_each - 1, 1), (2 * n_each, 2), (9 * n_each, 3)):
        monkeypatch.setattr(mini_batch_check, "MAX_NUMBERS", most)
        found = compute_fingerprint(system, workload, "w")
        assert {len(sketches) for sketches in found.sketches.values()} == {n_kept}
        assert len(found.losses) == 3


def test_non_finite_value_is_identified(spec: TrialSpec, workload: Workload) -> None:
    found = compute_fingerprint(prepared("Honest", spec, workload), workload, "w")
    sketches = {**found.sketches, "outputs": ((1.0, 0.0, np.inf),)}
    lost = found.model_copy(update={"losses": (1.0, np.nan, 2.0)})
    assert find_not_finite(lost) == ("the loss of mini-batch 1 is nan", 1)
    wild = found.model_copy(update={"sketches": sketches})
    assert find_not_finite(wild) == ("outputs of mini-batch 0 is not finite", 0)


def test_a_workload_is_inputs_weights_mode_and_step(spec: TrialSpec, workload: Workload) -> None:
    names = {
        hash_workload(workload, "train", 0.1),
        hash_workload(workload, "infer", 0.1),
        hash_workload(workload, "train", 0.2),
        *(
            hash_workload(load_workload(replace(spec, **change)), "train", 0.1)
            for change in ({"seed": 1}, {"batch_size": 8}, {"hidden_size": 9})
        ),
    }
    assert len(names) == 6
    assert hash_workload(load_workload(spec), "train", 0.1) in names


SIZES = ModelSizes(8, {"words": 16, "classes": 2})


@pytest.mark.parametrize(
    ("model", "n_inputs"),
    [
        (TreeFC(SIZES, variant="fold"), 3 * 4 * 8),  # inner vertices only
        (TreeFC(SIZES, variant="cavs"), 3 * 9 * 8),  # inner vertices and leaves
        (TreeLSTM(SIZES), 0),
    ],
)
def test_inputs_of_relus_are_counted(model: Model, n_inputs: int, monkeypatch: Patch) -> None:
    instances = draw_trees(SIZES, [5, 5, 5])
    assert not is_kinked(model, instances)
    monkeypatch.setattr(mini_batch_check, "N_INPUTS", n_inputs)
    assert is_kinked(model, instances) == (n_inputs > 0)
    monkeypatch.setattr(mini_batch_check, "N_INPUTS", n_inputs + 1)
    assert not is_kinked(model, instances)


def off_by(part: float, name: str, *, kinked: bool, n_vertices: int = 0) -> Fingerprint:
    sketches = {name: ((1.0, part),)}
    return Fingerprint(
        workload="w", losses=(1.0,), sketches=sketches, kinked=kinked, n_vertices=n_vertices
    )


@pytest.mark.parametrize(
    ("name", "kinked", "n_vertices", "part", "differs"),
    [
        ("gradient of W", True, 0, 0.9 * KINK_TOLERANCE, False),
        ("gradient of W", True, 0, 1.1 * KINK_TOLERANCE, True),
        ("gradient of W", False, 0, 2 * TOLERANCE, True),
        ("gradient of W", False, 2**11, 2 * TOLERANCE, True),
        ("gradient of W", False, 2**14, 2 * TOLERANCE, False),
        ("gradient of W", False, 2**14, 3 * TOLERANCE, True),
        ("outputs", True, 2**14, 2 * TOLERANCE, True),
    ],
)
def test_larger_rounding_is_tolerated_only_for_gradients_of_relus_or_many_vertices(
    name: str, kinked: bool, n_vertices: int, part: float, differs: bool
) -> None:
    pair = (
        off_by(part, name, kinked=kinked, n_vertices=n_vertices),
        off_by(0.0, name, kinked=False),
    )
    assert (find_difference(*pair) is not None) == differs
    assert (find_difference(*pair[::-1]) is not None) == differs


class SumsRowByRow:
    """Stub whose only gradient is that of an output layer's bias; predictions are uniform."""

    def __init__(self, n_words: int, n_rows_each: int, *, omits_last: bool = False) -> None:
        self.n_words, self.n_rows_each, self.omits_last = n_words, n_rows_each, omits_last

    def synchronize(self) -> None:
        """Nothing is pending."""

    def load(self, instances: Sequence[int]) -> None:
        self.instances = instances

    def run(self, clock: object, *, update: bool) -> None:
        rows = [first * self.n_rows_each + k for first in self.instances
                for k in range(self.n_rows_each)]  # fmt: skip
        probability = np.full(self.n_words, 1 / self.n_words, np.float32)
        self.gradient = np.zeros(self.n_words, np.float32)
        for row in rows[: -self.n_rows_each] if self.omits_last and len(rows) > 1024 else rows:
            self.gradient += probability  # in float32, one by one
            self.gradient[row % 16] -= 1  # frequent words

    def result(self) -> Result:
        outputs = np.zeros((len(self.instances), 1), np.float32)
        return Result(0.0, outputs, {"b_out": self.gradient}, Counters())


def test_rounding_of_sums_over_many_vertices_is_no_fault() -> None:
    n_rows_each, n_instances = 64, 256
    instances, n_vertices = range(n_instances), n_rows_each * n_instances
    honest, wrong = (SumsRowByRow(10_000, n_rows_each, omits_last=omits) for omits in (False, True))
    given = {"n_at_once": 32, "n_vertices": n_vertices}
    assert find_fault(honest, instances, **given) is None
    assert "b_out of 256 instances" in str(find_fault(honest, instances, 32))
    assert "b_out of 256 instances" in str(find_fault(wrong, instances, **given))


@pytest.mark.parametrize("kind", ["SumsHalfAGradientOfMany", "TakesOneVertexOfManyForAnother"])
def test_a_fault_is_more_than_rounding(kind: str, make_spec: MakeSpec) -> None:
    options = {"n_leaves": 4, "n_instances": 32, "seed": 0}
    spec = make_spec(batch_size=16, dataset_options=options)
    workload = load_workload(spec)
    honest, wrong = (
        compute_fingerprint(prepared(one, spec, workload), workload, "w")
        for one in ("Honest", kind)
    )
    assert find_difference(wrong, honest.model_copy(update={"kinked": True}))
    faults = [
        find_fault(prepared(one, spec, workload), workload.mini_batches[0], 4, kinked=True)
        for one in ("Honest", kind)
    ]
    assert faults[0] is None
    assert faults[1] is not None


# Files besides the harness's clock that read the time, without measuring what a table shows.
ALLOWED = {
    "datasets/parts/fetch.py": "a server that sends too slowly",
    "harness/commands/compile_ahead.py": "how long compiling ahead took, which is printed",
    "harness/compiler/pointers.py": "ticks, where compiled functions run as plain Python",
    "harness/counts/sequential.py": "the time limit of a count",
    "harness/engine/cpu_kernels/team.py": "sleeps while threads end",
    "harness/machine/folders.py": "how old a folder is that another process left",
    "harness/machine/noise.py": "how much others run, from outside what is timed",
    "harness/measuring/block.py": "how long a worker without a socket may still run",
    "harness/measuring/processes/fork_server.py": "limits of imports, and changes of files",
    "harness/measuring/processes/process_tree.py": "how long killed processes are waited for",
    "harness/measuring/processes/supervise.py": "limits of a worker",
    "harness/records/record.py": "when a trial was measured, for people",
    "harness/planning/durations.py": "times of day in records, of which durations are made",
    "harness/commands/measure.py": "how long a run of the pipeline still takes",
    "harness/terminal/exit_handling.py": "whether a signal that comes twice is meant twice",
    "harness/terminal/status.py": "since when a node is at work, for people",
    "harness/planning/slurm.py": "how long a scheduler's answer is waited for",
    "harness/planning/locks.py": "how long another run is waited for",
    "harness/planning/pending.py": "when a run of the pipeline began, and until when",
}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time", ["time"]),
        ("import os, time as t", ["time"]),
        ("def f():\n    from time import perf_counter", ["time.perf_counter"]),
        ("from timeit import default_timer", ["timeit.default_timer"]),
        ("event = torch.cuda.Event(enable_timing=True)", ["enable_timing"]),
        ("seconds = begin.elapsed_time(end)", ["elapsed_time"]),
        ("from dynbatch.harness.trials.spec import Timing", []),
        ("import datetime as d", ["datetime"]),
        ("from resource import getrusage", ["resource.getrusage"]),
        ("import resource\nresource.setrlimit(*limit)", []),
        ("import resource\nresource.getrusage(0)", ["resource.getrusage"]),
        ("from asyncio import get_running_loop", ["asyncio.get_running_loop"]),
        ("import os as system\nseconds = system.times().user", ["os.times"]),
        ("from os import times", ["os.times"]),
        ("from time import *", ["time.*"]),
        ("from torch.utils import benchmark", ["torch.utils.benchmark"]),
        ("import torch.utils.benchmark as b", ["torch.utils.benchmark"]),
        ("import torch\nt = torch.utils.benchmark.Timer(f)", ["torch.utils.benchmark.Timer"]),
        ("from torch import profiler as p\nwith p.profile(): f()", ["torch.profiler.profile"]),
        ("from torch.profiler import record_function", []),
        ("event = torch.cuda.Event()\nevent.record()", []),  # without elapsed_time, no clock
        ("import tensorflow as tf\nnow = tf.timestamp()", ["tensorflow.timestamp"]),
        ("import cupy\nms = cupy.cuda.get_elapsed_time(a, b)", ["cupy.cuda.get_elapsed_time"]),
        ("from triton.testing import do_bench", ["triton.testing.do_bench"]),
        ("import pandas as pd\nnow = pd.Timestamp.now()", ["pandas.Timestamp"]),
        (
            "from dynbatch.harness.measuring.clock import time_call",
            ["dynbatch.harness.measuring.clock.time_call"],
        ),
        ("def f(time, timing):\n    return time.seconds + timing.time", []),
        ("from psutil import cpu_times", ["psutil.cpu_times"]),
        ('now = np.datetime64("now")', ["datetime64"]),
        ("from time import sleep", []),
        ("import timer\nfrom .time import x\ntiming.min_seconds", []),
    ],
)
def test_clock_reads_are_found_in_every_syntax(source: str, found: list[str]) -> None:
    assert list(find_clock_reads(source))[:1] == found


@pytest.mark.parametrize(
    "content",
    [b"\xef\xbb\xbfimport time\n", b"# coding: latin-1\nNAME = '\xe4'\nimport time\n"],
    ids=["byte order mark", "declared encoding"],
)
def test_source_files_of_any_encoding_are_searched(
    content: bytes, tmp_path: Path, monkeypatch: Patch
) -> None:
    (tmp_path / "odd_module.py").write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path)
    assert str(find_clock_fault("odd_module")).startswith("odd_module reads a clock (time)")


def test_only_allowed_modules_read_the_clock() -> None:
    folders = ("harness", "systems", "datasets")
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    readers = {
        path.relative_to(ROOT).as_posix()
        for path in paths
        for name in find_clock_reads(path.read_text(encoding="utf-8"))
        if not name.startswith("dynbatch.")  # the harness uses its own clock
    }
    assert readers == {"harness/measuring/clock.py", *ALLOWED}
