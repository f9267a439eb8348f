"""The embedded rack: real systemd hosts of two kinds on one Linux machine, air-gapped on a bridge of their own."""
