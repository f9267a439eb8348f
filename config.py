"""pyinfra runs this file before it looks at the inventory: the one place to say this clearly."""

from __future__ import annotations

import click

_inventory = click.get_current_context().params["inventory"]
if _inventory.endswith((".yaml", ".yml")):
    _shim = _inventory.rsplit(".", 1)[0]
    raise SystemExit(f"{_inventory} is a site document; pyinfra wants its shim: pyinfra {_shim} ...")
