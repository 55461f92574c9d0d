"""Packages by their hashes: write those of an installation that is trusted, install no others.

    python -m scripts.hashed_packages write hashes.txt --extras torch,plots
    python -m scripts.hashed_packages install hashes.txt

The file is of one platform, Python and index: PyTorch's wheels, say, differ between them. Built
from source are few, with tools that are in the file, too.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import BenchError, ConfigError
from harness.values.places import ROOT
from scripts.pip_command import pip

HEADER = "# Written by scripts/hashed_packages.py: what make install takes on a platform as here.\n"
BUILDS = ("setuptools==", "wheel==")  # begin the lines of what builds the others


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when it is done, 1 with one line when it cannot be."""
    flags = _parse(arguments)
    try:
        if flags.do == "write":
            builds = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"][
                "requires"
            ]
            n_packages = write(flags.file, [f"{ROOT}[{flags.extras}]", *builds])
            print(f"{n_packages} packages in {flags.file}")
        else:
            install(flags.file)
            pip("install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
            print(f"installed, each package with its hash in {flags.file}")
    except BenchError as error:
        print(f"hashed_packages: {error}", file=sys.stderr)
        return 1
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("do", choices=("write", "install"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--extras", default="", help="of this project, with commas between them")
    return parser.parse_args(arguments)


def write(file: Path, wanted: Sequence[str]) -> int:
    """Write versions and hashes of all that pip would install anew; returns of how many packages.

    Raises ConfigError where pip finds no such set, or of one of it no hash.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ("--dry-run", "--ignore-installed", "-c", str(ROOT / "constraints.txt"))
        pip("install", *options, "--report", str(report), *wanted)
        found = json.loads(report.read_text())["install"]
    lines = sorted(_line(package) for package in found if not _is_folder(package))
    file.write_text(HEADER + "".join(lines), encoding="utf-8")
    return len(lines)


def _is_folder(package: Mapping[str, Any]) -> bool:
    """This project itself."""
    return "dir_info" in package["download_info"]


def _line(package: Mapping[str, Any]) -> str:
    facts = package["metadata"]
    archive = package["download_info"].get("archive_info", {})
    kind, _, value = archive.get("hash", "").partition("=")  # alone before pip 23.1
    sha256 = ({kind: value} | archive.get("hashes", {})).get("sha256")
    if sha256 is None:
        raise ConfigError(f"pip tells no SHA-256 of {facts['name']}; a newer pip may")
    name = facts["name"].lower().replace("_", "-")
    return f"{name}=={facts['version']} --hash=sha256:{sha256}\n"


def install(file: Path, *options: str) -> None:
    """Install what a file lists, first what builds the rest, and nothing with another hash.

    What the environment has already in a listed version is not looked at.

    Raises ConfigError where the file cannot be read, or with what pip says.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{file} cannot be read ({error}); write it where the packages are trusted, with"
            " python -m scripts.hashed_packages write"
        ) from None
    builds = [line for line in lines if line.startswith(BUILDS)]
    hashed = ("--require-hashes", "--no-build-isolation", *options, "-r")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
        listed.write("\n".join(builds))
        listed.flush()
        if builds:
            pip("install", *hashed, listed.name)
    pip("install", *hashed, str(file))


if __name__ == "__main__":
    sys.exit(main())
