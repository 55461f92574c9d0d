"""Systems with injected faults, each together with a good trial that they must not affect."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import NamedTuple

import pytest

from dynbatch.harness.contracts.system import System
from dynbatch.harness.terminal.exit_handling import EXIT_TRIAL_FAILED
from tests.support.odd_system import DOINGS, WRONG, Adapter
from tests.support.sandbox import (
    ODD,
    Kept,
    assert_ended,
    assert_nothing_left,
    bench,
    campaign,
    sandbox,
)

MAX_LOG_BYTES = 2**20
METHODS = (
    *("__init__", "skip", "prepare", "compile_for", "n_compilations", "load", "run"),
    *("result", "parameters", "last_loss", "counters", "data_movement_fraction"),
    *("peak_memory_bytes", "reset_peak_memory", "synchronize", "effective_options", "versions"),
)
# The method of systems that learn, and class members.
NOT_CALLED_HERE = {"learn", "options_of", "option_type"}
SIGNALS = (
    *(int(getattr(signal, f"SIG{name}")) for name in ("TERM", "INT", "KILL", "SEGV", "ABRT")),
    *(int(signal.SIGRTMIN), int(signal.SIGRTMIN) + 5, int(signal.SIGRTMAX)),
)


class Fault(NamedTuple):
    """Fault, the method in which it occurs, and the statuses that are correct for it."""

    name: str
    at: str
    statuses: tuple[str, ...]


FAULTS = (
    *(Fault("raise:value", method, ("crash",)) for method in METHODS),
    *(
        Fault(f"raise:{what}", method, ("oom",))
        for what in ("memory", "enomem", "numpy")
        for method in ("__init__", "skip", "prepare", "run")
    ),
    *(Fault(f"raise:{what}", "prepare", ("crash",)) for what in ("unicode", "surrogate", "stop")),
    *(Fault(f"exit:{n}", "prepare", ("crash",)) for n in (0, 1, 2, 3, 64, 65, 130, 137)),
    *(Fault(f"sys_exit:{n}", "prepare", ("crash",)) for n in (0, 64, 65)),
    *(Fault(f"signal:{number}", "run", ("crash",)) for number in SIGNALS),
    *(Fault(f"flood:{stream}", "prepare", ("ok", "crash")) for stream in ("stdout", "stderr")),
    Fault("detach", "prepare", ("ok",)),
    *(Fault(name, "run", ("timeout",)) for name in ("loop", "wait", "stubborn")),
    Fault("hog", "prepare", ("oom",)),
    *(Fault(name, "result", ("wrong_result",)) for name in (*WRONG, "no_update")),
)
LIMITS = {  # by fault or method, to end a trial, or to have the method called
    **{name: "limits.time_s=5" for name in ("loop", "wait", "stubborn")},
    "hog": f"limits.memory_bytes={600 * 2**20}",
}


def assert_reported(fault: Fault, cache: Path, *, is_first: bool) -> None:
    """Fail unless a sweep of a fault and a good trial ends with the right records."""
    pair = [f'"{fault.name}"', "none"][:: 1 if is_first else -1]
    options = [f"+system.options.fault={','.join(pair)}", f"+system.options.at={fault.at}"]
    limits = [LIMITS[name] for name in (fault.name, fault.at) if name in LIMITS]
    with sandbox(cache) as box:
        file = f"+system.options.file={box.folder / 'pid'}"
        ended = box.run(bench(box, *ODD, *options, file, *limits, sweep=True))
        assert_ended(ended, (0, EXIT_TRIAL_FAILED))
        logs = [path for path in box.results.glob("logs/**/*.log") if path.is_file()]
        assert max((path.stat().st_size for path in logs), default=0) <= MAX_LOG_BYTES
        assert_nothing_left(box)
        expected = [sorted([status, "ok"]) for status in fault.statuses]
        assert Kept.of(box.results).statuses in expected, ended.stdout[-300:]


@campaign
@pytest.mark.parametrize("number", range(len(FAULTS)), ids=[f"{f.name}-{f.at}" for f in FAULTS])
def test_a_fault_next_to_a_valid_trial(cache: Path, number: int) -> None:
    assert_reported(FAULTS[number], cache, is_first=number % 2 == 0)


@pytest.mark.slow
def test_a_wrong_record_is_seen(cache: Path) -> None:
    assert_reported(Fault("wrong_loss", "result", ("wrong_result",)), cache, is_first=True)
    with pytest.raises(AssertionError):
        assert_reported(Fault("none", "result", ("wrong_result",)), cache, is_first=True)


def test_every_method_of_a_system_goes_wrong_once() -> None:
    methods = {
        name
        for name in vars(System)
        if not name.startswith("_") and callable(getattr(System, name))
    }
    assert methods - NOT_CALLED_HERE <= set(METHODS)
    assert all(hasattr(Adapter, name) for name in METHODS)
    others = {"abort", "say_and_exit", "bad_alloc", "flood_and_abort", "sleep", "lose_room"}
    assert set(DOINGS) - others <= {fault.name.partition(":")[0] for fault in FAULTS}
