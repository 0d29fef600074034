#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backlight/problem.hpp"
#include "backlight/runtime.hpp"
#include "device/device.hpp"
#include "tensor_map/tensor_map.hpp"
#include "variants.hpp"

namespace backlight::conformance {

/// Device memory with a copy of host values. The Runtime must outlive it.
class DeviceArray {
  public:
    template <typename Value>
    DeviceArray(Runtime& runtime, const std::vector<Value>& values)
        : DeviceArray(runtime, std::as_bytes(std::span(values))) {}
    ~DeviceArray();
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;

    template <typename Value = void>
    Value* data() const noexcept {
        return static_cast<Value*>(data_);
    }

    /// What is there now.
    template <typename Value>
    std::vector<Value> read() const {
        std::vector<Value> values(bytes_ / sizeof(Value));
        copy_to(std::as_writable_bytes(std::span(values)));
        return values;
    }

  private:
    DeviceArray(Runtime& runtime, std::span<const std::byte> bytes);
    void copy_to(std::span<std::byte> host) const;

    device::Device& device_;
    std::size_t bytes_ = 0;
    void* data_ = nullptr;
};

/// A variant, compiled and loaded.
class ConformanceKernel {
  public:
    ConformanceKernel(Runtime& runtime, const Variant& variant);

    /// Launches and waits.
    template <typename Arguments>
    void run(std::uint32_t blocks, std::uint32_t threads, const Arguments& arguments) const {
        launch(blocks, threads, &arguments);
    }

  private:
    void launch(std::uint32_t blocks, std::uint32_t threads, const void* arguments) const;

    device::Device& device_;
    std::uint32_t shared_bytes_;
    std::shared_ptr<const device::Kernel> kernel_;
};

/// A map of the device for a request that must pass the check.
kernel::TensorMap encoded_map(Runtime& runtime, const tensor_map::Request& request);

/// Whether the device executes wgmma, which sm_90a alone does. Says so where not.
bool has_wgmma(Runtime& runtime);

/// `count` whole numbers from -4 to 4, the same for the same seed. Sums of products of as many of
/// them as any test adds up are exact in fp32, and sums of a few in bf16.
std::vector<float> small_integers(std::size_t count, std::uint32_t seed);

/// The values as 16-bit elements, which hold them exactly.
std::vector<std::uint16_t> to_elements(DataType type, const std::vector<float>& values);

/// A number that looks random, for bits that are only moved.
constexpr std::uint32_t scrambled(std::uint32_t x) {
    x = (x ^ (x >> 16)) * 0x7feb352dU;
    x = (x ^ (x >> 15)) * 0x846ca68bU;
    return x ^ (x >> 16);
}

/// Fails the test with the first difference and the number of them.
template <typename Value>
void check_equal(const std::vector<Value>& got, const std::vector<Value>& expected,
                 const std::string& what) {
    REQUIRE_MESSAGE(got.size() == expected.size(), what);
    std::size_t differences = 0;
    std::size_t first = 0;
    for (std::size_t i = got.size(); i-- > 0;) {
        if (!(got[i] == expected[i])) {
            ++differences;
            first = i;
        }
    }
    CHECK_MESSAGE(differences == 0, what, ": ", differences, " of ", got.size(),
                  " values differ; the first, ", first, ", is ", +got[first], " and not ",
                  +expected[first]);
}

}  // namespace backlight::conformance
