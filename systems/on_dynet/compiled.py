"""What make dynet-native compiles of ours beside DyNet: is it there, and of these very sources?

    python -m systems.on_dynet.compiled FOLDER

writes of which sources a folder's libraries are, when scripts/build_dynet_native.sh has built them.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from systems.on_dynet.build import NATIVE

PROGRAMS = "libdynet_programs.so"  # systems/on_dynet/cpp/programs
PRODUCT_SIGNATURE = "libdynet_product_signature.so"  # systems/on_dynet/patches
FACTS = "programs.json"  # the hash of the sources
SOURCES = tuple(Path(__file__).parent / folder for folder in ("cpp/programs", "patches"))
HOW = "run make dynet-native"


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
