"""Files for tools that only Ubuntu has; perl and apt's own parser read them here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpurack.decide.needrestart import NEEDRESTART_FILE, UNATTENDED_FILE, files


def content(role: str, path: str) -> str:
    return {write.path: write.content for write in files(role)}[path]


@pytest.mark.skipif(not shutil.which("perl"), reason="needs perl, as needrestart does")
def test_needrestart_leaves_our_units_alone_not_run_on_ubuntu() -> None:
    # As needrestart asks its configuration (perl/lib/NeedRestart.pm): the first pattern that fits decides.
    program = content("gpu", NEEDRESTART_FILE) + (
        "foreach my $unit (@ARGV) { my $keep = 1; foreach my $re (keys %{$nrconf{override_rc}}) {"
        ' $keep = $nrconf{override_rc}->{$re} if $unit =~ /$re/; } print "$unit $keep\\n"; }'
    )
    units = ["containerd.service", "kubelet.service", "nvidia-fabricmanager.service", "ssh.service"]
    out = subprocess.run(["perl", "-e", program, *units], capture_output=True, text=True, check=True).stdout
    assert out.split() == [*" 0 ".join(units[:3]).split(), "0", "ssh.service", "1"]


@pytest.mark.skipif(not shutil.which("apt-config"), reason="needs apt")
def test_unattended_upgrades_reads_the_list_not_run_on_ubuntu(tmp_path: Path) -> None:
    file = tmp_path / "apt.conf"
    for role, kernel in (("gpu", True), ("control-plane", False)):
        file.write_text(
            'Unattended-Upgrade::Package-Blacklist { "theirs"; };\n' + content(role, UNATTENDED_FILE)
        )
        out = subprocess.run(
            ["apt-config", "dump", "Unattended-Upgrade::Package-Blacklist"],
            env={"APT_CONFIG": str(file), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert '"theirs"' in out
        assert '"kubelet$"' in out
        assert ('"linux-image"' in out) is kernel
