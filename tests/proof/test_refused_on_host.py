"""Every bad input: what the last screen says, the exit code, and that the host is as it was (must show 7)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpurack.lab import mirror, repository
from tests.lab import cases, harness
from tests.lab.cases import HOST, Change, apart, as_is, assert_refused
from tests.lab.killing import Controller

pytestmark = pytest.mark.lab

WITNESS = f"{HOST},cp-1"  # cp-1 is the other host of a run: whatever happens, the run comes to it
GHOST = {"name": "gpu-9", "address": "10.77.0.99", "pool": "lab-container"}  # nobody has this address


@pytest.fixture(scope="module")
def bare(joined_rack: Path) -> Iterator[Path]:
    """The host under test as after its first boot; it is a member again when the module is done."""
    cases.make_bare(HOST, site=joined_rack)
    yield joined_rack
    if not harness.ready(joined_rack).get(HOST):
        harness.pyinfra("inventories/lab_vm", "deploys/gpu_node.py", "--limit", HOST).ok()


@contextmanager
def planted(script: str, undo: str, *, site: Path) -> Iterator[dict[str, str]]:
    """The host with something wrong on it; what it looked like then."""
    harness.ssh(HOST, f"set -e; {script}", site=site).ok()
    try:
        yield cases.state_of(HOST, site=site)
    finally:
        harness.ssh(HOST, undo, site=site).ok()


def reserve(**reserved: str) -> Change:
    return apart(lambda pool: pool["numa"]["reserved"].update(reserved))


def accept_less(gate: str) -> Change:
    return lambda document: document["accept"].remove(gate)


def nine_nodes(document: dict[str, Any]) -> None:
    apart(lambda pool: pool["hardware"].pop("numa_nodes"))(document)


# ------------------------------------------------------------------------ the document does not fit the host
@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        pytest.param(
            reserve(system_memory="900Gi"),
            "E-NUMA-04",
            ("reservation exceeds NUMA node 0", "lower system, kube and eviction memory"),
            id="reservation-larger-than-its-node",
        ),
        pytest.param(
            reserve(cpus="0-1"), "E-NUMA-03", ("every CPU would be reserved",), id="every-cpu-reserved"
        ),
        pytest.param(reserve(cpus="0,63"), "E-NUMA-02", ("reserved CPUs 63 do not exist",), id="cpu-absent"),
        pytest.param(
            accept_less("os-debian-12"),
            "E-OS-01",
            ("unsupported operating system", "Debian GNU/Linux 12", "install Ubuntu"),
            id="unsupported-os",
        ),
        pytest.param(accept_less("cgroup-v1"), "E-OS-03", ("cgroup v1", "R66"), id="cgroup-v1"),
        pytest.param(accept_less("shared-kernel"), "E-OS-04", ("systemd-nspawn",), id="a-container"),
    ],
)
def test_a_host_that_can_not_be_a_node_is_refused_as_it_was_found(
    bare: Path, tmp_path: Path, change: Change, code: str, words: tuple[str, ...]
) -> None:
    before = cases.state_of(HOST, site=bare)
    case = cases.case(tmp_path, change)

    assert_refused(case.run(limit=WITNESS), code, HOST, *words)

    cases.assert_fails_alone(case)
    assert cases.state_of(HOST, site=bare) == before


# ------------------------------------------------------------------------ something is wrong with the host
FAILING = r"printf '#!/bin/sh\necho broken on purpose >&2; exit 3\n' >/run/fail; chmod 755 /run/fail; "
SECOND = (
    r"printf '#!/bin/sh\nexec sleep infinity\n' >/usr/local/bin/containerd; "
    r"chmod 755 /usr/local/bin/containerd; printf '[Service]\nExecStart=/usr/local/bin/containerd\n' "
    ">/etc/systemd/system/containerd.service"
)
FOREIGN_CA = (
    "mkdir -p /etc/kubernetes/pki; openssl req -x509 -newkey rsa:2048 -nodes -keyout /dev/null "
    "-subj /CN=kubernetes -days 30 -out /etc/kubernetes/pki/ca.crt 2>/dev/null"
)
FOREIGN_CONF = r"""mkdir -p /etc/kubernetes; cat >/etc/kubernetes/kubelet.conf <<'X'
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://192.0.2.1:6443"}}]
users: [{name: u, user: {client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
X"""
NODES = (
    "for n in 0 1 2 3 4 5 6 7 8; do mkdir -p /run/nodes/node$n; "
    r"printf 'Node %s MemTotal: 4000000 kB\n' $n >/run/nodes/node$n/meminfo; done; "
    ": >/run/nodes/node0/cpu0; : >/run/nodes/node1/cpu1; mount --bind /run/nodes /sys/devices/system/node"
)


@pytest.mark.parametrize(
    ("script", "undo", "change", "code", "words"),
    [
        pytest.param(
            "echo 0 >/run/online; mount --bind /run/online /sys/devices/system/cpu/online",
            "umount /sys/devices/system/cpu/online",
            reserve(cpus="1"),
            "E-NUMA-02",
            ("reserved CPUs 1 are offline", "bring them online"),
            id="reserved-cpu-offline",
        ),
        pytest.param(
            NODES,
            "umount /sys/devices/system/node; rm -r /run/nodes",
            nine_nodes,
            "E-NUMA-05",
            ("on 9 NUMA nodes", "max-allowable-numa-nodes"),
            id="more-than-eight-numa-nodes",
        ),
        pytest.param(
            SECOND,
            "rm /usr/local/bin/containerd /etc/systemd/system/containerd.service",
            as_is,
            "E-PKG-08",
            ("a second containerd", "/usr/local/bin/containerd (of no package)", "remove the other one"),
            id="o-19-second-containerd",
        ),
        pytest.param(
            FOREIGN_CA,
            "rm -r /etc/kubernetes",
            as_is,
            "E-JOIN-02",
            ("files of another cluster", "/etc/kubernetes/pki/ca.crt", "kubeadm reset"),
            id="o-33-foreign-ca",
        ),
        pytest.param(
            FOREIGN_CONF,
            "rm -r /etc/kubernetes",
            as_is,
            "E-JOIN-02",
            ("files of another cluster", "https://192.0.2.1:6443", "kubeadm reset"),
            id="o-33-foreign-kubelet-conf",
        ),
        pytest.param(
            "echo 'deb [signed-by=/etc/apt/keyrings/other.gpg] http://10.77.0.2/apt/kubernetes /' "
            ">/etc/apt/sources.list.d/other.list",
            "rm /etc/apt/sources.list.d/other.list",
            as_is,
            "E-APT-01",
            ("listed twice with different keyrings", "/etc/apt/sources.list.d/other.list:1", "remove"),
            id="o-25-one-repository-two-keyrings",
        ),
        pytest.param(
            "mkdir -p /var/lib/containerd; mount -t tmpfs -o size=16m tmpfs /var/lib/containerd; "
            "head -c 15m /dev/zero >/var/lib/containerd/fill",
            "umount /var/lib/containerd",
            as_is,
            "E-OS-05",
            ("too little disk room at /var/lib/containerd", "1 MiB available of 16 MiB", "df -h"),
            id="disk-full",
        ),
        pytest.param(
            FAILING + "mount --bind /run/fail /usr/bin/dpkg-query",
            "umount /usr/bin/dpkg-query",
            as_is,
            "E-FACT-01",
            ("nothing is decided or written", "broken on purpose"),
            id="dpkg-can-not-be-read",
        ),
        pytest.param(
            FAILING + "mount --bind /run/fail /usr/bin/systemd-detect-virt",
            "umount /usr/bin/systemd-detect-virt",
            as_is,
            "E-FACT-01",
            ("nothing is decided or written", "'container' is empty"),
            id="a-tool-that-says-nothing",
        ),
    ],
)
def test_what_is_wrong_with_a_host_is_named_and_nothing_is_written(
    bare: Path, tmp_path: Path, script: str, undo: str, change: Change, code: str, words: tuple[str, ...]
) -> None:
    case = cases.case(tmp_path, change)
    with planted(script, undo, site=bare) as before:
        # dpkg-query itself may be what is broken: then it says the same before and after
        assert_refused(case.run(limit=WITNESS), code, HOST, *words)
        assert cases.state_of(HOST, site=bare) == before
    cases.assert_fails_alone(case)


# ------------------------------------------------------------------------ hosts that can't be reached
def test_a_changed_host_key_stops_before_the_host_is_talked_to(bare: Path, tmp_path: Path) -> None:
    case = cases.case(tmp_path, lambda document: document["ssh"].update(known_hosts="../other_known_hosts"))
    harness.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key").ok()
    other = (tmp_path / "key.pub").read_text().split()[1]
    known = (case.state / "known_hosts").read_text().splitlines()
    kept = [line for line in known if "10.77.0.13 " not in line]
    lines = [*kept, f"10.77.0.13 ssh-ed25519 {other}"]
    (tmp_path / "other_known_hosts").write_text("".join(f"{line}\n" for line in lines))
    before = cases.state_of(HOST, site=bare)

    ran = case.run(limit=WITNESS)

    assert_refused(ran, "E-SSH-02", HOST, "the host key has changed", f"--replace {HOST}")
    cases.assert_fails_alone(case)
    assert cases.state_of(HOST, site=bare) == before


def test_an_unknown_host_key_is_shown_with_the_way_to_enrol_it(bare: Path, tmp_path: Path) -> None:
    case = cases.case(tmp_path)
    trusted = (case.state / "known_hosts").read_text().splitlines()
    kept = [line for line in trusted if "10.77.0.13 " not in line]
    (case.state / "known_hosts").write_text("".join(f"{line}\n" for line in kept))
    before = cases.state_of(HOST, site=bare)

    ran = case.run(limit=WITNESS)

    assert_refused(ran, "E-SSH-01", HOST, "the host key is not known yet", "SHA256:", "gpurack hosts trust")
    cases.assert_fails_alone(case)
    assert cases.state_of(HOST, site=bare) == before


def test_a_host_that_never_answers_does_not_keep_a_dry_run_from_the_others(
    bare: Path, tmp_path: Path
) -> None:
    case = cases.case(tmp_path, lambda document: document["hosts"].append(GHOST))
    before = cases.state_of(HOST, site=bare)

    ran = case.run("--dry", limit=f"{HOST},gpu-9")

    assert_refused(ran, "E-SSH-04", "gpu-9", "10.77.0.99:22", "look whether the host is up")
    assert "never joined" in ran.text  # the other host was thought through to its join
    assert case.outcomes() == {HOST: "as wanted", "gpu-9": "failed"}
    assert cases.state_of(HOST, site=bare) == before


# Every ssh connection of the host ends, new ones are refused; two seconds later it is back.
DIE = (
    "systemd-run --quiet --collect sh -c 'sleep 0.3; systemctl stop ssh; pkill -9 -x sshd; sleep 2; "
    "systemctl start ssh'"
)


def die_when(condition: str, *, site: Path) -> None:
    """Let the host die for ssh as soon as the shell `condition` holds on it."""
    script = f"n=0; until {condition}; do sleep 0.1; n=$((n+1)); [ $n -lt 1200 ] || exit 9; done; {DIE}"
    harness.ssh(HOST, script, site=site, timeout=150).ok()


def back(site: Path) -> None:
    harness.until(lambda: harness.ssh(HOST, "true", site=site).rc == 0, f"{HOST} is back", deadline=30)


@pytest.mark.parametrize("flags", [("--dry",), ()], ids=["dry", "for-real"])
def test_a_host_that_dies_while_it_is_looked_at_fails_alone(
    bare: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    case = cases.case(tmp_path)
    slow = (
        r"rm -f /run/hangs; printf '#!/bin/sh\n: >/run/hangs; exec sleep 30\n' >/run/slow; "
        "chmod 755 /run/slow"
    )
    before = cases.state_of(HOST, site=bare)
    harness.ssh(HOST, f"{slow}; mount --bind /run/slow /usr/bin/dpkg-query", site=bare).ok()
    try:
        controller = Controller(
            str(case.inventory), "deploys/gpu_node.py", "--limit", HOST, "--limit", "cp-1", *flags
        )
        die_when("[ -e /run/hangs ]", site=bare)
        ran = cases.finish(controller)
        back(bare)
    finally:
        harness.ssh(HOST, "umount /usr/bin/dpkg-query", site=bare).ok()

    assert_refused(ran, "E-FACT-01", HOST, "could not be read", "the connection")
    cases.assert_fails_alone(case)
    assert cases.state_of(HOST, site=bare) == before


# ------------------------------------------------------------------------ sources of packages
def source(name: str, **changed: Any) -> Change:
    return lambda document: document["sources"][name].update(changed)


def test_another_key_than_the_pinned_one_is_refused_before_anything_is_written(
    bare: Path, tmp_path: Path
) -> None:
    key = {"file": str(mirror.RACK.keys / "kubernetes.asc"), "fingerprint": "A" * 40}
    case = cases.case(tmp_path, source("kubernetes", key=key))
    before = cases.state_of(HOST, site=bare)

    assert_refused(case.run(limit=WITNESS), "E-APT-03", HOST, "is another key", "A" * 40, "fingerprint")

    cases.assert_fails_alone(case)
    assert cases.state_of(HOST, site=bare) == before


def test_an_expired_key_is_refused_before_anything_is_written(bare: Path, tmp_path: Path) -> None:
    home = tmp_path / "gnupg"
    home.mkdir(mode=0o700)
    gpg = ("gpg", "--batch", "--homedir", home, "--pinentry-mode", "loopback", "--passphrase", "")
    past = ("--faked-system-time", "20240101T000000")
    harness.run(*gpg, *past, "--quick-generate-key", "old@lab.invalid", "ed25519", "sign", "30d").ok()
    old = harness.run(*gpg, "--armor", "--export").ok().out
    (tmp_path / "old.asc").write_text(old)
    listed = harness.run(*gpg, "--with-colons", "--list-keys").ok().out
    fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))
    harness.run("gpgconf", "--homedir", home, "--kill", "all")
    key = {"file": str(tmp_path / "old.asc"), "fingerprint": fingerprint}
    case = cases.case(tmp_path / "case", source("kubernetes", key=key))
    before = cases.state_of(HOST, site=bare)

    ran = case.run(limit=WITNESS)

    assert_refused(ran, "E-APT-05", HOST, "signing key expired", "ends on 2024-01-31", "fetch the vendor's")
    cases.assert_fails_alone(case)
    assert cases.state_of(HOST, site=bare) == before


HOLD_LOCK = """perl -MFcntl -e 'open F, "+>>", "/var/lib/dpkg/lock-frontend" or die;
my $lock = pack "s s x4 l! l! l x4", F_WRLCK, 0, 0, 0, 0; fcntl(F, F_SETLK, $lock) or die;
open R, ">", "/run/locked"; close R;
while (-e "/run/locked") { select undef, undef, undef, 0.2 }'"""


def test_whoever_holds_dpkgs_lock_is_named_then_a_repository_that_is_gone(bare: Path, tmp_path: Path) -> None:
    case = cases.case(tmp_path, source("kubernetes", uri="http://10.77.0.2/apt/gone"))
    holder = subprocess.Popen(harness.ssh_argv(HOST, HOLD_LOCK, site=bare))
    harness.until(lambda: harness.ssh(HOST, "[ -e /run/locked ]", site=bare).rc == 0, "the lock is held", 30)
    controller = Controller(str(case.inventory), "deploys/gpu_node.py", "--limit", HOST)
    try:
        harness.until(
            lambda: controller.says("/var/lib/dpkg/lock-frontend is held by process"), "its name", 90, 0.2
        )
        assert controller.says("(perl)")
    finally:
        harness.ssh(HOST, "rm -f /run/locked", site=bare)
        holder.wait(timeout=30)

    assert_refused(cases.finish(controller), "E-APT-19", HOST, "repository gone", "apt/gone", "check uri")
    assert case.outcomes() == {HOST: "failed"}
    after = cases.state_of(HOST, site=bare)
    assert after["leftovers"].strip() == ""
    assert "/etc/containerd/config.toml" not in after


@pytest.mark.parametrize("kind", ["signed-by-another-key", "index-expired"])
def test_a_repository_that_can_not_be_trusted_installs_nothing(bare: Path, tmp_path: Path, kind: str) -> None:
    site = mirror.RACK
    packages = "dpkg-query -W | md5sum"
    before = harness.ssh(HOST, packages, site=bare).ok().out
    signer = "containerd" if kind == "signed-by-another-key" else "kubernetes"
    folder = site.www / "apt" / kind
    until = "Mon, 01 Jan 2024 00:00:00 UTC" if kind == "index-expired" else None
    signed_by = repository.key(signer, site.root / "gnupg", site.keys)
    repository.publish(folder, (), "flat", signed_by, valid_until=until)
    case = cases.case(tmp_path, source("kubernetes", uri=f"http://{site.address}/apt/{kind}"))
    try:
        ran = case.run()
    finally:
        harness.run("rm", "-r", folder)

    code, words = {
        "signed-by-another-key": ("E-APT-12", ("signing key missing", "gpurack-kubernetes.asc")),
        "index-expired": ("E-APT-16", ("out of date", "refresh the mirror")),
    }[kind]
    assert_refused(ran, code, HOST, *words)
    assert harness.ssh(HOST, packages, site=bare).ok().out == before
    cases.assert_nothing_half_written(HOST, site=bare)


# ------------------------------------------------------------------------ in the middle of the work
def test_a_host_that_dies_under_dpkg_is_named_with_what_was_left_undone(bare: Path, tmp_path: Path) -> None:
    case = cases.case(tmp_path)
    controller = Controller(str(case.inventory), "deploys/gpu_node.py", "--limit", HOST, "--limit", "cp-1")
    die_when("[ -e /run/systemd/transient/gpurack-packages.service ]", site=bare)
    ran = cases.finish(controller)
    back(bare)

    assert_refused(ran, "E-STEP-03", HOST, "the connection was lost during: install", "not done: install")
    cases.assert_fails_alone(case)


def test_a_full_disk_leaves_no_half_written_file(bare: Path, tmp_path: Path) -> None:
    place = "/etc/containerd/certs.d"
    full = f"mkdir -p {place}; mount -t tmpfs -o size=4k tmpfs {place}; head -c 4096 /dev/zero >{place}/fill"
    case = cases.case(tmp_path)
    harness.ssh(HOST, full, site=bare).ok()
    try:
        ran = case.run(limit=WITNESS)
        left = harness.ssh(HOST, f"find {place} -type f", site=bare).ok().out.split()
    finally:
        harness.ssh(HOST, f"umount {place}", site=bare)

    assert_refused(
        ran,
        "E-STEP-07",
        HOST,
        "No space left on device",
        f"not done: write {place}/",
        "the same command again",
    )
    assert left == [f"{place}/fill"]
    cases.assert_fails_alone(case)


def test_after_all_that_the_host_becomes_a_node_although_another_never_answers(
    bare: Path, tmp_path: Path
) -> None:
    case = cases.case(tmp_path, lambda document: document["hosts"].append(GHOST))

    ran = case.run(limit=f"{HOST},gpu-9", timeout=600)

    assert_refused(ran, "E-SSH-04", "gpu-9", "10.77.0.99:22")
    assert case.outcomes() == {HOST: "changed", "gpu-9": "failed"}
    assert harness.ready(bare)[HOST]
    cases.assert_nothing_half_written(HOST, site=bare)


# ------------------------------------------------------------------------ before any connection
@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(lambda d: d.update(poolz={}), ("poolz", "pools"), id="unknown-key"),
        pytest.param(
            lambda d: d["hosts"][2].update(address="10.77.0.12"), ("10.77.0.12",), id="address-twice"
        ),
        pytest.param(
            lambda d: d["hosts"][2].update(pool="lab-contaner"), ("lab-contaner",), id="unknown-pool"
        ),
        pytest.param(
            lambda d: d["pools"]["lab-container"]["numa"].update(memory="static"),
            ("static", "Static"),
            id="wrong-capitals",
        ),
        pytest.param(
            lambda d: d["pools"]["lab-container"]["numa"]["reserved"].update(eviction_memory="5%"),
            ("5%",),
            id="percentage",
        ),
        pytest.param(lambda d: d["ssh"].update(key="/nowhere/key"), ("/nowhere/key",), id="unreadable-key"),
        pytest.param(
            lambda d: d["cluster"].update(service_cidrs=["10.244.0.0/24"]), ("10.244.0.0",), id="overlap"
        ),
    ],
)
@pytest.mark.usefixtures("joined_rack")
def test_a_bad_document_is_refused_by_both_commands_before_any_connection(
    tmp_path: Path, change: Change, words: tuple[str, ...]
) -> None:
    case = cases.case(tmp_path, change)
    checked = harness.gpurack("check", case.inventory)
    ran = case.run()
    for done, code in ((checked, 2), (ran, 1)):
        assert done.rc == code, done.text
        assert "Traceback" not in done.text
        assert "case.yaml:" in done.text
        missing = [word for word in ("E-SITE-", *words) if word not in done.text]
        assert missing == [], done.text
    assert "Connecting" not in ran.text


@pytest.mark.usefixtures("joined_rack")
@pytest.mark.parametrize(
    ("inventory", "flags", "words"),
    [
        pytest.param("inventories/prod.yaml", (), ("prod.yaml", "inventories/prod"), id="the-yaml-itself"),
        pytest.param("inventories/labb", (), ("labb", "no such file"), id="mistyped"),
        pytest.param(
            "inventories/lab", ("--limit", "zzz"), ("zzz", "no host, pool, rack or role"), id="limit"
        ),
        pytest.param(
            "inventories/lab",
            ("--limit", "gpu-2", "--exclude", "gpu-2"),
            ("no host of", "is left"),
            id="nobody-left",
        ),
    ],
)
def test_a_run_that_would_touch_no_host_says_so_and_ends_1(
    inventory: str, flags: tuple[str, ...], words: tuple[str, ...]
) -> None:
    ran = harness.pyinfra(inventory, "deploys/gpu_node.py", *flags)
    assert ran.rc == 1, ran.text
    assert "Traceback" not in ran.text
    assert "Connecting" not in ran.text
    assert [word for word in words if word not in ran.text] == [], ran.text
