#!/usr/bin/env python3
"""Trains a small GPT, character by character, on the sources of Python's standard library, with attention whose
backward is Backlight's, PyTorch's own choice or cuDNN's, from the same seed on the same batches.

    python train_char_gpt.py --backward both --json losses.json --plot losses.svg
    python train_char_gpt.py --check --steps 1000        # eager, compiled, captured: the same losses; no leaks
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import statistics
import sys
import sysconfig
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import char_gpt_checks

SMALL = {"batch": 2, "seqlen": 256, "layers": 2, "heads": 2, "head_dim": 64}
USUAL = {"batch": 8, "seqlen": 4096, "layers": 6, "heads": 8, "head_dim": 64}
GROUPS = {"both": ("backlight", "pytorch"), "all": ("backlight", "pytorch", "cudnn")}
BLOCK = 10  # Steps between two looks at the clock; contestants take turns by blocks.
WARM_UP = 2 * BLOCK  # Compilation and capture are over by then.


def read_text(limit):
    """The same bytes for the same Python."""
    text = bytearray()
    for folder, folders, files in os.walk(sysconfig.get_paths()["stdlib"]):
        folders[:] = sorted(set(folders) - {"site-packages", "dist-packages", "test", "tests"})
        for name in sorted(files):
            if name.endswith(".py") and len(text) < limit:
                text += Path(folder, name).read_bytes()
    return bytes(text[:limit])


class Batches:
    """Sequences that begin anywhere in the text: those of a step are the same for everybody."""

    def __init__(self, text, options):
        self.digest = hashlib.sha256(text).hexdigest()
        characters = sorted(set(text))
        number = {character: i for i, character in enumerate(characters)}
        self.vocabulary = len(characters)
        self._text = torch.tensor([number[c] for c in text], device=options.device)
        self._span = torch.arange(options.seqlen + 1, device=options.device)
        starts = torch.Generator().manual_seed(options.seed)
        self._starts = torch.randint(len(text) - options.seqlen, (options.steps, options.batch, 1), generator=starts)
        self._starts = self._starts.to(options.device)

    def __getitem__(self, step):
        return self._text[self._starts[step] + self._span]


def attention_of(backward):
    """softmax(q kᵀ / √head_dim) v of (batch, heads, seqlen, head_dim), causal."""
    if backward == "backlight":
        import backlight

        return lambda q, k, v: backlight.attention(q, k, v, causal=True)
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Block(nn.Module):
    def __init__(self, options, attention):
        super().__init__()
        width = options.heads * options.head_dim
        self.heads, self.head_dim, self.attention = options.heads, options.head_dim, attention
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, seqlen, width = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, seqlen, 3, self.heads, self.head_dim)
        attended = self.attention(*qkv.permute(2, 0, 3, 1, 4))
        x = x + self.out(attended.transpose(1, 2).reshape(batch, seqlen, width))
        return x + self.mlp(self.norm_2(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary, options, attention):
        super().__init__()
        width = options.heads * options.head_dim
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(options.seqlen, width)
        self.blocks = nn.Sequential(*(Block(options, attention) for _ in range(options.layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


class Trainer:
    """A model in training. With `graph` a whole step is captured once the first ones have run."""

    def __init__(self, backward, batches, options, compile=False, graph=False):
        torch.manual_seed(options.seed)
        self.backward, self.batches, self.options, self.graph = backward, batches, options, graph
        self.cuda = options.device == "cuda"
        self.model = Gpt(batches.vocabulary, options, attention_of(backward)).to(options.device)
        self.parameters = list(self.model.parameters())
        self.optimiser = torch.optim.AdamW(
            self.parameters, lr=3e-4, betas=(0.9, 0.95), fused=self.cuda, capturable=self.cuda
        )
        if compile:
            self.model = torch.compile(self.model)
        self.losses = torch.zeros(options.steps, device=options.device)
        self.tokens = torch.empty((options.batch, options.seqlen + 1), dtype=torch.long, device=options.device)
        self.seconds, self.memory, self.captured = [], [], None

    def _step(self):
        self.optimiser.zero_grad(set_to_none=True)
        with_cudnn = self.backward == "cudnn"
        backend = sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if with_cudnn else contextlib.nullcontext()
        with backend, torch.autocast(self.options.device, torch.bfloat16, cache_enabled=False):
            logits = self.model(self.tokens[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), self.tokens[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimiser.step()
        return loss.detach()

    def step(self, number):
        self.tokens.copy_(self.batches[number])
        if not self.graph:
            loss = self._step()
        elif number < 3:  # On another stream, as a capture wants it.
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                loss = self._step()
            torch.cuda.current_stream().wait_stream(stream)
        else:
            if self.captured is None:
                self.optimiser.zero_grad(set_to_none=True)  # What the graph makes is its own.
                captured = torch.cuda.CUDAGraph()
                with torch.cuda.graph(captured):
                    self.captured_loss = self._step()
                self.captured = captured
            self.captured.replay()
            loss = self.captured_loss
        self.losses[number].copy_(loss)

    def run(self, steps):
        self._synchronise()
        begin = time.perf_counter()
        for number in steps:
            self.step(number)
        self._synchronise()
        self.seconds.append((steps.stop, len(steps), time.perf_counter() - begin))
        self.memory.append({"step": steps.stop, **char_gpt_checks.memory_in_use(self.cuda)})

    def _synchronise(self):
        if self.cuda:
            torch.cuda.synchronize()

    def result(self):
        """Tokens per second are the median of the blocks after the warm-up."""
        timed = [count / seconds for end, count, seconds in self.seconds if end > WARM_UP]
        rate = statistics.median(timed) * self.options.batch * self.options.seqlen if timed else None
        return {"losses": self.losses.tolist(), "tokens_per_second": rate, "blocks": self.seconds, "memory": self.memory}


def train(trainers, steps):
    """In turns, so that a card that grows warm or slow does so for all."""
    for begin in range(0, steps, BLOCK):
        block = range(begin, min(begin + BLOCK, steps))
        for trainer in trainers:
            trainer.run(block)
        if block.stop % 50 == 0 or block.stop == steps:
            print(f"step {block.stop}:", *(f"{t.losses[block.stop - 1]:.4f}" for t in trainers), flush=True)


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backward", choices=("backlight", "pytorch", "cudnn", *GROUPS), default="backlight")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--compile", action="store_true", help="torch.compile(model)")
    parser.add_argument("--graph", action="store_true", help="capture a whole step into a CUDA graph")
    parser.add_argument("--check", action="store_true", help="compare eager, compiled and captured; look for leaks")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--plot", metavar="FILE", help="the losses, as .svg or .png, by gnuplot")
    parser.add_argument("--plot-from", type=Path, metavar="JSON", help="train nothing: draw what --json wrote")
    parser.add_argument("--small", action="store_true", help=f"sizes of {SMALL}")
    for name, value in USUAL.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, help=f"[{value}]")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    for name, value in (SMALL if options.small else USUAL).items():
        given = getattr(options, name)
        setattr(options, name, value if given is None else given)
        if getattr(options, name) < 1:
            parser.error(f"{name} is {given}: it must be 1 or more")
    if options.steps < 1:
        parser.error(f"steps is {options.steps}: it must be 1 or more")
    if options.check and options.backward in GROUPS:
        parser.error(f"backward is {options.backward}: a check is of one")
    if options.device == "cpu" and (options.graph or options.check or options.backward != "pytorch"):
        parser.error("device is cpu: there is PyTorch's backward alone, no graph and no check")
    if options.plot and not (options.plot.endswith((".svg", ".png")) and shutil.which("gnuplot")):
        parser.error(f"plot is {options.plot}: it must end in .svg or .png, and is drawn by gnuplot")
    if options.plot_from and not options.plot:
        parser.error("plot-from is given without plot")
    return options


def main(arguments=None):
    options = parse_arguments(arguments)
    if options.plot_from:
        char_gpt_checks.plot(json.loads(options.plot_from.read_text()), options.plot)
        return 0
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("train_char_gpt: device is cuda: it must be cpu where PyTorch finds no CUDA device")
    batches = Batches(read_text(16 << 20), options)
    document = {"shape": {name: getattr(options, name) for name in USUAL}, "steps": options.steps, "seed": options.seed,
                "text_sha256": batches.digest, "compile": options.compile, "graph": options.graph}  # fmt: skip
    if options.check:
        def run(backward, steps, **way):
            trainer = Trainer(backward, batches, options, **way)
            train([trainer], steps)
            return trainer

        document |= char_gpt_checks.check(run, options.backward, options.steps, WARM_UP)
    else:
        names = GROUPS.get(options.backward, (options.backward,))
        trainers = [Trainer(name, batches, options, options.compile, options.graph) for name in names]
        train(trainers, options.steps)
        document["runs"] = {trainer.backward: trainer.result() for trainer in trainers}
        for name, run in document["runs"].items():
            rate = f"{run['tokens_per_second']:.0f}" if run["tokens_per_second"] else "too few steps to tell the"
            print(f"{name}: last loss {run['losses'][-1]:.4f}, {rate} tokens/s")
    document |= char_gpt_checks.environment(options.device)
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.plot and "runs" in document:
        char_gpt_checks.plot(document, options.plot)
    for failure in document.get("failures", ()):
        print(f"failed: {failure}")
    return 1 if document.get("failures") else 0


if __name__ == "__main__":
    sys.exit(main())
