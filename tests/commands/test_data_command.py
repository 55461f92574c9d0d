"""`bench-data`: lists, describes and downloads datasets, without a network.

Faulty servers give one line, exit code 1, and no files.
"""

from __future__ import annotations

import http.server
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import yaml

from dynbatch.datasets import sst
from dynbatch.datasets.parts.fetch import Progress, fetch, is_complete
from dynbatch.harness.commands import data
from dynbatch.harness.commands.data import describe_corpus, main
from dynbatch.harness.contracts.home import Home
from dynbatch.harness.planning.artifacts import build_choices
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.requests import check_keys
from dynbatch.harness.values.paths import CONF_DIR
from tests.support.corpora import IWSLT, load, write, write_corpus
from tests.support.downloads import FILES, SHA256, everything_below, serving, zipped
from tests.support.processes import run_python
from tests.support.refusals import Output, read_refusal

Patch = pytest.MonkeyPatch
TEXTS = zipped(sst.HOME, dict.fromkeys(sst.HOME.names, b"(2 a)\n"))


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_list_reports_found_and_missing_datasets(tmp_path: Path, capsys: Output) -> None:
    assert run("list", "--data-root", tmp_path) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    where = f"not in {tmp_path}; run `bench-data fetch"
    assert lines["sst"] == f"{where} sst`; fallback: sst_synthetic"
    assert lines["weibo_lattice"] == f"{where} weibo_lattice`; fallback: lattice_synthetic"
    assert lines["iwslt15"] == f"{where} iwslt15`; fallback: iwslt15_dev"
    assert lines["iwslt15_dev"] == f"{where} iwslt15_dev`; fallback: iwslt15_synthetic"
    for name in ("complete_trees", "lattice_synthetic", "sst_synthetic", "ud_ewt_synthetic"):
        assert lines[name] == "ready: generated from a seed"
    (tmp_path / "sst").mkdir()
    (tmp_path / "sst" / "train.txt").write_bytes(b"(2 a)\n")
    assert run("list", "--data-root", tmp_path) == 0
    assert f"incomplete or changed in {tmp_path / 'sst'}" in capsys.readouterr().out


def test_list_reports_incomplete_parts(tmp_path: Path, capsys: Output, monkeypatch: Patch) -> None:
    write(tmp_path / "iwslt15", {name: IWSLT[name] for name in ("vocab.en", "tst2012.en")})
    conf = tmp_path / "conf"
    shutil.copytree(CONF_DIR / "dataset", conf / "dataset")
    for name in ("iwslt15", "iwslt15_dev"):
        file = conf / "dataset" / f"{name}.yaml"
        choice = yaml.safe_load(file.read_text())
        choice["options"]["sha256"] = {"vocab_en": "00"}
        file.write_text(yaml.safe_dump(choice))
    monkeypatch.setattr(data, "CONF_DIR", conf)
    assert run("list", "--data-root", tmp_path) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    wrong = "train_en, train_vi, tst2012_vi, tst2013_en, tst2013_vi, vocab_vi missing"
    wrong = f"{tmp_path / 'iwslt15'} ({wrong}; vocab_en changed)"
    fetch_it = "`bench-data fetch iwslt15`"
    assert lines["iwslt15"] == f"incomplete or changed in {wrong}; run {fetch_it}"
    # Its required file exists, so the pipeline uses it.
    assert lines["iwslt15_dev"] == f"found in {wrong}"


def test_a_dataset_of_the_user_s_own_needs_neither_fallback_nor_checksums(
    tmp_path: Path, capsys: Output, monkeypatch: Patch
) -> None:
    conf, root = tmp_path / "conf", tmp_path / "data"
    (conf / "dataset").mkdir(parents=True)
    text = "name: mine\nloader: dynbatch.datasets.ptb\noptions:\n"
    (conf / "dataset" / "mine.yaml").write_text(text)
    (conf / "dataset" / "odd.yaml").write_text(text.replace("ptb", "no_such_module"))
    monkeypatch.setattr(data, "CONF_DIR", conf)
    monkeypatch.setattr(data, "fetch", lambda home, sha256, root, progress: None)
    assert run("list", "--data-root", root) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["mine"] == f"not in {root}; run `bench-data fetch mine`"
    assert lines["odd"].endswith("; set one such as dynbatch.datasets.sst")
    write(root / "ptb", dict.fromkeys(("train.txt", "dev.txt", "test.txt"), "a\n"))
    assert run("list", "--data-root", root) == 0
    assert f"found in {root / 'ptb'}" in capsys.readouterr().out
    assert run("fetch", "mine", "--data-root", root) == 0
    assert "not checked: no checksum of train, dev, test" in capsys.readouterr().out


def test_list_finds_the_real_treebank(data_root: Path, capsys: Output, monkeypatch: Patch) -> None:
    monkeypatch.setenv("BENCH_DATA", str(data_root))
    assert run("list") == 0
    assert f"found in {data_root / 'sst'}" in capsys.readouterr().out


def test_describe_takes_the_options_that_its_messages_name(tmp_path: Path, capsys: Output) -> None:
    write(tmp_path / "sst", {"train.txt": "(3 (2 a) (2 b))\n"})
    assert run("describe", "sst", "--data-root", tmp_path) == 1
    assert "dataset.options.sha256=null" in capsys.readouterr().err
    own = ["describe", "sst", "--data-root", tmp_path, "dataset.options.sha256=null"]
    assert run(*own) == 0
    assert "1 (tree)" in capsys.readouterr().out
    assert run(*own, "dataset.options.shal256=null") == 1
    assert "shal256" in capsys.readouterr().err
    assert run(*own, "model=tree_fc") == 1
    assert "expected dataset.options.KEY=VALUE" in capsys.readouterr().err


@pytest.mark.parametrize(("value", "root"), [("", "data"), ("~/corpora", "HOME/corpora")])
def test_every_command_reads_the_variable_alike(
    value: str, root: str, tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BENCH_DATA", value)
    expected = root.replace("HOME", str(tmp_path / "home"))
    spec = Composer().resolve_trial({"dataset": "sst", "model": "tree_lstm"})
    assert spec.data_root == expected
    assert build_choices({"device": "cpu"}, os.environ).data_root == Path(expected)
    check_keys({}, os.environ)
    assert run("list") == 0
    assert f"not in {expected};" in capsys.readouterr().out
    given = Composer().resolve_trial({"data_root": "~/own", "dataset": "sst", "model": "tree_lstm"})
    assert given.data_root == str(tmp_path / "home" / "own")


DESCRIBED = {
    "ptb": {
        "instances": "3 (chain)",
        "words": "13, mean 4.33, min 3, max 6",
        "vocabulary": "10000 rows, 7 used in this split",
        "labels": "the next word",
    },
    "wikiner": {
        "words": "10, mean 3.33, min 2, max 5",
        "vocabulary": "7 rows, 6 used in this split",
        "rare words": "10, 100.0% of all, spelled out",
        "their letters": "48, mean 4.80, min 3, max 7",
        "characters": "15 rows, 14 used in this split",
        "labels": "3, the most frequent 60.0%, 30.0%, 10.0%",
    },
    "iwslt15": {
        "excluded": "0 with an empty side",
        "source words": "12, mean 4.00, min 3, max 5",
        "target words": "11, mean 3.67, min 3, max 4",
        "decoder steps": "8",
        "source vocabulary": "7 rows, 7 used in this split",
        "target vocabulary": "6 rows, 6 used in this split",
    },
    "ud_ewt": {
        "instances": "2 (parsed_sentence)",
        "excluded": "1 not projective",
        "words": "6, mean 3.00, min 2, max 4",
        "transitions": "12: 6 shifts, 6 left, 0 right",
        "vocabulary": "7 rows, 6 used in this split",
        "parts of speech": "7 rows, 6 used in this split",
        "relations": "6 rows, 5 used in this split",
    },
}


@pytest.mark.parametrize("name", DESCRIBED)
def test_sentences_are_described(name: str, tmp_path: Path) -> None:
    write_corpus(name, tmp_path)
    found = dict(describe_corpus(load(name, tmp_path)))
    assert {key: found[key] for key in DESCRIBED[name]} == DESCRIBED[name]


def test_fetch_downloads_once(tmp_path: Path, capsys: Output, monkeypatch: Patch) -> None:
    n_downloads = 0

    def fake_fetch(archive: Home, sha256: object, root: Path, progress: Progress) -> None:
        nonlocal n_downloads
        n_downloads += 1
        fetch(archive, None, root, progress, serving(TEXTS))

    monkeypatch.setattr(data, "fetch", fake_fetch)
    monkeypatch.setattr(data, "is_complete", lambda a, sha256, root: is_complete(a, None, root))
    assert run("fetch", "sst", "--data-root", tmp_path) == 0
    assert f"sst is in {tmp_path / 'sst'}" in capsys.readouterr().out
    assert run("fetch", "sst", "--data-root", tmp_path) == 0
    assert "already" in capsys.readouterr().out
    assert n_downloads == 1


def test_fetch_reports_unchecked_parts(tmp_path: Path, capsys: Output, monkeypatch: Patch) -> None:
    options = {"sha256": dict.fromkeys(("train", "dev", "test")) | {"dev": SHA256["dev"]}}
    monkeypatch.setattr(
        data, "_read_dataset", lambda name: {"loader": "dynbatch.datasets.ptb", "options": options}
    )
    opener = serving(FILES["dev"], length="")
    monkeypatch.setattr(data, "fetch", partial(fetch, opener=opener))
    reported = "not checked: no checksum of train, test, which may be truncated\n"
    for _ in range(2):  # the second time the files exist already
        assert run("fetch", "ptb", "--data-root", tmp_path) == 0
        assert capsys.readouterr().out.endswith(reported)
    options["sha256"] = dict.fromkeys(options["sha256"], SHA256["dev"])
    assert run("fetch", "ptb", "--data-root", tmp_path) == 0
    assert capsys.readouterr().out.endswith("/ptb, checked\n")


def test_fetch_of_a_generated_corpus_has_nothing_to_do(tmp_path: Path, capsys: Output) -> None:
    assert run("fetch", "complete_trees", "--data-root", tmp_path) == 0
    assert "needs no download" in capsys.readouterr().out
    assert everything_below(tmp_path) == set()


def test_loading_a_corpus_needs_no_network_code_and_no_framework() -> None:
    code = (
        "import sys; from dynbatch.harness.contracts.corpus import load_corpus;"
        "load_corpus('dynbatch.datasets.sst_synthetic', 'dev', None).instances[0];"
        "import dynbatch.datasets.sst;"
        "print([m for m in ('urllib.request', 'torch', 'llvmlite') if m in sys.modules])"
    )
    assert run_python("-c", code) == "[]\n"


def test_describe_finds_the_format_of_a_file_of_ones_own(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("(X (A a) (B b) (C c))\n")
    assert run("describe", file) == 0
    facts = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (facts["format"], facts["source"]) == ("trees", "your data")
    assert facts["labels"] == "A: 20.0%, B: 20.0%, C: 20.0%, X: 40.0%"
    assert run("describe", "text", f"dataset.path={file}") == 0
    assert "format      text" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ["describe", "nope"],
            "nope is unknown; choose one of: bilstm_synthetic, complete_trees",
        ),
        (["describe", "my_trees.txt"], "my_trees.txt does not exist; give an existing file, or"),
        (["fetch", "../sst"], "../sst is unknown"),
        (["describe", "sst", "--split", "dve"], "invalid choice: 'dve'"),
        (["describe", "sst", "--data-root", "."], "expected e2f3f41b"),
        (["describe"], "required: name"),
        ([], "required: COMMAND"),
        (["describe", "empty.txt"], "empty.txt is empty"),
        (["describe", "odd.txt"], "odd.txt:1: the first line is in no known format, '\\t\\ta'"),
        (["describe", "space.txt"], "space.txt:1: the first line is in no known format"),
        (["describe", "two.txt"], "two.txt:1: the first line may be pairs or trees"),
        (["describe", "trees"], "dataset=trees reads a file of your own; set dataset.path=FILE"),
        (["describe", "folder"], "folder cannot be read"),
        (["fetch", "trees"], "trees reads a file of your own; set dataset.path=FILE"),
        (["describe", "mine.txt", "--split", "dev"], "split=dev is not allowed: expected train"),
    ],
)
def test_wrong_usage_or_data_is_one_line_and_exit_code_1(
    arguments: list[str], reason: str, tmp_path: Path, capsys: Output, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"empty.txt": "\n", "odd.txt": "\t\ta\n", "mine.txt": "(X a)\n"})
    write(tmp_path, {"space.txt": "\u00a0\n", "two.txt": "(T (A\ta)(B b))\n"})
    write(tmp_path / "sst", {"train.txt": "(2 a)\n"})
    (tmp_path / "folder").mkdir()
    assert run(*arguments) == 1
    read_refusal(capsys, reason)


# --- faulty servers ---

Request = http.server.BaseHTTPRequestHandler
Answer = Callable[[Request], object]
OK = b"HTTP/1.1 200 OK\r\n"


def send(headers: dict[str, str], content: bytes = b"") -> Answer:
    def answer(request: Request) -> None:
        request.send_response(200)
        for name, text in headers.items():
            request.send_header(name, text)
        request.end_headers()
        request.wfile.write(content)

    return answer


LOSE = send({"Content-Length": "1000"}, bytes(400))
COMPRESS = send({"Content-Encoding": "gzip"}, b"\x1f\x8b")
NONSENSE = b"\0\1\x1b[2J" * 900 + b"\r\n\r\n"


def lose_a_chunk(request: Request) -> None:
    request.protocol_version = "HTTP/1.1"
    send({"Transfer-Encoding": "chunked"}, b"fff\r\n" + bytes(99))(request)


def never_end(request: Request) -> None:
    send({})(request)
    for _ in range(10_000):
        request.wfile.write(bytes(100_000))


def fall_silent(request: Request) -> None:
    LOSE(request)
    request.wfile.flush()
    request.server.closing.wait(20)  # type: ignore[attr-defined]


def redirect(location: str) -> Answer:
    def answer(request: Request) -> None:
        request.send_response(302)
        request.send_header("Location", location)
        request.end_headers()

    return answer


def drip(head: bytes, piece: bytes = b"x") -> Answer:
    """Return an answer whose pieces come before each timeout, until the reader disconnects."""

    def answer(request: Request) -> None:
        request.wfile.write(head)
        while not request.server.closing.wait(0.05):  # type: ignore[attr-defined]
            request.wfile.write(piece)

    return answer


SERVERS: dict[str, tuple[Answer, str]] = {
    "connection lost": (LOSE, "ended after 400 of 1000 bytes"),
    "connection lost in a chunk": (lose_a_chunk, "IncompleteRead"),
    "endless": (never_end, "expected at most 4000000"),
    "silent": (fall_silent, "timed out"),
    "to a file": (redirect("file:///etc/passwd"), "to url 'file:///etc/passwd' is not allowed"),
    "in circles": (redirect("/x.zip"), "infinite loop"),
    "long nonsense": (lambda request: request.wfile.write(NONSENSE), "\\x00\\x01\\x1b[2J\\x00"),
    "dripping header": (drip(OK + b"X: "), "timed out"),
    "dripping chunk extension": (drip(OK + b"Transfer-Encoding: chunked\r\n\r\n5;"), "timed out"),
    "endless continue": (drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "timed out"),
    "dripping body": (drip(b"HTTP/1.0 200 OK\r\n\r\n"), " bytes"),
    "long lines": (send({"Long": "x" * 100_000}), "cannot download"),
    "compressed": (COMPRESS, "expected no content encoding, got 'gzip'"),
}


@pytest.fixture
def serve(monkeypatch: Patch) -> Iterator[Callable[[Answer], None]]:
    """Yield a function that starts a server with some answer at SST's address."""
    servers = []

    def start(answer: Answer) -> None:
        methods = {"do_GET": answer, "log_message": lambda *_: None}
        handler = type("Handler", (Request,), methods)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.closing = threading.Event()  # type: ignore[attr-defined]
        server.handle_error = lambda *_: None  # type: ignore[method-assign] # the reader disconnected
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/x.zip"
        monkeypatch.setattr(sst, "HOME", replace(sst.HOME, url=url, most_bytes=4_000_000))

    monkeypatch.setattr("dynbatch.datasets.parts.fetch.TIMEOUT_S", 0.5)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield start
    for server in servers:
        server.closing.set()  # type: ignore[attr-defined]
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_that_goes_wrong_is_one_line_and_exit_code_1(
    name: str, serve: Callable[[Answer], None], tmp_path: Path, capsys: Output
) -> None:
    answer, reason = SERVERS[name]
    serve(answer)
    root = tmp_path / "data"
    assert run("fetch", "sst", "--data-root", root) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    announced, line = printed.err.splitlines()
    assert announced.startswith("downloading http://127.0.0.1:")
    assert line.startswith("bench-data: ")
    assert reason in line
    assert line.isprintable()
    assert len(line) < 800
    assert "no file was changed: rerun, or put the files of" in line
    assert everything_below(tmp_path) == set()


def test_the_address_may_be_a_file(tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
    """An archive from another source can be given as a file; its checksums are verified, too."""
    archive = tmp_path / "got.zip"
    archive.write_bytes(TEXTS)
    monkeypatch.setattr(sst, "HOME", replace(sst.HOME, url=archive.as_uri()))
    assert run("fetch", "sst", "--data-root", tmp_path / "data") == 1
    assert "expected e2f3f41b" in capsys.readouterr().err
    assert everything_below(tmp_path) == {"got.zip"}


@pytest.mark.parametrize("root", ["x" * 300, "file/below", "file"])
@pytest.mark.parametrize("command", ["list", "fetch", "describe"])
def test_a_folder_that_cannot_be_is_one_line(
    command: str, root: str, tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    monkeypatch.setattr(sst, "HOME", replace(sst.HOME, url=(tmp_path / "none.zip").as_uri()))
    name = [] if command == "list" else ["sst"]
    code = run(command, *name, "--data-root", tmp_path / root)
    printed = capsys.readouterr()
    assert code == (0 if (command, root) == ("list", "file/below") else 1)
    assert code == 0 or printed.err.splitlines()[-1].startswith("bench-data: ")
    assert "Traceback" not in printed.err
    assert everything_below(tmp_path) == {"file"}


def test_describe_reports_synthetic_data(capsys: Output) -> None:
    assert run("describe", "sst_synthetic", "--split", "dev") == 0
    assert "synthetic   yes" in capsys.readouterr().out
