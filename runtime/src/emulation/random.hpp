#pragma once

#include <cstdint>

namespace backlight::emulation {

/// SplitMix64 (Steele, Lea and Flood 2014): small, quick, and the same numbers on every machine.
class Random {
  public:
    explicit Random(std::uint64_t seed) noexcept : state_(seed) {}

    std::uint64_t next() noexcept {
        state_ += 0x9e3779b97f4a7c15U;
        std::uint64_t mixed = state_;
        mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
        mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
        return mixed ^ (mixed >> 31);
    }

    /// 0 … limit − 1
    std::uint32_t below(std::uint32_t limit) noexcept {
        return static_cast<std::uint32_t>((next() >> 32) * limit >> 32);
    }

    /// True once in `count` times on average; never for 0.
    bool one_in(std::uint32_t count) noexcept { return count != 0 && below(count) == 0; }

  private:
    std::uint64_t state_;
};

/// A seed for one part of what a seed decides.
inline std::uint64_t derived_seed(std::uint64_t seed, std::uint64_t part) noexcept {
    Random random(seed ^ (part + 1) * 0xd1342543de82ef95U);
    return random.next();
}

}  // namespace backlight::emulation
