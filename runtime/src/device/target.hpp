#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace backlight::device {

/// What a compile target's multiprocessors offer (CUDA C++ Programming Guide, compute
/// capabilities).
struct Target {
    /// For example "sm_90a": the architecture-specific target, whose cubins run on that compute
    /// capability only, and may use all of its instructions.
    std::string name;
    int compute_major = 0;
    int compute_minor = 0;
    /// Most dynamic and static shared memory of one block, in bytes (opt-in).
    std::size_t shared_bytes_per_block = 0;
    /// Shared memory of a multiprocessor, of which each resident block takes its own and
    /// `reserved_shared_bytes_per_block` for the system.
    std::size_t shared_bytes_per_multiprocessor = 0;
    std::size_t reserved_shared_bytes_per_block = 1024;
    int registers_per_multiprocessor = 65536;
    int threads_per_multiprocessor = 0;
    int blocks_per_multiprocessor = 0;
};

/// The target of that name ("sm_90a", "sm_120a"; "sm_90" is taken for "sm_90a"); throws
/// `invalid_argument` for anything that is not a target with TMA.
Target target_by_name(std::string_view name);

/// The target of a device of that compute capability; throws `unsupported_device` below 9.0, where
/// there is no TMA.
Target target_by_compute_capability(int major, int minor, std::string_view device_name);

/// How the names of the emulated device's targets begin: "emulated_sm_90a".
inline constexpr std::string_view emulated_target_prefix = "emulated_";

/// Blocks of a kernel that fit on a multiprocessor at once.
int resident_blocks(const Target& target, int registers_per_thread, int threads,
                    std::size_t shared_bytes) noexcept;

}  // namespace backlight::device
