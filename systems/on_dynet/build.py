"""Which build of DyNet there is, how it is started, and what both of its interfaces share."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from harness.contracts.model import Weights
from harness.values.places import ROOT

AUTOBATCH = {"off": 0, "agenda": 1, "depth": 2}  # as DyNet counts its modes
NATIVE = ROOT / ".dynet-native"
WHEEL = "dyNET38"
POOL_MB = 16  # the unit in which DyNet's memory pools grow
# DyNet's memory is zeroed, and so made resident, when reserved: a generous reserve would be charged
# to its peak memory. It starts small instead. The pools grow by themselves, but autobatching cannot
# finish the backward pass in which one does, and says this; the next graph finds them large enough.
# So the mini-batch is run again, which happens in the warm-up only.
OUTGROWN = "dynamic increasing of memory pool"


def source_build(build: str = "auto") -> Path | None:
    """Return the folder of the source build where it is there and "wheel" is not asked for."""
    return NATIVE if build != "wheel" and (NATIVE / "build.json").exists() else None


def memory_of(weights: Weights) -> str:
    """DyNet's --dynet-mem: MB for forward, backward, parameters, scratch."""
    # Values and gradients of parameters, each rounded up to DyNet's alignment.
    parameters_mb = sum(2 * w.nbytes for w in weights.values()) // 2**20 + 2
    return f"{POOL_MB},{POOL_MB},{parameters_mb},1"


def source_facts(folder: Path) -> dict[str, str]:
    """What a record says of the source build."""
    build = json.loads((folder / "build.json").read_text(encoding="utf-8"))
    return {
        "dynet": build["dynet"],
        "dynet_build": f"source {build['dynet']}",
        "dynet_compiler": build["compiler"],
        "dynet_flags": build["flags"],
        "dynet_blas": build["blas"],
        "eigen": build["eigen"],
    }


def wheel_version() -> str:
    """Name and version of the wheel."""
    try:
        return f"{WHEEL} {distribution(WHEEL).version}"
    except PackageNotFoundError:
        return "of unknown name"
