"""Everyone at once: what a server tells of its load, and the places that devices ask for."""
