"""Installed DyNet builds, their settings, and the state of this project's libraries in them.

    python -m dynbatch.systems.on_dynet.build FOLDER

writes the hash of the sources of a directory's libraries, after scripts/build_dynet_native.sh has
built them.
"""

from __future__ import annotations

import hashlib
import json
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from dynbatch.harness.contracts.model import Weights
from dynbatch.harness.values.paths import ROOT

AUTOBATCH = {"off": 0, "agenda": 1, "depth": 2}  # DyNet's numbers of its modes
TARGETS = {"cpu": "dynet-native", "cuda": "dynet-cuda"}  # of make, by device
SOURCE_BUILDS = {device: ROOT / f".{target}" for device, target in TARGETS.items()}
WHEEL = "dyNET38"
POOL_MB = 16  # the unit in which DyNet's memory pools grow
# DyNet zeroes reserved memory, which makes it resident: a large reserve would count as its peak
# memory. The reserve is therefore small. The pools grow automatically, but autobatching cannot
# finish the backward pass in which one grows, and reports this message. For the next graph they are
# large enough, so the mini-batch is run again, which happens only during warm-up.
OUTGROWN = "dynamic increasing of memory pool"
PROGRAMS = "libdynet_programs.so"  # systems/on_dynet/cpp/programs
PRODUCT_SIGNATURE = "libdynet_product_signature.so"  # systems/on_dynet/patches
GATHER_CLOCK = "libdynet_gather_clock.so"  # systems/on_dynet/patches; for the CPU only
FACTS = "programs.json"  # the hash of the sources
SOURCES = tuple(Path(__file__).parent / folder for folder in ("cpp/programs", "patches"))
COMPILED = (".cc", ".h", ".diff")  # not .patch: those need a build of DyNet itself (--force)


def find_source_build(build: str = "auto", device: str = "cpu") -> Path | None:
    """Return the device's source build, or None if it is absent or "wheel" is requested."""
    folder = SOURCE_BUILDS[device]
    return folder if build != "wheel" and (folder / "build.json").exists() else None


def format_memory(weights: Weights) -> str:
    """Return DyNet's --dynet-mem: MB for forward, backward, parameters and scratch."""
    # Values and gradients of parameters, with room for DyNet's alignment.
    parameters_mb = sum(2 * w.nbytes for w in weights.values()) // 2**20 + 2
    return f"{POOL_MB},{POOL_MB},{parameters_mb},1"


def read_source_facts(folder: Path) -> dict[str, str]:
    build = json.loads((folder / "build.json").read_text(encoding="utf-8"))
    return {
        "dynet": build["dynet"],
        "dynet_build": f"source {build['dynet']}",
        "dynet_compiler": build["compiler"],
        "dynet_flags": build["flags"],
        "dynet_blas": build["blas"],
        "eigen": build["eigen"],
    }


def find_wheel_version() -> str:
    try:
        return f"{WHEEL} {distribution(WHEEL).version}"
    except PackageNotFoundError:
        return "of unknown name"


def explain_missing_dynet(device: str) -> str | None:
    """Return the reason if the device's source build is missing, or None."""
    if find_source_build(device=device) is not None:
        return None
    which = {"cpu": "source build", "cuda": "build for CUDA"}[device]
    return f"DyNet's {which} is not installed; run make {TARGETS[device]}"


def explain_missing_build(device: str = "cpu") -> str | None:
    """Return the reason if the source build or this project's libraries are missing, or None."""
    reason, folder = explain_missing_dynet(device), SOURCE_BUILDS[device]
    if reason is not None:
        return reason
    how = f"run make {TARGETS[device]}"
    if not all((folder / name).exists() for name in (PROGRAMS, PRODUCT_SIGNATURE, FACTS)):
        return f"DyNet's programs in C++ are not built; {how}"
    if read_built_hash(folder) != hash_sources():
        return f"DyNet's programs in C++ do not match their sources; {how}"
    return None


def explain_missing_clock(device: str) -> str | None:
    """Return the reason if copies of this device's DyNet cannot be timed, or None."""
    if device != "cpu":
        return f"profile=true times DyNet's copies on a CPU only, got {device}; set device=cpu"
    return explain_missing_build()


def read_built_hash(folder: Path) -> str:
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    return str(facts.get("sources_sha256"))


def hash_sources(*folders: Path) -> str:
    """Hash the compiled files of the directories (SOURCES, if none), in the order of names."""
    digest = hashlib.sha256()
    for folder in folders or SOURCES:
        for path in sorted(path for path in folder.iterdir() if path.suffix in COMPILED):
            digest.update(f"{path.name}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    facts_file = Path(sys.argv[1]) / FACTS
    facts_file.write_text(json.dumps({"sources_sha256": hash_sources()}) + "\n", encoding="utf-8")
