"""The mirror's own servers: files over HTTP, and a forward proxy.

They run as processes of their own inside the rack's network (`python -m gpurack.lab.servers ...`), so this
module imports nothing but the standard library. The proxy serves the rack's network only, and logs one line
for each request, so that a test can prove what went through it.
"""

from __future__ import annotations

import argparse
import http.client
import select
import socket
import sys
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Network, ip_address
from urllib.parse import unquote, urlsplit

PATIENCE = 30.0  # seconds that a peer may stay silent
CHUNK = 1 << 16
HOP_BY_HOP = {
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "te",
    "transfer-encoding",
}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


class Files(SimpleHTTPRequestHandler):
    """Files of one folder. Hidden names (`.identity`, a repository being built) are not served."""

    protocol_version = "HTTP/1.1"
    timeout = PATIENCE

    def send_head(self):  # type: ignore[no-untyped-def]  # typeshed: BytesIO | BinaryIO | None
        path = unquote(urlsplit(self.path).path)
        if any(part.startswith(".") for part in path.split("/")):
            self.send_error(404, "File not found")
            return None
        return super().send_head()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
        sys.stderr.write(f"{self.log_date_time_string()} {self.client_address[0]} {format % args}\n")
        sys.stderr.flush()


class Proxy(BaseHTTPRequestHandler):
    """GET and HEAD by absolute address, CONNECT by host:port; only into `allowed`."""

    protocol_version = "HTTP/1.1"
    timeout = PATIENCE

    def __init__(self, *args: object, allowed: IPv4Network, **kwargs: object) -> None:
        self.allowed = allowed
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        target = urlsplit(self.path)
        host, port = target.hostname, target.port or 80
        if target.scheme != "http" or host is None:
            return self.send_error(400, "Absolute http address expected")
        if not self.permitted(host):
            return self.send_error(403, "Outside the rack's network")
        path = target.path or "/"
        if target.query:
            path += f"?{target.query}"
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        upstream = http.client.HTTPConnection(host, port, timeout=PATIENCE)
        try:
            upstream.request(self.command, path, headers=headers)
            answer = upstream.getresponse()
        except OSError as error:
            upstream.close()
            return self.send_error(502, f"No answer from {host}:{port}: {error}")
        self.send_response(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        if answer.length is None and self.command != "HEAD":
            self.close_connection = True  # the end of the connection is the end of the body
        self.end_headers()
        if self.command != "HEAD":
            while block := answer.read(CHUNK):
                self.wfile.write(block)
        upstream.close()
        return None

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_CONNECT(self) -> None:
        host, _, port = self.path.rpartition(":")
        if not port.isdigit() or not self.permitted(host):
            return self.send_error(403, "Outside the rack's network")
        try:
            upstream = socket.create_connection((host, int(port)), timeout=PATIENCE)
        except OSError as error:
            return self.send_error(502, f"No answer from {self.path}: {error}")
        with upstream:
            self.send_response(200, "Connection established")
            self.end_headers()
            relay(self.connection, upstream)
        self.close_connection = True
        return None

    def permitted(self, host: str) -> bool:
        """An address inside the rack's network. Names are not resolved: the mirror has none to resolve."""
        try:
            return ip_address(host) in self.allowed
        except ValueError:
            return False

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
        sys.stderr.write(f"{self.log_date_time_string()} {self.client_address[0]} {format % args}\n")
        sys.stderr.flush()


def relay(one: socket.socket, other: socket.socket) -> None:
    """Pass bytes both ways until one side ends or both are silent for too long."""
    pairs = {one: other, other: one}
    while True:
        ready, _, _ = select.select(list(pairs), [], [], PATIENCE)
        if not ready:
            return
        for side in ready:
            try:
                block = side.recv(CHUNK)
                if not block:
                    return
                pairs[side].sendall(block)
            except OSError:
                return


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="gpurack.lab.servers", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind in ("files", "proxy"):
        one = kinds.add_parser(kind)
        one.add_argument("--address", required=True)
        one.add_argument("--port", type=int, required=True)
    kinds.choices["files"].add_argument("--folder", required=True)
    kinds.choices["proxy"].add_argument("--allow", type=IPv4Network, required=True)
    chosen = parser.parse_args(arguments)
    if chosen.kind == "files":
        server = Server((chosen.address, chosen.port), partial(Files, directory=chosen.folder))
    else:
        server = Server((chosen.address, chosen.port), partial(Proxy, allowed=chosen.allow))
    server.serve_forever()


if __name__ == "__main__":
    main()
