#include "published_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "arguments.hpp"
#include "backlight/error.hpp"
#include "backlight/tile_config.hpp"

namespace backlight::tool {

AttentionProblem PublishedTable::problem() const {
    return square_problems({shape}, causal, !causal, dtype).front();
}

const PublishedFigure* PublishedTable::figure(std::string_view kernel) const noexcept {
    const auto found = std::ranges::find(figures, kernel, &PublishedFigure::kernel);
    return found != figures.end() ? &*found : nullptr;
}

const PublishedTable& published_table(std::string_view name) {
    static const PublishedTable article{
        .name = "article",
        .title = "Writing Speed-of-Light Attention Backward Kernel for 5090 in CUDA",
        .date = "2026-08-23",
        .shape = "8_16_4096_128",
        .causal = true,
        .dtype = DataType::bf16,
        .gpu = "NVIDIA GeForce RTX 5090",
        .sm_clock_mhz = 2407,
        .power_limit_watts = 575,
        .peak_tflops = 209.5,
        .figures = {{"cudnn", 9.5079, 144.55, 69.00},
                    {"fa2", 8.5584, 160.59, 76.65},
                    {"v1", 10.3287, 133.07, 63.52},
                    {"v2", 9.5374, 144.10, 68.78},
                    {"v3", 8.5866, 160.06, 76.40}},
    };
    if (name != article.name) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("reproduce is '{}': it must be {}", name, article.name));
    }
    return article;
}

std::vector<std::string> numbered_presets() {
    std::vector<std::string> names;
    for (const KernelPreset& preset : kernel_presets()) {
        const std::string_view number = preset.name.substr(1);
        if (preset.name.starts_with('v') && !number.empty() &&
            number.find_first_not_of("0123456789") == std::string_view::npos) {
            names.emplace_back(preset.name);
        }
    }
    return names;
}

std::string kernel_title(std::string_view kernel) {
    if (kernel == "cudnn") {
        return "cuDNN";
    }
    return std::string(kernel == "fa2" ? "FlashAttention-2" : kernel);
}

}  // namespace backlight::tool
