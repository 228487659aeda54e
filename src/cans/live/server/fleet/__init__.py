"""What a server remembers of its fleet, to show it: the page, `cans status`, metrics."""
