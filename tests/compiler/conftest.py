"""Fixtures for tests of the compiler."""

from __future__ import annotations

import pytest

from dynbatch.harness.compiler.compiled import has_compiled, load_module


@pytest.fixture(autouse=True, scope="module")
def _is_compiled(request: pytest.FixtureRequest) -> None:
    """Compile a test module's functions before its first test, so that no test waits for it."""
    name = request.module.__name__
    if has_compiled(name):
        load_module(name)
