#!/bin/sh
# What must be there before any Python of ours runs: checked in one breath, installed if missing.
#   machine.sh            the lab's tools (root)
#   machine.sh --python   only a Python that can make a virtual environment
# Exit 4: this machine can't do it, with the next step.
set -eu

say() { printf 'gpurack: %s\n' "$*" >&2; }
stop() { say "$1"; say "next: $2"; exit 4; }

have_python() { python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

install() {
    [ "$(id -u)" = 0 ] || stop "these packages are missing: $*" "run as root: apt-get install $*"
    say "installing $*"
    # docker-registry and others would start themselves; the lab runs its own inside the rack.
    policy=/usr/sbin/policy-rc.d
    [ -e $policy ] || { trap 'rm -f /usr/sbin/policy-rc.d' EXIT; printf '#!/bin/sh\nexit 101\n' >$policy; chmod 755 $policy; }
    apt-get update -qq || stop "apt-get update failed" "repair this machine's package sources, then run it again"
    DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get install -y -qq --no-install-recommends "$@" \
        >/dev/null || stop "apt-get install failed" "run it by hand to see why: apt-get install $*"
}

os=$(. /etc/os-release && echo "$ID-$VERSION_ID")
case $os in
    debian-12 | debian-13 | ubuntu-24.04 | ubuntu-22.04) ;;
    *) stop "this machine runs $os" "use a Debian 12 or Ubuntu 24.04 machine (a virtual one will do)" ;;
esac

have_python || {
    command -v apt-get >/dev/null || stop "Python 3.11 with venv is missing" "install python3 and python3-venv"
    install python3 python3-venv
    have_python || stop "this machine's Python is older than 3.11" "use Debian 12 or Ubuntu 24.04"
}
[ "${1-}" = --python ] && exit 0

[ "$(id -u)" = 0 ] || stop "the lab boots real hosts on this machine and needs root" "run: sudo make ${MAKECMDGOALS-lab}"

# 20 GiB: Go's caches 6, components 1, root images 2, hosts and their images the rest (measured).
cache=/var/cache/gpurack
mkdir -p "$cache"
free=$(df -Pk "$cache" | awk 'NR==2 {print int($4 / 1048576)}')
[ "$free" -ge 20 ] || stop "$cache has $free GiB free, the lab needs 20" "make room, or mount a larger disk there"

missing=
for pair in mmdebstrap:mmdebstrap systemd-nspawn:systemd-container docker-registry:docker-registry skopeo:skopeo \
    apt-ftparchive:apt-utils qemu-system-x86_64:qemu-system-x86 mke2fs:e2fsprogs ip:iproute2 iptables:iptables \
    gpg-agent:gnupg gcc:gcc pkg-config:pkg-config dpkg-deb:dpkg ssh:openssh-client; do
    PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair#*:}"
done
[ -e /usr/lib/$(uname -m)-linux-gnu/libc.a ] || missing="$missing libc6-dev"
[ -e /usr/include/seccomp.h ] || missing="$missing libseccomp-dev"
[ -z "$missing" ] || install $missing
