"""The bandwidth of copies: what is counted is what is copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.contracts.system import RunSettings
from harness.errors import ConfigError
from harness.measuring.clock import NullClock
from systems.copies import COPIED_BYTES, LEAST_BYTES, Adapter
from tests.support.engine_models import example


def settings(**changed: Any) -> RunSettings:
    values = {"mode": "train", "device": "cpu", "threads": 1, "batch_size": 1}
    return RunSettings(**(values | {"learning_rate": 0.1, "seed": 0} | changed))


@pytest.mark.parametrize("n_bytes", [LEAST_BYTES, 2**20, COPIED_BYTES])
def test_it_counts_what_it_reads_and_writes(n_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, instances, weights = example("tree_lstm")
    system = Adapter(settings(options={"n_bytes": n_bytes}))
    system.prepare(model, weights)
    copied: list[int] = []
    plain = np.copyto

    def copyto(target: Any, source: Any) -> None:
        copied.append(target.nbytes + source.nbytes)
        plain(target, source)

    monkeypatch.setattr(np, "copyto", copyto)
    system.load(instances)
    system.run(NullClock())
    counters = system.counters()
    assert (counters.bytes_touched, counters.n_launches) == (sum(copied), len(copied))
    assert sum(copied) >= 2 * COPIED_BYTES - 2 * n_bytes
    np.testing.assert_array_equal(system._target, system._source)


def test_it_says_what_it_is_not_for() -> None:
    model, _, _ = example("tree_lstm")
    assert "device=cpu" in str(Adapter.skip(model, settings(device="cuda")))
    assert "threads=1" in str(Adapter.skip(model, settings(threads=2)))
    with pytest.raises(ConfigError, match="n_bytes=8 is not allowed; give at least 4096"):
        Adapter(settings(options={"n_bytes": 8}))
