"""Everything that computes an attention backward here: ours, PyTorch's two backends, FlashAttention-3.

A contestant is made for a cell's inputs; the forward, planning and allocation happen then. Its `run`
enqueues the whole backward on the current stream, and `gradients` gives (dQ, dK, dV) of the last run as
(batch, heads, seqlen, head_dim).
"""

import ctypes
import hashlib
from pathlib import Path

import torch


class Inputs:
    """Q, K, V, dO ~ N(0, 1), and O and LSE of a forward of PyTorch's.

    All are (batch, heads, seqlen, head_dim) to PyTorch; `layout` says what is contiguous in memory: that
    ("bhsd") or (batch, seqlen, heads, head_dim) ("bshd").
    """

    def __init__(self, cell, dtype, layout, seed=1):
        self.cell, self.dtype, self.layout = cell, dtype, layout
        torch_dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
        self.shape = (cell.batch, cell.heads, cell.seqlen, cell.head_dim)
        generator = torch.Generator("cuda").manual_seed(seed)
        self.query, self.key, self.value, self.grad_out = (
            torch.randn(self._memory_shape(), device="cuda", dtype=torch_dtype, generator=generator)
            for _ in range(4)
        )
        if layout == "bshd":
            self.query, self.key, self.value, self.grad_out = (
                x.transpose(1, 2) for x in (self.query, self.key, self.value, self.grad_out)
            )
        self.out = self.lse = None

    def _memory_shape(self):
        b, h, n, d = self.shape
        return (b, n, h, d) if self.layout == "bshd" else (b, h, n, d)

    def empty_gradient(self):
        """NaN throughout: what a kernel leaves out shows."""
        memory = torch.full(self._memory_shape(), float("nan"), device="cuda", dtype=self.query.dtype)
        return memory.transpose(1, 2) if self.layout == "bshd" else memory

    def set_forward(self, out, lse):
        """O and LSE for the contestants without a forward of their own, in the layout of the rest."""
        self.out = torch.empty_like(self.query)
        self.out.copy_(out)
        self.lse = lse.reshape(self.shape[:3]).float().contiguous()

    @property
    def strides(self):
        """Of batch, head and seqlen: those of all tensors of head_dim."""
        return self.query.stride()[:3]


class PyTorchBackend:
    """One of PyTorch's own operators, forward and backward called directly: autograd, which adds work of
    its own, is not part of what is compared."""

    OPERATORS = {
        "cudnn": "_scaled_dot_product_cudnn_attention",
        "fa2": "_scaled_dot_product_flash_attention",
    }
    # Results of the forward that the backward takes by another name.
    RENAMED = {"rng_state": "philox_seed", "unused": "philox_offset"}

    def __init__(self, name, inputs):
        self.name = name
        self.description = {"operator": self.OPERATORS[name] + "_backward"}
        values = {
            "query": inputs.query,
            "key": inputs.key,
            "value": inputs.value,
            "grad_out": inputs.grad_out,
            "is_causal": inputs.cell.causal,
            "scale": inputs.cell.softmax_scale,
            "dropout_p": 0.0,
            "attn_bias": None,
            "compute_log_sumexp": True,
            "return_debug_mask": False,
        }
        forward = getattr(torch.ops.aten, self.OPERATORS[name]).default
        results = forward(*_positional(forward, values), **_keywords(forward, values))
        for returned, result in zip(forward._schema.returns, results):
            values[self.RENAMED.get(returned.name, returned.name)] = result
        values["out"] = results[0]  # Under a misspelt name in some releases.
        self.out, self.lse = values["out"], values["logsumexp"]
        self._backward = getattr(torch.ops.aten, self.OPERATORS[name] + "_backward").default
        self._arguments = _positional(self._backward, values)
        self._keywords = _keywords(self._backward, values)
        self._gradients = None

    def run(self):
        self._gradients = self._backward(*self._arguments, **self._keywords)

    def gradients(self):
        return self._gradients[:3]

    def close(self):
        self._gradients = None


def _positional(operator, values):
    """The operator's positional arguments by name: PyTorch's releases differ in which there are."""
    arguments = []
    for argument in operator._schema.arguments:
        if argument.kwarg_only:
            continue
        if argument.name in values:
            arguments.append(values[argument.name])
        elif argument.has_default_value():
            arguments.append(argument.default_value)
        else:
            raise TypeError(f"{operator}: argument {argument.name} is unknown to bench_peers")
    return arguments


def _keywords(operator, values):
    return {
        argument.name: values[argument.name]
        for argument in operator._schema.arguments
        if argument.kwarg_only and argument.name in values
    }


class _OwnGradients:
    """A contestant that writes to gradients and a workspace that are made here."""

    def __init__(self, inputs, workspace_bytes):
        self._inputs = inputs
        self._gradients = [inputs.empty_gradient() for _ in range(3)]
        # PyTorch's allocations are aligned to 512 bytes.
        self._workspace = torch.empty(max(workspace_bytes, 1), dtype=torch.uint8, device="cuda")

    def _pointers(self):
        i = self._inputs
        tensors = (i.query, i.key, i.value, i.out, i.grad_out, i.lse, *self._gradients)
        return [tensor.data_ptr() for tensor in tensors]

    def gradients(self):
        return self._gradients


class Backlight(_OwnGradients):
    """A kernel of ours, by its name."""

    def __init__(self, session, kernel, inputs):
        self.name = f"backlight/{kernel}"
        self._plan = session.plan(inputs.cell, inputs.dtype, kernel)
        self.description = self._plan.description
        super().__init__(inputs, self._plan.workspace_bytes)
        self.run = self._plan.enqueue(
            self._pointers(),
            inputs.strides,
            self._workspace.data_ptr(),
            torch.cuda.current_stream().cuda_stream,
        )

    def close(self):
        self._plan.free()


class FlashAttention3Library:
    """A build of FlashAttention-3's backward with a C entry (docs/measuring.md gives its functions)."""

    def __init__(self, path):
        self._library = ctypes.CDLL(str(path))
        i, p = ctypes.c_int, ctypes.c_void_p
        self.workspace_bytes = self._library.fa3_workspace_bytes
        self.workspace_bytes.restype, self.workspace_bytes.argtypes = ctypes.c_size_t, [i] * 5
        self.backward = self._library.fa3_backward
        self.backward.restype = i
        self.backward.argtypes = [i] * 6 + [p] * 10 + [ctypes.c_float, p]
        self._library.fa3_last_error.restype = ctypes.c_char_p
        self._library.fa3_version.restype = ctypes.c_char_p
        self.description = {
            "version": self._library.fa3_version().decode(),
            "file": Path(path).name,
            "sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest(),
        }

    def last_error(self):
        return self._library.fa3_last_error().decode()


class FlashAttention3(_OwnGradients):
    name = "fa3"

    def __init__(self, library, inputs):
        if inputs.dtype != "bf16":
            raise ValueError(f"dtype is {inputs.dtype}: the FlashAttention-3 library takes bf16 only")
        self.description = library.description
        cell = inputs.cell
        shape = (cell.batch, cell.heads, cell.seqlen)
        super().__init__(inputs, library.workspace_bytes(cell.head_dim, cell.causal, *shape))
        layout = {"bhsd": 0, "bshd": 1}[inputs.layout]
        arguments = (
            cell.head_dim,
            cell.causal,
            layout,
            *shape,
            *self._pointers(),
            self._workspace.data_ptr(),
            cell.softmax_scale,
            torch.cuda.current_stream().cuda_stream,
        )

        def run():
            if library.backward(*arguments):
                raise RuntimeError(library.last_error())

        self.run = run

    def close(self):
        pass
