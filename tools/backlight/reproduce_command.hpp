#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "bench.hpp"
#include "peers_run.hpp"
#include "subcommand.hpp"

namespace backlight::tool {

/// The options of `bench` that are about `--reproduce`.
class ReproduceArguments {
  public:
    void add_to(CLI::App& command);

    /// Refuses what `--reproduce` settles or, without it, the options that are its own. Throws
    /// `invalid_argument` with the option.
    void check(const CLI::App& command) const;

    bool asked() const noexcept { return !table_.empty(); }
    /// With kernels, repetitions, regime, matrix product and JSON of `bench`; see `reproduce`.
    bool run(const Setup& setup, const BenchOptions& bench);

  private:
    std::string table_;
    PeersOptions peers_;
    bool no_peers_ = false;
};

}  // namespace backlight::tool
