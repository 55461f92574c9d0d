"""Fallback datasets of the pipeline for datasets that are not on the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dynbatch.harness.contracts.corpus import load_corpus
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.artifacts import build_choices, plan_artifact
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.values.paths import CONF_DIR
from tests.support.pipelines import write_conf, write_experiment

STAND_INS = {
    "sst": ("sst", "sst_synthetic"),
    "weibo_lattice": ("lattice", "lattice_synthetic"),
}
# Directory, development file and training file of datasets that fall back to the development file.
IN_PARTS = {
    "ptb": ("ptb", "dev.txt", "train.txt"),
    "ptb_fixed": ("ptb", "dev.txt", "train.txt"),
    "wikiner": ("wikiner", "dev.txt", "train.txt"),
    "iwslt15": ("iwslt15", "tst2012.en", "train.en"),
    "ud_ewt": ("ud_ewt", "dev.conllu", "train.conllu"),
}
MODELS = {
    **{"tree": "tree_lstm", "lattice": "lattice_lstm", "chain": "var_lstm"},
    **{"sentence_pair": "seq2seq", "parsed_sentence": "parser"},
}


def kind_of(dataset: str) -> str:
    choice = yaml.safe_load((CONF_DIR / "dataset" / f"{dataset}.yaml").read_text())
    return str(choice["instance_kind"])


def planned(
    dataset: str, folder: Path, model: str = "tree_lstm", datasets: frozenset[str] | None = None
) -> str:
    """Return the dataset of an experiment's only trial, with data in `folder`/data."""
    conf = folder / "conf"
    if not conf.exists():
        write_conf(folder)
    block = {"system": "reference", "model": model, "dataset": dataset}
    content = {"title": "t", "paper": "p", "scales": {"smoke": {"blocks": [block]}}}
    write_experiment(folder, "one", content)
    given = {"scale": "smoke", "device": "cpu", "conf_dir": conf, "data_root": f"{folder}/data"}
    choices = build_choices(given, {}, datasets)
    (trial,) = plan_artifact("one", choices, Composer(conf))
    assert trial.spec.dataset == trial.settings["dataset"]
    return trial.spec.dataset


@pytest.mark.parametrize("dataset", STAND_INS)
def test_only_missing_datasets_are_replaced(dataset: str, tmp_path: Path) -> None:
    folder, stand_in = STAND_INS[dataset]
    model = MODELS[kind_of(dataset)]
    assert planned(dataset, tmp_path, model) == stand_in
    (tmp_path / "data" / folder).mkdir(parents=True)
    assert planned(dataset, tmp_path, model) == dataset


@pytest.mark.parametrize("dataset", IN_PARTS)
def test_fallback_is_the_dev_part_and_then_synthetic_data(dataset: str, tmp_path: Path) -> None:
    folder, part, train = IN_PARTS[dataset]
    model = "bilstm_char" if dataset == "wikiner" else MODELS[kind_of(dataset)]
    assert planned(dataset, tmp_path, model) == f"{dataset}_synthetic"
    assert planned(f"{dataset}_dev", tmp_path, model) == f"{dataset}_synthetic"
    place = tmp_path / "data" / folder
    place.mkdir(parents=True)
    assert planned(dataset, tmp_path, model) == f"{dataset}_synthetic"
    (place / part).touch()
    assert planned(dataset, tmp_path, model) == f"{dataset}_dev"
    assert planned(f"{dataset}_dev", tmp_path, model) == f"{dataset}_dev"
    (place / train).touch()
    assert planned(dataset, tmp_path, model) == dataset


def test_dataset_follows_records_from_another_machine(tmp_path: Path) -> None:
    for measured in ("ptb", "ptb_dev", "ptb_synthetic"):
        found = planned("ptb", tmp_path, "var_lstm", datasets=frozenset({measured, "sst"}))
        assert found == measured
    assert planned("ptb", tmp_path, "var_lstm", datasets=frozenset({"sst"})) == "ptb"


def test_stand_ins_in_a_circle_do_not_hang(tmp_path: Path) -> None:
    planned("ptb", tmp_path, "var_lstm")  # copies conf/
    for name, stand_in in (("ptb", "ptb_dev"), ("ptb_dev", "ptb")):
        file = tmp_path / "conf" / "dataset" / f"{name}.yaml"
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"fallback": stand_in}))
    assert planned("ptb", tmp_path, "var_lstm") == "ptb"


def test_an_unknown_data_set_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dataset=imagenet is unknown; choose one of"):
        planned("imagenet", tmp_path)


def test_fallbacks_are_synthetic_and_of_the_same_instance_kind() -> None:
    files = sorted((CONF_DIR / "dataset").glob("*.yaml"))
    named = {path.stem: yaml.safe_load(path.read_text()).get("fallback") for path in files}
    parts = {name: (folder, f"{name}_dev") for name, (folder, *_) in IN_PARTS.items()}
    of_parts = {
        f"{name}_dev": (folder, f"{name}_synthetic") for name, (folder, *_) in parts.items()
    }
    assert {name for name, stand_in in named.items() if stand_in} == {*STAND_INS, *parts, *of_parts}
    for name, (_, stand_in) in (STAND_INS | parts | of_parts).items():
        assert named[name] == stand_in
        if name in parts:
            continue
        choice = yaml.safe_load((CONF_DIR / "dataset" / f"{stand_in}.yaml").read_text())
        corpus = load_corpus(choice["loader"], "train", None, **choice["options"])
        assert corpus.synthetic
        assert corpus.instance_kind == choice["instance_kind"] == kind_of(name)


@pytest.mark.parametrize("dataset", IN_PARTS)
def test_dev_dataset_differs_from_its_corpus_only_in_the_vocabulary(dataset: str) -> None:
    whole, part = (
        yaml.safe_load((CONF_DIR / "dataset" / f"{name}.yaml").read_text())
        for name in (dataset, f"{dataset}_dev")
    )
    vocabularies = [one["options"].pop("vocabulary") for one in (whole, part)]
    assert vocabularies == ["train", "dev"]
    assert whole["options"] == part["options"]
    assert whole["loader"] == part["loader"]
    assert [whole["probe_file"], part["probe_file"]] == [IN_PARTS[dataset][2], IN_PARTS[dataset][1]]
    others = yaml.safe_load((CONF_DIR / "dataset" / "ptb.yaml").read_text())
    if whole["loader"] == others["loader"]:
        assert whole["options"]["sha256"] == others["options"]["sha256"]
