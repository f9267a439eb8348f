"""Act: pyinfra operations, one module per tool. They carry out a decision and prove it."""
