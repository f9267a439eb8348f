"""Read: pyinfra facts, one module per tool. They read and parse; they never judge."""
