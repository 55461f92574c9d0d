"""The download behind `bench-data fetch`, without any network."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from datasets.fetch import Opener, Response, faults, fetch, is_complete
from harness.contracts.home import Files
from harness.errors import DataError
from tests.support.downloads import ARCHIVE, FILES, SHA256, everything_below, serving, zipped


def failing(failure: BaseException) -> Opener:
    """Return an opener that cannot connect."""

    def opener(url: str, timeout_s: float) -> AbstractContextManager[Response]:
        raise failure

    return opener


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
    home = Files("https://a.org/x.{name}", "corpus", ".conll", "it moves")
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


SEVERAL = Files(
    "https://a.org/data/{name}",
    "pairs",
    None,
    names={"train_en": "train.en", "train_vi": "train.vi", "vocab_en": "vocab.en"},
)


def serving_by_name(contents: dict[str, Opener]) -> Opener:
    """Return an opener that answers each address as its last part says."""

    def opener(url: str, timeout_s: float) -> AbstractContextManager[Response]:
        return contents[url.rpartition("/")[2]](url, timeout_s)

    return opener


def test_a_split_may_need_several_files_that_are_called_as_there(tmp_path: Path) -> None:
    content = {name: f"of {name}\n".encode() for name in SEVERAL.names.values()}
    sha256 = {
        part: hashlib.sha256(content[name]).hexdigest() for part, name in SEVERAL.names.items()
    }
    opener = serving_by_name({name: serving(text) for name, text in content.items()})
    fetch(SEVERAL, sha256, tmp_path, opener=opener)
    assert everything_below(tmp_path) == {"pairs", *(f"pairs/{name}" for name in content)}
    assert is_complete(SEVERAL, sha256, tmp_path)
    (tmp_path / "pairs" / "train.vi").unlink()
    assert faults(SEVERAL, sha256 | {"vocab_en": "00"}, tmp_path) == {
        "train_vi": "missing",
        "vocab_en": "changed",
    }
    with pytest.raises(DataError) as caught:
        fetch(SEVERAL, sha256 | {"vocab_en": "00"}, tmp_path, opener=opener)
    message = str(caught.value)
    assert "https://a.org/data/vocab.en has sha256" in message
    assert "put the files of https://a.org/data/{train.en,train.vi,vocab.en} in place" in message
    assert f"as {tmp_path}/pairs/{{train.en,train.vi,vocab.en}}; or use a generated" in message


@pytest.mark.parametrize("n_sent", [0, 3])
def test_one_of_several_downloads_that_is_cut_off_leaves_nothing(
    tmp_path: Path, n_sent: int
) -> None:
    cut = serving(b"cut off"[:n_sent], length=7)
    opener = serving_by_name(
        {"train.en": serving(b"whole"), "train.vi": cut, "vocab.en": serving(b"whole")}
    )
    with pytest.raises(DataError, match=f"data/train.vi ended after {n_sent} of 7 bytes"):
        fetch(SEVERAL, None, tmp_path / "data", opener=opener)
    assert everything_below(tmp_path) == set()


def test_a_checksum_may_be_git_s_name_of_the_file(tmp_path: Path) -> None:
    home = Files("https://a.org/{name}", "corpus", names={"train": "train"})
    # What `git hash-object` says of these bytes.
    right = {"train": "git-blob:ce013625030ba8dba906f756967f9e9ca394464a"}
    fetch(home, right, tmp_path, opener=serving(b"hello\n"))
    assert is_complete(home, right, tmp_path)
    wrong = "git-blob:04d78dc94771b5c04adc40b3be08bd8c82942e7f"
    with pytest.raises(DataError, match=f"{right['train']}, expected {wrong}; nothing was placed"):
        fetch(home, {"train": wrong}, tmp_path / "new", opener=serving(b"hello\n"))
    assert not (tmp_path / "new").exists()


def test_a_part_that_a_corpus_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="pairs has no test part; it has train_en, train_vi, vocab"):
        SEVERAL.path(tmp_path, "test")


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


@pytest.mark.parametrize("length", ["", "abc", "-5", "1_0", "\xb2", "9" * 5000])
def test_a_length_that_is_none_is_unknown(tmp_path: Path, length: str) -> None:
    steps: list[tuple[int, int | None]] = []
    opener = serving(zipped(), length=length)
    fetch(ARCHIVE, SHA256, tmp_path, lambda *step: steps.append(step), opener)
    assert is_complete(ARCHIVE, SHA256, tmp_path)
    assert {total for _, total in steps} == {None}
    lost = serving(zipped(), length=length, failure=ConnectionResetError(104, "reset"))
    with pytest.raises(DataError, match="reset"):
        fetch(ARCHIVE, None, tmp_path / "new", opener=lost)
    assert not (tmp_path / "new").exists()


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
