"""The inputs of the benchmark: frozen values of integer arrays that check themselves when built."""

from __future__ import annotations

from harness.values.arrays import IntArray, int_array
from harness.values.lattices import Lattice
from harness.values.sentences import Chain, ParsedSentence, SentencePair
from harness.values.trees import TREE_ROWS, Tree

__all__ = [
    "TREE_ROWS",
    "Chain",
    "Instance",
    "IntArray",
    "Lattice",
    "ParsedSentence",
    "SentencePair",
    "Tree",
    "int_array",
]

Instance = Tree | Lattice | Chain | SentencePair | ParsedSentence
