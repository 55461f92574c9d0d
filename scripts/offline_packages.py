"""Packages for a machine without a network: collect them here, install them there.

    python -m scripts.offline_packages collect wheelhouse --python 3.12 --box packages.txt
    python -m scripts.offline_packages install wheelhouse --beside python3

What such a machine has of its own, usually with drivers that fit it, is not collected: PyTorch,
Triton, NumPy, and what its `pip freeze` names in packages.txt. The environment made there sees the
packages of the Python that is named.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

try:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name, parse_wheel_filename
except ModuleNotFoundError:  # nothing is installed yet: as pip itself has it
    from pip._vendor.packaging.requirements import Requirement
    from pip._vendor.packaging.utils import canonicalize_name, parse_wheel_filename

from harness.errors import BenchError, ConfigError
from harness.values.places import ROOT
from scripts.pip_command import pip

OF_THE_MACHINE = ("numpy", "torch", "triton")
EXTRAS = ("plots", "pipeline", "test")
BUILDS = ("setuptools>=77", "wheel")  # this project itself, in place
# 39 MB, and OpenBLAS does what it does; 8 MB, and NumPy's wheel has one, too.
LEFT_OUT = ("onednn-cpu-gomp", "scipy-openblas64")
WITHOUT_WHEELS = ("antlr4-python3-runtime", "connection-pool")  # pure Python: built here
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
MOST_BYTES = 60_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when all is there, 1 with one line when it cannot be."""
    flags = _parse(arguments)
    try:
        if flags.do == "collect":
            print(collect(flags.folder, flags.python, read_box(flags.box)))
        else:
            print(install(flags.folder, flags.beside))
    except BenchError as error:
        print(f"offline_packages: {error}", file=sys.stderr)
        return 1
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("do", choices=("collect", "install"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", help="version of the machine's Python")
    parser.add_argument("--box", type=Path, help="file with what `pip freeze` says there")
    parser.add_argument("--beside", help="the machine's Python whose packages are seen, too")
    return parser.parse_args(arguments)


def requirements(extras: Collection[str] = EXTRAS) -> list[Requirement]:
    """What this project needs, with some of its extras, on this platform."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"]]
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    found = [one for one in map(Requirement, lines) if one.name not in LEFT_OUT]
    return [one for one in found if one.marker is None or one.marker.evaluate()]


# --- here ---


Box = Mapping[str, str | None]  # versions of what a machine has; None where it is not known


def read_box(path: Path | None) -> Box:
    """What a machine has: NumPy and PyTorch, and what `pip freeze` says there.

    Raises ConfigError for a file that cannot be read, or a line that names no package.
    """
    box: dict[str, str | None] = dict.fromkeys(OF_THE_MACHINE)
    if path is None:
        return box
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); give what pip freeze says") from error
    for line in filter(None, (line.partition("#")[0].strip() for line in lines)):
        if line.startswith("-"):  # an option, or something installed in place
            continue
        named = re.fullmatch(r"([A-Za-z0-9][\w.-]*)\s*(?:==\s*(\S+)|@.*)?", line)
        if named is None:
            raise ConfigError(f"{path} has {line!r}, no package; give what pip freeze says")
        box[canonicalize_name(named[1])] = named[2]
    return box


def collect(folder: Path, python: str, box: Box) -> str:
    """Download wheels of all that is needed; returns how many there are, and their size.

    Raises ConfigError where one cannot be had, or where together they are too large; the folder
    then is as it was.
    """
    with tempfile.TemporaryDirectory(prefix="wheels-") as temporary:
        fresh = Path(temporary)
        _download(fresh, python, box)
        for path in _had(fresh, box):
            path.unlink()
        wheels = {path.name: path.read_bytes() for path in fresh.glob("*.whl")}
    n_bytes = sum(map(len, wheels.values()))
    if n_bytes > MOST_BYTES:
        large = ", ".join(sorted(wheels, key=lambda name: -len(wheels[name]))[:3])
        raise ConfigError(
            f"{n_bytes / 1e6:.1f} MB of wheels are more than {MOST_BYTES / 1e6:g} ({large} above"
            " all); say with BOX_PACKAGES=FILE what the machine has (its pip freeze)"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    for name, content in wheels.items():
        (folder / name).write_bytes(content)
    return f"{len(wheels)} wheels of {n_bytes / 1e6:.1f} MB for Python {python} in {folder}"


def _download(folder: Path, python: str, box: Box) -> None:
    wanted = [str(_without_marker(one)) for one in requirements() if not _has(box, one)]
    pinned = ("--constraint", str(_pinned(folder, box)))
    pip("wheel", "--no-deps", "--wheel-dir", str(folder), *pinned, *WITHOUT_WHEELS)
    pip(
        *("download", "--dest", str(folder), "--find-links", str(folder)),
        *("--only-binary", ":all:", "--python-version", python, "--implementation", "cp"),
        *(word for platform in PLATFORMS for word in ("--platform", platform)),
        *(*pinned, *wanted, *BUILDS),
    )


def _has(box: Box, requirement: Requirement) -> bool:
    """Whether a machine has what is asked for; a version that is not known will do."""
    name = canonicalize_name(requirement.name)
    version = box.get(name)
    return name in box and (version is None or requirement.specifier.contains(version, True))


def _had(folder: Path, box: Box) -> list[Path]:
    """Wheels of what the machine has, in a version that is good for all others."""
    wheels = {_name_of(path): path for path in folder.glob("*.whl")}
    asked = [*requirements(), *(one for path in wheels.values() for one in _requires(path))]
    bad = {canonicalize_name(one.name) for one in asked if not _has(box, one)}
    return [path for name, path in wheels.items() if name in box and name not in bad]


def _requires(wheel: Path) -> Iterator[Requirement]:
    """What a wheel's own metadata asks for, without its extras."""
    with ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n))
        text = archive.read(name).decode()
    for line in text.partition("\n\n")[0].splitlines():
        if line.startswith("Requires-Dist:"):
            one = Requirement(line.partition(":")[2].strip())
            if one.marker is None or one.marker.evaluate({"extra": ""}):
                yield one


def _pinned(folder: Path, box: Box) -> Path:
    """The pinned versions, but of what the machine has of its own."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    kept = [line for line in lines if canonicalize_name(line.split("==")[0]) not in box]
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


def install(folder: Path, beside: str | None = None) -> str:
    """Install this project in place from a folder of wheels; returns what was done.

    beside: the machine's Python, whose packages this environment sees behind its own; one made from
        it by `venv --system-site-packages` would not where that Python is in an environment itself.

    Raises ConfigError with all that neither the folder nor the machine has.
    """
    if beside is not None:
        see_packages_of(beside)
    missing = lacking(folder)
    if missing:
        raise ConfigError(
            f"this machine and {folder} lack {', '.join(missing)}; collect anew with"
            f" make wheelhouse BOX_PYTHON={sys.version_info.major}.{sys.version_info.minor}"
        )
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index")
    wanted = [str(_without_marker(one)) for one in requirements()]
    subprocess.run([*pip, "--find-links", str(folder), *BUILDS, *wanted], check=True)
    project = ("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    subprocess.run([*pip, *project], check=True)
    return f"installed from {folder}; all else is the machine's own"


def see_packages_of(python: str) -> None:
    """Let this environment find what is installed for another Python of the same version.

    Raises ConfigError where that Python cannot be run, or is of another version.
    """
    asks = (
        "import json, site, sys; print(json.dumps([sys.version_info[:2], site.getsitepackages()]))"
    )
    try:
        said = subprocess.run([python, "-c", asks], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigError(f"{python} cannot be run ({error}); name the machine's Python") from error
    version, folders = json.loads(said.stdout)
    if tuple(version) != sys.version_info[:2]:
        found, here = (".".join(map(str, one)) for one in (version, sys.version_info[:2]))
        raise ConfigError(f"{python} is Python {found}, the environment {here}; remove .venv first")
    path = Path(sysconfig.get_path("purelib")) / "of_the_machine.pth"
    path.write_text("\n".join(folders) + "\n", encoding="utf-8")
    sys.path.extend(folder for folder in folders if folder not in sys.path)


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
