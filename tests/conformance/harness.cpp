#include "harness.hpp"

#include "compiler/kernel_store.hpp"
#include "half_types.hpp"
#include "runtime_implementation.hpp"

namespace backlight::conformance {

DeviceArray::DeviceArray(Runtime& runtime, std::span<const std::byte> bytes)
    : device_(runtime.implementation().device()),
      bytes_(bytes.size()),
      data_(device_.allocate(bytes.size())) {
    device_.copy_to_device(data_, bytes);
}

DeviceArray::~DeviceArray() {
    device_.release(data_);
}

void DeviceArray::copy_to(std::span<std::byte> host) const {
    device_.copy_to_host(host, data_);
}

ConformanceKernel::ConformanceKernel(Runtime& runtime, const Variant& variant)
    : device_(runtime.implementation().device()),
      shared_bytes_(static_cast<std::uint32_t>(variant.shared_bytes)) {
    const compiler::KernelLookup compiled =
        runtime.implementation().store().get(request_of(variant, device_.properties().target));
    kernel_ = device_.load(compiled.kernel->cubin, variant.entry.c_str(), variant.shared_bytes);
}

void ConformanceKernel::launch(std::uint32_t blocks, std::uint32_t threads,
                               const void* arguments) const {
    kernel_->launch({.blocks = blocks, .threads = threads, .dynamic_shared_bytes = shared_bytes_},
                    arguments, nullptr);
    device_.synchronise(nullptr);
}

kernel::TensorMap encoded_map(Runtime& runtime, const tensor_map::Request& request) {
    tensor_map::check(request, "conformance test");
    kernel::TensorMap map{};
    runtime.implementation().device().encode(request, map);
    return map;
}

bool has_wgmma(Runtime& runtime) {
    const device::Target& target = runtime.implementation().device().properties().target;
    const bool has = has_wgmma(target);
    if (!has) {
        MESSAGE("not run: " << target.name << " has no wgmma");
    }
    return has;
}

std::vector<float> small_integers(std::size_t count, std::uint32_t seed) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t bits = scrambled(static_cast<std::uint32_t>(i) + seed * 0x9e3779b9U);
        values[i] = static_cast<float>(static_cast<int>(bits % 9) - 4);
    }
    return values;
}

std::vector<std::uint16_t> to_elements(DataType type, const std::vector<float>& values) {
    return round_values(type, std::span(values));
}

}  // namespace backlight::conformance
