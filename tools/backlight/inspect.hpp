#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "backlight/problem.hpp"
#include "backlight/runtime.hpp"
#include "counted_loops.hpp"

namespace backlight::tool {

struct InspectOptions {
    /// CUDA device ordinal, whose target is taken where `targets` is empty.
    int device = 0;
    /// "sm_90a"; empty: the device's, or those of sm_90a and sm_120a that take the kernel where
    /// there is none.
    std::vector<std::string> targets;
    /// Names for `parse_kernel` and tiles; every preset, and what plans choose, where both are
    /// empty.
    std::vector<std::string> kernels;
    std::vector<std::string> tiles;
    std::int64_t head_dim = 128;
    bool causal = false;
    DataType dtype = DataType::bf16;
    ProblemFeatures features;
    /// Not given: about 4096, a multiple of the tile.
    std::optional<std::int64_t> seqlen;
    /// The sequence length as a constant of the kernel.
    bool bake_seqlen = false;
    /// Take kernels from the cubin cache, and put them there.
    bool use_cache = false;
    /// Write the text of each specialisation and NVRTC's options.
    bool show_specialisation = false;
    /// Count the instructions of each kernel's main loops, in what a disassembler prints.
    bool counts = false;
    /// Its file; empty: see Disassembler.
    std::string disassembler;
    /// File, "-" for `out` (and no tables then), or empty.
    std::string json;
    /// Directories to write to; empty: nothing is written.
    std::string dump_cubin;
    std::string dump_source;
};

/// One kernel of a chain, compiled.
struct InspectedKernel {
    KernelResources resources;
    std::string source;
    std::string specialisation;
    std::vector<std::string> options;
    std::vector<std::byte> cubin;
    /// With InspectOptions::counts.
    std::optional<CountedKernel> counted = std::nullopt;
};

/// The chain of one configuration for one target.
struct Inspection {
    std::string name;
    std::string target;
    AttentionProblem problem;
    TileConfig config;
    std::string nvrtc_version;
    /// delta, main, convert.
    std::vector<InspectedKernel> kernels;
    /// The whole chain, opening NVRTC included, by the wall clock.
    double wall_milliseconds = 0;

    const InspectedKernel& main() const { return kernels.at(1); }
};

/// Compiles every combination. Needs NVRTC, and with `counts` a disassembler; no GPU and no driver.
/// `left_out` gets a line for each that a target which nobody named does not take, and another
/// does.
std::vector<Inspection> inspect_kernels(const InspectOptions& options,
                                        std::vector<std::string>* left_out = nullptr);

std::string format_inspections(const std::vector<Inspection>& inspections);

/// The instructions of main loops and the bounds that follow, of kernels that have been counted.
std::string format_counts(const std::vector<Inspection>& inspections);
nlohmann::ordered_json to_json(const CountedKernel& kernel);

/// The main kernel's figures, and those of the whole chain in `kernels`; an array of such objects
/// where there are several. With `texts`, the specialisations and options as well.
nlohmann::ordered_json to_json(const std::vector<Inspection>& inspections, bool texts);

/// The cubins, as <kernel>_<target>_<entry>.cubin.
void dump_cubins(const std::vector<Inspection>& inspections, const std::string& directory);
/// What NVRTC was given, as <kernel>_<target>/<entry>/: the source and all it includes, and
/// options.txt.
void dump_sources(const std::vector<Inspection>& inspections, const std::string& directory);

/// All of the above as the options say. Throws Error.
void inspect(const InspectOptions& options, std::ostream& out);

}  // namespace backlight::tool
