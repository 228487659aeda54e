"""`cans device`: the command, and the line protocol by which a testbed drives it."""
