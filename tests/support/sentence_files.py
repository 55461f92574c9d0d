"""Made-up excerpts of the sentence corpora, written as their files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.contracts.corpus import Corpus, load_corpus

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
    """A line of CoNLL-U."""
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
# The arcs of 1 to 3 and of 2 to 4 cross.
CROSSED = "\n".join(
    [
        word("1", "a", "DET", "3", "det"),
        word("2", "b", "ADV", "4", "advmod"),
        word("3", "c", "NOUN", "4", "obj"),
        word("4", "d", "VERB", "0", "root"),
    ]
)
UD = {"train": f"{DOGS_BARK}\n\n{CROSSED}\n\n{TWO_OF_12}\n\n", "dev": f"{TWO_OF_12}\n"}


def write(folder: Path, files: Mapping[str, str | bytes], suffix: str = "") -> None:
    """Write files of a corpus, replacing what was there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        content = content if isinstance(content, bytes) else content.encode()
        (folder / f"{name}{suffix}").write_bytes(content)


def load(name: str, root: Path, split: str = "train", **options: Any) -> Corpus:
    return load_corpus(f"datasets.{name}", split, root, **options)
