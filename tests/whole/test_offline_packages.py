"""A machine without a network: what it lacks is said whole, and what it has is left alone."""

from __future__ import annotations

import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ConfigError
from scripts import offline_packages
from scripts.offline_packages import OF_THE_MACHINE, collect, install, lacking, main, requirements


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Packages of the machine, by name; none at first."""
    packages: dict[str, str] = {}

    def version(name: str) -> str:
        if name not in packages:
            raise metadata.PackageNotFoundError(name)
        return packages[name]

    monkeypatch.setattr(offline_packages.metadata, "version", version)
    return packages


def wheel(folder: Path, name: str, version: str, size: int = 0) -> Path:
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    path.write_bytes(b"x" * size)
    return path


def test_what_neither_has_is_lacking(tmp_path: Path, installed: dict[str, str]) -> None:
    every = lacking(tmp_path)
    assert len(every) == len(requirements()) + len(OF_THE_MACHINE)
    wheel(tmp_path, "pyyaml", "6.0.1")
    wheel(tmp_path, "hydra-core", "1.4.0")  # too new
    installed |= {"numpy": "2.3.0", "torch": "2.11.0", "rich": "13.1"}
    missing = lacking(tmp_path)
    assert not any(one.startswith(("pyyaml", "torch", "rich", "numpy")) for one in missing)
    assert any(one.startswith("hydra-core") for one in missing)
    assert "triton" in missing


def test_all_that_is_missing_is_in_one_line(
    tmp_path: Path, installed: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert all(name in said for name in ("hydra-core", "numba", "torch", "make wheelhouse"))


def test_pip_is_asked_when_nothing_is_missing(
    tmp_path: Path, installed: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed |= {one.name: "999" for one in requirements()}
    installed |= dict.fromkeys(OF_THE_MACHINE, "999")
    monkeypatch.setattr(offline_packages, "_is_met", lambda *_: True)
    asked: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: asked.append(command))
    install(tmp_path)
    assert all("--no-index" in command for command in asked)
    assert "--editable" in asked[-1]


class Downloads:
    """What pip would leave, instead of pip."""

    def __init__(self, folder: Path, sizes: dict[str, int], code: int = 0) -> None:
        self.folder, self.sizes, self.code = folder, sizes, code
        self.pinned = ""

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.pinned = Path(command[command.index("--constraint") + 1]).read_text()
        for name, size in self.sizes.items():
            wheel(self.folder, name, "2.0", size)
        return subprocess.CompletedProcess(command, self.code, "", "first\nno matching x\n")


def test_what_the_machine_has_is_not_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = Downloads(tmp_path, {"numba": 100, "numpy": 1000})
    monkeypatch.setattr(subprocess, "run", pip)
    assert "1 wheels" in collect(tmp_path, "3.12")
    assert [path.name.split("-")[0] for path in tmp_path.iterdir()] == ["numba"]
    assert "numba==" in pip.pinned
    assert "numpy==" not in pip.pinned


def test_a_folder_that_is_too_large_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline_packages, "MOST_BYTES", 99)
    monkeypatch.setattr(subprocess, "run", Downloads(tmp_path, {"numba": 100}))
    with pytest.raises(ConfigError, match="100 bytes of wheels are more than 99"):
        collect(tmp_path, "3.12")


def test_what_cannot_be_had_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", Downloads(tmp_path, {}, code=1))
    with pytest.raises(ConfigError, match="pip wheel failed: no matching x"):
        collect(tmp_path, "3.12")
