#pragma once

#include <string>

#include "backlight/error.hpp"
#include "emulation/device_headers/emulator/machine.h"

namespace backlight::emulation {

/// What a kernel did wrong.
enum class FaultKind {
    /// No thread can go on, and nothing is under way that could change that.
    deadlock,
    /// Two accesses to shared memory, one of them a write, that no barrier orders.
    data_race,
    /// Shared memory was read that nothing has written.
    uninitialised_read,
    /// Shared memory was accessed while a copy into it was under way.
    copy_in_flight,
    /// The asynchronous proxy meets what ordinary writes left without a proxy fence.
    missing_proxy_fence,
    /// The source of an operation was overwritten while the operation could still read it.
    source_overwritten,
    /// One of the faults around it, by a thread whose last wait passed at once, for a phase that it
    /// had
    /// already seen complete; or a parity that is neither 0 nor 1.
    wrong_parity,
    /// A phase completed and passed while a thread waited for it.
    missed_phase,
    /// More arrivals at a barrier than its phase takes.
    arrival_overflow,
    /// The bytes announced at an mbarrier are not those that copies bring.
    transaction_mismatch,
    /// An address or an index beyond what there is.
    out_of_bounds,
    /// An address that the instruction does not take.
    misaligned,
    /// An instruction for all threads of a warp (warpgroup, block) was reached by part of them.
    divergent_collective,
    /// A barrier used before it was initialised, twice initialised, or with changing counts.
    barrier_misuse,
    /// A register was used while a wgmma could still read or write it.
    register_in_flight,
    /// Registers went into a wgmma without a wgmma fence after their last change.
    missing_wgmma_fence,
    /// A wgmma matrix descriptor that describes no matrix in shared memory.
    invalid_descriptor,
    /// A tensor map, or its use, that the hardware would refuse.
    invalid_tensor_map,
    /// An instruction that the emulated device's hardware does not have.
    unavailable_instruction,
    /// A setmaxnreg that the hardware does not take.
    invalid_register_count,
    /// A thread ended while its copies still read shared memory.
    unfinished_copies,
};

/// For example "data_race".
const char* to_string(FaultKind kind) noexcept;

/// "attention_backward_mma.cu:312"
std::string to_string(Site site);

/// A kernel was caught at something that its hardware would not forgive.
class KernelFault : public Error {
  public:
    KernelFault(FaultKind kind, const std::string& message)
        : Error(ErrorCode::kernel_fault, message), kind_(kind) {}

    FaultKind kind() const noexcept { return kind_; }

  private:
    FaultKind kind_;
};

/// Thrown within a kernel's thread; whoever runs the block adds where it happened.
struct FaultFound {
    FaultKind kind;
    std::string message;
};

}  // namespace backlight::emulation
