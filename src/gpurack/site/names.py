"""Kubernetes' rules for names, labels and taints, with a proposal where a name breaks them."""

from __future__ import annotations

import re

LONGEST_LABEL = 63
LONGEST_PREFIX = 253

_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", re.ASCII)
_QUALIFIED = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", re.ASCII)
_ADDRESS = re.compile(r"\d{1,3}(\.\d{1,3}){3}", re.ASCII)

# Set by every kubelet for its own node; the same value for a whole pool would be wrong (R47, R48).
KUBELETS_OWN = {"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch"}


def is_address_like(name: str) -> bool:
    return _ADDRESS.fullmatch(name) is not None


def node_name_fault(name: str) -> str | None:
    """Why `name` (already in lower case) can't be a node's name, or None.

    A node name is a DNS subdomain (RFC 1123); it also becomes the value of the label kubernetes.io/hostname,
    so 63 characters are the limit of the whole name.
    """
    if name == "localhost" or name.startswith("localhost."):
        return "is the name that every machine has for itself"
    if len(name) > LONGEST_LABEL:
        return f"has {len(name)} characters; {LONGEST_LABEL} are the most"
    if name.endswith("."):
        return "ends in a dot"
    for part in name.split("."):
        if not _DNS_LABEL.fullmatch(part):
            if part.startswith("-") or part.endswith("-"):
                return "has a dash at an edge"
            bad = sorted(set(re.sub(r"[a-z0-9.-]", "", name)))
            return f"has {' '.join(repr(sign) for sign in bad)} in it" if bad else "has an empty part"
    return None


def proposed_name(name: str) -> str | None:
    """The nearest name that Kubernetes takes, or None when nothing is left of it."""
    plain = re.sub(r"[^a-z0-9.-]+", "-", name.lower())[:LONGEST_LABEL]
    parts = [part.strip("-") for part in plain.split(".")]
    proposal = ".".join(part for part in parts if part)
    return proposal if proposal and node_name_fault(proposal) is None else None


def is_group_name(name: str) -> bool:
    """Whether `name` can name a pool or a rack: a DNS label, so that it can be a label's value too."""
    return len(name) <= LONGEST_LABEL and _DNS_LABEL.fullmatch(name) is not None


def label_key_fault(key: str) -> str | None:
    """Why `key` is no label or taint key, or None. Syntax as the API server checks it."""
    prefix, slash, name = key.rpartition("/")
    if slash and (
        len(prefix) > LONGEST_PREFIX or not all(_DNS_LABEL.fullmatch(part) for part in prefix.split("."))
    ):
        return f"the part before the slash ({prefix!r}) is no lower-case domain"
    if not name:
        return "the name is empty"
    if len(name) > LONGEST_LABEL:
        return f"the name has {len(name)} characters; {LONGEST_LABEL} are the most (O-77)"
    if not _QUALIFIED.fullmatch(name):
        return "a name has letters, digits, '-', '_' and '.', and begins and ends with a letter or digit"
    return None


def label_value_fault(value: str) -> str | None:
    """Why `value` is no label value, or None. The empty value is one."""
    if len(value) > LONGEST_LABEL:
        return f"the value has {len(value)} characters; {LONGEST_LABEL} are the most (O-77)"
    if value and not _QUALIFIED.fullmatch(value):
        return "a value has letters, digits, '-', '_' and '.', and begins and ends with a letter or digit"
    return None
