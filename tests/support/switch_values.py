"""Switches of the compiled backend, with all their values."""

from __future__ import annotations

from typing import Any

from dynbatch.harness.engine.switches import LAYOUTS

BOTH = (True, False)
# Libraries and precision have their own tests (test_products.py). Switch `profile`
# only adds counters (test_programs.py).
SWITCHES: dict[str, tuple[Any, ...]] = {
    "layout": LAYOUTS,
    "granularity": ("vertex", "operator"),
    "lazy_batching": BOTH,
    "hoisting": BOTH,
    "fusion": BOTH,
    "gather_fusion": BOTH,
    "pre_gather_parameters": BOTH,
    "deduplicate_inputs": BOTH,
    "fold_tables": BOTH,
    "share_products": BOTH,
    "outputs": ("stage", "vertices"),
    "loop": ("compiled", "python"),
}
