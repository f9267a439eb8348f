"""Operations: first init, the controller's kubeconfig, and the join of a host. Each proves what it did."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.operation import operation

from gpurack.cluster import kubeconfig as credentials
from gpurack.cluster import nodes, tokens
from gpurack.cluster.client import connect
from gpurack.cluster.tokens import Token
from gpurack.decide import control_plane, endpoint, kubeadm
from gpurack.decide.certificates import Certificate
from gpurack.decide.control_plane import INIT_LOG, Elsewhere
from gpurack.decide.decision import refuse, settled
from gpurack.decide.kubeadm import JOIN_LOG, Goal, Traces, Verdict
from gpurack.decide.kubeadm_config import Init, Join, ignored
from gpurack.decide.kubeadm_output import classify
from gpurack.decide.liveness import Api
from gpurack.decide.node import NodeInApi, Taint
from gpurack.defaults import NODE_APPEARS
from gpurack.engine import at_end, carry_out, conceal, executing, guarded, once, read, state_dir
from gpurack.engine.run import liveness
from gpurack.errors import Problem, Refused
from gpurack.facts.kubeadm import KubeadmOutcome, KubeadmTraces, SignedCredential
from gpurack.operations import cluster
from gpurack.site.models import Node

PLANNED = Token("000000", "000000.0000000000000000")  # stands for a token while a run is only planned


@operation()
@guarded
def init(*, node: Node) -> Iterator[PyinfraCommand]:
    """Make the first control plane, if there is none."""
    if node.site.cluster.kubeconfig:
        yield from carry_out(settled("the cluster was built by others"))
        return
    first = _control_planes(node)[0]
    if node.name != first.name:
        yield from carry_out(refuse(_one_only(node, first.name)))
        return
    decision = control_plane.init(_init(node), read(KubeadmTraces), _elsewhere())
    if decision.steps and executing():
        at_end(_withdrawal())
    yield from carry_out(decision)
    if decision.steps and executing() and not liveness(node.name)[0]:
        _raise_if_failed("init", INIT_LOG)


@operation()
@guarded
def kubeconfig(*, node: Node) -> Iterator[PyinfraCommand]:
    """Give the controller a kubeconfig of its own: cluster-admin for a year, mode 0600, renewed in time."""
    found = read(KubeadmTraces)
    if node.site.cluster.kubeconfig or not isinstance(found.ca, Certificate):
        # Without a CA the control plane does not exist yet: decided again when it does.
        yield from carry_out(settled("no kubeconfig of ours is due"))
        return
    path = cluster.kubeconfig()
    url = credentials.server(node.site.cluster.endpoint, node.host.address)
    due = control_plane.credential_is_due(
        credentials.held(path), server=url, pins=frozenset({found.ca.pin}), now=found.now
    )
    if due is None:
        yield from carry_out(settled("the controller has a valid kubeconfig"))
        return
    request = credentials.request(f"gpurack:{node.site.name}")
    yield from carry_out(control_plane.sign(request.name, request.manifest, reason=due))
    ca, certificate = read(SignedCredential, request=request.name)
    credentials.write(
        path,
        cluster=node.site.cluster.name,
        url=url,
        ca=ca,
        certificate=certificate,
        key=conceal(request.key),
    )


@operation()
@guarded
def clear(*, node: Node) -> Iterator[PyinfraCommand]:
    """Reset a half-finished join or init of a host that is not live, before its kubelet is waited for."""
    found = read(KubeadmTraces)
    if node.role == "control-plane":
        yield from carry_out(control_plane.clear(found, _elsewhere()))
        return
    if cluster.asked()[0] is not Api.ANSWERS:
        # Only a member comes this far without an API (`cluster.admit`); its files can't be judged now.
        yield from carry_out(settled("judged when the API answers"))
        return
    yield from carry_out(kubeadm.clear(_verdict(node, found)[1]))


@operation()
@guarded
def join(*, node: Node) -> Iterator[PyinfraCommand]:
    """Join the host, or say why not; then see its Node."""
    found = read(KubeadmTraces)
    name, verdict = _verdict(node, found)
    connection, who = cluster.trusted()
    goes = verdict.joins and executing() and not liveness(node.name)[0]
    token = once("join token", _mint) if goes else PLANNED
    wanted = _join(node, name, token, who.pins)
    yield from carry_out(kubeadm.join(verdict, found, wanted))
    if goes:
        _raise_if_failed("join", JOIN_LOG)
    if goes or (verdict.action == "restart" and executing()):
        machine = found.machine_id
        nodes.wait(
            connection,
            name,
            until=lambda seen: seen.machine_id == machine and _has_network(node, seen),
            reason=f"the Node {name} of this machine is in the cluster",
            deadline=NODE_APPEARS,
        )
        cluster.joined()[node.name] = True


def _verdict(node: Node, found: Traces) -> tuple[str, Verdict]:
    """The name of the Node, and what has to happen to its host."""
    _, who = cluster.trusted()
    known = cluster.all_nodes()
    name = cluster.called(node, found, known)
    goal = Goal(
        name=name,
        address=node.host.address,
        servers=(endpoint.parse(node.site.cluster.endpoint).url,),
        pins=frozenset(who.pins),
    )
    return name, kubeadm.judge(found, goal, known.get(name))


def _elsewhere() -> Elsewhere:
    api, _ = cluster.asked()
    record = cluster.recorded()
    return Elsewhere(recorded=frozenset(record.pins) if record else frozenset(), answers=api is Api.ANSWERS)


def _has_network(node: Node, seen: NodeInApi) -> bool:
    return bool(seen.pod_cidrs) or node.site.cluster.cni != "bridge"


def _raise_if_failed(verb: str, log: str) -> None:
    problems = classify(verb, read(KubeadmOutcome, verb=verb), log=log)
    if problems:
        raise Refused(problems)


def _mint() -> Token:
    connection, _ = cluster.trusted()
    at_end(_withdrawal())
    token = tokens.mint(connection)
    conceal(token.value)
    conceal(token.value.partition(".")[2])
    return token


def _withdrawal() -> Callable[[], None]:
    """What deletes every token that this run made, the one of `kubeadm init` included. Needs no host."""
    path, scratch = cluster.kubeconfig(), state_dir() / "client"

    def withdraw() -> None:
        if not path.exists():
            return
        connection = connect(path, scratch=scratch)
        for token in tokens.known(connection):
            if token.description == tokens.description():
                tokens.delete(connection, token.id)

    return withdraw


def _control_planes(node: Node) -> tuple[Node, ...]:
    site = node.site
    return tuple(site.node(host.name) for host in site.hosts if host.role == "control-plane")


def _init(node: Node) -> Init:
    site = node.site
    planes = _control_planes(node)
    names = {endpoint.parse(site.cluster.endpoint).host}
    names |= {plane.name for plane in planes}
    names |= {str(address) for plane in planes for address in plane.host.addresses}
    return Init(
        cluster=site.cluster.name,
        version=site.stack.kubernetes,
        endpoint=str(endpoint.parse(site.cluster.endpoint)),
        name=node.name,
        addresses=tuple(map(str, node.host.addresses)),
        sans=tuple(sorted(names)),
        pod_cidrs=tuple(map(str, site.cluster.pod_cidrs)),
        service_cidrs=tuple(map(str, site.cluster.service_cidrs)),
        image_repository=site.sources.image_repository,
        etcd_tag=site.stack.images.etcd,
        coredns_tag=site.stack.images.coredns,
        description=tokens.description(),
        token_life=int(tokens.LIFE.total_seconds()),
        ignore=ignored(site.accept),
        foreign_conntrack="shared-kernel" in site.accept,
    )


def _join(node: Node, name: str, token: Token, pins: tuple[str, ...]) -> Join:
    taints = node.pool.taints if node.pool else ()
    return Join(
        name=name,
        addresses=tuple(map(str, node.host.addresses)),
        endpoint=str(endpoint.parse(node.site.cluster.endpoint)),
        token=token.value,
        pins=pins,
        taints=tuple(Taint(taint.key, taint.effect, taint.value) for taint in taints),
        ignore=ignored(node.site.accept),
    )


def _one_only(node: Node, first: str) -> Problem:
    return Problem(
        code="E-INIT-04",
        what="a site has one control plane so far",
        found=f"{node.name} beside {first}",
        rule="R53",
        next="take the others out of the site document, or bring a cluster of your own by cluster.kubeconfig",
    )
