"""`bench-data`: which corpora there are, where they lie, and what their instances look like."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets.fetch import fetch, is_complete
from datasets.shape import lattice_shapes, tree_shapes
from harness.contracts.corpus import Corpus, load_corpus
from harness.contracts.home import SPLITS, home_of
from harness.errors import BenchError, ConfigError
from harness.planning.yaml_files import read_mapping
from harness.terminal.argument_parser import OneLineParser
from harness.values.instances import Lattice, Tree
from harness.values.places import CONF_DIR


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code (1 after a printed line for an error of the user)."""
    try:
        options = _parser().parse_args(arguments)
        root = Path(options.data_root)
        if options.command == "list":
            _list(root)
        elif options.command == "fetch":
            _fetch(options.name, root)
        else:
            _describe(options.name, options.split, root)
    except BenchError as error:
        print(f"bench-data: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench-data: interrupted, nothing was placed", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="bench-data", description=__doc__)
    common = OneLineParser(add_help=False)
    common.add_argument(
        "--data-root",
        default=os.environ.get("BENCH_DATA", "data"),
        metavar="FOLDER",
        help="folder of the corpora (default: $BENCH_DATA, else data; here: %(default)s)",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("list", parents=[common], help="list corpora and where each was found")
    one = commands.add_parser("fetch", parents=[common], help="download one from its official home")
    one.add_argument("name")
    one = commands.add_parser("describe", parents=[common], help="print shape statistics of one")
    one.add_argument("name")
    one.add_argument("--split", choices=SPLITS, default="train")
    return parser


def _names() -> list[str]:
    return sorted(path.stem for path in (CONF_DIR / "dataset").glob("*.yaml"))


def _choice(name: str) -> dict[str, Any]:
    """Read conf/dataset/<name>.yaml."""
    if name not in _names():
        raise ConfigError(f"dataset {name} is unknown; choose one of {', '.join(_names())}")
    return read_mapping(CONF_DIR / "dataset" / f"{name}.yaml", "loader", "options")


def _list(root: Path) -> None:
    rows = []
    for name in _names():
        choice = _choice(name)
        home = home_of(choice["loader"])
        if home is None:
            state = "ready: generated from a seed"
        elif is_complete(home, choice["options"]["sha256"], root):
            state = f"found in {root / home.folder}"
        elif (root / home.folder).exists():
            state = f"incomplete or changed in {root / home.folder}: `bench-data fetch {name}`"
        else:
            state = f"not in {root}: `bench-data fetch {name}`; {choice['stand_in']} stands in"
        rows.append((name, state))
    _print_aligned(rows)


def _fetch(name: str, root: Path) -> None:
    choice = _choice(name)
    home = home_of(choice["loader"])
    if home is None:
        print(f"{name} needs no download: it is generated from a seed")
        return
    sha256 = choice["options"]["sha256"]
    if is_complete(home, sha256, root):
        print(f"{name} is already in {root / home.folder}, checked")
        return
    print(f"downloading {home.url}", file=sys.stderr)
    try:
        fetch(home, sha256, root, progress=_show_progress)
    finally:
        if sys.stderr.isatty():
            print(file=sys.stderr)
    print(f"{name} is in {root / home.folder}, checked")


def _show_progress(done_bytes: int, total_bytes: int | None) -> None:
    """Redraw one line on a terminal; stay silent elsewhere."""
    if sys.stderr.isatty():
        total = f" of {total_bytes / 1e6:.1f}" if total_bytes else ""
        print(f"\r{done_bytes / 1e6:.1f}{total} MB", end="", file=sys.stderr, flush=True)


def _describe(name: str, split: str, root: Path) -> None:
    choice = _choice(name)
    corpus = load_corpus(choice["loader"], split, root, **choice["options"])
    _print_aligned(_facts(corpus))


def _facts(corpus: Corpus) -> list[tuple[str, str]]:
    trees = [instance for instance in corpus.instances if isinstance(instance, Tree)]
    lattices = [instance for instance in corpus.instances if isinstance(instance, Lattice)]
    return [
        ("dataset", f"{corpus.name}, {corpus.split}"),
        ("source", corpus.source),
        ("synthetic", "yes" if corpus.synthetic else "no"),
        ("instances", f"{len(corpus.instances)} ({corpus.instance_kind})"),
        *(_tree_facts(corpus, trees) if trees else []),
        *(_lattice_facts(corpus, lattices) if lattices else []),
        ("sha256", corpus.sha256),
    ]


def _tree_facts(corpus: Corpus, trees: Sequence[Tree]) -> list[tuple[str, str]]:
    shapes = tree_shapes(trees, corpus.size("classes"))
    n_internal = shapes.n_vertices - shapes.n_leaves
    return [
        ("vertices", f"{shapes.n_vertices}, {shapes.n_leaves} leaves and {n_internal} internal"),
        ("leaves", f"mean {shapes.leaves_mean:.2f}, max {shapes.leaves_max}"),
        ("height", f"mean {shapes.height_mean:.2f}, max {shapes.height_max}"),
        ("vocabulary", f"{corpus.size('words')} rows, {shapes.n_words_used} used in this split"),
        ("labels", _shares(shapes.label_shares)),
    ]


def _lattice_facts(corpus: Corpus, lattices: Sequence[Lattice]) -> list[tuple[str, str]]:
    shapes = lattice_shapes(lattices, corpus.size("classes"))
    spread = f"min {shapes.states_min}, max {shapes.states_max}"
    words_used = f"{shapes.n_words_used} used in this split"
    characters_used = f"{shapes.n_characters_used} used in this split"
    per_character = shapes.n_words / shapes.n_characters
    return [
        ("states", f"{shapes.n_states}, mean {shapes.states_mean:.2f}, {spread}"),
        ("arcs", f"{shapes.n_characters} characters and {shapes.n_words} words"),
        ("words per character", f"{per_character:.3f}"),
        ("arcs into a state", _counts(shapes.arcs_into)),
        ("word lengths", _counts(shapes.word_lengths)),
        ("words", f"{corpus.size('words')} rows, {words_used}"),
        ("characters", f"{corpus.size('characters')} rows, {characters_used}"),
        ("labels", _shares(shapes.label_shares)),
    ]


def _shares(shares: Sequence[float]) -> str:
    return ", ".join(f"{label}: {share:.1%}" for label, share in enumerate(shares))


def _counts(counts: Sequence[int]) -> str:
    return ", ".join(f"{value}: {count}" for value, count in enumerate(counts) if count)


def _print_aligned(rows: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        print(f"{name:<{width}}  {text}")


if __name__ == "__main__":
    sys.exit(main())
