#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "backlight/cache/key.hpp"
#include "backlight/problem.hpp"
#include "backlight/tile_config.hpp"
#include "compiler/kernel_store.hpp"
#include "device/target.hpp"
#include "subcommand.hpp"

namespace backlight::tool {

/// A backward whose kernels are wanted.
struct WantedProblem {
    /// Where it comes from, for errors: "shape 8_16_4096_128", "problems.json: entry 2".
    std::string origin;
    /// A seqlen_q of zero: kernels that serve every length.
    AttentionProblem problem;
    /// None, and "default" among them: what the library chooses.
    std::vector<NamedConfig> configs;
    std::vector<device::Target> targets;
};

/// The kernels of one backward, in launch order.
struct SelectedChain {
    AttentionProblem problem;
    NamedConfig config;
    std::vector<compiler::KernelRequest> kernels;
};

/// Which kernels a command is about, as command lines and manifests say it.
struct SelectionOptions {
    /// "sm_90a"; empty: sm_90a and sm_120a.
    std::vector<std::string> targets;
    /// "8_16_4096_128".
    std::vector<std::string> shapes;
    /// For kernels that serve every length; 64 and 128 where nothing else tells a problem.
    std::vector<std::int64_t> head_dims;
    /// Both where neither is asked for.
    bool causal = false;
    bool full = false;
    /// Empty: bf16 and fp16.
    std::vector<DataType> dtypes;
    /// Of the shapes and head dimensions; entries of a manifest have their own.
    ProblemFeatures features;
    /// Names for `parse_kernel` and tiles; where both are empty, and of "default", what the library
    /// chooses for each problem.
    std::vector<std::string> kernels;
    std::vector<std::string> tiles;
    /// What the library chooses besides, with the tuning database asked.
    bool tuned = false;
    /// Sequence lengths as constants of the kernels.
    bool bake_seqlen = false;
    /// File of problems, or empty.
    std::string manifest;
};

/// The options as a command line has them. `resolve` is for when it has been read; it throws
/// `invalid_argument`.
class SelectionArguments {
  public:
    void add_to(CLI::App& command);
    SelectionOptions resolve() const;

  private:
    SelectionOptions options_;
    std::vector<std::string> dtypes_;
    FeatureArguments features_;
    bool both_ = false;
};

/// The problems of the options and of their manifest. Throws Error with the option or the entry.
std::vector<WantedProblem> wanted_problems(const SelectionOptions& options);

/// Every chain of every problem, validated. The store is asked which tuned records are of the
/// kernels at hand. Throws Error with the problem's origin before what the library says of it.
std::vector<SelectedChain> select_chains(const SelectionOptions& options,
                                         compiler::KernelStore& store);

/// A kernel that one or more of the chains have.
struct SelectedKernel {
    compiler::KernelRequest request;
    cache::Key key;
    /// What it serves: "bf16 head_dim=128 causal v3", "bf16 head_dim=192/128 full grouped heads
    /// v4".
    std::string serves;
};

/// Each kernel of the chains once, in the order of the first that needs it.
std::vector<SelectedKernel> distinct_kernels(
    const std::vector<SelectedChain>& chains,
    const std::function<cache::Key(const compiler::KernelRequest&)>& key_of);

}  // namespace backlight::tool
