"""Each private name of pyinfra and paramiko that the engine leans on: there, and shaped as we use it.

When one of these fails after an upgrade, read what changed before touching `engine/`.
"""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from importlib import import_module

import pyinfra.api.command
import pyinfra.api.facts
import pyinfra.api.inventory
import pyinfra.api.operations
import pyinfra.api.util
import pyinfra.connectors.ssh
import pyinfra.connectors.util
import pytest
from paramiko import Channel, SSHClient, Transport
from pyinfra.api.config import Config
from pyinfra.api.host import Host
from pyinfra.api.state import BaseStateCallback, State, StateStage

from gpurack.engine.guards import install


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def source(thing: object) -> str:
    return inspect.getsource(thing)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (State.init, ["self", "inventory", "config", "initial_limit"]),
        (State.fail_hosts, ["self", "hosts_to_fail", "activated_count"]),
        (State.get_op_order, ["self"]),
        (State.add_callback_handler, ["self", "handler"]),
        (BaseStateCallback.operation_start, ["state", "op_hash"]),
        (BaseStateCallback.host_disconnect, ["state", "host"]),
        (
            BaseStateCallback.operation_host_error,
            ["state", "host", "op_hash", "retry_count", "max_retries"],
        ),
        (pyinfra.connectors.ssh.SSHConnector.__init__, ["self", "state", "host"]),
        (pyinfra.connectors.ssh.SSHConnector.make_names_data, ["name"]),
        (pyinfra.connectors.util.OutputLine, ["buffer_name", "line"]),
        (pyinfra.connectors.util.CommandOutput, ["combined_lines"]),
        (pyinfra.api.command.PyinfraCommand.execute, ["self", "state", "host", "connector_arguments"]),
    ],
)
def test_signatures(function: object, wanted: list[str]) -> None:
    assert parameters(function) == wanted


def test_the_connector_is_asked_with_these_words() -> None:
    wanted = ["self", "command", "print_output", "print_input", "arguments"]
    assert parameters(pyinfra.connectors.ssh.SSHConnector.run_shell_command) == wanted
    known = parameters(pyinfra.connectors.util.make_unix_command)
    assert {"_sudo", "_sudo_user", "_sudo_password", "_shell_executable", "_env", "_chdir"} <= set(known)
    assert hasattr(pyinfra.connectors.ssh.SSHConnector.get_file_transfer_connection, "cache")


def test_connectors_are_loaded_before_a_run_is_set_up() -> None:
    """`guards.install` relies on it: making any inventory imports our module."""
    assert "get_all_connectors()" in source(pyinfra.api.inventory.Inventory.make_hosts_and_groups)
    body = source(pyinfra.connectors.ssh)
    assert "handles_execution = True" in body


def test_names_of_the_connector_become_hosts_with_data_and_groups() -> None:
    body = source(pyinfra.api.inventory.Inventory.make_hosts_and_groups)
    assert "for sub_name, sub_data, sub_groups in names_data" in body
    assert 'connector_name.split("/", 1)' in body


def test_state_has_what_ending_looks_at() -> None:
    state = State()
    assert state.check_for_changes is True
    assert state.is_executing is False
    assert hasattr(State, "should_raise_failed_hosts")
    assert hasattr(Config(), "FAIL_PERCENT")
    assert hasattr(Config(), "DIFF")
    assert [stage.name for stage in StateStage] == ["Setup", "Connect", "Prepare", "Execute", "Disconnect"]
    for name in ("activated_hosts", "active_hosts", "failed_hosts", "op_meta", "pool", "inventory"):
        assert f"self.{name}" in source(State.init)


def test_operations_run_again_and_lazily_and_know_their_hash() -> None:
    body = source(import_module("pyinfra.api.operation"))  # the attribute is the decorator
    assert "host.current_op_hash = op_hash" in body
    assert "for command in func(*args, **kwargs)" in body
    loop = source(pyinfra.api.operations)
    assert "for command in op_data.command_generator()" in loop
    assert "status = command.execute(state, host, connector_arguments)" in loop
    assert "connector_arguments.update(command.connector_arguments)" in loop


def test_the_order_of_operations_needs_names_and_lines_of_a_stack_and_no_source_text() -> None:
    asked = source(pyinfra.api.util)
    assert "from inspect import getframeinfo, stack" in asked
    assert "code_context" not in asked
    install()
    assert all(frame.code_context is None for frame in pyinfra.api.util.stack())  # type: ignore[attr-defined]
    here = pyinfra.api.util.get_caller_frameinfo(-1)
    assert here.filename == __file__
    assert here.code_context is None


def test_the_order_is_iterated_once_per_run_and_failed_hosts_drop_out() -> None:
    assert "for op_hash in state.get_op_order():" in source(pyinfra.api.operations.run_ops)
    assert "state.inventory.get_active_hosts()" in source(pyinfra.api.operations)


def test_a_stock_fact_that_fails_returns_its_default_which_is_why_read_looks_at_failed_hosts() -> None:
    body = source(pyinfra.api.facts)
    assert "data = fact.default()" in body
    assert "state.fail_hosts({host})" in body
    assert {"connector", "state", "name", "current_op_hash", "print_prefix", "data"} <= {
        *dir(Host),
        *source(Host.__init__).replace("self.", " ").split(),
        *Host.__annotations__,
    }


def test_paramiko_has_what_the_channel_uses() -> None:
    assert hasattr(Channel, "recv_stderr")
    assert "self.status_event = threading.Event()" in source(Channel)
    assert "timeout" in parameters(Transport.open_session)
    assert {
        "sock",
        "pkey",
        "timeout",
        "banner_timeout",
        "auth_timeout",
        "allow_agent",
        "look_for_keys",
    } <= set(parameters(SSHClient.connect))
    assert "self.sock" in source(Transport)


CLI = """
import inspect, json
from pyinfra_cli import cli, exceptions, inventory, main
print(json.dumps({
    "parameters": [parameter.name for parameter in cli.cli.params],
    "order": [inspect.getsource(cli._main).index(text) for text in (
        "_set_config(", "make_inventory(", "_apply_inventory_limit(", "state.init(", "connect_all(",
        "_handle_commands(", "StateStage.Execute", "print_results(",
    )],
    "ends": "disconnect_all(state)" in inspect.getsource(cli.cli.callback),
    "reads_config": "exec_file(config_filename)" in inspect.getsource(cli._set_config),
    "signals": "signal.signal(signal.SIGINT" in inspect.getsource(main.main),
    "shows": [hasattr(getattr(exceptions, name), "show") for name in
              ("UnexpectedExternalError", "UnexpectedInternalError")],
    "texts": [hasattr(exceptions.UnexpectedMixin, name) for name in ("get_traceback", "get_exception")],
    "twice": "Creating fake inventory" in inspect.getsource(inventory.make_inventory_from_files),
}))
"""


def test_the_command_line_goes_the_way_the_guards_expect() -> None:
    """In a process of its own: importing pyinfra_cli patches the whole interpreter."""
    run = subprocess.run([sys.executable, "-c", CLI], capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    wanted = {
        "inventory",
        "operations",
        "limit",
        "exclude",
        "yes",
        "dry",
        "json_output",
        "debug_facts",
        "debug_operations",
    }
    assert wanted <= set(found["parameters"])
    assert found["order"] == sorted(found["order"])
    assert all((found["ends"], found["reads_config"], found["signals"], found["twice"]))
    assert all(found["shows"] + found["texts"])
