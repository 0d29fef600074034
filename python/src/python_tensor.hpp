#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace backlight::python {

/// What tensors have in common that one call takes in turn.
struct TensorKind {
    int dimensions = 0;
    std::array<std::int64_t, 4> shape = {};
    nanobind::dlpack::dtype type = {};
    int device_type = 0;
    int device = 0;

    bool operator==(const TensorKind& other) const noexcept {
        return dimensions == other.dimensions && shape == other.shape && type == other.type &&
               device_type == other.device_type && device == other.device;
    }
};

/// Address and strides, in elements, and of what is read directly the kind.
struct PythonTensor {
    void* data = nullptr;
    int dimensions = 0;
    std::array<std::int64_t, 4> strides = {};
    TensorKind kind;
};

/// Reads a tensor through its type's `ExchangeApi`. False where the type has none, or the tensor
/// has more than four dimensions or no memory, as in a transform of PyTorch's.
bool read_directly(nanobind::handle tensor, PythonTensor& read) noexcept;

/// The same, and of anything else that has PyTorch's methods data_ptr() and stride(), by these.
/// Throws a Python exception where the object lacks them or has more than four dimensions.
PythonTensor read_tensor(nanobind::handle tensor);

/// Memory that is used as bytes.
struct PythonMemory {
    void* data = nullptr;
    std::size_t bytes = 0;
};

/// Of a tensor as `read_tensor` takes it, that has PyTorch's `nbytes` if it is not read directly.
PythonMemory read_memory(nanobind::handle tensor);

/// The address alone.
void* address_of(nanobind::handle tensor);

/// Whether the kernels can read elements of two bytes through these strides: the last dimension is
/// contiguous, steps over the others are multiples of 16 bytes and not negative, and the address is
/// one too. Steps over a dimension of one are looked at as well; a copy for their sake is rare.
bool is_readable(const PythonTensor& tensor) noexcept;

}  // namespace backlight::python
