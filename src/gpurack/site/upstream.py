"""Where packages come from when the document does not say: the vendors, with their published keys.

A key is fetched from the vendor and used only if its fingerprint is the one below. Both are those that the
vendors' installation pages lead to; they are compared, never replaced by what a download says.
"""

from __future__ import annotations

import re

from gpurack.site.document import Data

# "isv:kubernetes OBS Project", signs every minor's repository of pkgs.k8s.io.
KUBERNETES_KEY = "DE15B14486CD377B9E876E1A234654DA9A296436"
# "Docker Release (CE deb)", signs Docker's Debian and Ubuntu repositories.
DOCKER_KEY = "9DC858229FC7DD38854AE2D88D81803C0EBFCD88"


def sources(kubernetes: Data) -> dict[str, Data]:
    """`sources.kubernetes` and `sources.containerd` as a person would write them for Kubernetes `kubernetes`.

    pkgs.k8s.io has one repository per minor. Docker's repository is that of Ubuntu 24.04.
    """
    match = re.match(r"\d+\.\d+", kubernetes) if isinstance(kubernetes, str) else None
    base = f"https://pkgs.k8s.io/core:/stable:/v{match[0] if match else '0.0'}/deb/"
    docker = "https://download.docker.com/linux/ubuntu"
    return {
        "kubernetes": {
            "uri": base,
            "suite": "/",
            "key": {"url": f"{base}Release.key", "fingerprint": KUBERNETES_KEY},
        },
        "containerd": {
            "uri": docker,
            "suite": "noble",
            "components": ["stable"],
            "key": {"url": f"{docker}/gpg", "fingerprint": DOCKER_KEY},
        },
    }
