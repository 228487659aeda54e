"""Whom a server believes, about what, and how far."""
