"""What a device says of its inferences: to its user, to its server, and as traces."""
