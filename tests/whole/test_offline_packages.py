"""A machine without a network: what it lacks is said whole, and what it has is left alone."""

from __future__ import annotations

import re
import site
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from harness.errors import ConfigError
from scripts import offline_packages
from scripts.offline_packages import (
    OF_THE_MACHINE,
    collect,
    install,
    lacking,
    main,
    read_box,
    requirements,
    see_packages_of,
)


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


def wheel(folder: Path, name: str, version: str, size: int = 0, needs: str = "") -> Path:
    stem = f"{name.replace('-', '_')}-{version}"
    path = folder / f"{stem}-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        told = "".join(f"Requires-Dist: {one}\n" for one in needs.split())
        archive.writestr(f"{stem}.dist-info/METADATA", f"Name: {name}\n{told}\nRequires-Dist: no\n")
        archive.writestr("content", b"x" * size)
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
    assert all(name in said for name in ("hydra-core", "llvmlite", "torch", "make wheelhouse"))


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
    assert not any("onednn" in word for command in asked for word in command)


@dataclass
class Downloads:
    """What pip would leave in its folder, instead of pip: name -> size, and what needs what."""

    sizes: dict[str, int]
    needs: dict[str, str] = field(default_factory=dict)
    code: int = 0
    pinned: str = ""
    asked: list[str] = field(default_factory=list)

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.pinned = Path(command[command.index("--constraint") + 1]).read_text()
        self.asked = command
        if "--dest" in command:
            folder = Path(command[command.index("--dest") + 1])
            for name, size in self.sizes.items():
                wheel(folder, name, "2.0", size, self.needs.get(name, ""))
        return subprocess.CompletedProcess(command, self.code, "", "first\nno matching x\n")


def collected(folder: Path) -> set[str]:
    return {path.name.split("-")[0] for path in folder.iterdir()}


def test_what_the_machine_has_is_not_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = Downloads({"llvmlite": 100, "numpy": 1000})
    monkeypatch.setattr(subprocess, "run", pip)
    wheel(tmp_path, "llvmlite", "1.0")  # of an earlier time
    assert "1 wheels" in collect(tmp_path, "3.12", read_box(None))
    assert collected(tmp_path) == {"llvmlite"}
    assert "llvmlite==" in pip.pinned
    assert "numpy==" not in pip.pinned
    assert not any("onednn" in word for word in pip.asked)


def test_what_pip_freeze_says_there_is_not_collected_where_it_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "packages.txt"
    said.write_text(
        "llvmlite==0.70.1\nrich==1.0 # old\nPyYAML\nsix==1.0\nwrapt @ file:///x\n-e .\n"
    )
    sizes = dict.fromkeys(("llvmlite", "rich", "pyyaml", "six", "wrapt", "pydantic"), 10)
    pip = Downloads(sizes, needs={"pydantic": "six>=1.5 wrapt>=9"})
    monkeypatch.setattr(subprocess, "run", pip)
    collect(tmp_path / "wheels", "3.12", read_box(said))
    # Rich is too old for this project, and six for pydantic, which the machine lacks.
    assert collected(tmp_path / "wheels") == {"rich", "six", "pydantic"}
    asked = {re.split("[<>=]", word)[0] for word in pip.asked}
    assert {"rich", "pydantic"} <= asked
    assert not {"llvmlite", "pyyaml"} & asked


@pytest.mark.parametrize("content", ["llvmlite==1\nsome words here\n", "=1\n", None])
def test_a_list_that_is_none_is_told(tmp_path: Path, content: str | None) -> None:
    said = tmp_path / "packages.txt"
    if content is not None:
        said.write_text(content)
    with pytest.raises(ConfigError, match="give what pip freeze says"):
        read_box(said)


def test_a_folder_that_is_too_large_is_told_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline_packages, "MOST_BYTES", 99)
    monkeypatch.setattr(subprocess, "run", Downloads({"llvmlite": 100}))
    wheel(tmp_path, "rich", "1.0")
    with pytest.raises(ConfigError, match=r"more than .*llvmlite-2.0.* BOX_PACKAGES=FILE"):
        collect(tmp_path, "3.12", read_box(None))
    assert collected(tmp_path) == {"rich"}


def test_what_cannot_be_had_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", Downloads({}, code=1))
    with pytest.raises(ConfigError, match="pip wheel failed: no matching x"):
        collect(tmp_path, "3.12", read_box(None))


def test_an_environment_sees_the_packages_of_another_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline_packages.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(sys, "path", ["mine"])
    see_packages_of(sys.executable)
    told = (tmp_path / "of_the_machine.pth").read_text().splitlines()
    assert told == site.getsitepackages()
    assert sys.path == ["mine", *told]


def test_a_python_of_another_version_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho '[[3, 1], []]'\n")
    other.chmod(0o755)
    with pytest.raises(ConfigError, match=r"is Python 3\.1, the environment 3\."):
        see_packages_of(str(other))
    with pytest.raises(ConfigError, match="cannot be run"):
        see_packages_of(str(tmp_path / "none"))
