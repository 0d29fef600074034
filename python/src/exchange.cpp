#include "exchange.hpp"

#include <array>

namespace backlight::python {

namespace nb = nanobind;

namespace {

struct DirectType {
    PyObject* type;
    const ExchangeApi* api;
};

/// Tensor and Parameter. The types are kept for ever.
std::array<DirectType, 2> direct_types = {};

}  // namespace

bool use_exchange_api(nb::type_object type) {
    const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
    if (PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api") == 0) {
        return false;
    }
    const auto* const api =
        static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    if (api->version.major != 1) {
        return false;
    }
    for (DirectType& known : direct_types) {
        if (known.type == type.ptr()) {
            return true;
        }
        if (known.type == nullptr) {
            known = {type.inc_ref().ptr(), api};
            return true;
        }
    }
    return false;
}

const ExchangeApi* exchange_api_of(nb::handle object) noexcept {
    const PyObject* const type = object.type().ptr();
    for (const DirectType& known : direct_types) {
        if (known.type == type) {
            return known.api;
        }
    }
    return nullptr;
}

ExchangeMemory::ExchangeMemory(std::size_t bytes, int device_type, int device) {
    const ExchangeApi* const api = direct_types.front().api;
    if (api == nullptr) {
        return;
    }
    auto size = static_cast<std::int64_t>(bytes);
    std::int64_t stride = 1;
    nb::dlpack::dltensor prototype;
    prototype.device = {device_type, device};
    prototype.ndim = 1;
    prototype.dtype = {static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt), 8, 1};
    prototype.shape = &size;
    prototype.strides = &stride;
    // The caller asks the framework again, in Python, for the exception that users know.
    const auto ignore = [](void*, const char*, const char*) {};
    if (api->allocate(&prototype, &owner_, nullptr, ignore) != 0) {
        owner_ = nullptr;
    }
}

ExchangeMemory::~ExchangeMemory() {
    if (owner_ != nullptr && owner_->deleter != nullptr) {
        owner_->deleter(owner_);
    }
}

}  // namespace backlight::python
