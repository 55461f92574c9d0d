"""Ceilings are measured on any device."""

from __future__ import annotations

import json

import pytest

from scripts import gpu_device


def test_ceilings_of_a_device_without_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_device, "PRODUCTS", ((2, 3, 4),))
    found = gpu_device.measure_ceilings("cpu", copied_bytes=2**16)
    assert json.loads(json.dumps(found)) == found
    assert found["launch_us"] is found["barrier_us"] is None
    products = found["product_gflop_per_s"]
    assert isinstance(products, dict)
    assert list(products) == ["2x3x4"]
    assert products["2x3x4"] > 0
