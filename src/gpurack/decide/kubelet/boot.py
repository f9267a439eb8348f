"""The boot guard: a Static node comes back from a reboot by itself (R10).

Per-node memory totals move at every boot, and kubelet then refuses its own state (R9). Right after a boot no
container runs, so the state may go; after a mere restart of kubelet it may not. The boot id tells them apart.
"""

from __future__ import annotations

from gpurack.decide.kubelet.snapshot import CPU_STATE, MEMORY_STATE

GUARD = "/usr/local/lib/gpurack/kubelet-boot-guard"
UNIT = "/etc/systemd/system/kubelet.service.d/20-gpurack-boot.conf"
STORED = "/var/lib/gpurack/kubelet-boot-id"
_CURRENT = "/proc/sys/kernel/random/boot_id"

UNIT_TEXT = f"""\
# Managed by gpurack (role kubelet); changes here are put back.
[Service]
ExecStartPre={GUARD}
"""

# The state goes before the new id is stored, and a failure stops kubelet: so it can't happen that kubelet
# runs, pins pods, and a later restart in the same boot takes their state away. Without a stored id nothing is
# known, so nothing is removed.
GUARD_TEXT = f"""\
#!/bin/sh
# Managed by gpurack (role kubelet); changes here are put back.
# Before kubelet starts: the first time after a boot, drop the CPU and memory managers' state, which kubelet
# would refuse when memory totals moved. Never on a mere restart, when pods are pinned by it.
set -eu
stored={STORED}
current=$(cat {_CURRENT})
known=
if [ -f "$stored" ]; then known=$(cat "$stored"); fi
if [ "$known" = "$current" ]; then exit 0; fi
if [ -n "$known" ]; then
    rm -f {CPU_STATE} {MEMORY_STATE}
    echo "new boot: removed the state of kubelet's CPU and memory managers"
fi
mkdir -p "${{stored%/*}}"
printf '%s\\n' "$current" > "$stored.new"
mv -f "$stored.new" "$stored"
"""
