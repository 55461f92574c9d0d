"""`bench-data` and the download behind it, without any network."""

from __future__ import annotations

import hashlib
import http.client
import io
import subprocess
import sys
import urllib.error
import zipfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from datasets import sst
from datasets.fetch import Opener, Progress, Response, fetch, is_complete
from harness.commands import data
from harness.commands.data import main
from harness.contracts.corpus import Archive, Files
from harness.errors import DataError

ARCHIVE = Archive("https://example.org/trees.zip", "corpus", {"train": "t/train.txt", "dev": "d"})
FILES = {"train": b"(2 a)\n", "dev": b"(1 b)\n"}
SHA256 = {split: hashlib.sha256(content).hexdigest() for split, content in FILES.items()}


def zipped(archive: Archive = ARCHIVE, files: dict[str, bytes] = FILES) -> bytes:
    """Pack files under the archive's member names."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        for split, content in files.items():
            opened.writestr(archive.members[split], content)
    return buffer.getvalue()


class FakeResponse:
    """Serves bytes in small pieces, then optionally fails."""

    def __init__(
        self, content: bytes, length: int | None = None, failure: BaseException | None = None
    ) -> None:
        self.headers = {"Content-Length": str(len(content) if length is None else length)}
        self._content = io.BytesIO(content)
        self._failure = failure

    def read(self, n_bytes: int, /) -> bytes:
        chunk = self._content.read(min(n_bytes, 50))
        if not chunk and self._failure:
            raise self._failure
        return chunk


def serving(
    content: bytes, length: int | None = None, failure: BaseException | None = None
) -> Opener:
    """Return an opener that answers every address with `content`."""

    def opener(url: str, timeout_s: float) -> AbstractContextManager[Response]:
        assert url.startswith("https://")
        assert timeout_s > 0
        return nullcontext(FakeResponse(content, length, failure))

    return opener


def failing(failure: BaseException) -> Opener:
    """Return an opener that cannot connect."""

    def opener(url: str, timeout_s: float) -> AbstractContextManager[Response]:
        raise failure

    return opener


def everything_below(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


# Download


def test_a_download_places_checked_files_and_nothing_else(tmp_path: Path) -> None:
    steps: list[tuple[int, int | None]] = []
    content = zipped()
    root = tmp_path / "new" / "data"
    fetch(ARCHIVE, SHA256, root, lambda done, total: steps.append((done, total)), serving(content))
    assert everything_below(root) == {"corpus", "corpus/train.txt", "corpus/dev.txt"}
    for split, text in FILES.items():
        assert ARCHIVE.path(root, split).read_bytes() == text
    assert steps[-1] == (len(content), len(content))
    assert steps == sorted(steps)
    assert is_complete(ARCHIVE, SHA256, root)


def test_files_may_have_an_address_each(tmp_path: Path) -> None:
    home = Files("https://a.org/x.{split}", "corpus", ".conll", "it moves")
    content = b"a line"
    sha256 = dict.fromkeys(("train", "dev", "test"), hashlib.sha256(content).hexdigest())
    fetch(home, sha256, tmp_path, opener=serving(content))
    assert everything_below(tmp_path) == {"corpus"} | {f"corpus/{split}.conll" for split in sha256}
    assert is_complete(home, sha256, tmp_path)
    with pytest.raises(DataError) as caught:
        fetch(home, {"dev": "00"}, tmp_path, opener=serving(content))
    message = str(caught.value)
    assert f"https://a.org/x.dev has sha256 {sha256['dev']}, expected 00; nothing was" in message
    assert "put the files of https://a.org/x.{train,dev,test} in place by hand, as " in message
    assert f"{tmp_path}/corpus/{{train,dev,test}}.conll; or use a generated corpus" in message
    assert message.endswith(" (it moves)")


def test_a_download_replaces_wrong_files_and_keeps_others(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    ARCHIVE.path(tmp_path, "train").write_bytes(b"wrong")
    (tmp_path / "corpus" / "notes").write_bytes(b"mine")
    assert not is_complete(ARCHIVE, SHA256, tmp_path)
    fetch(ARCHIVE, SHA256, tmp_path, opener=serving(zipped()))
    assert is_complete(ARCHIVE, SHA256, tmp_path)
    assert (tmp_path / "corpus" / "notes").read_bytes() == b"mine"


def test_checks_can_be_switched_off(tmp_path: Path) -> None:
    fetch(ARCHIVE, None, tmp_path, opener=serving(zipped(files=FILES | {"dev": b"own"})))
    assert is_complete(ARCHIVE, None, tmp_path)
    assert is_complete(ARCHIVE, {"train": SHA256["train"], "dev": None}, tmp_path)
    assert not is_complete(ARCHIVE, SHA256, tmp_path)


NETWORK_FAULTS = {
    "no network": (failing(urllib.error.URLError(OSError(-2, "unknown name"))), "unknown name"),
    "timeout": (failing(TimeoutError("timed out")), "timed out"),
    "not found": (
        failing(urllib.error.HTTPError("u", 404, "Not Found", http.client.HTTPMessage(), None)),
        "Not Found",
    ),
    "cut": (serving(zipped()[:70], length=len(zipped())), f"after 70 of {len(zipped())} bytes"),
    "reset": (serving(zipped()[:70], failure=ConnectionResetError(104, "reset")), "reset"),
    "incomplete": (serving(b"", failure=http.client.IncompleteRead(b"abc")), "IncompleteRead"),
    "no zip": (serving(b"<html>moved</html>"), "did not give a zip file"),
    "no member": (serving(zipped(files={"train": b"(2 a)\n"})), "no item named 'd'"),
    "wrong checksum": (
        serving(zipped(files=FILES | {"dev": b"(2 c)\n"})),
        f"sha256 {hashlib.sha256(b'(2 c)' + bytes([10])).hexdigest()}, expected {SHA256['dev']}",
    ),
}


@pytest.mark.parametrize("name", NETWORK_FAULTS)
@pytest.mark.parametrize("was_there", [True, False])
def test_a_failed_download_is_one_line_and_leaves_nothing(
    tmp_path: Path, name: str, was_there: bool
) -> None:
    opener, reason = NETWORK_FAULTS[name]
    root = tmp_path / "data"
    if was_there:
        (root / "corpus").mkdir(parents=True)
        ARCHIVE.path(root, "train").write_bytes(b"old")
    before = everything_below(tmp_path)
    with pytest.raises(DataError) as caught:
        fetch(ARCHIVE, SHA256, root, opener=opener)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "example.org" in str(caught.value)
    assert everything_below(tmp_path) == before
    assert not was_there or ARCHIVE.path(root, "train").read_bytes() == b"old"


def test_an_interrupted_download_leaves_nothing(tmp_path: Path) -> None:
    opener = serving(zipped()[:70], failure=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        fetch(ARCHIVE, SHA256, tmp_path / "data", opener=opener)
    assert everything_below(tmp_path) == set()


def test_a_root_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"a file")
    with pytest.raises(DataError, match=r"cannot write below .*data .* choose another --data-root"):
        fetch(ARCHIVE, SHA256, tmp_path / "data", opener=serving(zipped()))


# Command

Output = pytest.CaptureFixture[str]


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_list_says_what_is_found_and_what_is_not(tmp_path: Path, capsys: Output) -> None:
    assert run("list", "--data-root", tmp_path) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    where = f"not in {tmp_path}: `bench-data fetch"
    assert lines["sst"] == f"{where} sst`; sst_synthetic stands in"
    assert lines["weibo_lattice"] == f"{where} weibo_lattice`; lattice_synthetic stands in"
    for name in ("complete_trees", "lattice_synthetic", "sst_synthetic"):
        assert lines[name] == "ready: generated from a seed"
    (tmp_path / "sst").mkdir()
    (tmp_path / "sst" / "train.txt").write_bytes(b"(2 a)\n")
    assert run("list", "--data-root", tmp_path) == 0
    assert f"incomplete or changed in {tmp_path / 'sst'}" in capsys.readouterr().out


def test_list_finds_the_real_treebank(
    data_root: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_DATA", str(data_root))
    assert run("list") == 0
    assert f"found in {data_root / 'sst'}" in capsys.readouterr().out


def test_describe_prints_aligned_statistics(capsys: Output) -> None:
    assert run("describe", "complete_trees", "--split", "dev") == 0
    lines = capsys.readouterr().out.splitlines()
    facts = dict(line.split(maxsplit=1) for line in lines)
    assert facts["dataset"] == "complete_trees, dev"
    assert facts["instances"] == "1024 (tree)"
    assert facts["leaves"] == "mean 256.00, max 256"
    assert facts["height"] == "mean 8.00, max 8"
    assert facts["vertices"] == "523264, 262144 leaves and 261120 internal"
    assert facts["vocabulary"] == "256 rows, 256 used in this split"
    assert len({line.index(facts[line.split()[0]]) for line in lines}) == 1


def test_describe_says_synthetic(capsys: Output) -> None:
    assert run("describe", "sst_synthetic", "--split", "dev") == 0
    assert "synthetic   yes" in capsys.readouterr().out


def test_describe_the_real_treebank(data_root: Path, capsys: Output) -> None:
    assert run("describe", "sst", "--data-root", data_root) == 0
    printed = capsys.readouterr().out
    assert "318582, 163563 leaves and 155019 internal" in printed
    assert "mean 19.14, max 52" in printed
    assert "mean 9.83, max 29" in printed


def test_describe_the_real_lattices(data_root: Path, capsys: Output) -> None:
    if not (data_root / "lattice").is_dir():
        pytest.skip(f"{data_root} has no lattice/")
    assert run("describe", "weibo_lattice", "--data-root", data_root) == 0
    lines = [line.split("  ", 1) for line in capsys.readouterr().out.splitlines()]
    facts = {name: text.strip() for name, text in lines}
    assert facts["instances"] == "1147 (lattice)"
    assert facts["states"] == "50618, mean 44.13, min 3, max 211"
    assert facts["arcs"] == "49471 characters and 26777 words"
    assert facts["arcs into a state"] == "0: 1147, 1: 25680, 2: 21110, 3: 2388, 4: 281, 5: 12"
    assert facts["word lengths"] == "2: 23045, 3: 3011, 4: 558, 5: 122, 6: 30, 7: 5, 8: 6"
    assert facts["words"].startswith("10131 rows, ")
    assert "vertices" not in facts


def test_fetch_downloads_once(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = zipped(sst.HOME, dict.fromkeys(sst.HOME.members, b"(2 a)\n"))
    n_downloads = 0

    def fake_fetch(archive: Archive, sha256: object, root: Path, progress: Progress) -> None:
        nonlocal n_downloads
        n_downloads += 1
        fetch(archive, None, root, progress, serving(content))

    monkeypatch.setattr(data, "fetch", fake_fetch)
    monkeypatch.setattr(data, "is_complete", lambda a, sha256, root: is_complete(a, None, root))
    assert run("fetch", "sst", "--data-root", tmp_path) == 0
    assert f"sst is in {tmp_path / 'sst'}" in capsys.readouterr().out
    assert run("fetch", "sst", "--data-root", tmp_path) == 0
    assert "already" in capsys.readouterr().out
    assert n_downloads == 1


def test_fetch_of_a_generated_corpus_has_nothing_to_do(tmp_path: Path, capsys: Output) -> None:
    assert run("fetch", "complete_trees", "--data-root", tmp_path) == 0
    assert "needs no download" in capsys.readouterr().out
    assert everything_below(tmp_path) == set()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ["describe", "nope"],
            "nope is unknown; choose one of complete_trees, lattice_synthetic, sst, ",
        ),
        (["fetch", "nope"], "nope is unknown"),
        (["describe", "../sst"], "../sst is unknown"),
        (["describe", "sst", "--split", "dve"], "invalid choice: 'dve'"),
        (["describe"], "required: name"),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        ([], "required: COMMAND"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_1(
    arguments: list[str], reason: str, capsys: Output
) -> None:
    assert run(*arguments) == 1
    printed = capsys.readouterr()
    assert reason in printed.err
    assert len(printed.err.splitlines()) == 1
    assert printed.out == ""


def test_a_wrong_checksum_is_one_line_and_exit_code_1(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "sst").mkdir()
    (tmp_path / "sst" / "train.txt").write_bytes(b"(2 a)\n")
    assert run("describe", "sst", "--data-root", tmp_path) == 1
    printed = capsys.readouterr()
    assert "expected e2f3f41b" in printed.err
    assert len(printed.err.splitlines()) == 1


def test_the_module_runs_as_a_program(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "harness.commands.data", "list", "--data-root", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "sst_synthetic" in done.stdout


def test_loading_a_corpus_needs_no_network_code_and_no_framework() -> None:
    code = (
        "import sys; from harness.contracts.corpus import load_corpus;"
        "load_corpus('datasets.sst_synthetic', 'dev', None).instances[0];"
        "import datasets.sst;"
        "print([m for m in ('urllib.request', 'torch', 'numba') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
