"""The `gpurack` command: arguments and exit codes, nothing else."""
