"""Both formats of apt's sources, dpkg's database, and what apt would do."""

from __future__ import annotations

import pytest

from gpurack.facts import apt, packages

SOURCES = """\
architecture=amd64
file=/etc/apt/sources.list
line=# deb http://repo.example.test/commented x main
line=deb [arch=amd64 signed-by=/k.gpg] http://repo.example.test/one noble main universe # tail
line=deb-src http://repo.example.test/one noble main
file=/etc/apt/sources.list.d/ubuntu.sources
line=# Ubuntu's own
line=Types: deb
line=URIs: http://a.example.test/ubuntu/ http://b.example.test/ubuntu/
line=Suites: noble noble-updates
line=Components: main
line=#Components: universe
line=Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg
line=
line=Enabled: no
line=Types: deb
line=URIs: http://off.example.test/
line=Suites: noble
line=
line=Types: deb
line=URIs: http://inline.example.test/
line=Suites: ./
line=Signed-By:
line= -----BEGIN PGP PUBLIC KEY BLOCK-----
line= .
line= mQENBF
line= -----END PGP PUBLIC KEY BLOCK-----
owned=644 root:root 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  /etc/apt/gpurack-ca.pem
"""


def test_entries_of_both_formats_are_read_with_file_and_line() -> None:
    found = apt.parse(SOURCES)
    assert [
        (e.file.rpartition("/")[2], e.line, e.type, e.uri, e.suite, e.signed_by) for e in found.entries
    ] == [
        ("sources.list", 2, "deb", "http://repo.example.test/one", "noble", "/k.gpg"),
        ("sources.list", 3, "deb-src", "http://repo.example.test/one", "noble", None),
        *(
            ("ubuntu.sources", 2, "deb", uri, suite, "/usr/share/keyrings/ubuntu-archive-keyring.gpg")
            for uri in ("http://a.example.test/ubuntu/", "http://b.example.test/ubuntu/")
            for suite in ("noble", "noble-updates")
        ),
        ("ubuntu.sources", 14, "deb", "http://inline.example.test/", "./", "inline"),
    ]
    assert found.entries[0].components == ("main", "universe")


def test_state_of_our_files_is_read() -> None:
    ((path, state),) = apt.parse(SOURCES).files.items()
    assert (path, state.mode, state.owner, state.sha256[:4]) == (
        "/etc/apt/gpurack-ca.pem",
        0o644,
        "root:root",
        "9f86",
    )


DPKG = """\
package=containerd.io 2.2.9-1 hold installed
package=kubelet 1.34.4-1.1 install half-configured
package=linux-image-cloud-amd64 6.1.192-3 install installed
binary=/usr/bin/containerd containerd.io
binary=/usr/local/bin/containerd%
dependant=docker.io
member=no
configured=no
enabled=enabled
active=inactive
cut=no
"""


def test_dpkgs_database_is_read() -> None:
    found = packages.parse(DPKG.replace("%", " "))
    assert found.version("containerd.io") == "2.2.9-1"
    assert found.found["containerd.io"].hold
    assert found.version("kubelet") is None
    assert found.found["kubelet"].half
    assert found.binaries == {"/usr/bin/containerd": "containerd.io", "/usr/local/bin/containerd": None}
    assert found.dependants == ("docker.io",)


@pytest.mark.parametrize("missing", ["member=", "active=", "cut=", "configured="])
def test_half_an_answer_of_dpkg_is_no_answer(missing: str) -> None:
    with pytest.raises(ValueError, match=missing.rstrip("=")):
        packages.parse("\n".join(line for line in DPKG.splitlines() if not line.startswith(missing)))


SIMULATION = """\
   kubelet | 1.34.4-1.2 | http://10.77.0.2/apt/kubernetes  Packages
   kubelet | 1.34.4-1.1 | http://10.77.0.2/apt/kubernetes  Packages
gpurack-simulation
Reading package lists...
The following packages will be REMOVED:
  docker.io
Remv docker.io [24.0.7-0ubuntu4]
Inst kubernetes-cni (1.7.1-1.1 gpurack lab:1.34 [amd64])
Inst kubelet [1.33.0-1.1] (1.34.4-1.1 gpurack lab:1.34 [amd64]) []
Conf kubelet (1.34.4-1.1 gpurack lab:1.34 [amd64])
gpurack-result=0
"""


def test_a_simulation_is_read() -> None:
    found = packages.parse_simulation(SIMULATION)
    assert found.available == {"kubelet": ("1.34.4-1.2", "1.34.4-1.1")}
    assert found.removes == ("docker.io",)
    assert found.installs == {
        "kubernetes-cni": (None, "1.7.1-1.1"),
        "kubelet": ("1.33.0-1.1", "1.34.4-1.1"),
    }
    assert found.log.result == 0


@pytest.mark.parametrize("cut", ["gpurack-simulation\n", "gpurack-result=0\n"])
def test_a_simulation_without_its_end_is_no_answer(cut: str) -> None:
    with pytest.raises(ValueError, match="apt"):
        packages.parse_simulation(SIMULATION.replace(cut, ""))
