"""The native module. `Tensor` is anything with PyTorch's data_ptr() and stride()."""

from collections.abc import Sequence
from typing import Any, Protocol

class Tensor(Protocol):
    def data_ptr(self) -> int: ...
    def stride(self) -> tuple[int, ...]: ...

class Memory(Tensor, Protocol):
    @property
    def nbytes(self) -> int: ...

version: str
git_revision: str
has_emulated_device: bool

class Plan:
    """A backward made ready for one problem on one device."""

    @property
    def workspace_bytes(self) -> int: ...
    @property
    def description(self) -> str: ...
    def run(
        self,
        d_o: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        o: Tensor,
        lse: Tensor,
        d_q: Tensor,
        d_k: Tensor,
        d_v: Tensor,
        workspace: Memory | None,
        stream: int,
        cu_seqlens_q: Tensor | None,
        cu_seqlens_kv: Tensor | None,
        seqused_q: Tensor | None,
        seqused_kv: Tensor | None,
    ) -> bool:
        """Enqueues the backward. False, and nothing is enqueued, where d_o must be copied or a workspace given."""

    def time(self, arguments: Sequence[Any], count: int) -> float:
        """Microseconds of one C++ run; `arguments` are the first eleven of `run`."""

class DlpackView:
    """An array by DLPack: made of a capsule, or of an object with __dlpack__."""

    def __init__(self, array: Any) -> None: ...
    def data_ptr(self) -> int: ...
    def stride(self) -> tuple[int, ...]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def device_type(self) -> int: ...
    @property
    def device_id(self) -> int: ...

def plan(
    device: int,
    fp16: bool,
    batch: int,
    heads: int,
    heads_kv: int,
    seqlen_q: int,
    seqlen_kv: int,
    head_dim: int,
    head_dim_v: int,
    causal: bool,
    top_left: bool,
    window_left: int,
    window_right: int,
    softmax_scale: float,
    deterministic: bool,
    total_q: int,
    total_kv: int,
    bshd: bool,
) -> Plan:
    """Compiles and loads what is not there yet. Windows and totals of -1 are none."""

def is_readable(tensor: Tensor) -> bool:
    """Whether the kernels take the strides and the address of a tensor of 16-bit elements."""

def are_readable(q: Tensor, k: Tensor, v: Tensor) -> bool: ...
def use_exchange_api(type: type) -> bool:
    """Tensors of exactly this type are read through __dlpack_c_exchange_api__; False where it has none."""

def find_call(q: Any, k: Any, v: Any, options: tuple[Any, ...]) -> Any:
    """What `keep_call` has kept for such tensors, where they are readable, and options; else None."""

def find_backward(d_o: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, options: tuple[Any, ...]) -> Any:
    """The same where d_o, o and lse fit as well."""

def keep_call(
    q: Any, k: Any, v: Any, options: tuple[Any, ...], call: Any, o_shape: tuple[int, ...], lse_shape: tuple[int, ...]
) -> None:
    """Of the calls kept, the latest are remembered."""

def forget_calls() -> None: ...
def new_device_array(device: int, dtype: str, shape: Sequence[int]) -> Any: ...
def synchronise(device: int, stream: int) -> None: ...
def use_nvrtc(path: str) -> None: ...
def emulate_device(target: str) -> None: ...
