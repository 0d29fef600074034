#include "compiler/resource_usage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "backlight/error.hpp"

namespace backlight::compiler {

namespace {

/// The number that stands directly before `label`, as in "16 bytes stack frame".
std::optional<int> number_before(std::string_view log, std::string_view label) {
    const std::size_t at = log.find(label);
    if (at == std::string_view::npos || at == 0) {
        return std::nullopt;
    }
    std::size_t end = at;
    while (end > 0 && log[end - 1] == ' ') {
        --end;
    }
    std::size_t begin = end;
    while (begin > 0 && log[begin - 1] >= '0' && log[begin - 1] <= '9') {
        --begin;
    }
    int value = 0;
    const auto [rest, failure] = std::from_chars(log.data() + begin, log.data() + end, value);
    if (failure != std::errc{} || rest != log.data() + end) {
        return std::nullopt;
    }
    return value;
}

int required(std::string_view log, std::string_view label) {
    if (const std::optional<int> value = number_before(log, label)) {
        return *value;
    }
    throw Error(
        ErrorCode::compile_failed,
        fmt::format("the compiler's log does not tell '{}'; the whole log:\n{}", label, log));
}

std::vector<std::string> performance_warnings(std::string_view log) {
    // ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are …
    constexpr std::string_view code = "(C75";
    std::vector<std::string> warnings;
    for (std::size_t at = log.find(code); at != std::string_view::npos; at = log.find(code, at)) {
        const std::size_t end = std::min(log.find('\n', at), log.size());
        warnings.emplace_back(log.substr(at, end - at));
        at = end;
    }
    return warnings;
}

}  // namespace

ResourceUsage parse_resource_usage(std::string_view log) {
    // ptxas info    : Used 255 registers, used 1 barriers, 16 bytes smem
    // ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
    return ResourceUsage{
        .registers = required(log, "registers"),
        .stack_bytes = required(log, "bytes stack frame"),
        .spill_store_bytes = required(log, "bytes spill stores"),
        .spill_load_bytes = required(log, "bytes spill loads"),
        // Printed only where there is some.
        .static_shared_bytes = number_before(log, "bytes smem").value_or(0),
        .performance_warnings = performance_warnings(log),
    };
}

}  // namespace backlight::compiler
