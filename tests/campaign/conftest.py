"""Cache for each test module, and the records of an undisturbed sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sandbox import Kept, assert_ended, logged_sweep, sandbox


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def sweep_records(cache: Path) -> list[str]:
    with sandbox(cache) as box:
        assert_ended(box.run(logged_sweep(box)), (0,))
        return list(Kept.of(box.results).complete)
