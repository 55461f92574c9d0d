"""What an adapter tells of itself, of the wrong kind: one line that names the method."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.trials.spec import TrialSpec
from tests.support import fake_systems
from tests.support.measured import measure

MakeSpec = Callable[..., TrialSpec]


@pytest.mark.parametrize(
    ("method", "returned", "words"),
    [
        ("in_force", {"threads": 3}, "{'threads': 3}; it may return a dict of texts by name"),
        ("in_force", None, "None; it may return a dict of texts by name"),
        ("in_force", {"a": ["c" * 5000]}, "it may return a dict of texts by name"),
        ("versions", {"torch": None}, "{'torch': None}; it may return a dict of texts by name"),
        ("n_compilations", 2.5, "2.5; it may return a whole number of at least 0, or None"),
        ("n_compilations", True, "True; it may return a whole number of at least 0, or None"),
        ("peak_memory_bytes", float("nan"), "nan; it may return a whole number of at least 0, or"),
        ("peak_memory_bytes", -5, "-5; it may return a whole number of at least 0, or None"),
        ("moving_share", "half", "'half'; it may return a number from 0 to 1, or None"),
        ("moving_share", float("nan"), "nan; it may return a number from 0 to 1, or None"),
    ],
)
def test_what_an_adapter_may_not_tell_is_named(
    make_spec: MakeSpec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    returned: object,
    words: str,
) -> None:
    monkeypatch.setattr(fake_systems.Adapter, method, lambda self: returned)
    with pytest.raises(TypeError) as fault:
        measure(make_spec(), tmp_path)
    line = str(fault.value)
    assert line.startswith(f"tests.support.fake_systems: {method}() returned ")
    assert words in line
    assert "\n" not in line
    assert len(line) < 300


def test_numbers_of_numpy_are_numbers(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_systems.Adapter, "n_compilations", lambda self: np.int64(3))
    monkeypatch.setattr(fake_systems.Adapter, "peak_memory_bytes", lambda self: np.int64(7))
    monkeypatch.setattr(fake_systems.Adapter, "moving_share", lambda self: np.float32(0.5))
    record = measure(make_spec(), tmp_path)
    assert (record.n_compilations, record.peak_memory_bytes) == (3, 7)
    assert record.moving_share == 0.5
