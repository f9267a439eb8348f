"""The site document: what a person edits, typed. No pyinfra, no kubernetes, no network."""
