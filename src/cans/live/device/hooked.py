"""A device with the hooks of testbeds and tests."""

from __future__ import annotations

from typing import Any

from cans.live.device.device import Device
from cans.live.device.hooks import Hooks


class HookedDevice(Device):
    """`cans.Device`, and what a testbed may change in it while it runs."""

    def __init__(self, *arguments: Any, hooks: Hooks | None = None, **options: Any) -> None:
        self.hooks = hooks or Hooks()
        super().__init__(*arguments, **options)

    def _own_hooks(self) -> Hooks:
        return self.hooks
