"""A framework that is missing or too old: one line that names the extra to install."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import numpy as np
import pytest

from harness.contracts import extras
from harness.contracts.extras import how_to_install, requirements, why_too_old
from harness.contracts.system import load_adapter
from harness.errors import UnsupportedTrial
from tests.support import fake_systems


def test_a_framework_with_an_extra_says_its_name() -> None:
    assert "[tensorflow]" in how_to_install("tensorflow")
    assert "[" not in how_to_install("a_module_that_no_extra_has")


def test_a_version_below_that_of_the_extra_is_too_old() -> None:
    assert why_too_old("torch", "2.13.0+cpu") is None
    reason = why_too_old("torch", "1.13")
    assert reason is not None
    assert reason.startswith("torch 1.13 does not fit, >=")
    assert "[torch]" in reason
    assert why_too_old("a_module_that_no_extra_has", "0") is None


def test_an_adapter_on_an_old_framework_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_systems.Adapter, "framework", "numpy")
    needed = {"numpy": requirements()["torch"]}
    monkeypatch.setattr(extras, "requirements", lambda: needed)
    monkeypatch.setattr(np, "__version__", "1.0")
    with pytest.raises(UnsupportedTrial, match=r"^numpy 1\.0 does not fit.*\[numpy\]"):
        load_adapter("tests.support.fake_systems")
    monkeypatch.setattr(np, "__version__", "99.0")
    assert load_adapter("tests.support.fake_systems") is fake_systems.Adapter


def test_an_installed_benchmark_knows_its_extras_as_a_checkout_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    try:
        importlib.metadata.requires(extras.PROJECT)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the benchmark is not installed, only on the path")
    in_checkout = requirements()
    monkeypatch.setattr(extras, "ROOT", tmp_path)
    installed = requirements()
    assert set(installed) == set(in_checkout)
    names = {name: {one.name for one in found} for name, found in installed.items()}
    assert names == {name: {one.name for one in found} for name, found in in_checkout.items()}
