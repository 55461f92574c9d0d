"""Options of systems: typed fields, one line for whatever does not fit."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from harness.contracts.options import NoOptions, read_options
from harness.contracts.system import RunSettings, load_adapter
from harness.errors import ConfigError
from harness.values.places import CONF_DIR
from systems.null_system import Adapter as NullSystem
from systems.on_dynet.autobatch import Adapter as Dynet


@dataclass(frozen=True, slots=True)
class Sample:
    mode: Literal["off", "depth"] = "depth"
    fast: bool = True
    n: int = 3
    share: float = 0.5
    file: str | None = None


def settings(**options: Any) -> RunSettings:
    return RunSettings("infer", "cpu", 1, 1, 0.1, 0, options=options)


def test_what_is_not_said_has_its_default() -> None:
    assert read_options(Sample, {}, "here") == Sample()
    said = {"mode": "off", "fast": False, "n": 4, "share": 1, "file": "f"}
    assert read_options(Sample, said, "here") == Sample("off", False, 4, 1, "f")
    assert read_options(Sample, {"file": None}, "here").file is None


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"mod": "off"}, "system.options.mod is unknown to here; it takes mode, fast, n, share,"),
        ({"mode": "deep"}, "system.options.mode=deep is not allowed; choose one of off, depth"),
        ({"mode": False}, "mode=false is not allowed; choose one of off, depth (in quotes: YAML"),
        ({"fast": 1}, "fast=1 is not allowed; give true or false"),
        ({"fast": "false"}, "fast=false is not allowed; give true or false"),
        ({"n": True}, "n=true is not allowed; give a whole number"),
        ({"n": 1.0}, "n=1.0 is not allowed; give a whole number"),
        ({"share": "half"}, "share=half is not allowed; give a number"),
        ({"file": 3}, "file=3 is not allowed; give a text or null"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(said: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_options(Sample, said, "here")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_system_without_options_takes_none() -> None:
    assert NullSystem(settings()).options == NoOptions()
    with pytest.raises(
        ConfigError, match=r"colour is unknown to systems\.null_system; it takes no"
    ):
        NullSystem(settings(colour="red"))


@pytest.mark.parametrize("autobatch", [1, 3, "agender"])
def test_dynet_s_modes_have_names(autobatch: object) -> None:
    with pytest.raises(ConfigError, match=f"autobatch={autobatch} .* off, agenda, depth"):
        Dynet(settings(autobatch=autobatch))
    assert Dynet(settings(autobatch="depth")).options.autobatch == "depth"


@pytest.mark.parametrize("file", sorted((CONF_DIR / "system").glob("*.yaml")), ids=lambda f: f.stem)
def test_every_system_takes_the_options_of_its_file_and_no_other(file: Path) -> None:
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    options = content.get("options") or {}
    adapter = load_adapter(content["adapter"])
    read = adapter.options_of(settings(**options))
    assert {name: getattr(read, name) for name in options} == options
    with pytest.raises(ConfigError, match=f"nonsense is unknown to {content['adapter']}"):
        adapter.options_of(settings(**options, nonsense=1))


def test_bench_tells_of_a_wrong_option(tmp_path: Path) -> None:
    typed = ["system=null", "+system.options.nonsense=1", f"results_dir={tmp_path}"]
    tiny = ["model=tree_fc", "dataset=complete_trees", "timing.min_seconds=0"]
    command = [sys.executable, "-m", "harness.commands.bench", *typed, *tiny]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert "system.options.nonsense is unknown to systems.null_system; it takes no options" in line
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("r*.json"))
