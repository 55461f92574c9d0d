"""What the campaign's other classes do and how they judge: adapters, caches, determinism, disks."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.compiler.object_code import Loaded, compile_ir, host_target
from harness.contracts.system import Counters, Result, System
from harness.machine.kept import keep, kept
from scripts.campaign_parts import steps
from scripts.campaign_parts.case import Case
from scripts.campaign_parts.classes import adapters, caches, determinism, full_disks, kills
from scripts.campaign_parts.classes.determinism import GROWTH_BYTES
from scripts.campaign_parts.misbehaving import DOINGS, Adapter, do, wrong_result
from scripts.campaign_parts.place import Place

# Only of what learns or chooses, for a timeline, or of the class itself.
NOT_CALLED_HERE = {"learn", "choose", "run_in_parts", "listing", "options_of", "option_type"}
TWO_FUNCTIONS = """
declare i64 @labs(i64)
define internal i64 @add(i64 %x) noinline { %y = add i64 %x, %x ret i64 %y }
define i64 @double(i64 %x) { %y = call i64 @add(i64 %x) ret i64 %y }
define i64 @triple.python(i64 %x) { %y = call i64 @labs(i64 %x) ret i64 %y }
"""
STEPS: dict[str, Any] = {
    "n_steps": 3200,
    "losses": "a",
    "parameters": "b",
    "is_finite": True,
    "settled_bytes": 1000,
    "end_bytes": 1000,
}


@pytest.mark.parametrize(
    ("changes", "both", "verdict"),
    [
        ({}, {}, "ok"),
        ({"losses": "other"}, {}, "other"),
        ({"parameters": "other"}, {}, "other"),
        ({"n_steps": 3199}, {}, "other"),
        ({}, {"is_finite": False}, "other"),
        ({}, {"end_bytes": 1001 + GROWTH_BYTES}, "other"),
        ({"end_bytes": 1001 + GROWTH_BYTES}, {}, "ok"),  # of one run alone: by chance
        ({}, {"n_steps": 100}, "ok"),
    ],
)
def test_two_runs_of_one_seed(changes: dict[str, Any], both: dict[str, Any], verdict: str) -> None:
    first = {**STEPS, **both}
    assert determinism.judged(first, {**first, **changes}, 3200).verdict == verdict


@pytest.mark.slow
def test_steps_of_a_system_are_repeated(tmp_path: Path) -> None:
    with determinism.runner(tmp_path) as run:
        (tmp_path / "case").mkdir()
        case = Case("determinism", 0, 0, {"system": "reference", "n_steps": 20})
        outcome = run(case, tmp_path / "case")
    assert outcome.verdict == "ok", outcome.words


def test_a_system_that_runs_no_workload_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(steps, "WORKLOADS", ())
    assert steps.main(["reference", "20", "30"]) == 0
    assert json.loads(capsys.readouterr().out) == {"skipped": "no workload fits"}


def test_every_method_of_a_system_goes_wrong_once() -> None:
    given = {
        name
        for name in vars(System)
        if not name.startswith("_") and callable(getattr(System, name))
    }
    assert given - NOT_CALLED_HERE <= set(adapters.METHODS)
    assert all(name in vars(Adapter) for name in adapters.METHODS)
    raising = {one.at for one in adapters.FAULTS if one.fault == "raise:value"}
    assert raising == set(adapters.METHODS)
    kinds = {one.fault.partition(":")[0] for one in adapters.FAULTS}
    assert set(DOINGS) <= kinds


def test_a_right_result_is_made_wrong_in_each_way() -> None:
    right = Result(2.0, np.ones((2, 3)), {"W": np.ones(2)}, Counters())
    for fault in set(adapters.WRONG) - {"no_update"}:
        wrong = wrong_result(fault, right)
        same = wrong.loss == right.loss and np.array_equal(wrong.outputs, right.outputs)
        gradients = {name: list(value) for name, value in wrong.gradients.items()}
        assert not (same and gradients == {"W": [1.0, 1.0]}), fault
    assert wrong_result(None, right) is right
    do(None)
    do("wrong_loss")


@pytest.mark.parametrize(
    ("detail", "error"),
    [("memory", MemoryError), ("numpy", MemoryError), ("enomem", OSError), ("value", ValueError)],
)
def test_errors_that_an_adapter_raises(detail: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        do(f"raise:{detail}")


def adapter_case(fault: str, *statuses: str, at: str = "prepare") -> Case:
    does = {"fault": fault, "at": at, "statuses": list(statuses), "first": True}
    return Case("adapters", 0, 0, does)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "verdict"),
    [
        (adapter_case("raise:value", "crash"), "ok"),
        (adapter_case("wrong_loss", "wrong_result", at="result"), "ok"),
        (adapter_case("nothing", "wrong_result", at="result"), "accepted"),
        (adapter_case("exit:3", "oom"), "other"),
    ],
)
def test_a_trial_beside_a_good_one(tmp_path: Path, case: Case, verdict: str) -> None:
    (tmp_path / "case").mkdir()
    with adapters.runner(tmp_path) as run:
        outcome = run(case, tmp_path / "case")
    assert outcome.verdict == verdict, outcome.words


@pytest.fixture
def warm(tmp_path: Path) -> Path:
    """A cache with one entry of each kind."""
    for kind in caches.KINDS.values():
        name = kind.pattern.replace("*", "a")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"0123456789")
    return tmp_path


@pytest.mark.parametrize("kind", caches.KINDS)
@pytest.mark.parametrize("what", caches.DAMAGES)
def test_an_entry_of_each_kind_is_damaged(warm: Path, kind: str, what: str) -> None:
    before = {path: path.read_bytes() for path in warm.rglob("*") if path.is_file()}
    does = {"kind": kind, "damage": what, "pick": 0.5, "at": 0.5}
    assert caches.damage(Case("caches", 0, 0, does), warm) is None
    (entry,) = warm.glob(caches.KINDS[kind].pattern)
    is_shut = entry.exists() and not entry.stat().st_mode & 0o777
    assert is_shut or not entry.is_file() or entry.read_bytes() != before[entry]
    others = {path for path in before if path != entry}
    assert all(path.read_bytes() == before[path] for path in others)


def test_a_kind_that_is_not_there_is_told(tmp_path: Path) -> None:
    does = {"kind": "object_code", "damage": "emptied", "pick": 0.5, "at": 0.5}
    outcome = caches.damage(Case("caches", 0, 0, does), tmp_path)
    assert outcome is not None
    assert outcome.verdict == "other"


def test_what_is_poisoned_would_leave_its_mark(warm: Path) -> None:
    """Else nothing could be told from a mark that is missing."""
    (entry,) = warm.glob(caches.KINDS["object_code"].pattern)
    keep(entry, compile_ir(TWO_FUNCTIONS, host_target()))
    assert caches.poison(warm) == 1
    content = kept(entry)
    assert content is not None
    loaded = Loaded(content)
    for name in ("double", "triple.python"):
        assert not (warm / caches.MARKER).exists()
        ctypes.CFUNCTYPE(ctypes.c_int64)(loaded.address(name))()
        (warm / caches.MARKER).unlink()


def test_a_campaign_damages_every_kind_in_every_way() -> None:
    does = [caches.does(number, Case("caches", number, 0).rng) for number in range(caches.N_CASES)]
    pairs = {(one["kind"], one["damage"]) for one in does}
    assert len(pairs) == caches.N_CASES
    assert {"foreign", "no_cache"} <= {one["damage"] for one in does}


@pytest.mark.parametrize("kind", ["results_replaced", "results_dangling", "raw_replaced"])
def test_results_vanish(tmp_path: Path, kind: str) -> None:
    place = Place(tmp_path, tmp_path / "cache")
    record = place.results / "raw" / "a" / "r0.json"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"status": "ok"}))
    part = full_disks.place_of_vanishing(kind)(place)
    assert not record.exists()
    assert part.is_file() or part.is_symlink()


def test_kills_aim_at_every_moment_with_every_signal() -> None:
    does = [kills.does(number, Case("kills", number, 0).rng) for number in range(kills.N_CASES)]
    assert sum(one["command"] == "snakemake" for one in does) == 10
    pairs = {(one["signal"], one["moment"]) for one in does if one["command"] == "bench"}
    assert pairs == {(name, moment) for name in kills.SIGNALS for moment in kills.BENCH_MOMENTS}
    assert {one["signal"] for one in does if one["command"] == "snakemake"} == set(kills.SIGNALS)
