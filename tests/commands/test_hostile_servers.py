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


def answered(request: Request, headers: dict[str, str], content: bytes = b"") -> None:
    request.send_response(200)
    for name, text in headers.items():
        request.send_header(name, text)
    request.end_headers()
    request.wfile.write(content)


def lose(request: Request) -> None:
    answered(request, {"Content-Length": "1000"}, bytes(400))


def lose_a_chunk(request: Request) -> None:
    request.protocol_version = "HTTP/1.1"
    answered(request, {"Transfer-Encoding": "chunked"}, b"fff\r\n" + bytes(99))


def never_end(request: Request) -> None:
    answered(request, {})
    for _ in range(10_000):
        request.wfile.write(bytes(100_000))


def fall_silent(request: Request) -> None:
    answered(request, {"Content-Length": "1000"}, bytes(400))
    request.wfile.flush()
    request.server.closing.wait(20)  # type: ignore[attr-defined]


def send_elsewhere(request: Request) -> None:
    request.send_response(302)
    request.send_header("Location", "file:///etc/passwd")
    request.end_headers()


def send_in_circles(request: Request) -> None:
    request.send_response(302)
    request.send_header("Location", "/x.zip")
    request.end_headers()


def talk_nonsense(request: Request) -> None:
    request.wfile.write(b"\0\1\2 this is not HTTP\r\n\r\n")


def send_long_lines(request: Request) -> None:
    answered(request, {"Long": "x" * 100_000})


def talk_long_nonsense(request: Request) -> None:
    request.wfile.write(b"\0\1\x1b[2J" * 900 + b"\r\n\r\n")


def drip(request: Request, head: bytes, piece: bytes) -> None:
    """Send pieces so often that no read reaches its timeout, until the reader disconnects."""
    request.wfile.write(head)
    while not request.server.closing.wait(0.05):  # type: ignore[attr-defined]
        request.wfile.write(piece)


def drip_a_header(request: Request) -> None:
    drip(request, b"HTTP/1.1 200 OK\r\nX: ", b"x")


def drip_a_chunk_s_extension(request: Request) -> None:
    drip(request, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;", b"x")


def continue_for_ever(request: Request) -> None:
    drip(request, b"", b"HTTP/1.1 100 Continue\r\n\r\n")


def drip_a_body(request: Request) -> None:
    drip(request, b"HTTP/1.0 200 OK\r\n\r\n", b"x")


def serve_a_page(request: Request) -> None:
    answered(request, {}, b"<html>The files have moved</html>")


def compress(request: Request) -> None:
    answered(request, {"Content-Encoding": "gzip"}, b"\x1f\x8b")


def serve_other_texts(request: Request) -> None:
    answered(request, {}, zipped(sst.HOME, dict.fromkeys(sst.HOME.names, b"(2 a)\n")))


SERVERS: dict[str, tuple[Callable[[Request], None], str]] = {
    "connection lost": (lose, "ended after 400 of 1000 bytes"),
    "connection lost in a chunk": (lose_a_chunk, "IncompleteRead"),
    "endless": (never_end, "expected at most 4000000"),
    "silent": (fall_silent, "timed out"),
    "to a file": (send_elsewhere, "to url 'file:///etc/passwd' is not allowed"),
    "in circles": (send_in_circles, "infinite loop"),
    "no HTTP": (talk_nonsense, "cannot download"),
    "long nonsense": (talk_long_nonsense, "\\x00\\x01\\x1b[2J\\x00"),
    "dripping header": (drip_a_header, "timed out"),
    "dripping chunk extension": (drip_a_chunk_s_extension, "timed out"),
    "endless continue": (continue_for_ever, "timed out"),
    "dripping body": (drip_a_body, " bytes"),
    "long lines": (send_long_lines, "cannot download"),
    "a page": (serve_a_page, "is not a zip file"),
    "compressed": (compress, "expected no content encoding, got 'gzip'"),
    "other texts": (serve_other_texts, "expected e2f3f41b"),
}


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[Request], None]], None]]:
    """Yield a function that starts a server with some answer at SST's address."""
    servers = []

    def start(answer: Callable[[Request], None]) -> None:
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
    name: str,
    serve: Callable[[Callable[[Request], None]], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An archive from another source can be given as a file; its checksums are verified, too."""
    archive = tmp_path / "got.zip"
    archive.write_bytes(zipped(sst.HOME, dict.fromkeys(sst.HOME.names, b"(2 a)\n")))
    monkeypatch.setattr(sst, "HOME", replace(sst.HOME, url=archive.as_uri()))
    assert main(["fetch", "sst", "--data-root", str(tmp_path / "data")]) == 1
    assert "expected e2f3f41b" in capsys.readouterr().err
    assert everything_below(tmp_path) == {"got.zip"}


@pytest.mark.parametrize("root", ["x" * 300, "file/below", "file"])
@pytest.mark.parametrize("command", ["list", "fetch", "describe"])
def test_a_folder_that_cannot_be_is_one_line(
    command: str,
    root: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
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
