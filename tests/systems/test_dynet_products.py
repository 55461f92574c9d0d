"""What the patch of DyNet's matrix products changes: which of them are one batch."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from harness.values.places import ROOT
from systems.on_dynet.build import NATIVE, PRODUCT_SIGNATURE, why_not_built

PROGRAM = ROOT / "tests" / "support" / "dynet_products.py"
REASON = why_not_built()
N = 6  # of the program: products by one parameter, and as many by computed matrices


@pytest.mark.dynet
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize(
    ("patches", "batches"),
    [
        pytest.param((), [N] + [1] * N, id="DyNet"),
        pytest.param((str(NATIVE / PRODUCT_SIGNATURE),), [N, N], id="patched"),
    ],
)
def test_products_of_computed_matrices(patches: tuple[str, ...], batches: list[int]) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *patches],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{NATIVE}:{ROOT}"},
    )
    assert done.returncode == 0, done.stderr
    sizes = re.findall(r"BatchSize:(\d+) a \* a\n", done.stdout + done.stderr)
    assert [int(size) for size in sizes] == batches
