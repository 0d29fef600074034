#include "device/target.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "backlight/error.hpp"

namespace backlight::device {

namespace {

constexpr std::size_t kibibyte = 1024;

Target make_target(int major, int minor) {
    Target target;
    target.name = fmt::format("sm_{}{}a", major, minor);
    target.compute_major = major;
    target.compute_minor = minor;
    if (major >= 12) {
        // GeForce Blackwell: the shared memory of Ada, the threads of Ampere's consumer parts.
        target.shared_bytes_per_block = 99 * kibibyte;
        target.shared_bytes_per_multiprocessor = 100 * kibibyte;
        target.threads_per_multiprocessor = 1536;
        target.blocks_per_multiprocessor = 24;
    } else {
        target.shared_bytes_per_block = 227 * kibibyte;
        target.shared_bytes_per_multiprocessor = 228 * kibibyte;
        target.threads_per_multiprocessor = 2048;
        target.blocks_per_multiprocessor = 32;
    }
    return target;
}

}  // namespace

Target target_by_name(std::string_view name) {
    const auto refuse = [&]() -> Error {
        return {ErrorCode::invalid_argument,
                fmt::format("target is '{}': it must be sm_<compute capability>a of a device with "
                            "TMA (9.0 or newer), for example sm_90a or sm_120a",
                            name)};
    };
    std::string_view digits = name;
    if (!digits.starts_with("sm_")) {
        throw refuse();
    }
    digits.remove_prefix(3);
    if (digits.ends_with('a')) {
        digits.remove_suffix(1);
    }
    int capability = 0;
    const auto [end, failure] =
        std::from_chars(digits.data(), digits.data() + digits.size(), capability);
    if (failure != std::errc{} || digits.starts_with('0') || end != digits.data() + digits.size() ||
        capability < 90 || capability > 129) {
        throw refuse();
    }
    return make_target(capability / 10, capability % 10);
}

Target target_by_compute_capability(int major, int minor, std::string_view device_name) {
    if (major < 9) {
        throw Error(ErrorCode::unsupported_device,
                    fmt::format("device '{}' has compute capability {}.{}: the kernels load tiles "
                                "by TMA, which needs 9.0 or newer",
                                device_name, major, minor));
    }
    return make_target(major, minor);
}

int resident_blocks(const Target& target, int registers_per_thread, int threads,
                    std::size_t shared_bytes) noexcept {
    if (threads <= 0) {
        return 0;
    }
    const int warps = (threads + 31) / 32;
    // Registers are handed out to a warp in units of 256: 8 a thread.
    const int registers_per_warp = (std::max(registers_per_thread, 1) + 7) / 8 * 8 * 32;
    const int by_registers = target.registers_per_multiprocessor / (registers_per_warp * warps);
    const int by_threads = target.threads_per_multiprocessor / (warps * 32);
    const auto by_shared =
        static_cast<int>(target.shared_bytes_per_multiprocessor /
                         (shared_bytes + target.reserved_shared_bytes_per_block));
    return std::min({by_registers, by_threads, by_shared, target.blocks_per_multiprocessor});
}

}  // namespace backlight::device
