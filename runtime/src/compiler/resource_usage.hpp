#pragma once

#include <string_view>

namespace backlight::compiler {

/// What ptxas says of a kernel in its verbose log.
struct ResourceUsage {
    int registers = 0;
    int stack_bytes = 0;
    int spill_store_bytes = 0;
    int spill_load_bytes = 0;
    int static_shared_bytes = 0;

    bool operator==(const ResourceUsage&) const = default;
};

/// Reads the lines that ptxas prints with -v, for a log of one kernel; throws `compile_failed`
/// where they are not there (a log without them would read as "no spills").
ResourceUsage parse_resource_usage(std::string_view log);

}  // namespace backlight::compiler
