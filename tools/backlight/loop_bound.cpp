#include "loop_bound.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace backlight::tool {

namespace {

constexpr double schedulers = 4;

/// What a scheduler's quarter of MUFU takes for the 32 lanes of a warp: the CUDA programming guide
/// gives 16 results a clock and multiprocessor for compute capability 9.0 and 12.0 alike.
constexpr double clocks_per_mufu = 32 / (16 / schedulers);

/// Dense products of 16-bit types with sums in fp32.
struct TensorRate {
    int compute_major;
    int compute_minor;
    /// FLOP a clock of one scheduler's tensor core.
    double hmma;
    /// 0: the target has no wgmma.
    double hgmma;
    std::string_view source;
};

constexpr double flops_of_m16n8k16 = 2.0 * 16 * 8 * 16;

constexpr std::array rates = {
    TensorRate{9, 0, flops_of_m16n8k16 / 6.08, 4096 / schedulers,
               "HMMA 6.08 clocks a scheduler, measured on an H200; HGMMA 4,096 FLOP a clock and "
               "multiprocessor, H200 datasheet"},
    TensorRate{12, 0, 512 / schedulers, 0,
               "512 FLOP a clock and multiprocessor, GeForce RTX 5090 with sums in fp32"},
};

const TensorRate* rate_of(const device::Target& target) {
    const auto* const rate = std::ranges::find_if(rates, [&](const TensorRate& candidate) {
        return candidate.compute_major == target.compute_major &&
               candidate.compute_minor == target.compute_minor;
    });
    return rate != rates.end() ? rate : nullptr;
}

/// Of one scheduler's tensor core with a warp's products.
std::optional<double> tensor_clocks(const SassCounts& counts, const device::Target& target) {
    if (counts.hmma_flops == 0 && counts.hgmma_flops == 0) {
        return 0;
    }
    const TensorRate* const rate = rate_of(target);
    if (rate == nullptr || (counts.hgmma_flops > 0 && rate->hgmma == 0)) {
        return std::nullopt;
    }
    return counts.hmma_flops / rate->hmma +
           (counts.hgmma_flops > 0 ? counts.hgmma_flops / rate->hgmma : 0);
}

std::pair<double, std::string_view> largest(const BusyClocks& clocks) noexcept {
    return std::max({std::pair{clocks.tensor_cores.value_or(0), std::string_view("tensor cores")},
                     std::pair{clocks.issue_slots, std::string_view("issue slots")},
                     std::pair{clocks.shared_memory, std::string_view("shared memory")},
                     std::pair{clocks.mufu, std::string_view("MUFU")}},
                    [](const auto& left, const auto& right) { return left.first < right.first; });
}

}  // namespace

double BusyClocks::bound() const noexcept {
    return largest(*this).first;
}

std::string_view BusyClocks::bounding_unit() const noexcept {
    return largest(*this).second;
}

BusyClocks operator+(const BusyClocks& left, const BusyClocks& right) noexcept {
    return {.tensor_cores = left.tensor_cores && right.tensor_cores
                                ? std::optional(*left.tensor_cores + *right.tensor_cores)
                                : std::nullopt,
            .issue_slots = left.issue_slots + right.issue_slots,
            .shared_memory = left.shared_memory + right.shared_memory,
            .mufu = left.mufu + right.mufu};
}

BusyClocks busy_clocks(const SassCounts& counts, int warps, const device::Target& target) {
    const double warps_of_scheduler = warps / schedulers;
    const auto tensor = tensor_clocks(counts, target);
    return {.tensor_cores = tensor ? std::optional(*tensor * warps_of_scheduler) : std::nullopt,
            .issue_slots = counts.instructions * warps_of_scheduler,
            .shared_memory = counts.shared_clocks * warps,
            .mufu = counts.of(SassClass::mufu) * clocks_per_mufu * warps_of_scheduler};
}

std::string_view tensor_rate_source(const device::Target& target) noexcept {
    const TensorRate* const rate = rate_of(target);
    return rate != nullptr ? rate->source : "no rate is known for this target";
}

}  // namespace backlight::tool
