"""Racks of bare Ubuntu hosts in, accepted GPU Kubernetes nodes out."""
