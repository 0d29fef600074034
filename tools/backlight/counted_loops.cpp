#include "counted_loops.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "attention/kernels.hpp"
#include "backlight/error.hpp"
#include "sass_listing.hpp"
#include "sass_loops.hpp"

namespace backlight::tool {

namespace {

constexpr int warps_of_warpgroup = 4;

/// In the wgmma kernel only key warpgroups ask for more registers than they start with.
bool is_of_key_warpgroups(const SassLoop& loop) {
    return loop.register_change.starts_with("USETMAXREG.TRY_ALLOC");
}

/// Warps of a block that run the loop; `config` says what is not in the instructions.
int warps_of(const SassLoop& loop, const TileConfig& config) {
    if (config.family != KernelFamily::wgmma) {
        return config.warps;
    }
    return is_of_key_warpgroups(loop)
               ? config.block_kv / attention::wgmma_keys_per_warpgroup * warps_of_warpgroup
               : warps_of_warpgroup;
}

/// Operations of a whole tile: five products, each 2 block_q block_kv head_dim.
double tile_flops(const AttentionProblem& problem, const TileConfig& config) {
    return 10.0 * config.block_q * config.block_kv * static_cast<double>(problem.head_dim);
}

}  // namespace

CountedKernel count_kernel(std::string_view listing, std::string_view entry,
                           const AttentionProblem& problem, const TileConfig& config,
                           const device::Target& target) {
    const std::vector<SassFunction> functions = parse_sass(listing);
    const auto function = std::ranges::find(functions, entry, &SassFunction::name);
    if (function == functions.end()) {
        throw Error(ErrorCode::file_error,
                    fmt::format("the disassembly has no function {}: it must be what nvdisasm or "
                                "cuobjdump prints of the kernel's cubin",
                                entry));
    }
    CountedKernel kernel;
    const std::vector<SassLoop> loops = tensor_loops(*function);
    for (const SassLoop& loop : loops) {
        const auto instructions = loop.instructions(*function);
        const CountedLoop counted{.first_address = instructions.front().address,
                                  .last_address = instructions.back().address,
                                  .counts = count(instructions),
                                  .warps = warps_of(loop, config)};
        kernel.bounds.push_back(
            {.loops = {kernel.loops.size()},
             .tiles = counted.warps * (counted.counts.hmma_flops + counted.counts.hgmma_flops) /
                      tile_flops(problem, config),
             .clocks = busy_clocks(counted.counts, counted.warps, target)});
        kernel.loops.push_back(counted);
    }
    if (config.family == KernelFamily::wgmma) {
        // A query tile is an iteration of the key warpgroups and one of the query warpgroup.
        for (std::size_t key = 0; key < loops.size(); ++key) {
            for (std::size_t query = 0; query < loops.size(); ++query) {
                if (is_of_key_warpgroups(loops[key]) && !is_of_key_warpgroups(loops[query])) {
                    kernel.bounds.push_back(
                        {.loops = {key, query},
                         .tiles = kernel.bounds[key].tiles + kernel.bounds[query].tiles,
                         .clocks = kernel.bounds[key].clocks + kernel.bounds[query].clocks});
                }
            }
        }
    }
    return kernel;
}

}  // namespace backlight::tool
