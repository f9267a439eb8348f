"""Bare Ubuntu host -> joined, NUMA-aligned GPU node. The order below is the product."""

from gpurack.engine import concerns, this_node
from roles import admission, base, containerd, gpu_host, join, kubelet, network, packages

node = this_node()

if concerns("gpu"):
    admission.admit(node=node)
    base.prepare(node=node)
    packages.pin(node=node)
    containerd.serve(node=node)
    gpu_host.ready_for_driver(node=node)
    kubelet.align(node=node)  # before the join: nothing to reset on a new node
    join.cluster(node=node)
    kubelet.prove(node=node)

network.connect(node=node)  # on every member: the way to the pods of those who joined
