"""Corpora for tests: a tiny treebank in files, generated ones, and options of the real ones."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import yaml

from harness.contracts.corpus import Corpus, load_corpus
from harness.values.places import CONF_DIR

TINY = "(3 (2 good) (1 (0 bad) (2 good)))\n(4 (2 1\\/2) (2 new))\n"


def write_sst(root: Path, train: str = TINY, dev: str = TINY) -> dict[str, str]:
    """Write a tiny treebank; returns its checksums."""
    (root / "sst").mkdir()
    for split, text in (("train", train), ("dev", dev)):
        (root / "sst" / f"{split}.txt").write_bytes(text.encode())
    return {"train": sha256(train), "dev": sha256(dev)}


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def options_of(name: str) -> dict[str, Any]:
    """The options of conf/dataset/<name>.yaml."""
    choice = yaml.safe_load((CONF_DIR / "dataset" / f"{name}.yaml").read_text())
    assert choice["name"] == name
    options: dict[str, Any] = choice["options"]
    return options


def synthetic(split: str = "train", **options: Any) -> Corpus:
    return load_corpus("datasets.sst_synthetic", split, None, **options)


def complete(**options: Any) -> Corpus:
    return load_corpus("datasets.complete_trees", "train", None, **options)
