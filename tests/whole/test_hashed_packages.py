"""Packages by their hashes: what is installed is what was trusted, or nothing."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from harness.errors import ConfigError
from harness.values.places import ROOT
from scripts import hashed_packages
from scripts.hashed_packages import install, main, write

pytestmark = pytest.mark.slow


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, which is all that pip sees."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    wheel(shelf, "small_one", "needs = 1", "Requires-Dist: small-two")
    wheel(shelf, "small_two", "first = 1")
    return shelf


def wheel(shelf: Path, name: str, text: str, *more: str) -> None:
    facts = f"{name}-1.0.dist-info"
    about = [("Metadata-Version", "2.1"), ("Name", name), ("Version", "1.0")]
    kind = [("Wheel-Version", "1.0"), ("Root-Is-Purelib", "true"), ("Tag", "py3-none-any")]
    files = {
        f"{name}.py": text,
        f"{facts}/METADATA": "\n".join([*map(": ".join, about), *more]),
        f"{facts}/WHEEL": "\n".join(map(": ".join, kind)),
    }
    files[f"{facts}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{facts}/RECORD"])
    with zipfile.ZipFile(shelf / f"{name}-1.0-py3-none-any.whl", "w") as opened:
        for path, content in files.items():
            opened.writestr(path, content)


def test_what_was_written_is_installed_and_nothing_else(shelf: Path, tmp_path: Path) -> None:
    file, target = tmp_path / "hashes.txt", tmp_path / "target"
    assert write(file, ["small-one"]) == 2
    lines = file.read_text().splitlines()[1:]
    assert [line.partition(" --hash=sha256:")[0] for line in lines] == [
        "small-one==1.0",
        "small-two==1.0",
    ]
    install(file, "--target", str(target))
    assert (target / "small_two.py").read_text() == "first = 1"
    wheel(shelf, "small_two", "other = 1")
    with pytest.raises(ConfigError) as caught:
        install(file, "--target", str(tmp_path / "new"))
    line = str(caught.value)
    assert "DO NOT MATCH THE HASHES" in line
    assert "small-two==1.0" in line
    assert "\n" not in line
    assert not list(tmp_path.glob("new/*"))


@pytest.mark.parametrize("change", ["", " --hash=sha256:" + "0" * 63])
def test_a_line_without_a_whole_hash_installs_nothing(
    shelf: Path, tmp_path: Path, change: str
) -> None:
    file = tmp_path / "hashes.txt"
    file.write_text(f"small-two==1.0{change}\n")
    with pytest.raises(ConfigError, match="pip install failed: "):
        install(file, "--target", str(tmp_path / "new"))
    assert not list(tmp_path.glob("new/*"))


def test_what_is_not_listed_is_not_installed(shelf: Path, tmp_path: Path) -> None:
    file = tmp_path / "hashes.txt"
    write(file, ["small-one"])
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(ConfigError, match="hashes"):
        install(file, "--target", str(tmp_path / "new"))
    assert not list(tmp_path.glob("new/*"))


def test_what_cannot_be_is_one_line(
    shelf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install", str(tmp_path / "none.txt")]) == 1
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "none.txt cannot be read" in said
    with pytest.raises(ConfigError, match=r"pip install failed: .*nowhere-to-be-found"):
        write(tmp_path / "hashes.txt", ["nowhere-to-be-found"])
    assert not (tmp_path / "hashes.txt").exists()


def test_a_package_without_a_hash_is_named(tmp_path: Path) -> None:
    package = {"metadata": {"name": "small", "version": "1"}, "download_info": {"url": "x"}}
    with pytest.raises(ConfigError, match="no SHA-256 of small"):
        hashed_packages._line(package)


def make(*words: str) -> list[str]:
    command = ["make", "--dry-run", "--always-make", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "bin/python -m" in line]


def test_make_installs_by_hashes_only_where_they_are_given() -> None:
    plain, compiled = make("install")
    assert compiled.endswith("-m harness.commands.compile_ahead")
    assert "-m pip install --quiet -c constraints.txt --editable" in plain
    assert "hash" not in plain
    hashed, compiled = make("install", "HASHES=a.txt")
    assert compiled.endswith("-m harness.commands.compile_ahead")
    assert hashed.endswith("-m scripts.hashed_packages install a.txt")
    (written,) = make("hashes", "HASHES=a.txt")
    assert "-m scripts.hashed_packages write a.txt --extras torch,gpu," in written


@pytest.mark.parametrize(
    "archive",
    [
        {"hash": "sha256=ab12"},  # pip 23.0, which Python 3.11 brings along
        {"hash": "sha256=ab12", "hashes": {"sha256": "ab12"}},
        {"hashes": {"sha256": "ab12"}},
    ],
)
def test_a_hash_is_found_in_what_any_pip_tells(archive: dict[str, object]) -> None:
    facts = {"name": "Small_One", "version": "1.0"}
    found = hashed_packages._line({"metadata": facts, "download_info": {"archive_info": archive}})
    assert found == "small-one==1.0 --hash=sha256:ab12\n"
