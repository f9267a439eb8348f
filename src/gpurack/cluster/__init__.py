"""The Kubernetes API, asked from the controller. No pyinfra here; the client library comes on first use."""
