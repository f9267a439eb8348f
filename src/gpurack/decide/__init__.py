"""Think: pure functions from (wanted, found) to a `Decision`. No pyinfra, no kubernetes, no I/O."""
