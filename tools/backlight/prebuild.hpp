#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "kernel_selection.hpp"
#include "subcommand.hpp"

namespace backlight::tool {

struct PrebuildOptions {
    SelectionOptions selection;
    /// Kernels compiled at the same time; 0: one a core.
    int jobs = 0;
    /// Empty: the cache of the environment.
    std::filesystem::path cache_directory;
    /// File for a pack of these kernels and no others, or empty.
    std::filesystem::path pack;
};

enum class PrebuildOutcome { compiled, already_there, failed, not_reached };

struct PrebuiltKernel {
    SelectedKernel kernel;
    PrebuildOutcome outcome = PrebuildOutcome::not_reached;
    /// Where there is one.
    std::shared_ptr<const compiler::CompiledKernel> compiled;
    double seconds = 0;
    /// Why it failed.
    std::string problem;
};

struct PrebuildReport {
    std::size_t chains = 0;
    std::vector<PrebuiltKernel> kernels;
    std::filesystem::path directory;
    double seconds = 0;
    bool interrupted = false;
    /// Of the pack, where one was written.
    std::size_t pack_bytes = 0;

    std::size_t count(PrebuildOutcome outcome) const;
};

/// Exit code of a prebuild that a signal ended early, as shells give it.
inline constexpr int exit_interrupted = 130;

/// Compiles what the cache does not have, with no GPU and no driver, and says on `progress` how far
/// it is. A kernel that fails does not keep the others from being made; a pack is written only
/// where none failed. Throws Error for what cannot be begun.
PrebuildReport prebuild_kernels(const PrebuildOptions& options, std::ostream& progress);

std::string format_report(const PrebuildReport& report, const PrebuildOptions& options);

/// Failure where one kernel failed.
int exit_code(const PrebuildReport& report);

/// The subcommand `prebuild`.
void add_prebuild(const Setup& setup);

}  // namespace backlight::tool
