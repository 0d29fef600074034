"""`python -m backlight.bench_peers` times Backlight's backward beside cuDNN, FlashAttention-2 and, where they can be
imported, FlashAttention-3 and 4, and writes the JSON and the plot (docs/measuring.md; --help tells all)."""

import os
import sys
from pathlib import Path

from ._nvrtc import find_nvrtc

# As the command `backlight bench --reproduce` looks for them around its own folder `bin`.
_SCRIPTS = ("share", "backlight", "peers")
_BRIDGE = ("lib", "backlight", "libbacklight_peers.so")


def find_parts(package=None):
    """The folder of the scripts and the library that they load."""
    package = Path(__file__).parent if package is None else package
    scripts, bridge = package.joinpath(*_SCRIPTS), package.joinpath(*_BRIDGE)
    for part in (scripts / "bench_peers.py", bridge):
        if not part.is_file():
            sys.exit(
                f"backlight.bench_peers: there is no {part}: this package was built without the tools, for want of "
                "Boost.Context (Debian: libboost-context-dev): install it and the package again"
            )
    return scripts, bridge


def main():
    scripts, bridge = find_parts()
    path = find_nvrtc()
    if path:
        os.environ.setdefault("BACKLIGHT_NVRTC_PATH", path)
    # The scripts are the modules of a program of their own.
    sys.path.insert(0, str(scripts))
    import bench_peers

    return bench_peers.main(["--bridge", str(bridge), *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
