"""A device and its servers: which one is asked, and what is said between requests."""
