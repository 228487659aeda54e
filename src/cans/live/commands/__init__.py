"""`cans serve`, `cans device` and `cans store`."""

from __future__ import annotations

import typer

from cans.live.commands import store_commands
from cans.live.commands.device_command import device
from cans.live.commands.serve_command import serve


def register(app: typer.Typer) -> None:
    """Mount this layer's commands."""
    panel = "Run a fleet"
    app.command(
        rich_help_panel=panel,
        epilog="\b\nExample:\n  cans serve --model resnet50.onnx --codec uint8 --codec float16",
    )(serve)
    app.command(
        rich_help_panel=panel,
        epilog="\b\nExample:\n  cans device --server edge-box:7070 --type rpi5 --count 100",
    )(device)
    app.add_typer(store_commands.app, name="store", rich_help_panel=panel)
