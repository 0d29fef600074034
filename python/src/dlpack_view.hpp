#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace backlight::python {

/// An array of any framework that speaks DLPack, as `Plan::run` takes it.
class DlpackView {
  public:
    using Array = nanobind::ndarray<nanobind::ro>;

    explicit DlpackView(Array array) : array_(std::move(array)) {}

    std::uintptr_t data_ptr() const noexcept {
        return reinterpret_cast<std::uintptr_t>(array_.data());
    }
    nanobind::tuple shape() const;
    /// In elements.
    nanobind::tuple stride() const;
    std::size_t nbytes() const noexcept;
    /// "bf16", "fp16", "fp32", "int32", else DLPack's code and bits.
    std::string dtype() const;
    /// DLPack's number of the kind of device (2 is CUDA), and which of them.
    int device_type() const noexcept { return array_.device_type(); }
    int device_id() const noexcept { return array_.device_id(); }

  private:
    Array array_;
};

/// New memory of a device, as an object that speaks DLPack: for frameworks that hand out none to
/// write to. It is freed when the last array on it goes; no work may use it then.
nanobind::object new_device_array(int device, const std::string& dtype,
                                  const std::vector<std::size_t>& shape);

/// Waits, without the interpreter's lock, for all that was enqueued on the stream.
void synchronise(int device, std::uintptr_t stream);

}  // namespace backlight::python
