"""The library as Python sees it, through the C functions of bridge.hpp."""

import ctypes
import json
import math
from pathlib import Path

DEFAULT_PATH = Path(__file__).resolve().parents[2] / "build" / "release" / "bin" / "libbacklight_peers.so"


class BridgeError(RuntimeError):
    """What the library said."""


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("stride_batch", ctypes.c_int64),
        ("stride_head", ctypes.c_int64),
        ("stride_seqlen", ctypes.c_int64),
    ]


class _Tensors(ctypes.Structure):
    _fields_ = [
        *((name, _Tensor) for name in ("q", "k", "v", "o", "d_o", "d_q", "d_k", "d_v")),
        ("lse", ctypes.c_void_p),
        ("lse_stride_batch", ctypes.c_int64),
        ("lse_stride_head", ctypes.c_int64),
        ("cu_seqlens", ctypes.c_void_p),
    ]


# Name without the prefix: result, then arguments.
_SIGNATURES = {
    "error": (ctypes.c_char_p,),
    "open": (ctypes.c_void_p, ctypes.c_char_p),
    "close": (None, ctypes.c_void_p),
    "environment": (ctypes.c_char_p, ctypes.c_void_p),
    "clocks": (
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_double),
        ctypes.POINTER(ctypes.c_double),
    ),
    "describe_problem": (ctypes.c_char_p, ctypes.c_char_p),
    "make_plan": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p),
    "free_plan": (None, ctypes.c_void_p),
    "workspace_bytes": (ctypes.c_size_t, ctypes.c_void_p),
    "describe": (ctypes.c_char_p, ctypes.c_void_p),
    "run": (
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.POINTER(_Tensors),
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_void_p,
    ),
}


class Bridge:
    """The loaded shared library."""

    def __init__(self, path):
        library = ctypes.CDLL(str(path))
        for name, (result, *arguments) in _SIGNATURES.items():
            function = getattr(library, f"backlight_peers_{name}")
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)

    def fail(self):
        raise BridgeError(self.error().decode())

    def description_of(self, problem, dtype):
        """{"problem": all its fields, "text", "attended_pairs", "flops", "bytes"} by the library."""
        text = self.describe_problem(_problem_text(problem, dtype))
        return json.loads(text) if text else self.fail()


def _problem_text(problem, dtype):
    return json.dumps(problem.as_json(dtype)).encode()


class Session:
    """A device and the kernels for it. "emulated" plans without a GPU."""

    def __init__(self, bridge, device):
        self.bridge = bridge
        self._handle = bridge.open(str(device).encode()) or bridge.fail()

    def close(self):
        self.bridge.close(self._handle)
        self._handle = None

    def environment(self):
        text = self.bridge.environment(self._handle)
        return json.loads(text) if text else self.bridge.fail()

    def clocks(self):
        """SM clock in MHz and power in W, None where the driver does not tell."""
        clock, power = ctypes.c_double(), ctypes.c_double()
        if self.bridge.clocks(self._handle, ctypes.byref(clock), ctypes.byref(power)):
            self.bridge.fail()
        return tuple(None if math.isnan(x.value) else x.value for x in (clock, power))

    def plan(self, problem, dtype, kernel):
        handle = self.bridge.make_plan(
            self._handle, _problem_text(problem, dtype), kernel.encode()
        )
        return Plan(self.bridge, handle or self.bridge.fail())


class Plan:
    """A backward made ready for one problem."""

    def __init__(self, bridge, handle):
        self.bridge = bridge
        self._handle = handle
        self.workspace_bytes = bridge.workspace_bytes(handle)
        self.description = json.loads(bridge.describe(handle))

    def free(self):
        self.bridge.free_plan(self._handle)
        self._handle = None

    def enqueue(self, tensors, lse, cu_seqlens, workspace, stream):
        """A function that runs the backward on the stream: all that costs the host time but the call
        itself is done here. `tensors`: q, k, v, o, d_o, d_q, d_k, d_v, each as (pointer, stride of batch,
        of head, of seqlen); `lse`: (pointer, stride of batch, of head); `cu_seqlens`: a pointer, or 0
        where sequences are not packed."""
        arguments = _Tensors(*(_Tensor(*tensor) for tensor in tensors), *lse, cu_seqlens)
        call = (self._handle, ctypes.byref(arguments), workspace, self.workspace_bytes, stream)

        def run():
            if self.bridge.run(*call):
                self.bridge.fail()

        return run
