"""Packages for a machine without a network: collect them here, install them there.

    python -m scripts.offline_packages collect wheelhouse --python 3.12
    python -m scripts.offline_packages install wheelhouse

What such a machine has of its own, usually with drivers that fit it, is not collected: PyTorch,
Triton and NumPy. The environment made there sees the machine's own packages.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from collections.abc import Collection, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

try:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name, parse_wheel_filename
except ModuleNotFoundError:  # nothing is installed yet: as pip itself has it
    from pip._vendor.packaging.requirements import Requirement
    from pip._vendor.packaging.utils import canonicalize_name, parse_wheel_filename

from harness.errors import BenchError, ConfigError
from harness.values.places import ROOT

OF_THE_MACHINE = ("numpy", "torch", "triton")
EXTRAS = ("plots", "pipeline", "test")
BUILDS = ("setuptools>=77", "wheel")  # this project itself, in place
WITHOUT_WHEELS = ("antlr4-python3-runtime", "connection-pool")  # pure Python: built here
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
MOST_BYTES = 60_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when all is there, 1 with one line when it cannot be."""
    flags = _parse(arguments)
    try:
        if flags.do == "collect":
            print(collect(flags.folder, flags.python))
        else:
            print(install(flags.folder))
    except BenchError as error:
        print(f"offline_packages: {error}", file=sys.stderr)
        return 1
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("do", choices=("collect", "install"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", help="version of the machine's Python")
    return parser.parse_args(arguments)


def requirements(extras: Collection[str] = EXTRAS) -> list[Requirement]:
    """What this project needs, with some of its extras, on this platform."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"]]
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    found = map(Requirement, lines)
    return [one for one in found if one.marker is None or one.marker.evaluate()]


# --- here ---


def collect(folder: Path, python: str) -> str:
    """Download wheels of all that is needed; returns how many there are, and their size.

    Raises ConfigError where one cannot be had, or where together they are too large.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [str(_without_marker(one)) for one in requirements()]
    pinned = ("--constraint", str(_pinned(folder)))
    _pip("wheel", "--no-deps", "--wheel-dir", str(folder), *pinned, *WITHOUT_WHEELS)
    _pip(
        *("download", "--dest", str(folder), "--find-links", str(folder)),
        *("--only-binary", ":all:", "--python-version", python, "--implementation", "cp"),
        *(word for platform in PLATFORMS for word in ("--platform", platform)),
        *(*pinned, *wanted, *BUILDS),
    )
    (folder / "pinned.txt").unlink()
    for path in folder.glob("*.whl"):
        if _name_of(path) in OF_THE_MACHINE:
            path.unlink()
    sizes = [path.stat().st_size for path in folder.glob("*.whl")]
    if sum(sizes) > MOST_BYTES:
        raise ConfigError(f"{sum(sizes)} bytes of wheels are more than {MOST_BYTES} in {folder}")
    return f"{len(sizes)} wheels of {sum(sizes) / 1e6:.1f} MB for Python {python} in {folder}"


def _pip(command: str, *words: str) -> None:
    """Raise ConfigError with the last line of what pip says where it fails."""
    whole = [sys.executable, "-m", "pip", command, "--quiet", *words]
    done = subprocess.run(whole, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise ConfigError(f"pip {command} failed: {said[-1]}")


def _pinned(folder: Path) -> Path:
    """The pinned versions, but of what the machine has of its own."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    kept = [line for line in lines if line.split("==")[0].lower() not in OF_THE_MACHINE]
    path = folder / "pinned.txt"
    path.write_text("\n".join(kept) + "\n")
    return path


def _without_marker(requirement: Requirement) -> Requirement:
    found = Requirement(str(requirement))
    found.marker = None
    return found


def _name_of(wheel: Path) -> str:
    return str(parse_wheel_filename(wheel.name)[0])


# --- there ---


def install(folder: Path) -> str:
    """Install this project in place from a folder of wheels; returns what was done.

    Raises ConfigError with all that neither the folder nor the machine has.
    """
    missing = lacking(folder)
    if missing:
        raise ConfigError(
            f"this machine and {folder} lack {', '.join(missing)}; collect anew with"
            f" make wheelhouse BOX_PYTHON={sys.version_info.major}.{sys.version_info.minor}"
        )
    command = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-index"),
        *("--find-links", str(folder), *BUILDS),
    ]
    subprocess.run(command, check=True)
    whole = f"{ROOT}[{','.join(EXTRAS)}]"
    command = [*command[: -len(BUILDS)], "--no-build-isolation", "--editable", whole]
    subprocess.run(command, check=True)
    return f"installed from {folder}; PyTorch, Triton and NumPy are the machine's own"


def lacking(folder: Path) -> list[str]:
    """Requirements for which there is neither a wheel nor an installed package that will do."""
    wheels = {_name_of(path): parse_wheel_filename(path.name)[1] for path in folder.glob("*.whl")}
    needed = [*requirements(), *map(Requirement, OF_THE_MACHINE)]
    return [str(one) for one in needed if not _is_met(one, wheels)]


def _is_met(requirement: Requirement, wheels: dict[str, object]) -> bool:
    name = canonicalize_name(requirement.name)
    versions: list[object] = [wheels[name]] if name in wheels else []
    with suppress(metadata.PackageNotFoundError):
        versions.append(metadata.version(requirement.name))
    return any(requirement.specifier.contains(str(v), prereleases=True) for v in versions)


if __name__ == "__main__":
    sys.exit(main())
