#pragma once

#include <cstdint>

namespace backlight::emulation {

/// What the tag of a Register says: which load or product it waits for.
struct RegisterTag {
    enum class Kind : std::uint32_t {
        none = 0,
        /// Filled by an ldmatrix.
        load,
        /// Filled by an mma.
        product,
        /// Filled by a wgmma.
        warpgroup_result,
        /// Read by a wgmma.
        warpgroup_source,
    };
    static constexpr std::uint32_t kind_bits = 3;

    Kind kind = Kind::none;
    std::uint32_t number = 0;

    static constexpr RegisterTag of(std::uint32_t tag) noexcept {
        return {static_cast<Kind>(tag & ((1U << kind_bits) - 1)), tag >> kind_bits};
    }
    constexpr std::uint32_t bits() const noexcept {
        return number << kind_bits | static_cast<std::uint32_t>(kind);
    }
};

}  // namespace backlight::emulation
