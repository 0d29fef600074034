#include "datasheet.hpp"

#include <array>

namespace backlight::tool {

namespace {

struct Card {
    std::string_view name;
    double tflops;
    double gigabytes_per_second;
};

// NVIDIA's datasheets; where one tells only the rate with sparsity, half of it.
constexpr std::array cards = {
    Card{"H100 80GB HBM3", 989, 3350},  // SXM
    Card{"H100 PCIe", 756, 2000},       //
    Card{"H200", 989, 4800},            // SXM
    Card{"GH200 120GB", 989, 4000},     // 96 GB of HBM3
    Card{"GH200 480GB", 989, 4000},     // 96 GB of HBM3
    Card{"B200", 2250, 8000},           //
    Card{"GeForce RTX 5090", 209.5, 1792},
};

}  // namespace

Peaks datasheet_peaks(std::string_view device_name) {
    constexpr std::string_view vendor = "NVIDIA ";
    if (device_name.starts_with(vendor)) {
        device_name.remove_prefix(vendor.size());
    }
    for (const Card& card : cards) {
        if (card.name == device_name) {
            return {.tflops = card.tflops,
                    .gigabytes_per_second = card.gigabytes_per_second,
                    .source = "datasheet"};
        }
    }
    return {.tflops = std::nullopt,
            .gigabytes_per_second = std::nullopt,
            .source = "none: no datasheet figures are known for this device"};
}

}  // namespace backlight::tool
