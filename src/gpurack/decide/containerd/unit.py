"""containerd's unit drop-in, its environment and the certificates it trusts (R76, R101).

The proxy stands in an environment file and not in the drop-in: unit properties are readable by every
user of the host (`systemctl show`), a proxy's URL may hold a login, and a changed proxy then needs no
daemon-reload (R80).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpurack.decide.containerd.models import Digest, Snapshot, Wanted
from gpurack.decide.containerd.registries import sha256
from gpurack.decide.decision import Remove, Step, Write

DROP_IN = "/etc/systemd/system/containerd.service.d/10-gpurack.conf"
ENVIRONMENT = "/etc/containerd/gpurack.env"
TRUST = "/etc/containerd/trust"
BUNDLE = f"{TRUST}/gpurack.pem"

_MANAGED = "# Managed by gpurack (role containerd); changes here are put back.\n"

DROP_IN_TEXT = f"""{_MANAGED}[Service]
# Containers inherit it: with systemd's 8 MiB ibv_reg_mr fails and NCCL falls back to sockets (R76).
LimitMEMLOCK=infinity
# Containers inherit it (R101). Soft: data loaders open a file per worker and few raise it by themselves.
# Hard: systemd's own; `infinity` makes programs that walk all descriptors run for minutes.
LimitNOFILE=65536:524288
EnvironmentFile=-{ENVIRONMENT}
"""


def environment(wanted: Wanted) -> str | None:
    """The environment file; None when nothing needs one."""
    values: dict[str, str] = {}
    if wanted.proxy:
        values["HTTP_PROXY"] = values["HTTPS_PROXY"] = wanted.proxy
        values["NO_PROXY"] = ",".join(wanted.no_proxy)
    if wanted.ca_bundle:
        # Go reads these folders beside the host's own bundle, so the host's trust store stays as it is.
        values["SSL_CERT_DIR"] = f"/etc/ssl/certs:{TRUST}"
    if not values:
        return None
    return _MANAGED + "".join(f'{name}="{_quoted(value)}"\n' for name, value in values.items())


def _quoted(value: str) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", value)


def wanted_files(wanted: Wanted) -> dict[str, tuple[str | None, int]]:
    """Content (None: must not be there) and mode by path."""
    return {
        DROP_IN: (DROP_IN_TEXT, 0o644),
        ENVIRONMENT: (environment(wanted), 0o600),
        # PEM readers skip what stands before the first certificate.
        BUNDLE: (_MANAGED + wanted.ca_bundle if wanted.ca_bundle else None, 0o644),
    }


def steps(wanted: Wanted, found: Mapping[str, Digest]) -> tuple[list[Step], list[str]]:
    """What brings the three files about, and the reasons. The names are ours, so whatever lies there goes."""
    todo: list[Step] = []
    reasons: list[str] = []
    for path, (text, mode) in wanted_files(wanted).items():
        old = found.get(path)
        if text is None:
            if old:
                todo.append(Remove(path=path))
                reasons.append(f"{path} is no longer wanted")
        elif not old or old.sha256 != sha256(text) or old.mode != mode:
            todo.append(Write(path=path, content=text, mode=mode, secret=mode == 0o600))
            reasons.append(f"{path} is {'not as wanted' if old else 'missing'}")
    return todo, reasons


def unread(found: Snapshot) -> str | None:
    """Why systemd must reload although the drop-in is in place: a run was cut short between the two (R80)."""
    if found.service.found and DROP_IN in found.digests and DROP_IN not in found.service.drop_ins:
        return f"systemd has not read {DROP_IN}"
    return None


def hashes_found(found: Mapping[str, Digest]) -> dict[str, str]:
    """What a process that starts now would read of the three files."""
    return {path: found[path].sha256 for path in (DROP_IN, ENVIRONMENT, BUNDLE) if path in found}


def hashes_wanted(wanted: Wanted) -> dict[str, str]:
    return {path: sha256(text) for path, (text, _) in wanted_files(wanted).items() if text is not None}
