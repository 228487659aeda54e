"""The live page: what each device does, why, and whether it gets better."""
