#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>

namespace backlight::python {

/// DLPack's table of C functions by which PyTorch, from 2.10 on, tells of a tensor and gives out
/// memory without any Python object being made. As DLPack's header of version 1.3 lays it out.
struct ExchangeApi {
    struct Version {
        std::uint32_t major, minor;
    };
    struct ManagedTensor {
        Version version;
        void* manager_context;
        void (*deleter)(ManagedTensor*);
        std::uint64_t flags;
        nanobind::dlpack::dltensor tensor;
    };
    using SetError = void (*)(void* context, const char* kind, const char* message);

    Version version;
    ExchangeApi* previous;
    int (*allocate)(nanobind::dlpack::dltensor* prototype, ManagedTensor** out, void* context,
                    SetError set_error);
    void* managed_tensor_from_object;
    void* object_from_managed_tensor;
    int (*tensor_from_object)(void* object, nanobind::dlpack::dltensor* out);
};

/// Tensors of exactly this type are read through its `__dlpack_c_exchange_api__` from now on.
/// False where it has none that is known here.
bool use_exchange_api(nanobind::type_object type);

/// The table for objects of this one's type; null where there is none.
const ExchangeApi* exchange_api_of(nanobind::handle object) noexcept;

/// Memory from the allocator of the framework whose types are read directly, of its current stream
/// on that device. It goes back when this goes; the interpreter's lock is not needed.
class ExchangeMemory {
  public:
    ExchangeMemory(std::size_t bytes, int device_type, int device);
    ~ExchangeMemory();
    ExchangeMemory(const ExchangeMemory&) = delete;
    ExchangeMemory& operator=(const ExchangeMemory&) = delete;

    /// Null where there is no such framework or it has no memory.
    void* data() const noexcept { return owner_ == nullptr ? nullptr : owner_->tensor.data; }

  private:
    ExchangeApi::ManagedTensor* owner_ = nullptr;
};

}  // namespace backlight::python
