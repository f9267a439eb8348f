"""No swap now and none after the next boot, and not a byte of fstab more than that."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpurack.decide.decision import Disruption, Run, Write
from gpurack.decide.swap import FSTAB, Active, Swap, SwapUnit, off, without_swap

GIB = 2**30
NONE = frozenset[str]()
# O-41, verbatim
O_41 = """\
/swap.img                  none            swap  sw        0 0
UUID=5f0c-77aa             /data/swapshop  ext4  defaults  0 2
#/dev/sdb2                 none            swap  sw        0 0
/dev/mapper/vg-swap\tnone\tswap\tsw\t0\t0
"""


def swap(
    *,
    active: tuple[Active, ...] = (),
    fstab: str | None = "",
    units: tuple[SwapUnit, ...] = (),
    container: bool = False,
) -> Swap:
    return Swap(active=active, fstab=fstab, units=units, available=8 * GIB, container=container)


def unit(name: str, *, active: str = "inactive", file: str = "", source: str = "") -> SwapUnit:
    return SwapUnit(name=name, active=active, file=file, source=source)


def scripts(found: Swap, accept: frozenset[str] = NONE) -> list[str]:
    return [step.script for step in off(accept, found).steps if isinstance(step, Run)]


def test_o_41_only_live_lines_of_type_swap_are_commented_out() -> None:
    before, after = O_41.splitlines(), without_swap(O_41).splitlines()
    assert after[1:3] == before[1:3]
    assert after[0] == f"# swap off by gpurack: {before[0]}"
    assert after[3] == f"# swap off by gpurack: {before[3]}"
    assert without_swap(O_41).endswith("\n")


def test_o_41_mode_and_missing_last_line_break_stay() -> None:
    text = "/swap.img none swap sw 0 0"
    (write,) = (step for step in off(NONE, swap(fstab=text)).steps if isinstance(step, Write))
    assert write.keep_mode
    assert write.path == FSTAB
    assert not write.content.endswith("\n")


def test_o_41_a_second_run_finds_nothing() -> None:
    assert off(NONE, swap(fstab=without_swap(O_41))).steps == ()


@given(st.text(alphabet="/ab#\t swap\n0none", max_size=120))
def test_commenting_out_is_idempotent_and_only_adds_marks(text: str) -> None:
    once = without_swap(text)
    assert without_swap(once) == once
    assert once.replace("# swap off by gpurack: ", "") == text


# O-40, verbatim: fstab without any swap line; after boot the generator's partition is in /proc/swaps
O_40 = swap(
    active=(Active(path="/dev/nvme0n1p4", size=2097148 * 1024, used=0),),
    fstab="UUID=aa / ext4 defaults 0 1\n",
    units=(unit("dev-nvme0n1p4.swap", active="active", file="generated"),),
)


def test_o_40_swap_of_the_gpt_generator_is_masked_and_turned_off() -> None:
    assert scripts(O_40) == ["systemctl mask --no-reload -- dev-nvme0n1p4.swap", "swapoff -- /dev/nvme0n1p4"]


def test_o_40_a_masked_unit_and_an_empty_list_are_the_end_of_it() -> None:
    done = swap(fstab=O_40.fstab, units=(unit("dev-nvme0n1p4.swap", file="masked"),))
    assert off(NONE, done).steps == ()


def test_o_40_an_inactive_unit_that_a_generator_made_comes_back_at_boot() -> None:
    assert scripts(swap(units=(unit("dev-zram0.swap", file="generated"),))) == [
        "systemctl mask --no-reload -- dev-zram0.swap"
    ]


def test_o_40_a_unit_of_fstab_goes_with_its_line() -> None:
    left = swap(fstab=without_swap(O_41), units=(unit("swap.img.swap", file="generated", source=FSTAB),))
    assert off(NONE, left).steps == ()


def test_a_disabled_unit_is_left_alone_and_an_enabled_service_is_not() -> None:
    assert scripts(swap(units=(unit("extra.swap", file="disabled"),))) == []
    assert scripts(swap(units=(unit("zramswap.service", file="enabled"),))) == [
        "systemctl disable --no-reload -- zramswap.service"
    ]


def test_unit_names_with_escapes_are_quoted() -> None:
    (script,) = scripts(swap(units=(unit(r"dev-disk-by\x2duuid-77.swap", file="generated"),)))
    assert script == r"systemctl mask --no-reload -- 'dev-disk-by\x2duuid-77.swap'"


def test_swap_that_does_not_fit_into_memory_is_refused() -> None:
    full = swap(active=(Active(path="/swap.img", size=16 * GIB, used=9 * GIB),))
    assert [problem.code for problem in off(NONE, full).refused] == ["E-SWAP-01"]


def test_running_swap_disturbs_a_live_node_and_fstab_does_not() -> None:
    assert off(NONE, O_40).disruption is Disruption.DRAIN
    assert off(NONE, swap(fstab=O_41)).disruption is Disruption.NONE


def test_swap_of_the_machine_beneath_is_named_and_left_on() -> None:
    beneath = swap(
        active=(Active(path="/dev/sda2", size=GIB, used=0),),
        fstab=O_41,
        units=(unit("dev-sda2.swap", active="active"),),
        container=True,
    )
    decision = off(frozenset({"shared-kernel"}), beneath)
    assert [type(step) for step in decision.steps] == [Write]
    assert "/dev/sda2" in decision.notes[0]
    assert len(off(NONE, beneath).steps) == 3
