"""One event stream, rendered for people and for programs. Only this package and `cli` print."""
