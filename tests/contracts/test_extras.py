"""Missing or outdated frameworks and networks, reported in one line.

A line names the extra to install, or the models that a table of networks has.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from dynbatch.harness.commands import first_look
from dynbatch.harness.contracts import extras
from dynbatch.harness.contracts.extras import (
    check_extra,
    explain_outdated_version,
    read_requirements,
)
from dynbatch.harness.contracts.networks import (
    explain_missing_network,
    find_network_modules,
    load_network,
)
from dynbatch.harness.contracts.system import load_adapter
from dynbatch.harness.errors import ConfigError, UnsupportedTrial
from tests.support import odd_system
from tests.support.processes import run_python


def test_a_version_below_that_of_the_extra_is_too_old() -> None:
    assert explain_outdated_version("torch", "2.13.0+cpu") is None
    reason = explain_outdated_version("torch", "1.13")
    assert reason is not None
    assert reason.startswith("unsupported torch 1.13: expected >=")
    assert "[torch]" in reason
    assert explain_outdated_version("a_module_that_no_extra_has", "0") is None


def test_an_adapter_on_an_old_framework_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(odd_system.Adapter, "framework", "numpy")
    needed = {"numpy": read_requirements()["torch"]}
    monkeypatch.setattr(extras, "read_requirements", lambda: needed)
    monkeypatch.setattr(np, "__version__", "1.0")
    with pytest.raises(UnsupportedTrial, match=r"^unsupported numpy 1\.0: expected.*\[numpy\]"):
        load_adapter("tests.support.odd_system")
    monkeypatch.setattr(np, "__version__", "99.0")
    assert load_adapter("tests.support.odd_system") is odd_system.Adapter


def test_an_adapter_that_fails_to_import_is_not_a_missing_class(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "failing_adapter.py").write_text("import math\nmath.none\n")
    (tmp_path / "empty_adapter.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(AttributeError, match="'math' has no attribute 'none'"):
        load_adapter("failing_adapter")
    with pytest.raises(ConfigError, match="empty_adapter has no class Adapter"):
        load_adapter("empty_adapter")


def test_installation_knows_its_extras(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    try:
        importlib.metadata.requires(extras.PROJECT)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the benchmark is not installed, only on the path")
    in_checkout = read_requirements()
    monkeypatch.setattr(extras, "ROOT", tmp_path)
    installed = read_requirements()
    names = {name: {one.name for one in found} for name, found in installed.items()}
    assert names == {name: {one.name for one in found} for name, found in in_checkout.items()}


def test_missing_extra_is_reported_before_work_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    needed = [Requirement("pytest>=1"), Requirement("no-such-package>=2")]
    monkeypatch.setattr(extras, "read_requirements", lambda: {"plots": needed})
    with pytest.raises(ConfigError, match=r"^no-such-package not installed; run pip install"):
        check_extra("plots")
    assert first_look.main([f"results_dir={tmp_path / 'results'}"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("bench-try: no-such-package not installed; run pip install ")
    assert printed.err.count("\n") == 1
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("extra", ["test", "tensorflow"])
def test_installed_extra_passes_the_check(extra: str) -> None:
    """Packages for other machines are not needed."""
    check_extra(extra)


def test_plotting_library_is_imported_lazily() -> None:
    """A missing library is reported in one line and not by the first module that imports it."""
    program = "import sys, dynbatch.harness.commands.first_look; print('matplotlib' in sys.modules)"
    assert run_python("-c", program) == "False\n"


# --- tables of networks ---

FILES = {
    "__init__": "",
    "trees": "TABLE: dict = {'tree': 1, 'bush': 2, **{'hidden': 3}}\nOTHER = {'fir': 4}\n",
    "lines": "TABLE = {'line': 5}\n",
    "helpers": "import nothing_of_this_name\nTABLE = dict(helper=6)\n",
    "_private": "TABLE = {'private': 7}\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write the modules of a package, one of which cannot be imported."""
    name = f"networks_{tmp_path.name}"
    (tmp_path / name).mkdir()
    for file, text in FILES.items():
        (tmp_path / name / f"{file}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_a_table_is_in_all_modules_of_a_package_or_in_one(package: str) -> None:
    trees, lines = f"{package}.trees", f"{package}.lines"
    found = {"tree": trees, "bush": trees, "line": lines}
    assert find_network_modules(f"{package}:TABLE") == found  # literal keys of literal dictionaries
    assert find_network_modules(f"{trees}:TABLE") == {"tree": trees, "bush": trees}
    assert load_network(f"{package}:TABLE", "bush") == 2
    assert load_network(f"{trees}:OTHER", "fir") == 4
    assert find_network_modules(f"{package}:NONE") == {}
    assert find_network_modules("nothing_of_this_name:TABLE") == {}


def test_missing_network_lists_available_models(package: str) -> None:
    table = f"{package}:TABLE"
    assert explain_missing_network("bush", table) is None
    assert explain_missing_network("hidden", table) == (
        f"{table} has no model hidden; choose one of bush, line, tree"
    )


def test_two_networks_of_a_model_are_refused(package: str, tmp_path: Path) -> None:
    (tmp_path / package / "more.py").write_text("TABLE = {'tree': 8}\n")
    with pytest.raises(ConfigError, match=rf"has model tree in {package}\.more and in .*trees; re"):
        find_network_modules(f"{package}:TABLE")
