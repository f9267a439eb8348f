"""Changes that are made through the Kubernetes API, in the form that pyinfra counts and plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyinfra.api.command import PyinfraCommand

from gpurack.decide.decision import Disruption
from gpurack.engine import executing
from gpurack.engine.run import current, this_host
from gpurack.report.events import Changed

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State


class ApiChange(PyinfraCommand):
    """Marks the operation as one that changes something. The change itself was made before it is yielded,
    where `guarded` sees every error."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason

    def __repr__(self) -> str:
        return f"ApiChange({self.reason})"

    def execute(self, state: State, host: Host, connector_arguments: Any) -> bool:  # noqa: ARG002
        return True


def through_api(reason: str, change: Callable[[], object]) -> Iterator[PyinfraCommand]:
    """Make one change through the API; while planning, only say that it would be made."""
    host = this_host()
    meta = host.state.op_meta.get(host.current_op_hash or "")
    current().emit(
        Changed(
            host=host.name,
            operation=", ".join(sorted(meta.names)) if meta else "?",
            reason=reason,
            disruption=str(Disruption.NONE),
            steps=(f"API: {reason}",),
        )
    )
    if executing():
        change()
    yield ApiChange(reason)
