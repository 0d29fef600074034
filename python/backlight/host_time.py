"""Host time of the Python way, beside the C++ call's and PyTorch's own flash path.

    python -m backlight.host_time [--json FILE]

Small tensors, so that the device keeps up; each sample is the mean over a burst of calls that the launch queue
holds, with a wait between bursts; bursts of all contestants are interleaved, and medians told.
"""

import argparse
import json
import statistics
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import backlight

from . import _backlight, _call
from ._options import Options

BURST = 50


def inputs(seqlen, heads, head_dim):
    generator = torch.Generator("cuda").manual_seed(1)
    shape = (1, heads, seqlen, head_dim)
    q, k, v, d_o = (
        torch.randn(shape, device="cuda", dtype=torch.bfloat16, generator=generator) for _ in range(4)
    )
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), d_o


def microseconds(function):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(BURST):
        function()
    taken = time.perf_counter() - begin
    torch.cuda.synchronize()
    return taken / BURST * 1e6


def contestants(q, k, v, d_o):
    """Name to a function that gives microseconds of one call."""
    call = _call.dense_call(q, k, v, Options(True, True, -1, -1, None, False), False)
    call.make_plan()
    with torch.no_grad():
        o, lse = call.forward(q, k, v)
        own = [x.detach() for x in (q, k, v)]
        outputs = [torch.empty_like(x) for x in own]
        workspace = torch.empty(max(call.workspace_bytes, 1), dtype=torch.uint8, device="cuda")
    stream = torch.cuda.current_stream().cuda_stream
    cpp = (d_o, *own, o, lse, *outputs, workspace, stream)
    options = (True, True, -1, -1, None, False, False)

    def grad(out):
        return torch.autograd.grad(out, (q, k, v), d_o, retain_graph=True)

    def flash():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def ours():
        return backlight.attention(q, k, v, causal=True)

    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        flash_out = flash()
    our_out = ours()

    def with_flash(function):
        def timed():
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                return microseconds(function)

        return timed

    @torch.no_grad()
    def backward():
        call.backward(d_o, *own, o, lse)

    @torch.no_grad()
    def operator():
        torch.ops.backlight.attention_backward.default(d_o, *own, o, lse, *options)

    return {
        "C++ run": lambda: call.plan.time(cpp, BURST),
        "native call from Python": lambda: microseconds(lambda: call.plan.run(*cpp, None, None, None, None)),
        "backward in Python": lambda: microseconds(backward),
        "operator backlight::attention_backward": lambda: microseconds(operator),
        "autograd backward, backlight": lambda: microseconds(lambda: grad(our_out)),
        "autograd backward, PyTorch flash": with_flash(lambda: grad(flash_out)),
        "forward, backlight": lambda: microseconds(ours),
        "forward, PyTorch flash": with_flash(flash),
        "forward and backward, backlight": lambda: microseconds(lambda: torch.autograd.grad(ours(), (q, k, v), d_o)),
        "forward and backward, PyTorch flash": with_flash(lambda: torch.autograd.grad(flash(), (q, k, v), d_o)),
    }


def measure(seqlen=128, heads=2, head_dim=64, repeats=31):
    timed = contestants(*inputs(seqlen, heads, head_dim))
    for _ in range(3):
        for function in timed.values():
            function()
    samples = {name: [] for name in timed}
    for _ in range(repeats):
        for name, function in timed.items():
            samples[name].append(function())
    return samples


def main():
    parser = argparse.ArgumentParser(prog="python -m backlight.host_time", description=__doc__.split("\n")[0])
    parser.add_argument("--seqlen", type=int, default=128)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=31)
    parser.add_argument("--json", metavar="FILE", help="write all samples there")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("backlight.host_time: PyTorch finds no CUDA device: it must have one")
    samples = measure(arguments.seqlen, arguments.heads, arguments.head_dim, arguments.repeats)
    medians = {name: statistics.median(values) for name, values in samples.items()}
    for name, median in medians.items():
        print(f"{median:8.2f} µs  {name}")
    above = medians["operator backlight::attention_backward"] - medians["C++ run"]
    direct = medians["backward in Python"] - medians["C++ run"]
    ratio = medians["forward and backward, backlight"] / medians["forward and backward, PyTorch flash"]
    print(f"backward above the C++ call: {direct:.2f} µs in eager mode, {above:.2f} µs as the operator (at most 25)")
    print(f"forward and backward: {ratio:.3f} of PyTorch's flash path (at most 1)")
    if arguments.json:
        document = {
            "kind": "python_host_time",
            "version": backlight.__version__,
            "git_revision": _backlight.git_revision,
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name(),
            "shape": {"batch": 1, "heads": arguments.heads, "seqlen": arguments.seqlen, "head_dim": arguments.head_dim},
            "burst": BURST,
            "median_microseconds": medians,
            "samples_microseconds": samples,
        }
        with open(arguments.json, "w") as file:
            json.dump(document, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
