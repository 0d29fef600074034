"""Everything that computes an attention backward here: ours, PyTorch's backends, FlashAttention-3.

A contestant is made for a problem's inputs; the forward, planning and allocation happen then. Its `run`
enqueues the whole backward on the current stream, and `gradients` gives (dQ, dK, dV) of the last run as
(batch, heads, seqlen, head_dim). `start_over` forgets what earlier runs have left in them. Who cannot take
a problem refuses it with a ValueError that names the reason.
"""

import ctypes
import hashlib
from pathlib import Path

import torch


def require(inputs, name, condition, reason):
    if not condition:
        raise ValueError(f"{name} {reason}: {inputs.problem.name}")


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
        problem = inputs.problem
        require(inputs, name, not problem.has_window, "takes no window through this operator")
        require(inputs, name, problem.lengths is None, "takes no packed sequences through this operator")
        require_plain_gradients(inputs, name)
        self.name = name
        self.description = {"operator": self.OPERATORS[name] + "_backward"}
        values = {
            "query": inputs.query,
            "key": self._of_keys(inputs.key),
            "value": self._of_keys(inputs.value),
            "grad_out": inputs.grad_out,
            "is_causal": problem.causal,
            "scale": problem.softmax_scale,
            "dropout_p": 0.0,
            "attn_bias": None,
            "compute_log_sumexp": True,
            "return_debug_mask": False,
        }
        forward = getattr(torch.ops.aten, self.OPERATORS[name]).default
        results = forward(*positional(forward, values), **keywords(forward, values))
        for returned, result in zip(forward._schema.returns, results):
            values[self.RENAMED.get(returned.name, returned.name)] = result
        values["out"] = results[0]  # Under a misspelt name in some releases.
        self.out, self.lse = values["out"], values["logsumexp"]
        self._backward = getattr(torch.ops.aten, self.OPERATORS[name] + "_backward").default
        self._arguments = positional(self._backward, values)
        self._keywords = keywords(self._backward, values)
        self._gradients = None

    def _of_keys(self, tensor):
        """K or V as the operator is given it."""
        return tensor

    def run(self):
        self._gradients = self._backward(*self._arguments, **self._keywords)

    def gradients(self):
        return self._gradients[:3]

    def start_over(self):
        self._gradients = None

    def close(self):
        self._gradients = None


def require_plain_gradients(inputs, name):
    """Of operators that return gradients of the inputs' type."""
    problem = inputs.problem
    require(inputs, name, problem.gradient_type == "input", "has no fp32 gradients")
    require(inputs, name, not problem.accumulate_gradients, "adds to no gradients")


def positional(operator, values):
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


def keywords(operator, values):
    return {
        argument.name: values[argument.name]
        for argument in operator._schema.arguments
        if argument.kwarg_only and argument.name in values
    }


class _OwnGradients:
    """A contestant that writes to gradients and a workspace that are made here."""

    def __init__(self, inputs, problem, workspace_bytes):
        self._inputs = inputs
        self._accumulates = problem.accumulate_gradients
        dtype = torch.float32 if problem.gradient_type == "fp32" else inputs.torch_dtype
        self._gradients = [inputs.empty(x, dtype) for x in (inputs.query, inputs.key, inputs.value)]
        self.start_over()
        # PyTorch's allocations are aligned to 512 bytes.
        self._workspace = torch.empty(max(workspace_bytes, 1), dtype=torch.uint8, device="cuda")

    def _tensors(self):
        i = self._inputs
        return (i.query, i.key, i.value, i.out, i.grad_out, *self._gradients)

    def gradients(self):
        return self._gradients

    def start_over(self):
        """NaN throughout where they are written: what a kernel leaves out shows."""
        for gradient in self._gradients:
            gradient.fill_(0 if self._accumulates else float("nan"))


class Backlight(_OwnGradients):
    """A kernel of ours, by its name. `plan` is for a problem of these inputs."""

    def __init__(self, kernel, plan, problem, inputs):
        self.name = f"backlight/{kernel}"
        self._plan = plan
        self.description = plan.description
        super().__init__(inputs, problem, plan.workspace_bytes)
        self.run = plan.enqueue(
            [(x.data_ptr(), *x.stride()[:3]) for x in self._tensors()],
            (inputs.lse.data_ptr(), *inputs.lse.stride()[:2]),
            0 if inputs.starts is None else inputs.starts.data_ptr(),
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
        problem = inputs.problem
        require(inputs, "fa3", inputs.dtype == "bf16", f"takes bf16 only, not {inputs.dtype}")
        require(inputs, "fa3", problem.is_plain, "takes plain problems only through its library")
        self.description = library.description
        shape = (problem.batch, problem.heads, problem.seqlen)
        workspace = library.workspace_bytes(problem.head_dim, problem.causal, *shape)
        super().__init__(inputs, problem, workspace)
        *read, d_q, d_k, d_v = (x.data_ptr() for x in self._tensors())
        arguments = (
            problem.head_dim,
            problem.causal,
            {"bhsd": 0, "bshd": 1}[inputs.layout],
            *shape,
            *read,
            inputs.lse.data_ptr(),
            d_q,
            d_k,
            d_v,
            self._workspace.data_ptr(),
            problem.softmax_scale,
            torch.cuda.current_stream().cuda_stream,
        )

        def run():
            if library.backward(*arguments):
                raise RuntimeError(library.last_error())

        self.run = run

    def close(self):
        pass
