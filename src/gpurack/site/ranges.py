"""Host ranges: `gpu-r07-[01:08]` is eight names, `10.0.7.[11:18]` eight addresses.

Both ends are included. Numbers are decimal, in an IPv6 address too: `2001:db8::[9:11]` is ::9, ::10 and ::11,
the way people number racks. A leading zero fixes the width, so both ends must then have it.
"""

from __future__ import annotations

import re

from gpurack.site.fields import fault

MOST_HOSTS = 10_000  # more in one range is a typing mistake; the largest clusters have half of this
_RANGE = re.compile(r"\[([^\[\]]*)\]")
_BOUNDS = re.compile(r"(\d+):(\d+)", re.ASCII)


def unfold(text: str) -> tuple[str, ...]:
    """All texts that `text` stands for: itself, if it has no range.

    A fault E-SITE-10 (malformed or more than one), E-SITE-11 (reversed) says what is wrong.
    An IPv6 endpoint such as `[2001:db8::1]:6443` is no range; it never comes here.
    """
    if "[" not in text and "]" not in text:
        return (text,)
    found = _RANGE.findall(text)
    rest = _RANGE.sub("", text)
    if len(found) != 1 or "[" in rest or "]" in rest:
        what = "more than one range" if len(found) > 1 else "a bracket without its partner"
        raise fault("E-SITE-10", f"{text!r} has {what}", wanted="one range, such as gpu-r07-[01:08]")
    bounds = _BOUNDS.fullmatch(found[0])
    if bounds is None:
        what = "an empty range" if not found[0].strip(": ") else "a range that is not FIRST:LAST"
        raise fault("E-SITE-10", f"{text!r} has {what}", wanted="numbers such as [01:08]")
    first, last = bounds[1], bounds[2]
    if int(last) < int(first):
        raise fault("E-SITE-11", f"the range in {text!r} runs backwards", next=f"write [{last}:{first}]")
    padded = any(len(bound) > 1 and bound[0] == "0" for bound in (first, last))
    if padded and len(first) != len(last):
        raise fault(
            "E-SITE-10",
            f"the ends of the range in {text!r} have different widths",
            wanted=f"[{first.zfill(len(last))}:{last.zfill(len(first))}]",
        )
    if int(last) - int(first) >= MOST_HOSTS:
        raise fault("E-SITE-10", f"the range in {text!r} has more than {MOST_HOSTS} members")
    before, after = _RANGE.split(text)[0], _RANGE.split(text)[-1]
    width = len(first) if padded else 0
    return tuple(f"{before}{number:0{width}}{after}" for number in range(int(first), int(last) + 1))


def spread(text: str, count: int, name: str, field: str) -> tuple[str, ...]:
    """The `count` values of `text` for the hosts of `name`; a fault E-SITE-12 when the lengths differ."""
    values = unfold(text)
    if len(values) != count:
        raise fault(
            "E-SITE-12",
            f"{name!r} is {count} host{'s' * (count != 1)}, but {field} {text!r} is {len(values)}",
            wanted=f"a range of {count} in {field}",
        )
    return values
