"""Simulated NVIDIA functions: the files that sysfs would show, each marked as simulated. No driver ever
binds.

The tree is laid beside the lab's other files on the host; a unit puts it over `/sys/bus/pci/devices` at every
boot, with the real functions still in it, so that facts read it by the ordinary path.
"""

from __future__ import annotations

from pathlib import Path

VENDOR = 0x10DE
DEVICE = 0x2330
CLASS = 0x030200
SUBSYSTEM = 0x16C1
# one address for each function of the lab's servers, spread like root ports of a two-socket machine
ADDRESSES = ("0000:41:00.0", "0000:61:00.0", "0000:c1:00.0", "0000:e1:00.0")
MARK = "gpurack-simulated"


def numa_nodes(functions: int, nodes: int) -> tuple[int, ...]:
    """NUMA node of each function in order: filled evenly, first node first (four on two nodes: 0,0,1,1)."""
    return tuple(index * nodes // functions for index in range(functions))


def lay(folder: Path, functions: int, nodes: int) -> None:
    """Write `functions` (at most four) simulated functions into `folder`, spread over `nodes` NUMA nodes."""
    for address, node in zip(ADDRESSES[:functions], numa_nodes(functions, nodes), strict=True):
        target = folder / address
        target.mkdir(parents=True, exist_ok=True)
        for name, text in _files(address, node).items():
            (target / name).write_text(text + "\n")
        (target / "config").write_bytes(_config())


def _files(address: str, node: int) -> dict[str, str]:
    return {
        "vendor": f"{VENDOR:#06x}",
        "device": f"{DEVICE:#06x}",
        "class": f"{CLASS:#08x}",
        "subsystem_vendor": f"{VENDOR:#06x}",
        "subsystem_device": f"{SUBSYSTEM:#06x}",
        "revision": "0xa1",
        "numa_node": str(node),
        "irq": "0",
        "enable": "0",
        "resource": "\n".join(["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 7),
        "modalias": f"pci:v{VENDOR:08X}d{DEVICE:08X}sv{VENDOR:08X}sd{SUBSYSTEM:08X}bc03sc02i00",
        "uevent": f"PCI_CLASS={CLASS:X}\nPCI_ID={VENDOR:04X}:{DEVICE:04X}\nPCI_SLOT_NAME={address}",
        MARK: "laid by gpurack's lab; there is no such device",
    }


def _config() -> bytes:
    """The standard header of PCI configuration space, which lspci reads: no capabilities, no BARs."""
    header = bytearray(64)
    header[0:4] = VENDOR.to_bytes(2, "little") + DEVICE.to_bytes(2, "little")
    header[8:12] = bytes([0xA1]) + CLASS.to_bytes(3, "little")
    header[44:48] = VENDOR.to_bytes(2, "little") + SUBSYSTEM.to_bytes(2, "little")
    return bytes(header)
