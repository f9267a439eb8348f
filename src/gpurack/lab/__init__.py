"""The embedded rack: real systemd hosts of two kinds on one Linux machine, on an air-gapped switch."""
