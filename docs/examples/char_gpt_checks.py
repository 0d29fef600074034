"""What train_char_gpt.py tells beside its losses: whether all ways of running a step agree, memory, a picture."""

import shutil
import subprocess
import sys
from pathlib import Path

import torch

LARGEST_DIFFERENCE = 2**-8  # Of a loss, relative: what rounding one number to bf16 may change.
COMPARED = 100
# The host's allocators take a little more now and then; what a thousand steps leave behind is more than this.
HOST_ROOM = 4 << 20


def memory_in_use(cuda):
    """Bytes: of the process, of PyTorch's allocator, and of the whole device, which includes what libraries take."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    memory = {"host_resident": pages * 4096}
    if cuda:
        free, total = torch.cuda.mem_get_info()
        memory |= {
            "allocated": torch.cuda.memory_allocated(),
            "reserved": torch.cuda.memory_reserved(),
            "device_used": total - free,
        }
    return memory


def compare_losses(losses):
    """({way: largest relative difference from "eager"}, failures); PyTorch's backward is told beside, as a measure
    of the noise, and judged as the others are."""
    differences, failures = {}, []
    for way in [name for name in losses if name != "eager"]:
        difference = ((losses[way] - losses["eager"]).abs() / losses["eager"]).max().item()
        differences[way] = difference
        if not difference <= LARGEST_DIFFERENCE:  # Not a number fails too.
            failures.append(f"the losses of {way} differ by {difference:.2e} of eager ones: at most {LARGEST_DIFFERENCE:.2e}")
    return differences, failures


def find_leaks(memory, warm_up):
    """Failures, from the second half of the steps, when all that grows once has grown."""
    first = next((at for at in memory if at["step"] >= warm_up), memory[0])
    half, last = memory[(len(memory) - 1) // 2], memory[-1]
    failures = []
    for what in [name for name in last if name != "step"]:
        print(f"{what}: " + ", ".join(f"{at[what]} bytes after step {at['step']}" for at in (first, half, last)))
        grown = last[what] - half[what]
        if grown > (HOST_ROOM if what == "host_resident" else 0):
            failures.append(f"{what} grew by {grown} bytes from step {half['step']} to {last['step']}")
    return failures


def check(run, backward, steps, warm_up):
    """`run(backward, steps, **way)` gives a trainer that has run. The eager one takes all steps."""
    compared = min(steps, COMPARED)
    eager = run(backward, steps)
    memory = eager.memory
    losses = {"eager": eager.losses[:compared]}
    del eager
    for name, by, way in (
        ("compile", backward, {"compile": True}),
        ("graph", backward, {"graph": True}),
        ("pytorch", "pytorch", {}),
    ):
        print(f"{name}:", flush=True)
        losses[name] = run(by, compared, **way).losses[:compared]
    differences, failures = compare_losses(losses)
    for name, difference in sorted(differences.items()):
        print(f"{name}: losses of {compared} steps within {difference:.2e} of eager ones")
    failures += find_leaks(memory, warm_up)
    return {
        "differences": differences,
        "losses": {name: values.tolist() for name, values in losses.items()},
        "memory": memory,
        "failures": failures,
    }


def plot(document, path):
    """The losses of all runs, by gnuplot."""
    blocks, lines = [], []
    for i, (name, run) in enumerate(document["runs"].items()):
        rate = run["tokens_per_second"]
        title = name + (f", {rate / 1e3:.0f} thousand tokens/s" if rate else "")
        blocks += [f"$run{i} << END", *(f"{step + 1} {loss:.5f}" for step, loss in enumerate(run["losses"])), "END"]
        # The first is the widest, so that it shows below one that is the same.
        lines.append(f"$run{i} with lines linewidth {max(5 - 3 * i, 1)} title '{title}'")
    terminal = "svg" if path.endswith(".svg") else "pngcairo"
    script = [
        *blocks,
        f"set terminal {terminal} size 900,480 noenhanced background rgb 'white'",
        f"set output '{path}'",
        "set xlabel 'step'",
        "set ylabel 'loss, nats a character'",
        "set grid ytics",
        "plot " + ", ".join(lines),
    ]
    subprocess.run(["gnuplot"], input="\n".join(script) + "\n", text=True, check=True)


def environment(device):
    found = {"python": sys.version.split()[0], "torch": torch.__version__, "device": device}
    if "backlight" in sys.modules:
        found["backlight"] = sys.modules["backlight"].__version__
    if device == "cuda":
        found |= {
            "gpu": torch.cuda.get_device_name(),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        }
        if shutil.which("nvidia-smi"):
            asked = "name,driver_version,clocks.sm,power.limit"
            told = subprocess.run(
                ["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader"], capture_output=True, text=True
            )
            found["nvidia_smi"] = {"asked": asked, "told": told.stdout.splitlines()}
    return found
