"""Small well-formed files of every corpus that is read from files, in memory."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WORDS = ("dog", "cat", "Ann", "sees", "tree", "1\\/2", "nhà", "一只", "12", "n't", "<unk>", "x")
TAGS = ("O", "I-PER", "I-LOC")
LABELS = ("O", "B-PER.NAM", "I-PER.NAM")
CHARACTERS = "我们北京大学生活人民中国"
N_LINES = 12
MARKS = ("<unk>", "<s>", "</s>")


@dataclass(frozen=True, slots=True)
class CorpusFiles:
    """Files of a corpus below the data root by name; `damaged` are those that are mutated."""

    loader: str
    files: Mapping[str, bytes]
    damaged: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


def corpora(seed: int = 0) -> dict[str, CorpusFiles]:
    """Every reader of datasets/ with files that it takes."""
    rng = random.Random(seed)
    trees = _lines(_tree(rng, rng.randint(2, 7)) for _ in range(N_LINES))
    text = _lines(_sentence(rng) for _ in range(N_LINES))
    tagged = _lines(
        " ".join(f"{word}|{rng.choice(TAGS)}" for word in _sentence(rng).split())
        for _ in range(N_LINES)
    )
    return {
        "sst": CorpusFiles("datasets.sst", {"sst/train.txt": trees}, ("sst/train.txt",)),
        "ptb": CorpusFiles("datasets.ptb", {"ptb/train.txt": text}, ("ptb/train.txt",)),
        "wikiner": CorpusFiles(
            "datasets.wikiner", {"wikiner/train.txt": tagged}, ("wikiner/train.txt",)
        ),
        "iwslt15": _iwslt15(rng),
        "ud_ewt": CorpusFiles(
            "datasets.ud_ewt",
            {"ud_ewt/train.conllu": _treebank(rng)},
            ("ud_ewt/train.conllu",),
        ),
        "weibo_lattice": CorpusFiles(
            "datasets.weibo_lattice", {"lattice/train.txt": _lattices(rng)}, ("lattice/train.txt",)
        ),
        "weibo_lexicon": CorpusFiles(
            "datasets.weibo_lexicon",
            {"weibo/train.conll": _characters(rng)},
            ("weibo/train.conll",),
        ),
    }


def _lines(lines: Any) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _sentence(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 9)))


def _tree(rng: random.Random, n_leaves: int) -> str:
    label = rng.randrange(5)
    if n_leaves == 1:
        return f"({label} {rng.choice(WORDS)})"
    n_left = rng.randint(1, n_leaves - 1)
    return f"({label} {_tree(rng, n_left)} {_tree(rng, n_leaves - n_left)})"


def _iwslt15(rng: random.Random) -> CorpusFiles:
    vocabulary = _lines([*MARKS, *(word for word in WORDS if word not in MARKS)])
    files = {
        f"iwslt15/{name}": content
        for name, content in {
            "train.en": _lines(_sentence(rng) for _ in range(N_LINES)),
            "train.vi": _lines(_sentence(rng) for _ in range(N_LINES)),
            "vocab.en": vocabulary,
            "vocab.vi": vocabulary,
        }.items()
    }
    return CorpusFiles("datasets.iwslt15", files, tuple(files))


def _treebank(rng: random.Random) -> bytes:
    """Sentences in which each word's head is its neighbour on the left, the first the root."""
    blocks = []
    for number in range(N_LINES // 2):
        words = [word for word in _sentence(rng).split() if word != "<unk>"] or ["dog"]
        lines = [f"# sent_id = {number}"]
        for place, word in enumerate(words, 1):
            columns = [str(place), word, "_", rng.choice(("NOUN", "VERB")), "_", "_"]
            columns += [str(place - 1), "dep" if place > 1 else "root", "_", "_"]
            lines.append("\t".join(columns))
        blocks.append("\n".join(lines) + "\n\n")
    return "".join(blocks).encode()


def _lattices(rng: random.Random) -> bytes:
    n_lattices = 4
    lines = [str(n_lattices)]
    for _ in range(n_lattices):
        n_states = rng.randint(3, 8)
        tags = [0, *(rng.randrange(18) for _ in range(n_states - 1))]
        lines += [str(n_states), " ".join(map(str, tags)), "0"]
        for state in range(1, n_states):
            arcs = [(state - 1, rng.randrange(50))]
            arcs += [(rng.randrange(state - 1), rng.randrange(40))] if state > 1 else []
            lines.append(" ".join(map(str, [len(arcs), *(n for arc in arcs for n in arc)])))
        lines.append("")
    return _lines(lines)


def _characters(rng: random.Random) -> bytes:
    blocks = []
    for _ in range(N_LINES // 2):
        characters = [rng.choice(CHARACTERS) for _ in range(rng.randint(2, 9))]
        lines = [f"{c}{place}\t{rng.choice(LABELS)}" for place, c in enumerate(characters)]
        blocks.append("\n".join(lines) + "\n\n")
    return "".join(blocks).encode()
