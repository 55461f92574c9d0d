"""Which build of DyNet there is, how it is started, and whether our libraries in it are current.

    python -m systems.on_dynet.build FOLDER

writes of which sources a folder's libraries are, when scripts/build_dynet_native.sh has built them.
"""

from __future__ import annotations

import hashlib
import json
import sys
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
PROGRAMS = "libdynet_programs.so"  # systems/on_dynet/cpp/programs
PRODUCT_SIGNATURE = "libdynet_product_signature.so"  # systems/on_dynet/patches
FACTS = "programs.json"  # the hash of the sources
SOURCES = tuple(Path(__file__).parent / folder for folder in ("cpp/programs", "patches"))
HOW = "run make dynet-native"


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


def why_not_built(folder: Path = NATIVE) -> str | None:
    """Say what is missing of the source build or of our libraries in it, or None."""
    if not (folder / "build.json").exists():
        return f"DyNet's source build is not installed; {HOW}"
    if not all((folder / name).exists() for name in (PROGRAMS, PRODUCT_SIGNATURE, FACTS)):
        return f"DyNet's programs in C++ are not built; {HOW}"
    if built_sources(folder) != sources_sha256():
        return f"DyNet's programs in C++ were built from other sources than these; {HOW}"
    return None


def built_sources(folder: Path = NATIVE) -> str:
    """The hash of the sources that a folder's libraries were built of."""
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    return str(facts.get("sources_sha256"))


def sources_sha256(*folders: Path) -> str:
    """Hash all files of the folders (SOURCES, if none), by name and in the order of names."""
    digest = hashlib.sha256()
    for folder in folders or SOURCES:
        for path in sorted(folder.iterdir()):
            digest.update(f"{path.name}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    facts_file = Path(sys.argv[1]) / FACTS
    facts_file.write_text(json.dumps({"sources_sha256": sources_sha256()}) + "\n", encoding="utf-8")
