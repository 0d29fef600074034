// What the tests on the emulated device share: runtimes over one cache of kernels, sessions with a
// seed and edits, small kernels of the tests' own, and what came of a run.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checked_problems.hpp"
#include "emulation/emulated_device.hpp"
#include "emulation/emulated_runtime.hpp"
#include "emulation/fault.hpp"
#include "problem_check.hpp"
#include "session/session.hpp"
#include "support_kernels.hpp"

namespace backlight::test {

using emulation::EmulationOptions;
using emulation::FaultKind;
using emulation::SourceEdit;

/// The cache that all test processes share.
RuntimeOptions emulated_cache();

/// One for all tests of a process to which neither seed nor options matter.
Runtime& emulated_runtime();

/// One block at a time, so that everything replays bit for bit.
inline EmulationOptions one_thread(std::uint64_t seed = 1) {
    return {.seed = seed, .host_threads = 1};
}

/// An emulated device with what runs problems on it.
class EmulatedSession {
  public:
    explicit EmulatedSession(const EmulationOptions& options = one_thread(),
                             std::vector<SourceEdit> edits = {});

    tool::Session& session() noexcept { return session_; }
    tool::SupportKernels& kernels() noexcept { return kernels_; }
    Runtime& runtime() noexcept { return session_.runtime(); }
    emulation::EmulatedDevice& device() noexcept { return *device_; }
    void reseed(std::uint64_t seed) { device_->reseed(seed); }

    /// A kernel of the test's own text; `name` is what reports call it.
    std::shared_ptr<const device::Kernel> kernel(const std::string& name, const std::string& entry,
                                                 std::string_view text,
                                                 std::size_t dynamic_shared_bytes);

  private:
    tool::Session session_;
    tool::SupportKernels kernels_;
    emulation::EmulatedDevice* device_;
};

/// How a run ended.
struct Outcome {
    /// The report that stopped it; empty: none did.
    std::optional<FaultKind> fault;
    /// The report's text, or what was wrong with the numbers.
    std::string message;
    std::uint64_t seed = 0;

    /// Neither a report nor a wrong number.
    bool passed() const noexcept { return !fault && message.empty(); }
};

std::string to_string(const Outcome& outcome);

/// Runs `run`, which tells what was wrong with its numbers, and catches the fault of a kernel.
Outcome outcome_of(const std::function<std::string()>& run);

/// A problem with a configuration, on any session.
struct ProblemRun {
    tool::CheckedProblem problem;
    TileConfig config;
};

/// Whether an outcome ends a search over seeds.
using AcceptOutcome = std::function<bool(const Outcome&)>;

inline bool found_anything(const Outcome& outcome) {
    return !outcome.passed();
}

/// One of the reports; or, where none are given, wrong numbers without a report.
AcceptOutcome found_by(std::vector<FaultKind> reports);

/// Runs a problem once under each seed from 1 on, until `accept` takes an outcome or there are no
/// more; returns the last one.
Outcome run_seeds(EmulatedSession& session, const ProblemRun& run, std::uint64_t seeds,
                  const AcceptOutcome& accept = found_anything);

/// The problem passes once with the configuration.
void require_right(EmulatedSession& session, tool::CheckedProblem problem,
                   const TileConfig& config);

/// Takes the gradients of repeated runs: dK and dV must have the bits that they had first, and dQ
/// of a deterministic problem.
class SameBits {
  public:
    explicit SameBits(bool deterministic = false) : deterministic_(deterministic) {}

    void check(tool::Gradients<std::uint16_t> gradients);

  private:
    bool deterministic_;
    std::optional<tool::Gradients<std::uint16_t>> first_;
};

/// Under each seed from 1 on, the problem passes with the same bits of dK and dV.
void require_same_bits(EmulatedSession& session, tool::CheckedProblem problem,
                       const TileConfig& config, std::uint64_t seeds);

/// The same for every order of the grid by every number of host threads.
void require_same_bits(tool::CheckedProblem problem, const TileConfig& config,
                       std::span<const emulation::GridOrder> orders, std::span<const int> threads);

}  // namespace backlight::test
