"""`bench-data`: which corpora there are, where they lie, and what their instances look like."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from datasets.base import SPLITS, Archive, Corpus, load_corpus
from datasets.fetch import fetch, is_complete
from datasets.shape import tree_shapes
from harness.argument_parser import OneLineParser
from harness.errors import BenchError, ConfigError
from harness.grid import CONF_DIR


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
    text = (CONF_DIR / "dataset" / f"{name}.yaml").read_text(encoding="utf-8")
    choice: dict[str, Any] = yaml.safe_load(text)
    return choice


def _archive(choice: dict[str, Any]) -> Archive | None:
    """Return where a corpus comes from, None for one that is generated."""
    archive: Archive | None = getattr(importlib.import_module(choice["loader"]), "ARCHIVE", None)
    return archive


def _list(root: Path) -> None:
    rows = []
    for name in _names():
        choice = _choice(name)
        archive = _archive(choice)
        if archive is None:
            state = "ready: generated from a seed"
        elif is_complete(archive, choice["options"]["sha256"], root):
            state = f"found in {root / archive.folder}"
        elif (root / archive.folder).exists():
            state = f"incomplete or changed in {root / archive.folder}: `bench-data fetch {name}`"
        else:
            state = f"not in {root}: `bench-data fetch {name}`"
        rows.append((name, state))
    _print_aligned(rows)


def _fetch(name: str, root: Path) -> None:
    choice = _choice(name)
    archive = _archive(choice)
    if archive is None:
        print(f"{name} needs no download: it is generated from a seed")
        return
    sha256 = choice["options"]["sha256"]
    if is_complete(archive, sha256, root):
        print(f"{name} is already in {root / archive.folder}, checked")
        return
    print(f"downloading {archive.url}", file=sys.stderr)
    try:
        fetch(archive, sha256, root, progress=_show_progress)
    finally:
        if sys.stderr.isatty():
            print(file=sys.stderr)
    print(f"{name} is in {root / archive.folder}, checked")


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
    shapes = tree_shapes(corpus.instances, corpus.n_classes)
    n_internal = shapes.n_vertices - shapes.n_leaves
    labels = ", ".join(f"{label}: {share:.1%}" for label, share in enumerate(shapes.label_shares))
    return [
        ("dataset", f"{corpus.name}, {corpus.split}"),
        ("source", corpus.source),
        ("synthetic", "yes" if corpus.synthetic else "no"),
        ("instances", f"{shapes.n_instances} ({corpus.instance_kind})"),
        ("vertices", f"{shapes.n_vertices}, {shapes.n_leaves} leaves and {n_internal} internal"),
        ("leaves", f"mean {shapes.leaves_mean:.2f}, max {shapes.leaves_max}"),
        ("height", f"mean {shapes.height_mean:.2f}, max {shapes.height_max}"),
        ("vocabulary", f"{corpus.vocab_size} rows, {shapes.n_words_used} used in this split"),
        ("labels", labels),
        ("sha256", corpus.sha256),
    ]


def _print_aligned(rows: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        print(f"{name:<{width}}  {text}")


if __name__ == "__main__":
    sys.exit(main())
