"""Which data set the pipeline takes where the one an artefact names is not on the machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from harness.contracts.corpus import load_corpus
from harness.errors import ConfigError
from harness.planning.artefacts import choices_from, plan_artefact
from harness.planning.compose import Composer
from harness.values.places import CONF_DIR

STAND_INS = {
    "sst": ("sst", "sst_synthetic"),
    "weibo_lattice": ("lattice", "lattice_synthetic"),
    "weibo_lexicon": ("weibo", "lattice_synthetic"),
}
MODELS = {"tree": "tree_lstm", "lattice": "lattice_lstm"}


def kind_of(dataset: str) -> str:
    choice = yaml.safe_load((CONF_DIR / "dataset" / f"{dataset}.yaml").read_text())
    return str(choice["instance_kind"])


def planned(dataset: str, folder: Path, model: str = "tree_lstm") -> str:
    """The data set of the only trial of an artefact, with data in `folder`/data."""
    conf = folder / "conf"
    if not conf.exists():
        shutil.copytree(CONF_DIR, conf, ignore=shutil.ignore_patterns("experiment"))
        (conf / "experiment").mkdir()
    block = {"system": "reference", "model": model, "dataset": dataset}
    content = {"title": "t", "paper": "p", "scales": {"smoke": {"blocks": [block]}}}
    (conf / "experiment" / "one.yaml").write_text(yaml.safe_dump(content))
    choices = choices_from(
        {"scale": "smoke", "device": "cpu", "conf_dir": str(conf), "data_root": f"{folder}/data"},
        {},
    )
    (trial,) = plan_artefact("one", choices, Composer(conf))
    assert trial.spec.dataset == trial.settings["dataset"]
    return trial.spec.dataset


@pytest.mark.parametrize("dataset", STAND_INS)
def test_what_is_not_there_is_replaced_and_what_is_there_is_not(
    dataset: str, tmp_path: Path
) -> None:
    folder, stand_in = STAND_INS[dataset]
    model = MODELS[kind_of(dataset)]
    assert planned(dataset, tmp_path, model) == stand_in
    (tmp_path / "data" / folder).mkdir(parents=True)
    assert planned(dataset, tmp_path, model) == dataset


def test_what_is_generated_needs_no_replacement(tmp_path: Path) -> None:
    assert planned("complete_trees", tmp_path) == "complete_trees"


def test_an_unknown_data_set_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dataset=imagenet is unknown; choose one of"):
        planned("imagenet", tmp_path)


def test_stand_ins_are_generated_and_alike_to_what_they_replace() -> None:
    files = sorted((CONF_DIR / "dataset").glob("*.yaml"))
    named = {path.stem: yaml.safe_load(path.read_text()).get("stand_in") for path in files}
    assert {name for name, stand_in in named.items() if stand_in} == set(STAND_INS)
    for name, (_, stand_in) in STAND_INS.items():
        assert named[name] == stand_in
        choice = yaml.safe_load((CONF_DIR / "dataset" / f"{stand_in}.yaml").read_text())
        corpus = load_corpus(choice["loader"], "train", None, **choice["options"])
        assert corpus.synthetic
        assert corpus.instance_kind == choice["instance_kind"] == kind_of(name)
