#include "compiler/cached_kernel.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "version.hpp"

namespace backlight::compiler {

namespace {

constexpr const char* entry_field = "entry";
constexpr const char* registers_field = "registers";
constexpr const char* stack_field = "stack_bytes";
constexpr const char* spill_store_field = "spill_store_bytes";
constexpr const char* spill_load_field = "spill_load_bytes";
constexpr const char* static_shared_field = "static_shared_bytes";
constexpr const char* performance_warnings_field = "performance_warnings";

/// A count out of an entry's metadata; nothing unless it is a whole number that a kernel may have.
std::optional<int> count_in(const nlohmann::json& metadata, const char* field, int largest) {
    const auto found = metadata.find(field);
    if (found == metadata.end() || !found->is_number_integer()) {
        return std::nullopt;
    }
    const auto value = found->get<std::int64_t>();
    return value >= 0 && value <= largest ? std::optional<int>(static_cast<int>(value))
                                          : std::nullopt;
}

}  // namespace

cache::Entry to_entry(const CompiledKernel& kernel, const std::string& entry_point) {
    nlohmann::json metadata = {
        {entry_field, entry_point},
        {registers_field, kernel.resources.registers},
        {stack_field, kernel.resources.stack_bytes},
        {spill_store_field, kernel.resources.spill_store_bytes},
        {spill_load_field, kernel.resources.spill_load_bytes},
        {static_shared_field, kernel.resources.static_shared_bytes},
    };
    if (!kernel.resources.performance_warnings.empty()) {
        metadata[performance_warnings_field] = kernel.resources.performance_warnings;
    }
    return {.metadata = metadata.dump(), .payload = kernel.cubin};
}

std::optional<CompiledKernel> from_entry(cache::Entry entry, const std::string& entry_point) {
    constexpr int most_registers = 255;
    constexpr int most_bytes = 1 << 30;
    const nlohmann::json metadata = nlohmann::json::parse(entry.metadata, nullptr, false);
    if (!metadata.is_object() || entry.payload.empty()) {
        return std::nullopt;
    }
    const auto name = metadata.find(entry_field);
    const auto registers = count_in(metadata, registers_field, most_registers);
    const auto stack = count_in(metadata, stack_field, most_bytes);
    const auto spill_store = count_in(metadata, spill_store_field, most_bytes);
    const auto spill_load = count_in(metadata, spill_load_field, most_bytes);
    const auto static_shared = count_in(metadata, static_shared_field, most_bytes);
    if (name == metadata.end() || *name != entry_point || !registers || !stack || !spill_store ||
        !spill_load || !static_shared) {
        return std::nullopt;
    }
    CompiledKernel kernel;
    kernel.cubin = std::move(entry.payload);
    kernel.resources = {.registers = *registers,
                        .stack_bytes = *stack,
                        .spill_store_bytes = *spill_store,
                        .spill_load_bytes = *spill_load,
                        .static_shared_bytes = *static_shared};
    if (const auto warnings = metadata.find(performance_warnings_field);
        warnings != metadata.end() && warnings->is_array()) {
        for (const nlohmann::json& warning : *warnings) {
            if (warning.is_string()) {
                kernel.resources.performance_warnings.push_back(warning.get<std::string>());
            }
        }
    }
    return kernel;
}

std::string provenance_of(const CompiledKernel& kernel) {
    const auto now =
        std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
    const nlohmann::json provenance = {
        {"compile_milliseconds", kernel.compile_milliseconds},
        {"compiled_at", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                                    fmt::gmtime(std::chrono::system_clock::to_time_t(now)))},
        {"backlight", fmt::format("{} ({})", version(), git_revision())},
    };
    return provenance.dump();
}

}  // namespace backlight::compiler
