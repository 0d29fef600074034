#include "dlpack_view.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <memory>
#include <string_view>

#include "backlight/error.hpp"
#include "runtimes.hpp"

namespace backlight::python {

namespace nb = nanobind;

namespace {

struct NamedType {
    std::string_view name;
    nb::dlpack::dtype type;
};

constexpr auto code(nb::dlpack::dtype_code of) {
    return static_cast<std::uint8_t>(of);
}

constexpr std::array named_types = {
    NamedType{"bf16", {code(nb::dlpack::dtype_code::Bfloat), 16, 1}},
    NamedType{"fp16", {code(nb::dlpack::dtype_code::Float), 16, 1}},
    NamedType{"fp32", {code(nb::dlpack::dtype_code::Float), 32, 1}},
    NamedType{"int32", {code(nb::dlpack::dtype_code::Int), 32, 1}},
    // All of one byte, for a workspace.
    NamedType{"uint8", {code(nb::dlpack::dtype_code::UInt), 8, 1}},
};

/// Device memory that goes with its last owner.
struct DeviceMemory {
    DeviceMemory(DeviceRuntime& of, std::size_t bytes) : device(of) {
        const ContextScope scope(device);
        data = device.device().allocate(std::max<std::size_t>(bytes, 1));
    }
    ~DeviceMemory() {
        try {
            const ContextScope scope(device);
            device.device().release(data);
        } catch (const Error&) {
            // The driver is gone, and the memory with it.
        }
    }
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    DeviceRuntime& device;
    void* data = nullptr;
};

/// Of an array; refused where DLPack's signed numbers do not hold it.
std::size_t bytes_of(const std::vector<std::size_t>& shape, std::size_t element) {
    constexpr auto most = static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max());
    const bool is_empty = std::ranges::find(shape, std::size_t{0}) != shape.end();
    std::size_t bytes = element;
    for (const std::size_t extent : shape) {
        if (extent > most || (!is_empty && extent > most / bytes)) {
            throw Error(ErrorCode::invalid_argument,
                        fmt::format("shape is ({}): it must be of an array below 2^63 bytes",
                                    fmt::join(shape, ", ")));
        }
        bytes = is_empty ? bytes : bytes * extent;
    }
    return is_empty ? 0 : bytes;
}

nb::tuple numbers(std::size_t count, const std::function<std::int64_t(std::size_t)>& number) {
    nb::list list;
    for (std::size_t i = 0; i < count; ++i) {
        list.append(number(i));
    }
    return nb::tuple(list);
}

}  // namespace

nb::tuple DlpackView::shape() const {
    return numbers(array_.ndim(),
                   [&](std::size_t i) { return static_cast<std::int64_t>(array_.shape(i)); });
}

nb::tuple DlpackView::stride() const {
    return numbers(array_.ndim(), [&](std::size_t i) { return array_.stride(i); });
}

std::size_t DlpackView::nbytes() const noexcept {
    return array_.nbytes();
}

std::string DlpackView::dtype() const {
    const nb::dlpack::dtype type = array_.dtype();
    for (const NamedType& named : named_types) {
        if (named.type == type) {
            return std::string(named.name);
        }
    }
    return fmt::format("a type of DLPack's code {} and {} bits", type.code, type.bits);
}

nb::object new_device_array(int device, const std::string& dtype,
                            const std::vector<std::size_t>& shape) {
    const auto* const named = std::ranges::find(named_types, dtype, &NamedType::name);
    if (named == named_types.end()) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("dtype is '{}': it must be one that arrays here have", dtype));
    }
    const std::size_t bytes = bytes_of(shape, named->type.bits / 8U);
    DeviceRuntime& runtime = device_runtime(device);
    auto memory = std::make_unique<DeviceMemory>(runtime, bytes);
    void* const data = memory->data;
    const nb::capsule owner(memory.get(),
                            [](void* owned) noexcept { delete static_cast<DeviceMemory*>(owned); });
    memory.release();
    return nb::ndarray<nb::array_api>(data, shape.size(), shape.data(), owner, nullptr, named->type,
                                      runtime.dlpack_type(), device)
        .cast();
}

void synchronise(int device, std::uintptr_t stream) {
    const nb::gil_scoped_release released;
    DeviceRuntime& runtime = device_runtime(device);
    const ContextScope scope(runtime);
    runtime.device().synchronise(std::bit_cast<Stream>(stream));
}

}  // namespace backlight::python
