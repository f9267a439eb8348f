"""containerd: what is wanted, what is found, and what to do about it (R76, R81-R101)."""

from gpurack.decide.containerd.decision import proof, serve
from gpurack.decide.containerd.models import Login, RegistryHosts, Snapshot, Wanted

__all__ = ["Login", "RegistryHosts", "Snapshot", "Wanted", "proof", "serve"]
