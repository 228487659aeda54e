"""How a device starts: its state on disk, the server that answers, the model to run."""
