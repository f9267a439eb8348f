"""The mirror's servers, over real sockets on the loopback."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from gpurack.lab.servers import Files, Proxy, Server

LOOPBACK = IPv4Network("127.0.0.0/8")


def serve(handler: partial[Files] | partial[Proxy]) -> Server:
    server = Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    return server


@pytest.fixture
def files(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "apt").mkdir()
    (tmp_path / "apt" / "Release").write_text("Origin: here\n")
    (tmp_path / "apt" / "Packages").write_text("Package: thing\n")
    (tmp_path / "apt" / ".identity").write_text("private")
    (tmp_path / ".apt.new").mkdir()
    (tmp_path / ".apt.new" / "Release").write_text("half")
    server = serve(partial(Files, directory=str(tmp_path)))
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def proxy() -> Iterator[int]:
    server = serve(partial(Proxy, allowed=LOOPBACK))
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def get(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def test_a_file_is_served(files: int) -> None:
    assert get(files, "/apt/Release") == (200, b"Origin: here\n")


@pytest.mark.parametrize(
    "path", ["/apt/.identity", "/.apt.new/Release", "/apt/../.apt.new/Release", "/%2eapt.new/Release"]
)
def test_hidden_names_are_not_served(files: int, path: str) -> None:
    assert get(files, path)[0] == 404


def test_pipelined_requests_are_answered_in_order(files: int) -> None:
    """apt sends several requests before the first answer."""
    request = b"GET /apt/%s HTTP/1.1\r\nHost: mirror\r\n\r\n"
    with socket.create_connection(("127.0.0.1", files), timeout=5) as client:
        client.sendall(request % b"Release" + request % b"Packages" + request % b"Release")
        client.shutdown(socket.SHUT_WR)
        text = b"".join(iter(partial(client.recv, 65536), b""))
    assert text.count(b"HTTP/1.1 200 OK") == 3
    assert text.index(b"Origin: here") < text.index(b"Package: thing") < text.rindex(b"Origin: here")


def test_an_unchanged_file_is_not_sent_again(files: int) -> None:
    assert get(files, "/apt/Release", If_Modified_Since="Fri, 01 Jan 2100 00:00:00 GMT") == (304, b"")


def test_the_proxy_fetches_into_the_rack(files: int, proxy: int) -> None:
    assert get(proxy, f"http://127.0.0.1:{files}/apt/Release") == (200, b"Origin: here\n")
    assert get(proxy, f"http://127.0.0.1:{files}/apt/Release", "HEAD") == (200, b"")
    assert get(proxy, f"http://127.0.0.1:{files}/nothing")[0] == 404


@pytest.mark.parametrize(
    "target", ["http://192.0.2.7/x", "http://mirror/x", "http://127.0.0.1.example.invalid/"]
)
def test_the_proxy_goes_nowhere_else(proxy: int, target: str) -> None:
    assert get(proxy, target)[0] == 403


def test_the_proxy_wants_an_absolute_address(proxy: int) -> None:
    assert get(proxy, "/apt/Release")[0] == 400


def test_an_upstream_that_is_not_there_is_a_bad_gateway(proxy: int) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert get(proxy, f"http://127.0.0.1:{unused.getsockname()[1]}/")[0] == 502


def test_connect_is_a_tunnel_both_ways(files: int, proxy: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", proxy, timeout=5)
    connection.set_tunnel("127.0.0.1", files)
    connection.request("GET", "/apt/Release")
    assert connection.getresponse().read() == b"Origin: here\n"
    connection.close()


def test_connect_outside_the_rack_is_refused(proxy: int) -> None:
    assert get(proxy, "192.0.2.7:443", "CONNECT")[0] == 403
    assert get(proxy, "127.0.0.1:https", "CONNECT")[0] == 403
