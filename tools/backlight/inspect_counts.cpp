// How the counted instructions of main loops are told: as tables and as JSON.

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/target.hpp"
#include "environment.hpp"
#include "inspect.hpp"
#include "text_table.hpp"

namespace backlight::tool {

namespace {

std::string loop_names(const LoopBound& bound) {
    std::string names = "loop";
    for (std::size_t i = 0; i < bound.loops.size(); ++i) {
        names += fmt::format("{}{}", i == 0 ? " " : " + ", bound.loops[i] + 1);
    }
    return names;
}

/// A row: its name, and a cell of each element.
template <typename Elements, typename CellOf>
std::vector<std::string> row(std::string name, const Elements& elements, CellOf cell_of) {
    std::vector<std::string> cells = {std::move(name)};
    for (const auto& element : elements) {
        cells.push_back(cell_of(element));
    }
    return cells;
}

std::string instruction_table(const CountedKernel& kernel) {
    std::size_t number = 0;
    TextTable table(row("of a warp", kernel.loops,
                        [&](const auto&) { return fmt::format("loop {}", ++number); }));
    table.add(row("from, to address", kernel.loops, [](const CountedLoop& loop) {
        return fmt::format("{:#06x}, {:#06x}", loop.first_address, loop.last_address);
    }));
    for (std::size_t i = 0; i < sass_class_count; ++i) {
        const auto instruction_class = static_cast<SassClass>(i);
        int sum = 0;
        for (const CountedLoop& loop : kernel.loops) {
            sum += loop.counts.of(instruction_class);
        }
        if (sum > 0) {
            table.add(row(to_string(instruction_class), kernel.loops, [&](const CountedLoop& loop) {
                return fmt::format("{}", loop.counts.of(instruction_class));
            }));
        }
    }
    table.add(row("all", kernel.loops, [](const CountedLoop& loop) {
        return fmt::format("{}", loop.counts.instructions);
    }));
    table.add(row("warps of a block", kernel.loops,
                  [](const CountedLoop& loop) { return fmt::format("{}", loop.warps); }));
    return table.text();
}

std::string clocks_with_share(std::optional<double> clocks, double bound) {
    return clocks ? fmt::format("{:.0f} ({:.0f} %)", *clocks, *clocks / bound * 100)
                  : std::string("unknown");
}

std::string bound_table(const CountedKernel& kernel, int resident_blocks) {
    TextTable table(row("clocks of a multiprocessor", kernel.bounds, loop_names));
    table.add(row("tiles", kernel.bounds,
                  [](const LoopBound& bound) { return fmt::format("{:.2f}", bound.tiles); }));
    const auto add_unit = [&](const char* name, const auto& clocks_of) {
        table.add(row(name, kernel.bounds, [&](const LoopBound& bound) {
            return clocks_with_share(clocks_of(bound.clocks), bound.clocks.bound());
        }));
    };
    add_unit("tensor cores", [](const BusyClocks& clocks) { return clocks.tensor_cores; });
    add_unit("issue slots", [](const BusyClocks& clocks) { return clocks.issue_slots; });
    add_unit("shared memory", [](const BusyClocks& clocks) { return clocks.shared_memory; });
    add_unit("MUFU", [](const BusyClocks& clocks) { return clocks.mufu; });
    table.add(row("bound by", kernel.bounds, [](const LoopBound& bound) {
        return std::string(bound.clocks.bounding_unit());
    }));
    table.add(row(
        fmt::format("bound, {} resident block{}", resident_blocks, resident_blocks == 1 ? "" : "s"),
        kernel.bounds, [&](const LoopBound& bound) {
            return fmt::format("{:.0f}", bound.clocks.bound() * resident_blocks);
        }));
    return table.text();
}

nlohmann::ordered_json loop_json(const CountedLoop& loop) {
    nlohmann::ordered_json instructions;
    for (std::size_t i = 0; i < sass_class_count; ++i) {
        const auto instruction_class = static_cast<SassClass>(i);
        instructions[to_string(instruction_class)] = loop.counts.of(instruction_class);
    }
    return {{"first_address", loop.first_address},
            {"last_address", loop.last_address},
            {"warps", loop.warps},
            {"all", loop.counts.instructions},
            {"instructions", std::move(instructions)}};
}

nlohmann::ordered_json bound_json(const LoopBound& bound) {
    nlohmann::ordered_json loops = nlohmann::ordered_json::array();
    for (const std::size_t loop : bound.loops) {
        loops.push_back(loop + 1);
    }
    const BusyClocks& clocks = bound.clocks;
    return {{"loops", std::move(loops)},
            {"tiles", bound.tiles},
            {"clocks",
             {{"tensor_cores", or_null(clocks.tensor_cores)},
              {"issue_slots", clocks.issue_slots},
              {"shared_memory", clocks.shared_memory},
              {"mufu", clocks.mufu}}},
            {"bound_by", clocks.bounding_unit()},
            {"bound", clocks.bound()}};
}

}  // namespace

std::string format_counts(const std::vector<Inspection>& inspections) {
    std::string text;
    for (const Inspection& inspection : inspections) {
        for (const InspectedKernel& kernel : inspection.kernels) {
            if (!kernel.counted) {
                continue;
            }
            const KernelResources& resources = kernel.resources;
            text +=
                fmt::format("\n{} {} {}: ", inspection.target, inspection.name, resources.kernel);
            if (kernel.counted->loops.empty()) {
                text += "no loop with tensor instructions\n";
                continue;
            }
            text += fmt::format("innermost loops with tensor instructions\n\n{}\n{}",
                                instruction_table(*kernel.counted),
                                bound_table(*kernel.counted, resources.blocks_per_multiprocessor));
            text += fmt::format("tensor cores: {}\n",
                                tensor_rate_source(device::target_by_name(inspection.target)));
        }
    }
    return text;
}

nlohmann::ordered_json to_json(const CountedKernel& kernel) {
    nlohmann::ordered_json object = {{"loops", nlohmann::ordered_json::array()},
                                     {"bounds", nlohmann::ordered_json::array()}};
    for (const CountedLoop& loop : kernel.loops) {
        object["loops"].push_back(loop_json(loop));
    }
    for (const LoopBound& bound : kernel.bounds) {
        object["bounds"].push_back(bound_json(bound));
    }
    return object;
}

}  // namespace backlight::tool
