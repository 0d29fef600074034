#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace backlight::tool {

/// What a card can do at most.
struct Peaks {
    /// Dense bf16 or fp16 products with sums in fp32.
    std::optional<double> tflops;
    /// Device memory.
    std::optional<double> gigabytes_per_second;
    /// Where the figures are from, for the reader of a report.
    std::string source;
};

/// NVIDIA's figures for the device of that name, as the driver tells it; empty for a device that is
/// not in the table. Whole names are compared: a laptop's part, a PCIe card or a slice of a GPU has
/// a name that only begins like that of the card with the known figures.
Peaks datasheet_peaks(std::string_view device_name);

}  // namespace backlight::tool
