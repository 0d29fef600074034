#include "tensor_layout.hpp"

#include <fmt/format.h>

#include <string>

#include "backlight/error.hpp"

namespace backlight::tool {

const char* to_string(Layout layout) noexcept {
    switch (layout) {
        case Layout::bhsd:
            return "bhsd";
        case Layout::bshd:
            return "bshd";
        case Layout::packed_qkv:
            return "packed_qkv";
        case Layout::padded:
            return "padded";
        case Layout::broadcast:
            return "broadcast";
    }
    return "unknown";
}

Layout layout_by_name(std::string_view name, std::span<const Layout> among) {
    std::string names;
    for (const Layout layout : among) {
        if (name == to_string(layout)) {
            return layout;
        }
        names += std::string(names.empty() ? "" : ", ") + to_string(layout);
    }
    throw Error(ErrorCode::invalid_argument,
                fmt::format("layout is \"{}\": it must be one of {}", name, names));
}

}  // namespace backlight::tool
