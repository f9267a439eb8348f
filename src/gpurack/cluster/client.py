"""One connection to a Kubernetes API server: JSON in, JSON out, bounded requests, failures as Problems.

The `kubernetes` library does kubeconfigs, TLS and credentials; its typed models are left out, because they
cost seconds to decode for a thousand nodes. It is imported on first use: the import alone takes a second.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from gpurack.errors import Lost, Problem, Refused

CONNECT, READ = 5, 20  # seconds; an API server that needs longer is not one to provision against
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
Json = dict[str, Any]


class Unreachable(Lost):
    """The API server did not answer at all, so nothing that hangs on it may be decided."""


class Denied(Refused):
    """The API server answered and will not have it.

    + status: HTTP status; + reason: the API's word, such as `NotFound`, `Conflict`, `Forbidden`
    """

    def __init__(self, problem: Problem, *, status: int, reason: str) -> None:
        super().__init__(problem)
        self.status = status
        self.reason = reason


class Client:
    """Requests to one API server as one user. Safe to share between greenlets and threads."""

    def __init__(self, api: Any, *, source: str) -> None:
        self._api = api
        self._clock: tuple[datetime, float] | None = None
        self.source = source

    @property
    def server(self) -> str:
        return str(self._api.configuration.host)

    @property
    def ca(self) -> str:
        """PEM of the CAs that this client trusts; empty when the kubeconfig names none."""
        path = self._api.configuration.ssl_ca_cert
        return Path(path).read_text() if path else ""

    def now(self) -> datetime:
        """The API server's time: dates of tokens and certificates are judged by its clock (O-29)."""
        if self._clock is None:
            self.get("/version")
        told, at = self._clock or (datetime.now(UTC), time.monotonic())
        return told + timedelta(seconds=time.monotonic() - at)

    def get(self, path: str, **query: str) -> Json:
        return self._ask("GET", path, query=query)

    def find(self, path: str) -> Json | None:
        """Like `get`; `None` when there is no such object."""
        try:
            return self.get(path)
        except Denied as denied:
            if denied.status == 404:
                return None
            raise

    def create(self, path: str, body: Json) -> Json:
        return self._ask("POST", path, body=body)

    def merge(self, path: str, body: Json) -> Json:
        """JSON merge patch: `None` removes a key, lists are replaced."""
        return self._ask("PATCH", path, body=body, content_type=MERGE)

    def apply(self, path: str, body: Json, *, manager: str) -> Json:
        """Server-side apply with strict field validation; conflicts with other managers are an error."""
        return self._ask(
            "PATCH",
            path,
            body=body,
            content_type=APPLY,
            query={"fieldManager": manager, "fieldValidation": "Strict"},
        )

    def delete(self, path: str) -> bool:
        """Delete one object; False when it was gone already."""
        try:
            self._ask("DELETE", path)
        except Denied as denied:
            if denied.status == 404:
                return False
            raise
        return True

    def _ask(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        from urllib3.exceptions import HTTPError

        request = self._api.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            answer = self._api.call_api(*request, _request_timeout=(CONNECT, READ))
            text = (answer.read() or b"").decode(errors="replace")
        except (HTTPError, OSError) as error:
            raise Unreachable(unreachable(error, server=self.server, source=self.source)) from error
        except Exception as error:
            from kubernetes.client.exceptions import ApiException

            if isinstance(error, ApiException):  # the library's word for a TLS error before any answer
                raise Unreachable(unreachable(error, server=self.server, source=self.source)) from error
            raise
        if answer.headers.get("date"):
            self._clock = (parsedate_to_datetime(answer.headers["date"]), time.monotonic())
        if not 200 <= answer.status <= 299:
            raise denied(answer.status, text, f"{method} {path}", server=self.server, source=self.source)
        return dict(json.loads(text)) if text.startswith("{") else {"text": text}


def connect(kubeconfig: Path, *, scratch: Path) -> Client:
    """A client for the current context of `kubeconfig`. Nothing is contacted yet.

    + scratch: folder for the key files that the TLS library needs; made with mode 0700

    Raises `Refused` when the file is missing or is no kubeconfig.
    """
    from kubernetes.client import Configuration
    from kubernetes.client.api_client import ApiClient
    from kubernetes.config import ConfigException, kube_config
    from yaml import YAMLError

    load: Any = kube_config.load_kube_config  # its type stub lacks temp_file_path
    own = _own_folder(scratch)
    configuration = Configuration()
    try:
        load(
            config_file=str(kubeconfig),
            client_configuration=configuration,
            persist_config=False,
            temp_file_path=str(own),
        )
    except (ConfigException, YAMLError, OSError, ValueError, TypeError, AttributeError) as error:
        raise Refused(
            Problem(
                code="E-CLUSTER-01",
                what="the kubeconfig can't be used",
                found=f"{kubeconfig}: {type(error).__name__}",
                next=f"kubectl --kubeconfig {kubeconfig} get nodes",
            )
        ) from error
    # urllib3's default is three retries of five seconds each; one covers a connection that went stale.
    configuration.retries = 1
    return Client(ApiClient(configuration), source=str(kubeconfig))


def _own_folder(scratch: Path) -> Path:
    """A folder of this process; those that a killed process left behind, with its key files, go away."""
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in scratch.iterdir():
        if folder.name.isdigit() and not Path("/proc", folder.name).exists():
            shutil.rmtree(folder, ignore_errors=True)
    own = scratch / str(os.getpid())
    own.mkdir(mode=0o700, exist_ok=True)
    return own


def unreachable(error: BaseException, *, server: str, source: str) -> Problem:
    """Why there was no answer, told apart by what cures it."""
    text = str(getattr(error, "reason", None) or error)  # urllib3 wraps the reason in the request
    if "certificate has expired" in text or "certificate is not yet valid" in text:
        what, code = "the API server's certificate is out of its dates", "E-CLUSTER-03"
        cure = "compare the clocks of controller and control plane; then kubeadm certs check-expiration there"
    elif "CERTIFICATE_VERIFY_FAILED" in text or "certificate verify failed" in text:
        what, code = "the API server's certificate is not signed by the CA of the kubeconfig", "E-CLUSTER-04"
        cure = "a foreign cluster answers at this address, or the CA was replaced: fetch its kubeconfig anew"
    elif "Name or service not known" in text or "NameResolutionError" in text or "resolve" in text:
        what, code = "the API server's name does not resolve on the controller", "E-CLUSTER-02"
        cure = "make the name resolve here, or put an address into the kubeconfig"
    else:
        what, code = "the API server does not answer", "E-CLUSTER-02"
        cure = f"curl -k {server}/readyz from the controller"
    return Problem(
        code=code, what=what, found=f"{server}: {_short(text)}", next=cure, rule=f"asked with {source}"
    )


def denied(status: int, text: str, request: str, *, server: str, source: str) -> Denied:
    """The API server's own refusal, as a Problem."""
    try:
        answer = json.loads(text)
        reason, message = str(answer.get("reason", "")), str(answer.get("message", text))
    except (ValueError, AttributeError):
        reason, message = "", text
    if status == 401:
        what = "the API server does not know this credential (expired, or of another cluster)"
        cure = "run deploys/control_plane.py, which makes a new one, or bring a valid kubeconfig"
    elif status == 403:
        what = "the credential may not do this"
        cure = f"give the user of {source} this right"
    else:
        what = "the API server refused a request"
        cure = None
    problem = Problem(
        code="E-CLUSTER-05",
        what=what,
        found=f"{request} at {server}: {status} {_short(message)}",
        next=cure,
    )
    return Denied(problem, status=status, reason=reason)


def _short(text: str) -> str:
    return " ".join(text.split())[:300]
