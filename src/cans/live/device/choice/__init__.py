"""Where one request is cut: what is allowed, what the server told, whether to ask it first."""
