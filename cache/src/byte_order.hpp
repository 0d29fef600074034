#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace backlight::cache {

inline constexpr std::size_t number_bytes = 8;

/// Numbers in files are 64 bits, little-endian, whatever the machine.
inline void append_number(std::string& bytes, std::uint64_t number) {
    for (std::size_t i = 0; i < number_bytes; ++i) {
        bytes += static_cast<char>((number >> (8 * i)) & 0xffU);
    }
}

/// The bytes must reach so far.
inline std::uint64_t number_at(std::string_view bytes, std::size_t position) {
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < number_bytes; ++i) {
        number |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[position + i]))
                  << (8 * i);
    }
    return number;
}

}  // namespace backlight::cache
