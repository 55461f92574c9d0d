"""Missing parts of added files are reported in one line, before any measurement."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dynbatch.harness.contracts.corpus import load_corpus
from dynbatch.harness.contracts.model import find_model_class
from dynbatch.harness.errors import ConfigError, ScheduleError
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.overrides import read_settings
from dynbatch.harness.values.paths import CONF_DIR
from dynbatch.harness.values.schedule import check_schedule
from tests.support.adding import SECTIONS
from tests.support.random_graphs import graph_of

Write = Callable[[str, str], str]
FILES = {name: text for section in SECTIONS for name, text in section.files.items()}
MODEL = FILES["harness/models/tree_rnn.py"]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Return a function that writes a module and returns its import name."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write_module(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write_module


@pytest.mark.parametrize(
    ("name", "there", "instead", "missing"),
    [
        ("no_kind", 'instance_kind = "tree"', "", "instance_kind"),
        ("no_batch", "def mini_batch", "def minibatch", "mini_batch"),
        ("no_vertex", "def internal", "def inner", "internal"),
        ("no_output", "def output", "def outputs", "output"),
    ],
)
def test_a_model_that_lacks_a_part_names_it(
    write: Write, name: str, there: str, instead: str, missing: str
) -> None:
    assert MODEL.count(there) == 1
    with pytest.raises(ConfigError, match=rf"TreeRNN has no {missing}; a model needs a name"):
        find_model_class(write(name, MODEL.replace(there, instead)))


def test_dataset_without_load_gives_one_line(write: Write) -> None:
    with pytest.raises(ConfigError, match=r"no_load has no function load\(split, root"):
        load_corpus(write("no_load", "NAME = 'nothing'\n"), "train", None)


def test_policy_without_a_schedule_gives_one_line() -> None:
    graph = graph_of([1], [[]], n_types=2)
    with pytest.raises(ScheduleError, match="returned a ndarray: expected a Schedule"):
        check_schedule(graph, np.array([0]))  # type: ignore[arg-type]


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """Return a copy of the configuration, with a copied file that still has the old name in it."""
    folder = tmp_path / "conf"
    shutil.copytree(CONF_DIR, folder)
    shutil.copy(folder / "system" / "cavs.yaml", folder / "system" / "mine.yaml")
    return folder


@pytest.mark.parametrize("values", [[], ["+dataset.options.n_instances=3"]])
def test_yaml_with_mismatched_name_is_refused(conf: Path, values: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"mine\.yaml has name: cavs; set name: mine"):
        Composer(conf).compose_config(read_settings(["system=mine", *values]))
    config = Composer(conf).compose_config(read_settings(["system=cavs", *values]))
    assert config.system.name == "cavs"
