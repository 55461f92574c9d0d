"""Corpora for tests: invented excerpts, written as their files, and generated ones."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from dynbatch.harness.contracts.corpus import Corpus, load_corpus
from dynbatch.harness.contracts.home import find_home
from dynbatch.harness.contracts.model import Model
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.paths import CONF_DIR

TINY = "(3 (2 good) (1 (0 bad) (2 good)))\n(4 (2 1\\/2) (2 new))\n"
PTB = {
    "train": " the dog sees the cat \n the cat <unk> \n a dog \n",
    "dev": " the bird sees a dog \n",
}
WIKINER = {
    "train": "Ann|I-PER lives|O in|O Rome|I-LOC .|O\nBob|I-PER lives|O .|O\nAnn|I-PER .|O\n",
    "dev": "Eve|I-PER lives|O in|O Ann|I-PER\n",
}
IWSLT = {
    "train.en": "a house\nthe old house\nno\n",
    "train.vi": "một nhà\nnhà cũ\nkhông\n",
    "tst2012.en": "the boat\n",
    "tst2012.vi": "thuyền\n",
    "vocab.en": "<unk>\n<s>\n</s>\na\nhouse\nthe\nold\n",
    "vocab.vi": "<unk>\n<s>\n</s>\nmột\nnhà\ncũ\n",
}


def word(number: str, form: str, tag: str, head: str, relation: str) -> str:
    """Return a line of CoNLL-U."""
    return "\t".join([number, form, "_", tag, "_", "_", head, relation, "_", "_"])


DOGS_BARK = "\n".join(
    [
        "# text = Dogs don't bark",
        word("1", "Dogs", "NOUN", "4", "nsubj:outer"),
        word("2-3", "don't", "_", "_", "_"),
        word("2", "do", "AUX", "4", "aux"),
        word("3", "n't", "PART", "4", "advmod"),
        word("4", "bark", "VERB", "0", "root"),
        word("4.1", "bark", "VERB", "_", "_"),
    ]
)
TWO_OF_12 = "\n".join(
    [word("1", "12", "NUM", "2", "nummod"), word("2", "DOGS", "NOUN", "0", "root")]
)
# The arcs between 1 and 3 and between 2 and 4 cross.
CROSSED = "\n".join(
    [
        word("1", "a", "DET", "3", "det"),
        word("2", "b", "ADV", "4", "advmod"),
        word("3", "c", "NOUN", "4", "obj"),
        word("4", "d", "VERB", "0", "root"),
    ]
)
UD = {"train": f"{DOGS_BARK}\n\n{CROSSED}\n\n{TWO_OF_12}\n\n", "dev": f"{TWO_OF_12}\n"}
LATTICES = """2
4
0 3 1 2
0
1 0 5
2 1 6 0 30
3 2 7 0 31 1 32

2
0 3
0
1 0 8

"""
# Files of every corpus that is read from files; the first one has the vocabulary.
EXCERPTS: dict[str, Mapping[str, str]] = {
    "sst": {"train.txt": TINY, "dev.txt": TINY},
    "ptb": {f"{part}.txt": text for part, text in PTB.items()},
    "wikiner": {f"{part}.txt": text for part, text in WIKINER.items()},
    "ud_ewt": {f"{part}.conllu": text for part, text in UD.items()},
    "iwslt15": IWSLT,
    "weibo_lattice": {"train.txt": LATTICES, "dev.txt": LATTICES},
}
READERS = sorted(EXCERPTS)


def write(folder: Path, files: Mapping[str, str | bytes], suffix: str = "") -> None:
    """Write files below a directory, such as those of a corpus, and replace existing ones."""
    for name, content in files.items():
        path = folder / f"{name}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def write_corpus(name: str, root: Path, **changed: str | bytes) -> Path:
    """Write an excerpt of a corpus, with some parts replaced, and return its directory."""
    home = find_home(f"dynbatch.datasets.{name}")
    write(root / home.folder, EXCERPTS[name])
    for part, content in changed.items():
        write(root / home.folder, {home.locate_part(root, part).name: content})
    return root / home.folder


def first_file(name: str, root: Path) -> Path:
    """Write an excerpt, and return its first file."""
    return write_corpus(name, root) / next(iter(EXCERPTS[name]))


def load(name: str, root: Path | None, split: str = "train", **options: Any) -> Corpus:
    return load_corpus(f"dynbatch.datasets.{name}", split, root, **options)


@functools.cache
def train_part(name: str, data_root: Path) -> Corpus:
    """Return the training part of a real corpus, read once per process."""
    return load_corpus(f"dynbatch.datasets.{name}", "train", data_root)


def first_mini_batch(model: Model, data_root: Path, n: int) -> MiniBatch:
    """Return the first n instances of ED-Batch's corpus for a model; skip the test without it."""
    name = "sst" if model.instance_kind == "tree" else "weibo_lattice"
    if not (data_root / name.removeprefix("weibo_")).exists():
        pytest.skip(f"{data_root} has no {name}")
    return model.mini_batch(train_part(name, data_root).instances[:n])


def change_lattices(line: int, text: str) -> str:
    """Replace one line (counted from 1) of the valid file."""
    lines = LATTICES.split("\n")
    lines[line - 1] = text
    return "\n".join(lines)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def load_shipped(
    name: str, root: Path | None = None, split: str = "train", **options: Any
) -> Corpus:
    """Load a dataset of conf/ with its options; skip the test if its files do not exist."""
    choice = yaml.safe_load((CONF_DIR / "dataset" / f"{name}.yaml").read_text())
    home = find_home(choice["loader"])
    if home is not None and root is not None:
        file = root / home.folder / choice.get("probe_file", "")
        if not file.exists():
            pytest.skip(f"{file} does not exist")
    return load_corpus(choice["loader"], split, root, **{**choice["options"], **options})


def synthetic(split: str = "train", **options: Any) -> Corpus:
    return load("sst_synthetic", None, split, **options)


def complete(**options: Any) -> Corpus:
    return load("complete_trees", None, **options)
