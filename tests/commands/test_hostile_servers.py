"""`bench-data fetch` from faulty servers: one line, exit code 1, and no files."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dynbatch.datasets import sst
from dynbatch.datasets.parts import fetch
from dynbatch.harness.commands.data import main
from tests.support.downloads import everything_below, zipped

Request = http.server.BaseHTTPRequestHandler
Answer = Callable[[Request], object]
Output = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
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
TEXTS = zipped(sst.HOME, dict.fromkeys(sst.HOME.names, b"(2 a)\n"))


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


def talk(content: bytes) -> Answer:
    return lambda request: request.wfile.write(content + b"\r\n\r\n")


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
    "no HTTP": (talk(b"\0\1\2 this is not HTTP"), "cannot download"),
    "long nonsense": (talk(b"\0\1\x1b[2J" * 900), "\\x00\\x01\\x1b[2J\\x00"),
    "dripping header": (drip(OK + b"X: "), "timed out"),
    "dripping chunk extension": (drip(OK + b"Transfer-Encoding: chunked\r\n\r\n5;"), "timed out"),
    "endless continue": (drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "timed out"),
    "dripping body": (drip(b"HTTP/1.0 200 OK\r\n\r\n"), " bytes"),
    "long lines": (send({"Long": "x" * 100_000}), "cannot download"),
    "a page": (send({}, b"<html>The files have moved</html>"), "is not a zip file"),
    "compressed": (COMPRESS, "expected no content encoding, got 'gzip'"),
    "other texts": (send({}, TEXTS), "expected e2f3f41b"),
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

    monkeypatch.setattr(fetch, "TIMEOUT_S", 0.5)
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
    assert main(["fetch", "sst", "--data-root", str(root)]) == 1
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


def test_an_address_of_a_file_serves_it_too(
    tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    """An archive from another source can be given as a file; its checksums are verified, too."""
    archive = tmp_path / "got.zip"
    archive.write_bytes(TEXTS)
    monkeypatch.setattr(sst, "HOME", replace(sst.HOME, url=archive.as_uri()))
    assert main(["fetch", "sst", "--data-root", str(tmp_path / "data")]) == 1
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
    code = main([command, *name, "--data-root", str(tmp_path / root)])
    printed = capsys.readouterr()
    assert code == (0 if command == "list" and len(root) < 100 else 1)
    assert code == 0 or printed.err.splitlines()[-1].startswith("bench-data: ")
    assert "Traceback" not in printed.err
    assert everything_below(tmp_path) == {"file"}
