"""Files of the user's own: any number of instances, labels and children, without splits."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import lzma
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from dynbatch.datasets.instances import KINDS
from dynbatch.harness.commands.data import main
from dynbatch.harness.contracts.corpus import Corpus, hash_inputs, load_corpus
from dynbatch.harness.contracts.model import ModelSizes, find_model_class, trace_functions
from dynbatch.harness.counts.request import parse_request
from dynbatch.harness.errors import ConfigError, DataError
from dynbatch.harness.planning.config import Composer, build_dataset_options
from dynbatch.harness.planning.yaml_files import list_choices, list_formats, read_mapping
from dynbatch.harness.records.reuse import OwnData
from dynbatch.harness.values.paths import CONF_DIR
from tests.support.corpora import DOGS_BARK, LATTICES, TINY, TWO_OF_12, load, write_corpus
from tests.support.refusals import Output, expect_refusal, read_refusal

EXAMPLES = {  # a file of each format, and a model that takes it
    "trees": ("(3 (2 a) (2 b))\n(1 c)\n", "tree_lstm"),
    "lattices": (LATTICES, "lattice_lstm"),
    "text": ("a b c\nd\n", "var_lstm"),
    "conll": ("Ann\tB-PER\nlives\tO\n\nBob\tB-PER\n", "bilstm_char"),
    "conllu": (f"{DOGS_BARK}\n\n{TWO_OF_12}\n", "parser"),
    "pairs": ("a house\tmột nhà\nno\tkhông\n", "seq2seq"),
    "instances": ('{"words": [0], "labels": [0], "children": [[]]}\n' * 2, "tree_lstm"),
}
FILES = {form: text for form, (text, _) in EXAMPLES.items()}


def read_own(form: str, text: str, folder: Path, **options: Any) -> Corpus:
    """Write a file of a user's own and load it as `bench` does."""
    file = folder / "mine.txt"
    file.write_text(text, encoding="utf-8")
    settings = {"dataset": form, "dataset.path": str(file)}
    settings |= {f"dataset.options.{name}": value for name, value in options.items()}
    dataset = Composer().compose_config(settings).dataset
    return load_corpus(dataset.loader, "train", None, **build_dataset_options(dataset))


def draw_tree(corpus: Corpus, index: int = 0) -> str:
    """Write a tree with the names of its labels; leaves are w and the word's id."""
    tree: Any = corpus.instances[index]

    def draw(vertex: int) -> str:
        label = corpus.label_names[tree.labels[vertex]]
        if tree.left[vertex] < 0:
            return f"({label} w{tree.words[vertex]})"
        return f"({label} {draw(tree.left[vertex])} {draw(tree.right[vertex])})"

    return draw(tree.n_vertices - 1)


def resolve(**settings: str) -> Any:
    return Composer().resolve_trial({"model": "tree_lstm", "dataset": "trees"} | settings)


def test_there_is_an_example_of_every_format_and_kind() -> None:
    assert set(list_formats()) == set(FILES)
    assert set(KINDS) == set(KIND_EXAMPLES)


@pytest.mark.parametrize("form", sorted(FILES))
def test_own_files_need_no_name_no_splits_and_no_checksum(form: str, tmp_path: Path) -> None:
    corpus = read_own(form, FILES[form], tmp_path)
    assert len(corpus.instances[:]) == 2
    assert (corpus.name, corpus.source) == ("mine.txt", "your data")
    assert corpus.sha256 == hashlib.sha256(FILES[form].encode()).hexdigest()
    assert not corpus.synthetic
    chosen = {"dataset": form, "dataset.path": str(tmp_path / "mine.txt")}
    resolve(model=EXAMPLES[form][1], **chosen)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        *FILES.items(),
        ("conll", "U.N. NNP I-ORG\nofficial NN O\n\nBob NNP I-PER\n"),
        ("conll", "Ann B-PER\nlives O\n\n\nBob B-PER\n\n"),
        ("conll", "\ufeffAnn\tB-PER\r\nlives\tO\r\n\r\nBob\tB-PER\r\n"),
        ("conllu", f"# newdoc id = 1\n# text = Dogs bark\n{DOGS_BARK}\n\n{TWO_OF_12}\n"),
        ("conllu", f"{DOGS_BARK}\n"),
        ("text", "word\nother\n"),
    ],
)
def test_describe_finds_the_format(form: str, text: str, tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "mine.txt"
    file.write_text(text, encoding="utf-8", newline="")
    assert main(["describe", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["format", form]


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("Ann B-PER\nlives O\n", ["may be conll or text", "describe FORMAT dataset.path="]),
        ("Ann\tB-PER\nlives\tO\n", ["may be conll or pairs", "describe FORMAT dataset.path="]),
        ("( O\nAnn B-PER\n", ["mine.txt is not trees", "; run `bench-data describe FORMAT"]),
        ("no\tnot\na house\tno house\n", ["may be conll or pairs"]),
        ("# a heading\nand text\n", ["mine.txt is not conllu"]),
        (
            "Ann NNP B-PER\nlives O\n\nBob NNP B-PER\n",
            ["neither conll nor text", ":2: expected 3 columns", ":3: the sentence is empty"],
        ),
        ("The|DT|O cat|NN|I-PER\n", ["first line is in no known format, 'The|DT|O cat|NN|I-PER'"]),
        (
            '{"words": [0], "labels": [0]}\n',
            ["is not instances", ":1: expected the keys", "; set dataset.options.kind=chain"],
        ),
        ("Ann\nlives\n\nBob\n", [":3: the sentence is empty: expected at least one word"]),
    ],
)
def test_describe_asks_for_the_format_of_other_files(
    text: str, reasons: list[str], tmp_path: Path, capsys: Output
) -> None:
    file = tmp_path / "mine.txt"
    file.write_text(text)
    assert main(["describe", str(file)]) == 1
    read_refusal(capsys, *reasons)


def test_describe_finds_the_format_with_options(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "mine.txt"
    file.write_text('{"words": [0], "labels": [0]}\n')
    assert main(["describe", str(file), "dataset.options.kind=chain"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["format", "instances"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(3 (2 (1 word)) (3 good))", "(3 (2 w0) (3 w1))"),
        ("(3 (2 a)\n   (3 b))", "(3 (2 w0) (3 w1))"),
        ("(ROOT (S (NP (PRP They)) (VP (VBD came))))", "(ROOT (NP w0) (VP w1))"),
        ("( (S (NP (PRP They)) (VP (VBD came))) )", "(S (NP w0) (VP w1))"),
        ("(3 (2 a) (1 b) (0 c))", "(3 (2 w0) (3 (1 w1) (0 w2)))"),
        ("(X (A a) (B b) (C c) (D d))", "(X (A w0) (X (B w1) (X (C w2) (D w3))))"),
        ("(X (Y (A a) (B b) (C c)))", "(X (A w0) (Y (B w1) (C w2)))"),
        ("(5 leaf)", "(5 w0)"),
        ("(1 (0 a ) (1 b\t) )", "(1 (0 w0) (1 w1))"),
        ("(1 (0 c\n) (1 d\n))", "(1 (0 w0) (1 w1))"),
    ],
)
def test_any_tree_becomes_a_binary_one(text: str, expected: str, tmp_path: Path) -> None:
    assert draw_tree(read_own("trees", f"{text}\n", tmp_path)) == expected


def test_vertices_in_between_are_on_the_chosen_side(tmp_path: Path) -> None:
    corpus = read_own("trees", "(X (A a) (B b) (C c) (D d))\n", tmp_path, binarize="left")
    assert draw_tree(corpus) == "(X (X (X (A w0) (B w1)) (C w2)) (D w3))"


def test_trees_may_have_several_lines_and_blank_lines_in_between(tmp_path: Path) -> None:
    corpus = read_own("trees", "(X (A a)\n\n  (B b))\n\n(A c)\n(B\nd)\n", tmp_path)
    assert [draw_tree(corpus, i) for i in range(3)] == ["(X (A w0) (B w1))", "(A w2)", "(B w3)"]


def test_numbers_are_classes_in_their_order_before_other_labels(tmp_path: Path) -> None:
    corpus = read_own("trees", "(10 (2 a) (9 b))\n(VP (0 c) (NP d))\n", tmp_path)
    assert corpus.label_names == ["0", "2", "9", "10", "NP", "VP"]
    assert corpus.sizes["classes"] == 6


def test_labels_that_differ_in_zeros_have_one_order(tmp_path: Path) -> None:
    corpus = read_own("trees", "(1 (01 a) (x b))\n(0x (001 c) (x d))\n", tmp_path)
    assert corpus.label_names == ["001", "01", "1", "0x", "x"]


def test_lattices_have_any_number_of_tags(tmp_path: Path) -> None:
    text = LATTICES.replace("0 3 1 2\n", "0 3 1 40\n")
    assert read_own("lattices", text, tmp_path).sizes["classes"] == 41


def test_columns_of_conll_are_separated_by_tabs_or_spaces(tmp_path: Path) -> None:
    rows = [("U.N.", "NNP", "I-ORG"), ("official", "NN", "O")]
    for separator in ("\t", " "):
        corpus = read_own("conll", "\n".join(map(separator.join, rows)), tmp_path)
        (chain,) = corpus.instances
        assert (chain.words.tolist(), chain.labels.tolist()) == ([0, 1], [0, 1])  # type: ignore[union-attr]
        assert corpus.label_names == ["I-ORG", "O"]


def test_an_empty_sentence_of_one_s_own_has_no_option_of_the_corpus(tmp_path: Path) -> None:
    file = tmp_path / "train.txt"
    file.write_text("a\tb\nc\t\n")
    with pytest.raises(DataError, match=r"train\.txt:2: the sentence is empty; add words$"):
        load_corpus("dynbatch.datasets.iwslt15", "train", None, path=str(file))


def test_a_no_break_space_is_part_of_a_word_in_any_column(tmp_path: Path) -> None:
    corpus = read_own("conll", "10\u00a0000 NUM O\nU.N.  NNP I-ORG \n", tmp_path)
    assert (len(corpus.instances), corpus.label_names) == (1, ["O", "I-ORG"])


def test_text_has_only_its_own_words(tmp_path: Path) -> None:
    assert read_own("text", "a b a\n", tmp_path).sizes["words"] == 4  # with <eos> and <unk>


@pytest.mark.parametrize(
    ("form", "text", "reason"),
    [
        ("trees", "(2 a)\n(2 (1 a) (1 b)\n", ":2: unbalanced: 1 '(' not closed"),
        ("trees", "(2 a)\n(2 two words)\n", ":2: a leaf has 2 words, not one"),
        ("trees", "(1 (2 a) b (2 c))\n", ":1: a vertex has both the word 'b' and children"),
        ("trees", "(2 )\n", ":1: a leaf has an empty word"),
        ("conll", "a O\nb\n", "2 columns as before, a word first and its tag last, got 'b'"),
        ("conll", "a|O b|O\nc|O\n", ":2: expected 2 columns"),
        ("conll", "a\n", ":1: expected columns, a word first and its tag last, got 'a'"),
        ("conll", "a\t\n", ":1: expected 2 columns"),
        ("pairs", "a\tb\nc\n", ":2: expected a sentence, a tab and its translation, got 'c'"),
        ("pairs", "a\tb\tc\n", ":1: expected a sentence, a tab"),
        ("pairs", "a\t\n", ":1: the sentence is empty"),
        ("pairs", "a\tb </s>\n", ":1: the word </s> is reserved"),
    ],
)
def test_errors_name_the_line(form: str, text: str, reason: str, tmp_path: Path) -> None:
    """Other formats are read by the code that test_wrong_files.py tests."""
    with expect_refusal(reason, kind=DataError):
        read_own(form, text, tmp_path)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "dataset=trees reads a file of your own; set dataset.path=FILE"),
        ({"dataset.path": "nowhere.txt"}, "dataset.path=nowhere.txt cannot be read: No such file"),
        ({"dataset.path": "."}, "dataset.path=. cannot be read: it is a directory"),
        ({"dataset.path": "m\udcfc.txt"}, "dataset.path='m\\udcfc.txt' is not allowed: expected"),
        ({"data_root": "m\udcfc"}, "data_root='m\\udcfc' is not allowed: expected UTF-8;"),
        ({"dataset": "sst", "dataset.path": "mine.txt"}, "but dataset=sst has its own files;"),
        ({"+dataset.options.path": "mine.txt"}, "dataset.options.path is set by dataset.path"),
        (
            {"dataset.path": "mine.txt", "dataset.options.binarize": "middle"},
            "dataset.options.binarize=middle is not allowed",
        ),
    ],
)
def test_a_wrong_path_is_one_line(
    settings: dict[str, str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text(FILES["trees"])
    with expect_refusal(reason):
        resolve(**settings)


@pytest.mark.parametrize(("module", "form"), [(bz2, "bzip2"), (gzip, "gzip"), (lzma, "xz")])
def test_compressed_files_are_named_as_such(module: Any, form: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_bytes(module.compress(FILES["trees"].encode()))
    reason = rf"mine\.txt is compressed \({form}\); decompress it first"
    with pytest.raises(DataError, match=reason):
        load_corpus("dynbatch.datasets.sst", "train", None, path=str(file))


def test_the_content_identifies_a_trial_and_the_path_does_not(tmp_path: Path) -> None:
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    for file in (first, second):
        file.write_text(FILES["trees"])
    spec = resolve(**{"dataset.path": str(first)})
    assert spec.dataset_options["sha256"]["train"] == hashlib.sha256(first.read_bytes()).hexdigest()
    assert resolve(**{"dataset.path": str(second)}).trial_id == spec.trial_id
    assert OwnData().hash_inputs(spec) is None  # settings have the checksum
    first.write_text("(1 (2 a) (2 b))\n")
    assert resolve(**{"dataset.path": str(first)}).trial_id != spec.trial_id
    with pytest.raises(DataError, match=r"has changed: sha256 .*; run the command again"):
        load_corpus(spec.loader, "train", None, **spec.dataset_options)


@pytest.mark.parametrize(
    ("form", "model", "reason", "fitting"),
    [
        ("conll", "var_lstm", "predicts words, but the labels of dataset=conll are", "text"),
        ("text", "bilstm", "predicts classes, but the labels of dataset=text are", "conll"),
    ],
)
def test_tags_are_not_taken_for_words(
    form: str, model: str, reason: str, fitting: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.txt"
    file.write_text(FILES[form])
    chosen = {"dataset.path": str(file)}
    message = f"model={model} {reason} .*; choose a model of: .*; or a dataset of: "
    with pytest.raises(ConfigError, match=message) as caught:
        resolve(dataset=form, model=model, **chosen)
    models = str(caught.value).split("; choose a model of: ")[1].partition(";")[0].split(", ")
    assert EXAMPLES[form][1] in models
    assert model not in models
    choices = str(caught.value).rpartition(": ")[2].split(", ")
    assert fitting in choices
    assert form not in choices
    ids = tmp_path / "mine.jsonl"
    ids.write_text('{"words": [0, 1], "labels": [1, 0]}\n')
    chosen = {"dataset.path": str(ids), "dataset.options.kind": "chain"}
    resolve(dataset="instances", model=model, **chosen)
    # Counts do not depend on labels.
    parse_request([f"dataset={form}", f"model={model}", f"dataset.path={file}"])


def test_models_predict_what_they_declare() -> None:
    sizes = {"words": 101, "classes": 102, "characters": 103}
    for name in list_choices("model"):
        kind = find_model_class(read_mapping(CONF_DIR / f"model/{name}.yaml")["model"])
        if kind.instance_kind not in ("tree", "lattice", "chain"):
            continue
        functions = trace_functions(kind(ModelSizes(2, sizes)))
        widths = {
            function.nodes[node.inputs[0]].width
            for function in functions.values()
            for node in function.nodes
            if node.op == "pick_neg_log_softmax"
        }
        assert widths & {*sizes.values()} <= {sizes[kind.labels]}, name


def test_binary_trees_are_as_those_of_the_treebank(tmp_path: Path) -> None:
    write_corpus("sst", tmp_path)
    own, treebank = read_own("trees", TINY, tmp_path), load("sst", tmp_path)
    assert hash_inputs([own.instances]) == hash_inputs([treebank.instances])


# --- instances as JSON lines ---

# A corpus with instances of each kind, and a model that takes them.
KIND_EXAMPLES = {
    "tree": ("sst", "tree_lstm"),
    "lattice": ("weibo_lattice", "lattice_lstm"),
    "chain": ("wikiner", "bilstm_char"),
    "sentence_pair": ("iwslt15", "seq2seq"),
    "parsed_sentence": ("ud_ewt", "parser"),
}


def format_instance(instance: Any) -> str:
    """Write an instance as a user writes it."""
    arrays = {item.name: getattr(instance, item.name) for item in fields(instance) if item.init}
    values = {name: array.tolist() for name, array in arrays.items()}
    if "left" in values:
        pairs = zip(values.pop("left"), values.pop("right"), strict=True)
        values["children"] = [[] if left < 0 else [left, right] for left, right in pairs]
    return json.dumps(values)


def read_lines(folder: Path, *lines: str, **options: str) -> Corpus:
    return read_own("instances", "\n".join(lines) + "\n", folder, **options)


@pytest.mark.parametrize("kind", sorted(KIND_EXAMPLES))
def test_instances_of_every_kind_are_read_as_they_are(kind: str, tmp_path: Path) -> None:
    name, model = KIND_EXAMPLES[kind]
    write_corpus(name, tmp_path)
    expected = load(name, tmp_path).instances[:]
    corpus = read_lines(tmp_path, *map(format_instance, expected), kind=kind)
    assert corpus.instance_kind == kind
    assert hash_inputs([corpus.instances]) == hash_inputs([expected])
    chosen = {"dataset.path": str(tmp_path / "mine.txt"), "dataset.options.kind": kind}
    spec = resolve(dataset="instances", model=model, **chosen)
    assert spec.dataset_options["kind"] == kind
    wrong = "tree_lstm" if kind != "tree" else "parser"
    with pytest.raises(ConfigError, match=f"but dataset=instances has {kind}"):
        resolve(dataset="instances", model=wrong, **chosen)


def test_sizes_are_those_of_the_largest_ids(tmp_path: Path) -> None:
    tree = '{"words": [4, 7, -1], "labels": [0, 1, 2], "children": [[], [], [0, 1]]}'
    assert read_lines(tmp_path, tree).sizes == {"words": 8, "classes": 3}
    pair = '{"source": [1, 9], "target": [0, 3]}'
    sizes = read_lines(tmp_path, pair, kind="sentence_pair").sizes
    assert sizes == {"source_words": 10, "target_words": 4}


NARY = (
    '{"words": [1, 2, 3, -1, -1], "labels": [0, 1, 2, 3, 4],'
    ' "children": [[], [], [], [0, 1, 2], [3]]}'
)


@pytest.mark.parametrize(
    ("binarize", "left", "right"),
    [
        ("right", [-1, -1, -1, 1, 0], [-1, -1, -1, 2, 3]),
        ("left", [-1, -1, -1, 0, 3], [-1, -1, -1, 1, 2]),
    ],
)
def test_trees_of_any_arity_become_binary(
    binarize: str, left: list[int], right: list[int], tmp_path: Path
) -> None:
    """Three children get a vertex of their parent's label; a vertex with one child is merged."""
    (tree,) = read_lines(tmp_path, NARY, binarize=binarize).instances
    assert (tree.left.tolist(), tree.right.tolist()) == (left, right)
    assert tree.labels.tolist() == [0, 1, 2, 3, 4]


def test_trees_of_any_arity_may_stay_as_they_are(tmp_path: Path) -> None:
    corpus = read_lines(tmp_path, NARY, LEAF, binarize="none")
    assert corpus.sizes == {"words": 4, "classes": 5, "children": 3}
    assert corpus.instances[0].children.tolist() == [0, 1, 2, 3]
    assert corpus.instances[1].n_vertices == 1


KEYS = "expected the keys words, labels, children of a tree, got "
LEAF = '{"words": [0], "labels": [0], "children": [[]]}'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("(2 a)", "expected a JSON object, got '(2 a)'"),
        ("", "expected a JSON object"),
        ("[" * 100_000, "expected a JSON object"),
        ("{}", f"{KEYS}none"),
        ('{"words": [0], "labels": [0]}', f"{KEYS}words, labels; set dataset.options.kind=chain"),
        ('{"target": [0], "source": [0]}', f"{KEYS}target, source; set dataset.options.kind=sent"),
        (LEAF.replace("[0]", "[0.5]"), "words: expected whole numbers from 0 to 999999999,"),
        (LEAF.replace("[0]", "[true]"), "words: expected whole numbers"),
        (LEAF.replace("[0]", "[9999999999]"), "words: expected whole numbers"),
        (LEAF.replace("[0]", "0"), "words: expected a list of whole numbers, got 0"),
        (LEAF.replace("[[]]", "[[0]]"), "a tree is not connected"),
        (LEAF.replace("[[]]", "5"), "children: expected a list of whole numbers, got 5"),
        (NARY.replace("-1", "4", 1), "a leaf has no word, or an internal vertex has one"),
        (LEAF.replace("[[]]", "[]"), "words, labels and children have lengths 1, 1 and 0"),
    ],
)
def test_a_wrong_line_is_named(line: str, reason: str, tmp_path: Path) -> None:
    with expect_refusal(f"mine.txt:2: {reason}", kind=DataError):
        read_lines(tmp_path, LEAF, line, LEAF)


@pytest.mark.parametrize("kind", sorted(KIND_EXAMPLES))
def test_negative_ids_are_refused(kind: str, tmp_path: Path) -> None:
    """Only a word of a tree may be -1."""
    name, _ = KIND_EXAMPLES[kind]
    write_corpus(name, tmp_path)
    line = format_instance(load(name, tmp_path).instances[0])
    for key in json.loads(line):
        wrong = -2 if (kind, key) == ("tree", "words") else -1
        changed = json.loads(line) | {key: [[wrong]] if key == "children" else [wrong]}
        reason = f"{key}: expected whole numbers from 0 to 999999999, got {wrong}"
        with expect_refusal(f"mine.txt:1: {reason}", kind=DataError):
            read_lines(tmp_path, json.dumps(changed), kind=kind)
