"""Lattices over Weibo sentences, with arcs for characters and for words, as ED-Batch released them.

Source: Chen et al., ICML 2023, https://github.com/gulang2019/ED-Batch, benchmark/data/lattice; made
there of the Weibo NER corpus (Peng and Dredze, EMNLP 2015), which it splits otherwise: 1147, 113
and 316 lattices. The training split has 50 618 states, 49 471 characters and 26 777 words.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from datasets.reading.lattice_files import LatticeTable, read_lattices
from datasets.reading.lazy import LazyInstances
from datasets.reading.vocabulary import Rows
from harness.contracts.corpus import Corpus
from harness.contracts.home import Checksums, Files, checksum_of, read_checked
from harness.errors import DataError
from harness.values.arrays import int_array
from harness.values.instances import Lattice

NAME = "weibo_lattice"
N_CLASSES = 18  # tags; 0 is that of state 0
HOME = Files(
    url="https://raw.githubusercontent.com/gulang2019/ED-Batch/"
    "7d257ff12656c84fefb56406e36bafb04c7f479f/benchmark/data/lattice/{name}.txt",
    folder="lattice",
    n_bytes={"train": 733904, "dev": 85429, "test": 211583},
)


def load(split: str, root: Path | None, sha256: Checksums = None, vocab_modulo: int = 0) -> Corpus:
    """Load root/lattice/<split>.txt in the file's order.

    sha256: expected checksum per split; null accepts files of one's own in the same format.
    vocab_modulo: 0 keeps the file's ids, and ids above those of the training split share one row of
    unknown words or characters; 256 is the release's own: every id modulo 256.

    Raises DataError for a missing or malformed file (file:line), or a wrong checksum.
    """
    if root is None:
        raise DataError(
            f"{NAME} needs a data_root; set BENCH_DATA to the folder that holds lattice/"
        )
    table, digest = _read(root, split, sha256)
    train = table if split == "train" else _read(root, "train", sha256)[0]
    characters = Rows(1 + _greatest(train, characters=True), vocab_modulo)
    words = Rows(1 + _greatest(train, characters=False), vocab_modulo)
    tokens = int_array(
        np.where(table.is_character, characters.of(table.tokens), words.of(table.tokens))
    )

    def build(index: int) -> Lattice:
        return table.lattice(index, tokens)

    return Corpus(
        name=NAME,
        split=split,
        instances=LazyInstances(table.n_lattices, build),
        sizes={"words": words.size, "characters": characters.size, "classes": N_CLASSES},
        synthetic=False,
        sha256=digest,
        source="lattices over Weibo NER sentences, of ED-Batch's release (Chen et al., 2023)",
        instance_kind="lattice",
    )


def _read(root: Path, split: str, sha256: Checksums) -> tuple[LatticeTable, str]:
    """Return a split and the checksum of its file."""
    path = HOME.path(root, split)
    content, digest = read_checked(path, checksum_of(sha256, split), NAME)
    return read_lattices(content, str(path), N_CLASSES), digest


def _greatest(table: LatticeTable, *, characters: bool) -> int:
    """Return the greatest id of a character or a word, -1 where there is none."""
    ids = table.tokens[table.is_character == characters]
    return int(ids.max(initial=-1))
