"""Tables of networks: lookup of a model's module, and loading of its network."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynbatch.harness.contracts.networks import (
    explain_missing_network,
    find_network_modules,
    load_network,
)
from dynbatch.harness.errors import ConfigError

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
