#pragma once

#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "compiler/backend.hpp"
#include "emulation/emulated_runtime.hpp"

namespace backlight::emulation {

/// The system's C++ compiler as the compiler of kernels: makes of an unchanged kernel source and
/// the emulated primitives a shared object. In a process with AddressSanitizer the object has it
/// too.
class HostCompiler final : public compiler::Backend {
  public:
    /// `for_debugger`: see EmulationOptions::debug_kernels.
    explicit HostCompiler(std::vector<SourceEdit> edits = {}, bool for_debugger = false)
        : edits_(std::move(edits)), for_debugger_(for_debugger) {}

    /// The first line of what the compiler says of itself, and the machine it compiles for. Throws
    /// `host_compiler_not_found`.
    std::string version() override;
    std::vector<std::string> options(const device::Target& target) const override;
    std::string source_digest(const compiler::KernelRequest& request) const override;
    compiler::CompiledKernel compile(const compiler::KernelRequest& request) override;

    /// The target of emulated kernels that are specialised for a device's: "emulated_sm_90a".
    static device::Target emulated(device::Target target);

  private:
    const std::filesystem::path& path();

    std::vector<SourceEdit> edits_;
    bool for_debugger_;
    std::mutex mutex_;
    std::filesystem::path path_;
    std::string version_;
};

}  // namespace backlight::emulation
