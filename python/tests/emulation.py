"""The emulated device, once a process."""

import functools

from backlight import _backlight


@functools.cache
def emulate():
    _backlight.emulate_device("sm_90a")
