#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backlight/export.h"
#include "backlight/problem.hpp"
#include "backlight/runtime.hpp"
#include "backlight/tile_config.hpp"

namespace backlight {

/// How far `Runtime::tune` has come; valid during the callback only.
struct TuneProgress {
    /// "compile", "screen", "check" or "time".
    const char* stage = "";
    /// Steps of the stage, of which `done` are behind us.
    std::size_t done = 0;
    std::size_t total = 0;
    double elapsed_seconds = 0;
    /// What is at work.
    TileConfig config;
    /// Median of the fastest so far; 0 before there is one.
    double best_milliseconds = 0;
};

struct TuneOptions {
    /// The family of kernels to search, "mma" or "wgmma"; empty: all that the device can run. The
    /// presets of the others are timed all the same, to compare with.
    std::string kernel_family = {};
    /// No further configuration is begun after this much time. The presets are always timed, and
    /// the fastest few timed in full, which may take some seconds more.
    std::chrono::duration<double> budget = std::chrono::seconds(60);
    /// Kernels compiled at the same time; 0: one a core, at most 16.
    int compile_threads = 0;
    /// Samples of each of the fastest few, interleaved. At least 5.
    int repeats = 20;
    /// Search these, and the presets to compare with; empty: every legal configuration.
    std::vector<TileConfig> candidates = {};
    /// Time also what the database holds fresh figures of.
    bool retime = false;
    /// All work is enqueued on it and waited for. Its context must be current in the calling
    /// thread.
    Stream stream = nullptr;
    std::function<void(const TuneProgress&)> progress = {};
};

/// What became of a configuration.
enum class TuneOutcome {
    /// Timed in full, its gradients compared with the fp32 reference: it may win.
    timed,
    /// Too slow to be looked at further: a few samples.
    slow,
    /// The compiler spilled more registers than a kernel can be fast with.
    spilled,
    /// The compiler or the device refused it.
    refused,
    /// Its gradients are not the reference's. A fault of the kernel: please report it.
    wrong,
    /// The budget was spent before.
    not_reached,
};

BACKLIGHT_API const char* to_string(TuneOutcome outcome) noexcept;

struct TuneCandidate {
    TileConfig config;
    /// The preset's name, or empty.
    std::string preset;
    TuneOutcome outcome = TuneOutcome::not_reached;
    /// Why, where the outcome asks for a reason.
    std::string note;
    /// Of the main kernel; nothing where it was not compiled.
    std::optional<KernelResources> resources;
    std::string kernel_digest;
    /// Each is one whole backward: delta, main and convert kernel.
    std::vector<double> samples_milliseconds;
    double median_milliseconds = 0;
    /// Relative: see docs/tuning.md.
    double noise = 0;
    /// Median of the baseline (the preset v3) in the same round; 0 where it was not timed.
    double baseline_milliseconds = 0;
    /// The samples are the database's: nothing was timed.
    bool from_database = false;
};

struct TuneReport {
    AttentionProblem problem;
    /// What `Runtime::backward(problem)` uses from now on. Where all that were checked are wrong,
    /// there is no report: `Runtime::tune` throws `kernel_fault`.
    TileConfig winner;
    /// In the order in which they were tried.
    std::vector<TuneCandidate> candidates;
    double seconds = 0;
    /// The budget sufficed for all.
    bool complete = true;
};

}  // namespace backlight
