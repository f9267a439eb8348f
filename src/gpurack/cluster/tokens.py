"""Bootstrap tokens: made for one run, with our description, 15 minutes of life, deleted at its end (R51).

A token is a Secret in kube-system that is named by the public half. The secret half is returned once and is
never in a name, a description or an error.
"""

from __future__ import annotations

import base64
import os
import secrets
import socket
import string
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from gpurack.cluster.client import Client

SECRETS = "/api/v1/namespaces/kube-system/secrets"
KIND = "bootstrap.kubernetes.io/token"
MARK = "gpurack join token"
LIFE = timedelta(minutes=15)
_LETTERS = string.ascii_lowercase + string.digits


@dataclass(frozen=True, slots=True)
class Token:
    """+ id: the public half; + value: `id.secret`, never shown."""

    id: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A bootstrap token as the cluster has it. + expires: `None` for one that never does."""

    id: str
    description: str
    expires: datetime | None


def mint(client: Client) -> Token:
    """A new token. It expires by the API server's clock, not by the controller's (O-29)."""
    public, private = _random(6), _random(16)
    expires = (client.now() + LIFE).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    client.create(
        SECRETS,
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"bootstrap-token-{public}", "namespace": "kube-system"},
            "type": KIND,
            "stringData": {
                "token-id": public,
                "token-secret": private,
                "description": description(),
                "expiration": expires,
                "usage-bootstrap-authentication": "true",
                "usage-bootstrap-signing": "true",
                "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
            },
        },
    )
    return Token(public, f"{public}.{private}")


def delete(client: Client, token_id: str) -> bool:
    """Delete a token; False when it was gone already."""
    return client.delete(f"{SECRETS}/bootstrap-token-{token_id}")


def known(client: Client) -> tuple[Known, ...]:
    """All bootstrap tokens of the cluster; the secret halves are dropped at once."""
    found = client.get(SECRETS, fieldSelector=f"type={KIND}")
    return tuple(_known(item["data"]) for item in found.get("items", ()))


def leftovers(tokens: tuple[Known, ...]) -> tuple[Known, ...]:
    """Those of ours whose run is over: a run on another controller is given the token's whole life."""
    return tuple(token for token in tokens if token.description.startswith(MARK) and not _in_use(token))


def description() -> str:
    """Ours, with the process that holds it: `gpurack join token of HOST:PID`."""
    return f"{MARK} of {socket.gethostname()}:{os.getpid()}"


def _in_use(token: Known) -> bool:
    owner, _, pid = token.description.removeprefix(f"{MARK} of ").rpartition(":")
    if owner != socket.gethostname() or not pid.isdigit():
        return token.expires is not None
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _known(data: dict[str, str]) -> Known:
    text = {key: base64.b64decode(data[key]).decode() for key in data if key != "token-secret"}
    expiry = text.get("expiration")
    return Known(
        id=text["token-id"],
        description=text.get("description", ""),
        expires=datetime.fromisoformat(expiry) if expiry else None,
    )


def _random(length: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(length))
