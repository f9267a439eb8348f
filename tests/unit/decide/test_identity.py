"""One host, one identity: within the run and against the cluster's nodes."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest

from gpurack.decide.identity import UNREADABLE, Claim, Identity, Interface, Member, alone, among, usable_uuid


def claim(
    name: str, *, address: str, machine_id: str, uuid: str | None, hostname: str | None = None, mac: str = ""
) -> Claim:
    return Claim(
        name=name,
        addresses=(ip_address(address),),
        found=Identity(
            machine_id=machine_id,
            product_uuid=uuid,
            hostname=hostname or name,
            interfaces=(
                Interface(name="lo", mac=None, addresses=(ip_address("127.0.0.1"),)),
                Interface(
                    name="eno1", mac=mac or f"02:00:00:00:00:{name[-2:]}", addresses=(ip_address(address),)
                ),
            ),
        ),
    )


PLACEHOLDER = "03000200-0400-0500-0006-000700080009"
CLONED = "1c4ad377574c4263adbb7c624b6a3429"
OWN = "9d0e0000574c4263adbb7c624b6a3430"
# O-35, verbatim: three hosts, two of them cloned, the third without a UUID
GPU_01 = claim("gpu-01", address="192.0.2.1", machine_id=CLONED, uuid=PLACEHOLDER)
GPU_02 = claim("gpu-02", address="192.0.2.2", machine_id=CLONED, uuid=PLACEHOLDER)
GPU_03 = claim("gpu-03", address="192.0.2.3", machine_id=OWN, uuid=None)
O_35 = (GPU_01, GPU_02, GPU_03)


def codes(name: str, claims: tuple[Claim, ...], **more: object) -> list[str]:
    return [problem.code for problem in among(name, claims, **more).refused]  # type: ignore[arg-type]


def test_o_35_the_same_machine_id_is_refused_on_both_hosts() -> None:
    assert codes("gpu-01", O_35) == ["E-ID-03"]
    assert codes("gpu-02", O_35) == ["E-ID-03"]
    assert "gpu-02" in among("gpu-01", O_35).refused[0].what


def test_o_35_a_placeholder_or_empty_uuid_is_said_and_is_no_identity() -> None:
    assert codes("gpu-03", O_35) == []
    assert any("placeholder" in note for note in alone(GPU_01).notes)
    assert any("placeholder (empty)" in note for note in alone(GPU_03).notes)


def test_o_35_permission_denied_is_not_empty() -> None:
    hidden = replace(GPU_03, found=replace(GPU_03.found, product_uuid=UNREADABLE))
    (note,) = alone(hidden).notes
    assert "could not be read" in note


def test_o_35_uuids_are_compared_without_regard_to_case() -> None:
    one = claim(
        "gpu-01", address="192.0.2.1", machine_id="a" * 32, uuid="4C4C4544-0042-3510-8044-B9C04F4D3432"
    )
    two = claim(
        "gpu-02", address="192.0.2.2", machine_id="b" * 32, uuid="4c4c4544-0042-3510-8044-b9c04f4d3432"
    )
    assert codes("gpu-01", (one, two)) == ["E-ID-05"]
    assert codes("gpu-01", (one, two), accept=frozenset({"shared-kernel"})) == []


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        UNREADABLE,
        PLACEHOLDER,
        PLACEHOLDER.upper(),
        "00000000-0000-0000-0000-000000000000",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        "Not Settable",
        "To be filled by O.E.M.",
    ],
)
def test_firmware_without_an_identity_gives_none(value: str | None) -> None:
    assert usable_uuid(value) is None


def test_a_node_of_the_cluster_with_this_machine_id_is_a_clone() -> None:
    other = Member(name="gpu-77", machine_id=OWN)
    itself = Member(name="gpu-03", machine_id=OWN)
    assert codes("gpu-03", O_35, members=(other,)) == ["E-ID-03"]
    assert codes("gpu-03", O_35, members=(itself,)) == []


def test_a_node_of_the_cluster_with_this_address_is_named() -> None:
    other = Member(name="gpu-77", machine_id="f" * 32, addresses=("192.0.2.3",))
    (problem,) = among("gpu-03", O_35, members=(other,)).refused
    assert (problem.code, "gpu-77" in problem.what) == ("E-ID-06", True)


def test_the_same_hostname_is_refused_and_the_same_mac_is_said() -> None:
    one = claim(
        "gpu-01", address="192.0.2.1", machine_id="a" * 32, uuid=None, hostname="ubuntu", mac="02:0:0:0:0:9"
    )
    two = claim(
        "gpu-02", address="192.0.2.2", machine_id="b" * 32, uuid=None, hostname="Ubuntu", mac="02:0:0:0:0:9"
    )
    assert codes("gpu-01", (one, two)) == ["E-ID-04"]
    named = replace(two, found=replace(two.found, hostname="gpu-02"))
    assert any("02:0:0:0:0:9" in note for note in among("gpu-01", (one, named)).notes)


def test_a_declared_address_that_is_not_on_the_host_is_refused() -> None:
    moved = replace(GPU_03, addresses=(ip_address("192.0.2.30"),))
    (problem,) = alone(moved).refused
    assert problem.code == "E-ID-02"
    assert "eno1 192.0.2.3" in str(problem.found)


@pytest.mark.parametrize("machine_id", [None, "uninitialized", "1c4a"])
def test_a_host_without_a_machine_id_is_refused(machine_id: str | None) -> None:
    blank = replace(GPU_03, found=replace(GPU_03.found, machine_id=machine_id))
    assert [problem.code for problem in alone(blank).refused] == ["E-ID-01"]


@pytest.mark.parametrize(
    ("hostname", "said"), [("gpu-03", False), ("gpu-03.rack2.example.test", False), ("ubuntu", True)]
)
def test_o_38_another_hostname_is_said_and_the_node_keeps_the_documents_name(
    hostname: str, said: bool
) -> None:
    decision = alone(replace(GPU_03, found=replace(GPU_03.found, hostname=hostname)))
    assert not decision.refused
    assert any("the node is named gpu-03" in note for note in decision.notes) is said
