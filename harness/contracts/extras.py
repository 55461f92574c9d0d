"""Frameworks, and the extras in pyproject.toml that install them, named after their modules."""

from __future__ import annotations

import importlib.metadata
import tomllib

from packaging.requirements import Requirement

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.values.paths import ROOT

PROJECT = "dynamic-batching-benchmark"


def describe_installation(module: str) -> str:
    if module in read_requirements():
        return f"run pip install '{PROJECT}[{module}]', in a checkout pip install -e '.[{module}]'"
    return "install it"


def explain_outdated_version(module: str, version: str) -> str | None:
    """Return why a version of a framework does not meet its extra's requirement, or None."""
    for requirement in read_requirements().get(module, ()):
        if not requirement.specifier.contains(version, prereleases=True):
            return (
                f"unsupported {module} {version}: expected {requirement.specifier};"
                f" {describe_installation(module)}"
            )
    return None


def check_extra(extra: str) -> None:
    """Check, before starting work, that all packages of an extra are installed."""
    missing = [
        requirement.name
        for requirement in read_requirements().get(extra, ())
        if not _is_installed(requirement.name)
    ]
    if missing:
        raise ConfigError(f"{', '.join(missing)} not installed; {describe_installation(extra)}")


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def read_requirements() -> dict[str, list[Requirement]]:
    """Return the requirements of each extra on this machine.

    They are those of the checkout, or of the installed benchmark.
    """
    project = ROOT / "pyproject.toml"
    if project.exists():
        project_table = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        extras: dict[str, list[str]] = project_table["optional-dependencies"]
        return {
            name: [
                item
                for item in map(Requirement, texts)
                if not item.marker or item.marker.evaluate()
            ]
            for name, texts in extras.items()
        }
    by_extra: dict[str, list[Requirement]] = {}
    for text in importlib.metadata.requires(PROJECT) or ():
        requirement = Requirement(text)
        for extra in importlib.metadata.metadata(PROJECT).get_all("Provides-Extra") or ():
            marker = requirement.marker
            if marker and marker.evaluate({"extra": extra}) > marker.evaluate({"extra": ""}):
                by_extra.setdefault(extra, []).append(requirement)
    return by_extra
