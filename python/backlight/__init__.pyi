from ._arrays import backward as backward
from ._attention import attention as attention, attention_varlen as attention_varlen
from ._sdpa import patch_sdpa as patch_sdpa
from .errors import (
    ArgumentError as ArgumentError,
    ArgumentTypeError as ArgumentTypeError,
    DeviceError as DeviceError,
    Error as Error,
    UnsupportedError as UnsupportedError,
)

__version__: str
