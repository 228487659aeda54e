"""One device's side of every policy."""
