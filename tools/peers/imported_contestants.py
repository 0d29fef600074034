"""FlashAttention-3 and 4 as the Python packages that they are given out as, where these can be imported."""

import importlib
import importlib.metadata
import inspect

from contestants import _OwnGradients, require, require_plain_gradients

# By peer: the module, and its function that computes a whole backward.
MODULES = {
    "fa3": ("flash_attn_interface", "_flash_attn_backward"),
    "fa4": ("flash_attn.cute.interface", "_flash_attn_bwd"),
}
# Distributions that the modules come in, of which one has the version.
_DISTRIBUTIONS = {"fa3": ("flash_attn_3", "flash-attn-3"), "fa4": ("flash-attn-4", "flash-attn-cute")}


class ImportedFlashAttention:
    """A peer's backward, imported. Raises ImportError or AttributeError where it is not to be had."""

    def __init__(self, peer):
        module, function = MODULES[peer]
        self.peer = peer
        self.backward = getattr(importlib.import_module(module), function)
        # An operator that was registered by a decorator tells its parameters through what it wraps.
        self.parameters = frozenset(
            inspect.signature(getattr(self.backward, "_init_fn", self.backward)).parameters
        )
        self.description = {"module": module, "function": function, "version": _version(peer)}


def _version(peer):
    for name in _DISTRIBUTIONS[peer]:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def find_imported(peers):
    """({peer: ImportedFlashAttention}, {peer: why there is none})."""
    found, absent = {}, {}
    for peer in peers:
        try:
            found[peer] = ImportedFlashAttention(peer)
        except Exception as error:  # Whatever an import runs into: the others are measured.
            absent[peer] = f"{type(error).__name__}: {error}"
    return found, absent


class FlashAttention(_OwnGradients):
    """Releases differ in the names of their parameters and in whether gradients are given or returned."""

    def __init__(self, imported, inputs):
        problem = inputs.problem
        self.name = imported.peer
        require(inputs, self.name, problem.is_plain, "takes plain problems only here")
        require_plain_gradients(inputs, self.name)
        self.description = imported.description
        super().__init__(inputs, problem, 0)
        # They want (batch, seqlen, heads, head_dim), of any strides.
        q, k, v, out, d_o, *given = (x.transpose(1, 2) for x in self._tensors())
        values = {
            "q": q,
            "k": k,
            "v": v,
            "out": out,
            "dout": d_o,
            "lse": inputs.lse,
            "softmax_lse": inputs.lse,
            "softmax_scale": problem.softmax_scale,
            "causal": problem.causal,
            "is_causal": problem.causal,
        }
        values |= zip(("dq", "dk", "dv"), given)
        self._keywords = {name: value for name, value in values.items() if name in imported.parameters}
        self._backward = imported.backward
        self._takes_gradients = "dq" in imported.parameters

    def run(self):
        returned = self._backward(**self._keywords)
        if not self._takes_gradients:
            self._gradients = [x.transpose(1, 2) for x in returned[:3]]

    def start_over(self):
        if getattr(self, "_takes_gradients", True):
            super().start_over()

    def close(self):
        self._gradients = None
