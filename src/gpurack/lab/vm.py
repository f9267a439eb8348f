"""VM hosts: QEMU guests with two NUMA nodes and their own kernel; KVM only where a guest really boots.

Kernel and initrd are given directly, out of the root image; the disk is an ext4 image made of it. The
emulator runs in the namespace of the rack's switch, so its network leads nowhere else.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, cast

from gpurack import defaults
from gpurack.lab import cgroups, lay, network
from gpurack.lab.container import unmount
from gpurack.lab.process import alive, end, gone, reap, start, started, tool
from gpurack.lab.state import RackHost, recall, remember

MEMORY = (2048, 2048)  # MiB of each NUMA node: kubelet, containerd, a pod, and room to reserve
CPUS = 4
DISK = 10 * 2**30  # bytes, sparse
EMULATION = "tcg,thread=multi"
PROBE_DEADLINE = 20.0  # seconds; a real KVM guest prints its first line in one

# as quiet as a server: every line on the serial console costs milliseconds under emulation
_APPEND = "root=/dev/vda rw console=ttyS0 net.ifnames=0 mitigations=off quiet systemd.show_status=0"


def create(host: RackHost, root: Path, rack: Iterable[RackHost]) -> None:
    """Make the guest's disk, as after its installation; an earlier one is dropped."""
    erase(host)
    lay.identity(host)
    stage = host.folder / "stage"
    for name in ("upper", "work", "root"):
        (stage / name).mkdir(parents=True, exist_ok=True)
    lay.lay(stage / "upper", host, rack)
    layers = f"lowerdir={root},upperdir={stage}/upper,workdir={stage}/work"
    tool("mount", "-t", "overlay", "-o", layers, f"gpurack-lab-{host.name}", stage / "root")
    try:
        disk = host.folder / "disk"
        disk.touch(mode=0o600)
        os.truncate(disk, DISK)
        tool("mke2fs", "-q", "-F", "-t", "ext4", "-m", "1", "-L", "gpurack-lab", "-d", stage / "root", disk)
    finally:
        unmount(stage / "root")
    shutil.rmtree(stage)
    for name in ("vmlinuz", "initrd.img"):  # the image may be rebuilt while this guest lives on
        shutil.copyfile(root / name, host.folder / name)
    remember(host, image=str(root), created=True)


def created(host: RackHost) -> bool:
    """Whether the guest has a complete disk."""
    return bool(recall(host.name).get("created"))


def erase(host: RackHost) -> None:
    """Delete the guest's disk. It must be stopped."""
    remember(host, created=False)
    unmount(host.folder / "stage" / "root")
    shutil.rmtree(host.folder / "stage", ignore_errors=True)
    (host.folder / "disk").unlink(missing_ok=True)


def configure(host: RackHost, *, memory: tuple[int, int] = MEMORY, cpus: int = CPUS) -> None:
    """What the guest has from its next start on: MiB of each NUMA node; CPUs (even, half on each node)."""
    if cpus < 2 or cpus % 2 or min(memory) < 512:
        raise ValueError(
            f"{cpus} CPUs and {memory} MiB make no guest: an even number, and 512 MiB on each node"
        )
    remember(host, memory=list(memory), cpus=cpus)


def boot(host: RackHost) -> None:
    """Start the guest; returns at once."""
    facts = recall(host.name)
    acceleration = accelerator(host.folder / "vmlinuz", host.folder / "initrd.img")
    argv = [
        "ip",
        "netns",
        "exec",
        network.RACK,
        *command(
            host,
            acceleration,
            network.tap(host.address),
            memory=tuple(facts.get("memory", MEMORY)),
            cpus=int(facts.get("cpus", CPUS)),
        ),
    ]
    (host.folder / "qmp").unlink(missing_ok=True)
    pid = start(cgroups.entering(host.name, argv), host.folder / "qemu.log")
    remember(host, pid=pid, started=started(pid), accelerator=acceleration)


def command(host: RackHost, acceleration: str, tap: str, *, memory: tuple[int, ...], cpus: int) -> list[str]:
    """The emulator's command line."""
    half = cpus // 2
    nodes = []
    for node, size in enumerate(memory):
        nodes += ["-object", f"memory-backend-ram,id=m{node},size={size}M"]
        nodes += ["-numa", f"node,nodeid={node},cpus={node * half}-{node * half + half - 1},memdev=m{node}"]
    return [
        *("qemu-system-x86_64", "-name", host.name, "-nodefaults", "-no-user-config", "-display", "none"),
        *("-accel", acceleration, "-cpu", "host" if acceleration == "kvm" else "max"),
        *("-smp", f"{cpus},sockets=2,cores={half}", "-m", f"{sum(memory)}M", *nodes),
        *("-uuid", (host.identity / "product_uuid").read_text().strip()),
        *("-kernel", str(host.folder / "vmlinuz"), "-initrd", str(host.folder / "initrd.img")),
        *("-append", _APPEND),
        *("-drive", f"file={host.folder}/disk,if=virtio,format=raw,cache=unsafe,discard=unmap"),
        *("-netdev", f"tap,id=net0,ifname={tap},script=no,downscript=no"),
        *("-device", f"virtio-net-pci,netdev=net0,mac={network.mac(host.address)},romfile="),
        *("-object", "rng-random,id=rng0,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng0"),
        *(
            "-chardev",
            f"file,id=console,path={host.folder}/console.log,append=on",
            "-serial",
            "chardev:console",
        ),
        *("-qmp", f"unix:{host.folder}/qmp,server=on,wait=off"),
    ]


def running(host: RackHost) -> bool:
    """Whether the recorded emulator still runs."""
    facts = recall(host.name)
    return alive(facts.get("pid"), facts.get("started"))


def leader(host: RackHost) -> int | None:
    """The emulator's process id."""
    return int(recall(host.name)["pid"]) if running(host) else None


def stop(host: RackHost, patience: float) -> None:
    """Press the power button and wait up to `patience` seconds for the guest to end; then cut the power."""
    pid = leader(host)
    if pid is not None:
        if patience > 0 and _press(host.folder / "qmp"):
            gone(pid, patience)
        end(pid, signal.SIGKILL, 5.0)
    cgroups.kill(host.name)
    if pid is not None:
        reap(pid)
    remember(host, pid=None, started=None)
    (host.folder / "qmp").unlink(missing_ok=True)
    unmount(host.folder / "stage" / "root")
    network.untap(host.address)
    cgroups.remove(host.name)


def accelerator(kernel: Path, initrd: Path) -> str:
    """`kvm` where a guest really boots by it, else emulation. Settled once for each machine, kernel and
    emulator: /dev/kvm may open on machines where no guest ever prints a line."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return EMULATION
    version = tool("qemu-system-x86_64", "--version").splitlines()[0]
    identity = (
        Path("/etc/machine-id").read_text() if Path("/etc/machine-id").exists() else os.uname().nodename
    )
    key = hashlib.sha256(f"{identity}\n{os.uname().release}\n{version}".encode()).hexdigest()[:12]
    verdicts = Path(defaults.LAB_CACHE) / "acceleration.json"
    try:
        known = json.loads(verdicts.read_text())
    except (FileNotFoundError, ValueError):
        known = {}
    if key not in known:
        known[key] = "kvm" if _boots(kernel, initrd) else EMULATION
        new = verdicts.with_suffix(".new")
        new.write_text(json.dumps(known, indent=1) + "\n")
        new.replace(verdicts)
    return str(known[key])


def _boots(kernel: Path, initrd: Path) -> bool:
    """Whether a guest under KVM gets as far as its first program before the deadline."""
    probe = subprocess.Popen(
        [
            *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-accel", "kvm"),
            *("-cpu", "host", "-smp", "2", "-m", "512M", "-kernel", str(kernel), "-initrd", str(initrd)),
            *("-append", "console=ttyS0 panic=-1", "-no-reboot", "-serial", "stdio"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output = cast("IO[bytes]", probe.stdout)
    os.set_blocking(output.fileno(), False)
    said, until = b"", time.monotonic() + PROBE_DEADLINE
    try:
        while time.monotonic() < until and b"Run /init" not in said:
            said += output.read() or b""
            if probe.poll() is not None:
                break
            time.sleep(0.1)
    finally:
        probe.kill()
        probe.wait()
        output.close()
    return b"Run /init" in said


def _press(path: Path) -> bool:
    """Ask the emulator for an ACPI power button; False when it does not listen."""
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(5.0)
            line.connect(str(path))
            for request in ("qmp_capabilities", "system_powerdown"):
                line.recv(65536)
                line.sendall(json.dumps({"execute": request}).encode() + b"\n")
            line.recv(65536)
    except OSError:
        return False
    return True
