"""What the person who runs a fleet types: certificates, tokens, health, status."""
