"""One command on one connection, where the other side is a real ssh server that we can make hang."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import paramiko
import pytest
from paramiko.common import AUTH_SUCCESSFUL, OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED

from gpurack.engine.channel import ConnectionLost, ask


class Hanging(paramiko.ServerInterface):
    """Lets everybody in, and then opens no session until `go`: as sshd does while PAM waits for logind."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def check_auth_none(self, username: str) -> int:  # noqa: ARG002
        return AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002
        self.go.wait(20)
        return OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED


@pytest.fixture
def hanging() -> Iterator[tuple[paramiko.Transport, Hanging]]:
    ours, theirs = socket.socketpair()
    server, behaviour = paramiko.Transport(theirs), Hanging()
    server.add_server_key(paramiko.ECDSAKey.generate())
    server.start_server(event=threading.Event(), server=behaviour)
    client = paramiko.Transport(ours)
    client.start_client(timeout=10)
    client.auth_none("anybody")
    yield client, behaviour
    behaviour.go.set()
    client.close()
    server.close()


def test_a_login_that_hangs_is_named_and_takes_no_more_than_its_time(
    hanging: tuple[paramiko.Transport, Hanging],
) -> None:
    begun = time.monotonic()
    with pytest.raises(ConnectionLost, match="answers, but opened no session within 1 s: logins hang"):
        ask(hanging[0], "true", limit=1)
    assert time.monotonic() - begun < 10


def test_a_refused_session_is_no_hanging_login(hanging: tuple[paramiko.Transport, Hanging]) -> None:
    hanging[1].go.set()
    with pytest.raises(ConnectionLost, match=r"the connection is gone: .*prohibited"):
        ask(hanging[0], "true", limit=5)
