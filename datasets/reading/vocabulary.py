"""Which row of an embedding table a word or a character has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from harness.errors import ConfigError
from harness.values.arrays import IntArray, int_array


def check_modulo(modulo: int) -> None:
    """Raise ConfigError for a negative number of rows that all words share."""
    if modulo < 0:
        raise ConfigError(
            f"vocab_modulo={modulo} is not allowed; give 0 for a row per word, or how many rows all"
            " words share"
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows for the ids 0 to n_known - 1 of the training split, and one for all that it lacks.

    modulo: 0, or the number of rows that all ids share as id modulo it; ED-Batch's release does so
    with 256, and has no row for unknown words.

    Raises ConfigError for a negative modulo.
    """

    n_known: int
    modulo: int = 0

    def __post_init__(self) -> None:
        check_modulo(self.modulo)

    @property
    def size(self) -> int:
        """Rows of the table."""
        return self.modulo or self.n_known + 1

    def of(self, ids: object) -> IntArray:
        """Return the row of each id, which may be above those of the training split."""
        ids = np.asarray(ids)
        return int_array(ids % self.modulo if self.modulo else np.minimum(ids, self.n_known))


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Rows of words: `known` by word, `unknown` for all others; `size` of them."""

    known: Mapping[str, int]
    unknown: int
    size: int

    def row(self, word: str) -> int:
        """Return the row of a word."""
        return self.known.get(word, self.unknown)


def vocabulary_of(words: Iterable[str], modulo: int = 0) -> Vocabulary:
    """Number the words of a part by first appearance; modulo as in Rows."""
    distinct = list(dict.fromkeys(words))
    rows = Rows(len(distinct), modulo)
    *known, unknown = rows.of(range(len(distinct) + 1)).tolist()
    return Vocabulary(dict(zip(distinct, known, strict=True)), unknown, rows.size)
