#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>

namespace backlight::python {

/// Address and strides, in elements, of what has PyTorch's methods data_ptr() and stride(). Read by
/// them, and not by DLPack, since they are quick in every release.
struct PythonTensor {
    void* data = nullptr;
    int dimensions = 0;
    std::array<std::int64_t, 4> strides = {};
};

/// Throws a Python exception where the object lacks the methods or has more than four dimensions.
PythonTensor read_tensor(nanobind::handle tensor);

/// The address alone.
void* address_of(nanobind::handle tensor);

/// Whether the kernels can read elements of two bytes through these strides: the last dimension is
/// contiguous, steps over the others are multiples of 16 bytes and not negative, and the address is
/// one too. Steps over a dimension of one are looked at as well; a copy for their sake is rare.
bool is_readable(const PythonTensor& tensor) noexcept;

}  // namespace backlight::python
