#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace backlight::verification {

/// One tensor of a safetensors file: row-major, contiguous, little-endian.
struct SafeTensor {
    /// As the format spells it: "BF16", "F16", "F32", "F64", "I64", ...
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> data;

    bool operator==(const SafeTensor&) const = default;
};

struct SafetensorsFile {
    std::map<std::string, SafeTensor> tensors;
    /// The `__metadata__` entry: free text by name.
    std::map<std::string, std::string> metadata;

    bool operator==(const SafetensorsFile&) const = default;
};

/// Longest header that is read or written, in bytes; the limit of the reference implementation.
inline constexpr std::uint64_t safetensors_header_limit = 100'000'000;

/// Bytes of an element, or 0 when the name is none of the format's types of whole bytes.
std::size_t safetensors_element_size(std::string_view dtype) noexcept;

/// Reads a whole file. Throws `file_error`, naming the file and the rule it breaks, unless the file
/// is exactly what the format demands: nothing is repaired or guessed.
SafetensorsFile read_safetensors(const std::filesystem::path& path);

/// Writes a file, replacing what is there. Throws `file_error` when a tensor's data does not match
/// its shape and type, a name is reserved or not UTF-8, or the file cannot be written.
void write_safetensors(const std::filesystem::path& path, const SafetensorsFile& file);

}  // namespace backlight::verification
