"""`bench-data`: lists, downloads and describes datasets."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dynbatch.datasets.parts.fetch import fetch, find_faults, is_complete
from dynbatch.datasets.parts.reading import read_own_file
from dynbatch.harness.contracts.corpus import MAX_CHILDREN, OWN_SPLIT, Corpus, load_corpus
from dynbatch.harness.contracts.home import SPLITS, Checksums, Home, find_checksum, find_home
from dynbatch.harness.errors import ConfigError, DataError
from dynbatch.harness.planning.config import Composer, build_dataset_options
from dynbatch.harness.planning.overrides import read_settings
from dynbatch.harness.planning.yaml_files import (
    find_choice,
    list_choices,
    list_formats,
    read_mapping,
)
from dynbatch.harness.terminal.exit_handling import OneLineParser, make_command
from dynbatch.harness.values.arrays import IntArray
from dynbatch.harness.values.checked import check_path_text
from dynbatch.harness.values.instances import Chain, Lattice, NaryTree, SentencePair, Tree
from dynbatch.harness.values.parsed import LEFT, RIGHT, SHIFT, ParsedSentence
from dynbatch.harness.values.paths import CONF_DIR, expand_home, find_data_root

Facts = list[tuple[str, str]]


def describe_corpus(corpus: Corpus) -> Facts:
    """Describe a corpus: source, statistics of its instances, vocabulary and checksum."""
    describe = DESCRIBED.get(corpus.instance_kind)
    skipped = ", ".join(f"{count} {reason}" for reason, count in corpus.skipped.items())
    return [
        ("dataset", f"{corpus.name}, {corpus.split}"),
        ("source", corpus.source),
        ("synthetic", "yes" if corpus.synthetic else "no"),
        ("instances", f"{len(corpus.instances)} ({corpus.instance_kind})"),
        *([("excluded", skipped)] if skipped else []),
        *(describe(corpus, corpus.instances[:]) if describe else []),
        ("sha256", corpus.sha256),
    ]


def _describe_trees(corpus: Corpus, trees: Sequence[Tree | NaryTree]) -> Facts:
    leaves = np.array([tree.n_leaves for tree in trees])
    heights = np.array([tree.height for tree in trees])  # edges from the root to the farthest leaf
    words = np.concatenate([tree.words for tree in trees])
    n_internal = len(words) - leaves.sum()
    most = corpus.sizes.get(MAX_CHILDREN)
    return [
        ("vertices", f"{len(words)}, {leaves.sum()} leaves and {n_internal} internal"),
        *([("children", f"max {most}")] if most else []),
        ("leaves", f"mean {leaves.mean():.2f}, max {leaves.max()}"),
        ("height", f"mean {heights.mean():.2f}, max {heights.max()}"),
        ("vocabulary", _format_rows(corpus, "words", words[words >= 0])),
        ("labels", _format_shares(corpus, [tree.labels for tree in trees])),
    ]


def _describe_lattices(corpus: Corpus, lattices: Sequence[Lattice]) -> Facts:
    states = np.array([lattice.n_states for lattice in lattices])
    arcs_into = [np.diff(lattice.arc_start) for lattice in lattices]  # state 0 has none
    targets = np.concatenate([np.arange(len(n)).repeat(n) for n in arcs_into])
    lengths = targets - np.concatenate([lattice.sources for lattice in lattices])  # in characters
    tokens = np.concatenate([lattice.tokens for lattice in lattices])
    is_word = ~np.concatenate([lattice.is_character for lattice in lattices])
    n_words, n_characters = is_word.sum(), (~is_word).sum()
    spread = f"min {states.min()}, max {states.max()}"
    return [
        ("states", f"{states.sum()}, mean {states.mean():.2f}, {spread}"),
        ("arcs", f"{n_characters} characters and {n_words} words"),
        ("words per character", f"{n_words / n_characters:.3f}"),
        ("arcs into a state", _format_counts(np.concatenate(arcs_into))),
        ("word lengths", _format_counts(lengths[is_word])),
        ("words", _format_rows(corpus, "words", tokens[is_word])),
        ("characters", _format_rows(corpus, "characters", tokens[~is_word])),
        ("labels", _format_shares(corpus, [lattice.tags for lattice in lattices])),
    ]


def _describe_chains(corpus: Corpus, chains: Sequence[Chain]) -> Facts:
    words = np.concatenate([chain.words for chain in chains])
    labels = np.concatenate([chain.labels for chain in chains])
    entries = [
        ("words", _format_lengths([chain.n_words for chain in chains])),
        ("vocabulary", _format_rows(corpus, "words", words)),
    ]
    if "characters" in corpus.sizes:
        letters = np.concatenate([np.diff(chain.char_start) for chain in chains])
        spelled = letters[letters > 0]
        share = f"{len(spelled)}, {len(spelled) / len(letters):.1%} of all"
        used = np.concatenate([chain.characters for chain in chains])
        entries.append(("rare words", f"{share}, spelled out"))
        if len(spelled):
            entries.append(("their letters", _format_lengths(spelled)))
            entries.append(("characters", _format_rows(corpus, "characters", used)))
    if "classes" in corpus.sizes:
        counts = np.sort(np.bincount(labels, minlength=corpus.get_size("classes")))[::-1]
        most = ", ".join(f"{count / counts.sum():.1%}" for count in counts[:5].tolist())
        entries.append(("labels", f"{corpus.get_size('classes')}, the most frequent {most}"))
    else:
        entries.append(("labels", "the next word"))
    return entries


def _describe_pairs(corpus: Corpus, pairs: Sequence[SentencePair]) -> Facts:
    source = np.concatenate([pair.source for pair in pairs])
    target = np.concatenate([pair.target for pair in pairs])
    return [
        ("source words", _format_lengths([len(pair.source) for pair in pairs])),
        ("target words", _format_lengths([len(pair.target) for pair in pairs])),
        ("decoder steps", str(sum(pair.n_steps for pair in pairs))),
        ("source vocabulary", _format_rows(corpus, "source_words", source)),
        ("target vocabulary", _format_rows(corpus, "target_words", target)),
    ]


def _describe_parsed(corpus: Corpus, parsed: Sequence[ParsedSentence]) -> Facts:
    kinds = np.bincount(np.concatenate([sentence.kinds for sentence in parsed]), minlength=3)
    named = (("shifts", SHIFT), ("left", LEFT), ("right", RIGHT))
    steps = ", ".join(f"{kinds[kind]} {name}" for name, kind in named)
    words = np.concatenate([sentence.words for sentence in parsed])
    tags = np.concatenate([sentence.tags for sentence in parsed])
    relations = np.concatenate([sentence.relations for sentence in parsed])
    return [
        ("words", _format_lengths([len(sentence.heads) for sentence in parsed])),
        ("transitions", f"{kinds.sum()}: {steps}"),
        ("vocabulary", _format_rows(corpus, "words", words)),
        ("parts of speech", _format_rows(corpus, "tags", tags)),
        ("relations", _format_rows(corpus, "relations", relations)),
    ]


def _format_lengths(lengths: Sequence[int] | IntArray) -> str:
    values = np.asarray(lengths)
    return f"{values.sum()}, mean {values.mean():.2f}, min {values.min()}, max {values.max()}"


def _format_rows(corpus: Corpus, size: str, ids: IntArray) -> str:
    return f"{corpus.get_size(size)} rows, {len(np.unique(ids))} used in this split"


def _format_shares(corpus: Corpus, labels: Sequence[IntArray]) -> str:
    counts = np.bincount(np.concatenate(labels), minlength=corpus.get_size("classes"))
    shares = counts / counts.sum()
    names = corpus.label_names or range(len(shares))
    return ", ".join(f"{name}: {share:.1%}" for name, share in zip(names, shares, strict=True))


def _format_counts(values: IntArray) -> str:
    return ", ".join(
        f"{value}: {count}" for value, count in enumerate(np.bincount(values)) if count
    )


DESCRIBED: dict[str, Callable[[Corpus, Any], Facts]] = {
    "tree": _describe_trees,
    "lattice": _describe_lattices,
    "chain": _describe_chains,
    "sentence_pair": _describe_pairs,
    "parsed_sentence": _describe_parsed,
}


OPTION = "dataset."


@make_command("bench-data")
def main(typed: list[str]) -> int:
    parser = _build_parser()
    options, rest = parser.parse_known_args(typed)  # overrides may follow an option
    if rest and options.command != "describe":
        parser.error(f"unexpected argument {rest[0]}; remove it")
    root = _parse_root(options.data_root)
    if options.command == "list":
        names = list_choices("dataset", CONF_DIR)
        _print_aligned([(name, _describe_location(name, root)) for name in names])
    elif options.command == "fetch":
        _fetch(options.name, root)
    else:
        _describe(options.name, options.split, root, [*options.overrides, *rest])
    return 0


def _build_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="bench-data", description=__doc__)
    common = OneLineParser(add_help=False)
    common.add_argument(
        "--data-root",
        default=str(find_data_root(os.environ)),
        metavar="DIRECTORY",
        help="directory of the datasets (default: $BENCH_DATA, else data; now: %(default)s)",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("list", parents=[common], help="list datasets and their directories")
    subparser = commands.add_parser(
        "fetch", parents=[common], help="download a dataset from its official source"
    )
    subparser.add_argument("name")
    subparser = commands.add_parser(
        "describe", parents=[common], help="print shape statistics of a dataset"
    )
    subparser.add_argument("name", help="name of a dataset, or a file of your own")
    subparser.add_argument("--split", choices=SPLITS, default="train")
    subparser.add_argument(
        "overrides", nargs="*", default=(), metavar="dataset.options.KEY=VALUE", help="as for bench"
    )
    return parser


def _parse_root(given: str) -> Path:
    check_path_text("--data-root", given)
    root = expand_home("--data-root", given)
    try:
        is_file = root.exists() and not root.is_dir()
    except OSError as error:  # a directory without permission
        raise ConfigError(f"{root}: {error.strerror}; choose another --data-root") from None
    if is_file:
        raise ConfigError(f"--data-root={root} is not a directory; choose another --data-root")
    return root


def _read_dataset(name: str) -> dict[str, Any]:
    return read_mapping(find_choice("dataset", name, CONF_DIR), "loader", "options")


def _read_checksums(choice: dict[str, Any]) -> Checksums:
    return (choice["options"] or {}).get("sha256")


def _describe_location(name: str, root: Path) -> str:
    """Return where a dataset comes from, and the missing or changed files of a downloaded one."""
    choice = _read_dataset(name)
    try:
        home = find_home(choice["loader"])
    except ConfigError as error:
        return str(error)
    if choice.get("first_line"):
        return "a file of your own: set dataset.path=FILE"
    if home is None:
        return "ready: generated from a seed"
    folder = root / home.folder
    if not folder.exists():
        fallback = choice.get("fallback")
        advice = f"; fallback: {fallback}" if fallback else ""
        return f"not in {root}; run `bench-data fetch {name}`{advice}"
    wrong = find_faults(home, _read_checksums(choice), root)
    if not wrong:
        return f"found in {folder}"
    needed = choice.get("probe_file")
    notes = [
        f"{', '.join(part for part, part_fault in wrong.items() if part_fault == fault)} {fault}"
        for fault in dict.fromkeys(wrong.values())
    ]
    if needed and needed not in [home.locate_part(root, part).name for part in wrong]:
        return f"found in {folder} ({'; '.join(notes)})"
    return f"incomplete or changed in {folder} ({'; '.join(notes)}); run `bench-data fetch {name}`"


def _fetch(name: str, root: Path) -> None:
    choice = _read_dataset(name)
    home = find_home(choice["loader"])
    if choice.get("first_line"):
        raise ConfigError(f"{name} reads a file of your own; set dataset.path=FILE for `bench`")
    if home is None:
        print(f"{name} needs no download: it is generated from a seed")
        return
    sha256 = _read_checksums(choice)
    if is_complete(home, sha256, root):
        print(f"{name} is already in {root / home.folder}, {_describe_check(home, sha256)}")
        return
    print(f"downloading {home.url}", file=sys.stderr)
    try:
        fetch(home, sha256, root, progress=_show_progress)
    except KeyboardInterrupt as stop:
        stop.add_note("no files were added")
        raise
    finally:
        if sys.stderr.isatty():
            print(file=sys.stderr)
    print(f"{name} is in {root / home.folder}, {_describe_check(home, sha256)}")


def _describe_check(home: Home, sha256: Checksums) -> str:
    """Return "checked", or a note on files that have no checksum and may be truncated."""
    unknown = [part for part in home.origins if find_checksum(sha256, part) is None]
    if not unknown:
        return "checked"
    return f"not checked: no checksum of {', '.join(unknown)}, which may be truncated"


def _show_progress(done_bytes: int, total_bytes: int | None) -> None:
    """Redraw one line on a terminal; stay silent elsewhere."""
    if sys.stderr.isatty():
        total = f" of {total_bytes / 1e6:.1f}" if total_bytes else ""
        print(f"\r{done_bytes / 1e6:.1f}{total} MB", end="", file=sys.stderr, flush=True)


def _describe(name: str, split: str, root: Path, overrides: Sequence[str]) -> None:
    for text in overrides:
        if not text.lstrip("+").startswith(OPTION):
            raise ConfigError(
                f"unexpected argument {text}: expected {OPTION}options.KEY=VALUE; remove it"
            )
    check_path_text("name", name)
    settings = {"dataset": name}
    known = list_choices("dataset", CONF_DIR)
    if name not in known and Path(name).exists():
        settings = {"dataset": _guess_format(Path(name), overrides), "dataset.path": name}
    elif name not in known and {"/", "."} & {*name}:
        raise ConfigError(f"{name} does not exist; give an existing file, or a dataset's name")
    _read_dataset(settings["dataset"])
    chosen = Composer().compose_config({**read_settings(overrides), **settings}).dataset
    corpus = load_corpus(chosen.loader, split, root, **build_dataset_options(chosen))
    form = [("format", chosen.name)] if chosen.path is not None else []
    _print_aligned([*form, *describe_corpus(corpus)])


def _guess_format(path: Path, overrides: Sequence[str]) -> str:
    """Return the dataset that reads a file of the user's own.

    Its pattern matches the first line, and it is the only such dataset that reads the whole file.
    """
    first = next((line for line in read_own_file(path).lines if line.strip()), "")
    formats = list_formats()
    names = [name for name, pattern in formats.items() if re.match(pattern, first)]
    faults = {name: _find_fault(name, path, overrides) for name in names}
    reading = [name for name, fault in faults.items() if not fault]
    if len(reading) == 1:
        return reading[0]
    problem = f"{path}:1: the first line is in no known format, {first[:40]!r}"
    if reading:
        problem = f"{path}:1: the first line may be {' or '.join(reading)}, {first[:40]!r}"
    elif faults:
        kind = f"neither {' nor '.join(faults)}" if len(faults) > 1 else f"not {names[0]}"
        problem = f"{path} is {kind}: {'; '.join(faults.values())}"
    raise DataError(
        f"{problem}; run `bench-data describe FORMAT {OPTION}path={path}` with one of:"
        f" {', '.join(reading or formats)}"
    )


def _find_fault(name: str, path: Path, overrides: Sequence[str]) -> str:
    """Return the reason why a dataset cannot read a file with these options, or ""."""
    settings = {**read_settings(overrides), "dataset": name, "dataset.path": str(path)}
    try:
        chosen = Composer().compose_config(settings).dataset
        load_corpus(chosen.loader, OWN_SPLIT, None, **build_dataset_options(chosen))
    except (ConfigError, DataError) as error:
        return str(error)
    return ""


def _print_aligned(rows: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        print(f"{name:<{width}}  {text}")


if __name__ == "__main__":
    sys.exit(main())
