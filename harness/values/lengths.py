"""How long an instance is: what instances are sorted by that shall be alike in a mini-batch."""

from __future__ import annotations

from harness.values.instances import Chain, Instance, Lattice, ParsedSentence, SentencePair, Tree


def length_of(instance: Instance) -> tuple[int, ...]:
    """Return numbers to sort by: leaves of a tree, characters of a lattice, words of a sentence.

    Of a pair those of the source, then of the target.
    """
    match instance:
        case Tree():
            return (instance.n_leaves,)
        case Lattice():
            return (instance.n_states - 1,)
        case Chain():
            return (instance.n_words,)
        case SentencePair():
            return (len(instance.source), len(instance.target))
        case ParsedSentence():
            return (len(instance.heads),)
