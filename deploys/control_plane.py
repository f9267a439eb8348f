"""Bare host -> the site's control plane. The order below is the product."""

from gpurack.engine import concerns, this_node
from roles import admission, base, containerd, control_plane, kubelet, packages

node = this_node()

if concerns("control-plane"):
    admission.observe(node=node)
    base.prepare(node=node)
    packages.pin(node=node)
    containerd.serve(node=node)
    kubelet.align(node=node)
    control_plane.bootstrap(node=node)
    kubelet.prove(node=node)
