#include "emulated_tensor_rate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "attention/kernels.hpp"
#include "attention/tiles.hpp"
#include "backlight/error.hpp"

namespace backlight::tool {

namespace {

struct KnownRate {
    int compute_major;
    int compute_minor;
    double clocks;
    const char* source;
};

constexpr std::array known_rates = {
    KnownRate{9, 0, 6.08, "measured on an H200"},
    // 128 a scheduler, and a product is 4096.
    KnownRate{12, 0, 32, "512 FLOP a clock and multiprocessor, of the RTX 5090's datasheet"},
};

}  // namespace

MmaRate mma_rate(const device::Target& target) {
    std::string known;
    for (const KnownRate& rate : known_rates) {
        if (rate.compute_major == target.compute_major &&
            rate.compute_minor == target.compute_minor) {
            return {.target = target.name, .clocks = rate.clocks, .source = rate.source};
        }
        known += fmt::format("{}sm_{}{}", known.empty() ? "" : ", ", rate.compute_major,
                             rate.compute_minor);
    }
    throw Error(
        ErrorCode::unsupported,
        fmt::format("the rate of mma.sync on {} is not known: it is of {}", target.name, known));
}

EmulatedTensorRate emulated_tensor_rate(const device::Target& device,
                                        const device::Target& emulated) {
    EmulatedTensorRate rate{.device = mma_rate(device), .emulated = mma_rate(emulated)};
    rate.mma_repeats = static_cast<int>(std::lround(rate.emulated.clocks / rate.device.clocks));
    if (rate.mma_repeats < 2) {
        throw Error(ErrorCode::unsupported,
                    fmt::format("emulate-tensor-rate is {} on a device of {}: a product takes {} "
                                "clocks there and {} here, which nothing can be added to",
                                rate.emulated.target, rate.device.target, rate.emulated.clocks,
                                rate.device.clocks));
    }
    return rate;
}

bool can_be_slowed(const NamedConfig& named) noexcept {
    // What plans choose is a choice for the card at hand.
    return !named.is_default() && named.config.family != KernelFamily::wgmma;
}

void check_can_be_slowed(const std::vector<NamedConfig>& configs) {
    const auto found = std::ranges::find_if(
        configs, [](const NamedConfig& named) { return !can_be_slowed(named); });
    if (found != configs.end() && found->is_default()) {
        throw Error(ErrorCode::unsupported,
                    fmt::format("emulate-tensor-rate is given and kernel is {}: it must be named, "
                                "since what plans choose is for the card at hand",
                                found->name));
    }
    if (found != configs.end()) {
        throw Error(ErrorCode::unsupported,
                    fmt::format("emulate-tensor-rate is given and kernel {} is of family {}: only "
                                "the products of mma and mma_resident, by mma.sync, can be slowed",
                                found->name, to_string(found->config.family)));
    }
}

double executed_flops(const AttentionProblem& problem, const TileConfig& config) noexcept {
    // Pairs of a query and a key of one head.
    std::int64_t pairs = 0;
    for (std::int64_t kv_start = 0; kv_start < problem.seqlen_kv; kv_start += config.block_kv) {
        // As the kernels begin: with the tile in which the first query sees a key of the block.
        const std::int64_t first_query =
            problem.causal ? kv_start / config.block_q * config.block_q : 0;
        for (std::int64_t query = first_query; query < problem.seqlen_q; query += config.block_q) {
            std::int64_t keys = config.block_kv;
            if (problem.causal && config.family == KernelFamily::mma_resident &&
                !attention::has_wide_heads(problem)) {
                keys = std::min(keys, query + config.block_q - kv_start);
            }
            pairs += config.block_q * keys;
        }
    }
    constexpr double products = 5;
    return products * 2.0 * static_cast<double>(problem.batch * problem.heads * pairs) *
           static_cast<double>(problem.head_dim);
}

}  // namespace backlight::tool
