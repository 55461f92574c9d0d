"""One launch a pass: programs that meet behind each phase, in whatever order they go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import harness.engine.engine
from harness.engine.backend import choose_backend
from harness.engine.backends.cuda.backend import Backend
from harness.engine.backends.cuda.launching import Processor, persistent_grid
from harness.engine.switches import Switches
from harness.errors import UnsupportedTrial
from harness.oracle import run_reference
from tests.support.engine_models import EXAMPLES
from tests.support.engine_setting import Setting
from tests.support.persistent_programs import ORDERS, Choose, PersistentBackend

ON = Switches(persistent=True)
H200 = Processor(n_registers=65536, shared_bytes=228 * 1024, n_threads=2048)


@pytest.fixture
def persistent(monkeypatch: pytest.MonkeyPatch) -> type[PersistentBackend]:
    """A backend of this test alone."""

    class Mine(PersistentBackend):
        pass

    monkeypatch.setattr(harness.engine.engine, "choose_backend", lambda *_: Mine)
    return Mine


def is_right(name: str) -> bool:
    """Whether loss, gradients and an update are the oracle's, and no rule is broken."""
    setting = Setting(name, ON)
    try:
        loss = setting.train(setting.instances)
        found = setting.backend.gradients()
        setting.engine.update(0.1)
    except (AssertionError, IndexError):
        return False
    oracle = run_reference(EXAMPLES[name][0], setting.weights, setting.instances, "train")
    pairs = [(loss, oracle.loss), *((found[k], g) for k, g in oracle.gradients.items())]
    weights = setting.backend.weights()
    pairs += [(weights[k], setting.weights[k] - 0.1 * g) for k, g in oracle.gradients.items()]
    return all(np.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in pairs)


@pytest.mark.parametrize("n_programs", [1, 3])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["tree_lstm", "child_sum", "lattice_gru"])
def test_any_order_of_programs_is_right(
    persistent: type[PersistentBackend], name: str, order: str, n_programs: int
) -> None:
    persistent.choose, persistent.n_programs = staticmethod(ORDERS[order]), n_programs
    assert is_right(name)


def replaced(old: str, new: str) -> Callable[[str], str]:
    """A change of a kernel's text."""

    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return change


@pytest.mark.parametrize(
    "change",
    [
        replaced("        meet(barrier, (phase + 1) * n_programs)", ""),
        replaced("(phase + 1) * n_programs", "phase * n_programs"),
        replaced("(phase + 1) * n_programs", "(phase + 1) * n_programs - 1"),
        replaced("(phase + 1) * n_programs", "(phase + 1) * n_programs + 1"),
        replaced("tl.atomic_add(barrier, 1,", "tl.atomic_add(barrier, 0,"),
        replaced("range(mine, n_tiles, n_programs)", "range(mine + 1, n_tiles, n_programs)"),
        replaced("range(mine, n_tiles, n_programs)", "range(mine, n_tiles - 1, n_programs)"),
    ],
    ids=["no barrier", "one late", "one less", "one more", "never adds", "tile", "last tile"],
)
def test_a_wrong_barrier_or_walk_is_found(
    persistent: type[PersistentBackend], change: Callable[[str], str]
) -> None:
    persistent.change = staticmethod(change)

    def found(choose: Choose) -> bool:
        persistent.choose = staticmethod(choose)
        return not is_right("tree_lstm")

    assert any(found(choose) for choose in ORDERS.values())


def test_a_grid_is_no_larger_than_what_is_resident() -> None:
    assert H200.n_resident(255, 57 * 1024) == 2  # 256 registers of 128 threads: half of them
    assert H200.n_resident(128, 1024) == 4
    assert H200.n_resident(32, 100 * 1024) == 2
    assert H200.n_resident(16, 0) == 16  # by threads
    assert persistent_grid(264, 132, 2) == 264
    assert persistent_grid(264, 132, 1) == 132
    with pytest.raises(UnsupportedTrial, match="use persistent=false"):
        persistent_grid(264, 132, H200.n_resident(255, 240 * 1024))


def test_a_pass_is_one_launch_of_each_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr(harness.engine.engine, "choose_backend", lambda *_: Backend)
    setting = Setting("tree_lstm", ON)
    backend = setting.backend
    assert isinstance(backend, Backend)
    assert backend.facts()["calls"] == "one launch a pass"
    monkeypatch.setattr(backend._launcher, "start", lambda name, work: started.append(work))
    monkeypatch.setattr(backend, "_loss", lambda: 0.0)
    setting.train(setting.instances)
    setting.engine.update(0.1)
    assert [len(work) for work in started] == [1, 2]
    assert backend.tally.n_launches == 3


@pytest.mark.parametrize("name", ["tree_lstm", "child_sum"])
def test_one_program_in_tritons_interpreter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them it cannot run: they come one after the other, and would wait for ever."""
    if (reason := Backend.why_not(ON, "cpu")) is not None:
        pytest.skip(reason)
    monkeypatch.setattr(harness.engine.engine, "choose_backend", lambda *_: Backend)
    with np.errstate(all="ignore"):
        assert is_right(name)


@pytest.mark.parametrize("backend", ["compiled", "stepwise"])
def test_backends_that_cannot_say_so(backend: str) -> None:
    with pytest.raises(UnsupportedTrial, match=r"persistent=true is for backend=cuda; leave it"):
        choose_backend(Switches(backend=backend, persistent=True), "cpu")
