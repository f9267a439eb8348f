"""Thought about kubelet: configuration documents, flags, saved state, alignment, proof."""
