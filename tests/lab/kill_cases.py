"""The table of moments at which the controller is killed, and what follows each kill.

Commands that are over in a moment are made slow on the host (`slow`), as a bad disk or a busy systemd does,
so that the kill lands inside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.lab import harness, killing

INVENTORY = "inventories/lab_vm"
HOST, CONTROL_PLANE = "gpu-1", "cp-1"
DROP_IN = "/etc/kubernetes/kubelet.conf.d/20-gpurack-numa.conf"
_STARTING = "Starting operation: "


@dataclass(frozen=True)
class Moment:
    """One kill.

    + said: words that the run prints at that moment; + seen: or a shell condition that then holds on the host
    + slow: command -> shell pattern of its arguments; such a call waits two seconds before it begins
    + joined: the host is a member that runs and is not Ready, with an edited drop-in; otherwise it is bare
    + deploy: `control_plane` is killed on a control plane that is bare as well
    """

    name: str
    said: str = ""
    seen: str = ""
    slow: tuple[str, str] = ("", "")
    joined: bool = False
    deploy: str = "gpu_node"

    @property
    def host(self) -> str:
        return HOST if self.deploy == "gpu_node" else CONTROL_PLANE

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--limit", self.host)


def _runs(words: str) -> str:
    """A process with these words is there. The brackets keep the watching shell from seeing itself."""
    return f"pgrep -f '[{words[0]}]{words[1:]}'"


# The cheap part of the table: one for each kind of moment.
FEW = (
    Moment("before-kubelet-is-aligned", said=f"{_STARTING}Kubelet | Resource managers"),
    Moment("dpkg-unpacks", seen=_runs("dpkg .*--unpack")),
    Moment("upload", seen="ls /etc/containerd/.gpurack.*", slow=("sync", "*/etc/containerd/.gpurack*")),
    Moment("kubeadm-join", seen=_runs("kubeadm join")),
)
OTHERS = (
    Moment("before-tokens-are-swept", said=f"{_STARTING}Admission | No join token"),
    Moment("before-swap", said=f"{_STARTING}Base | Swap is off"),
    Moment("before-apt-sources", said=f"{_STARTING}Packages | Sources and keys"),
    Moment("before-holds", said=f"{_STARTING}Packages | Packages are held"),
    Moment("before-containerd", said=f"{_STARTING}containerd | Run containerd"),
    Moment("before-join", said=f"{_STARTING}Join | Join the cluster"),
    Moment("before-labels", said=f"{_STARTING}Join | Labels and taints"),
    Moment("before-pod-network", said=f"{_STARTING}Join | Connect the host's pods"),
    Moment("before-later-routes", said=f"{_STARTING}Pod network | Connect"),
    Moment("apt-lists", seen=_runs("apt-get .* update")),
    Moment("dpkg-configures", seen=_runs("dpkg .*--configure")),
    Moment("daemon-reload", seen=_runs("sleep 2.0 daemon-reload"), slow=("systemctl", "daemon-reload")),
    Moment("containerd-restarts", seen=_runs("systemctl .*start -- containerd.service")),
    Moment("stability-watch", said="waiting for kubelet stays up"),
    Moment("kubelet-is-stopped", seen="! systemctl is-active kubelet", joined=True),
    Moment(
        "before-kubelet-starts",
        seen=_runs("sleep 2.0 --no-ask-password start -- kubelet"),
        slow=("systemctl", "*start*kubelet*"),
        joined=True,
    ),
    Moment("kubeadm-init", seen=_runs("kubeadm init"), deploy="control_plane"),
    Moment(
        "after-kubeadm-init", said=f"{_STARTING}Control plane | Give the controller", deploy="control_plane"
    ),
)


def kill(moment: Moment, *, site: Path) -> None:
    """Bring the host to where the moment begins, and kill a run in it."""
    if moment.deploy == "control_plane":
        harness.gpurack("lab", "up", "--bare", "--site", site, timeout=600).ok()
    elif moment.joined:
        _unready(moment.host, site=site)
    else:
        bare(moment.host, site=site)
    _slow(moment, site=site)
    deploy = f"deploys/{moment.deploy}.py"
    if moment.said:
        killing.kill_when_said(moment.said, INVENTORY, deploy, *moment.flags)
    else:
        killing.kill_when_seen(moment.seen, moment.host, INVENTORY, deploy, *moment.flags, site=site)
    if moment.slow[0]:
        harness.ssh(moment.host, f"rm /usr/local/sbin/{moment.slow[0]}", site=site).ok()


def assert_converges(host: str, deploy: str, *, site: Path) -> None:
    """The same command again ends well; nothing is left of the killed run; once more changes nothing."""
    command = (f"deploys/{deploy}.py", "--limit", host)
    harness.pyinfra(INVENTORY, *command, timeout=1500).ok()
    assert harness.ready(site)[host]
    killing.assert_clean(host, site=site)
    before = harness.footprint(host, site=site)
    again = harness.pyinfra(INVENTORY, *command, "--json").ok()
    assert harness.changed(again) == {}
    assert harness.footprint(host, site=site) == before


def bare(host: str, *, site: Path) -> None:
    """The host as after its first boot, and unknown to the cluster."""
    harness.gpurack("lab", "reset", host).ok()
    harness.kubectl("delete", "node", host, "--ignore-not-found", site=site).ok()


def _unready(host: str, *, site: Path) -> None:
    """A member whose kubelet runs without a pod network, so that it is not live; its drop-in was edited."""
    if not harness.ready(site).get(host):
        harness.pyinfra(INVENTORY, "deploys/gpu_node.py", "--limit", host).ok()
    edit = f"rm /etc/cni/net.d/*.conflist; printf '# by hand\\n' >>{DROP_IN}"
    harness.ssh(host, edit, site=site).ok()
    harness.until(lambda: not harness.ready(site)[host], f"{host} is not Ready", deadline=90)


def _slow(moment: Moment, *, site: Path) -> None:
    command, pattern = moment.slow
    if not command:
        return
    # What the sleeping process is called says which call it holds up; `exec -a` needs bash.
    wrapper = (
        "#!/bin/bash\n"
        f'case "$*" in {pattern}) bash -c \'exec -a "sleep 2.0 $0" sleep 2\' "$*" ;; esac\n'
        f'exec /usr/bin/{command} "$@"\n'
    )
    script = f"cat >/usr/local/sbin/{command} && chmod 755 /usr/local/sbin/{command}"
    harness.ssh(moment.host, script, site=site, stdin=wrapper).ok()
