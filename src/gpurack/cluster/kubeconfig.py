"""The site's kubeconfig on the controller: a key that is made here, signed by the cluster, and never travels.

`admin.conf` of the control plane is not fetched: its key would cross the wire and every verbose log. The
control plane only gets a certificate request and gives back the certificate.
"""

from __future__ import annotations

import base64
import os
import secrets
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from gpurack.decide import endpoint
from gpurack.decide.certificates import certificates, pins
from gpurack.decide.control_plane import Held

ADMINS = "kubeadm:cluster-admins"  # the group that kubeadm binds to cluster-admin since 1.29
LIFE = 365 * 86400  # seconds; the cluster's own signing limit is a year


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A certificate request of one run. + name: of the API object; + manifest: YAML, nothing secret."""

    name: str
    manifest: str
    key: str = field(repr=False)


def request(user: str) -> Request:
    """A new key, and what the control plane has to sign for `user`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ADMINS),
            x509.NameAttribute(NameOID.COMMON_NAME, user),
        ]
    )
    csr = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, SHA256())
    name = f"gpurack-{secrets.token_hex(4)}"
    body = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(csr.public_bytes(Encoding.PEM)).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "expirationSeconds": LIFE,
            "usages": ["client auth"],
        },
    }
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return Request(name=name, manifest=yaml.safe_dump(body), key=private)


def server(wanted: str, address: str) -> str:
    """The URL for the controller: the endpoint if its name means something here, else the control plane.

    + wanted: `cluster.endpoint`; + address: of the control plane; both are in its certificate
    """
    place = endpoint.parse(wanted)
    if not place.is_address:
        try:
            socket.getaddrinfo(place.host, place.port)
        except OSError:
            return endpoint.Endpoint(host=address, port=6443).url
    return place.url


def write(path: Path, *, cluster: str, url: str, ca: str, certificate: str, key: str) -> None:
    """Put the kubeconfig in place, atomically, with mode 0600 from its first byte."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {"server": url, "certificate-authority-data": _b64(ca)}}],
        "users": [
            {
                "name": "gpurack",
                "user": {"client-certificate-data": _b64(certificate), "client-key-data": _b64(key)},
            }
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": "gpurack"}}],
        "current-context": cluster,
    }
    for left in path.parent.glob(f".{path.name}.????????"):  # of a run that was killed while it wrote
        left.unlink(missing_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(yaml.safe_dump(document, sort_keys=False))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def held(path: Path) -> Held | None:
    """What the kubeconfig at `path` can do; `None` when it is missing or not one that we write."""
    try:
        document: dict[str, Any] = yaml.safe_load(path.read_text())
        cluster = document["clusters"][0]["cluster"]
        user = document["users"][0]["user"]
        return Held(
            server=cluster["server"],
            pins=pins(_text(cluster["certificate-authority-data"])),
            client=certificates(_text(user["client-certificate-data"]))[0],
        )
    except (OSError, ValueError, KeyError, IndexError, TypeError, yaml.YAMLError):
        return None


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _text(data: str) -> str:
    return base64.b64decode(data).decode()
