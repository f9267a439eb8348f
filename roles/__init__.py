"""Roles: what a host becomes. One package per role, one public `@deploy` function each."""
