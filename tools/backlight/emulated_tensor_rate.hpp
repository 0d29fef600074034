#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "arguments.hpp"
#include "backlight/problem.hpp"
#include "backlight/tile_config.hpp"
#include "device/target.hpp"

namespace backlight::tool {

// One card's tensor cores slowed to the rate of another's (docs/emulated_tensor_rate.md): what that
// takes, and what a kernel then has to do. Pure functions, no GPU.

/// How long a scheduler of a target's multiprocessor takes for one mma.sync m16n8k16 of 16-bit
/// elements with sums in fp32.
struct MmaRate {
    std::string target;
    double clocks = 0;
    /// Where the figure comes from.
    std::string source;
};

/// Throws `unsupported` with the targets there are figures of.
MmaRate mma_rate(const device::Target& target);

/// Operations of one such product.
inline constexpr double mma_flops = 2.0 * 16 * 8 * 16;

struct EmulatedTensorRate {
    MmaRate device;
    MmaRate emulated;
    /// Times that each product is made; all but the first with zeros.
    int mma_repeats = 1;

    /// Clocks that the device then takes for a product that counts.
    double slowed_clocks() const noexcept { return device.clocks * mma_repeats; }
};

/// The whole number of repeats that comes nearest. Throws `unsupported` where a rate is not known,
/// and where the device is not the faster of the two by half at least.
EmulatedTensorRate emulated_tensor_rate(const device::Target& device,
                                        const device::Target& emulated);

/// Throws `unsupported` for the first configuration whose kernel is not made of mma.sync.
void check_can_be_slowed(const std::vector<NamedConfig>& configs);
bool can_be_slowed(const NamedConfig& named) noexcept;

/// Operations of the five products that the main kernel of mma or mma_resident makes, with those
/// that the mask hides again: of tiles on the diagonal mma makes all, and mma_resident those with
/// keys that any of the tile's queries sees.
double executed_flops(const AttentionProblem& problem, const TileConfig& config) noexcept;

}  // namespace backlight::tool
