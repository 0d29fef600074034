// How inspections are told: as a table, as JSON, as files.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>
#include <span>

#include "backlight/error.hpp"
#include "bench_report.hpp"
#include "compiler/sources.hpp"
#include "compiler/specialisation.hpp"
#include "inspect.hpp"
#include "problem_features.hpp"
#include "text_table.hpp"

namespace backlight::tool {

namespace {

void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
    std::error_code failure;
    std::filesystem::create_directories(path.parent_path(), failure);
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) {
        throw Error(ErrorCode::file_error,
                    fmt::format("'{}': the file could not be written{}{}", path.string(),
                                failure ? ": " : "", failure ? failure.message() : ""));
    }
}

void write_file(const std::filesystem::path& path, std::string_view text) {
    write_file(path, std::as_bytes(std::span(text)));
}

nlohmann::ordered_json inspection_json(const Inspection& inspection, bool texts) {
    const KernelResources& main = inspection.main().resources;
    nlohmann::ordered_json object = {{"kernel", inspection.name},
                                     {"target", inspection.target},
                                     {"entry", main.kernel},
                                     {"registers", main.registers},
                                     {"stack_bytes", main.stack_bytes},
                                     {"spill_store_bytes", main.spill_store_bytes},
                                     {"spill_load_bytes", main.spill_load_bytes},
                                     {"performance_warnings", main.performance_warnings},
                                     {"shared_bytes", main.shared_bytes},
                                     {"threads", main.threads},
                                     {"blocks_per_multiprocessor", main.blocks_per_multiprocessor},
                                     {"compile_ms", main.compile_milliseconds},
                                     {"cached", main.cached},
                                     {"wall_ms", inspection.wall_milliseconds},
                                     {"nvrtc_version", inspection.nvrtc_version},
                                     {"config", to_json(inspection.config)},
                                     {"problem", to_json(inspection.problem)}};
    object["kernels"] = nlohmann::ordered_json::array();
    for (const InspectedKernel& kernel : inspection.kernels) {
        nlohmann::ordered_json entry = to_json(kernel.resources);
        entry["cubin_bytes"] = kernel.cubin.size();
        if (kernel.counted) {
            entry["counts"] = to_json(*kernel.counted);
        }
        if (texts) {
            entry["options"] = kernel.options;
            entry["specialisation"] = kernel.specialisation;
        }
        object["kernels"].push_back(std::move(entry));
    }
    return object;
}

}  // namespace

std::string format_inspections(const std::vector<Inspection>& inspections) {
    std::string text;
    TextTable table({"target", "kernel", "entry", "registers", "stack", "spill stores",
                     "spill loads", "shared", "threads", "blocks/SM", "compile"},
                    3);
    std::string warnings;
    double wall = 0;
    for (const Inspection& inspection : inspections) {
        for (const InspectedKernel& kernel : inspection.kernels) {
            const KernelResources& resources = kernel.resources;
            const auto bytes = [](auto count) { return fmt::format("{} B", count); };
            table.add({inspection.target, table_name(inspection.name, inspection.config),
                       resources.kernel, fmt::format("{}", resources.registers),
                       bytes(resources.stack_bytes), bytes(resources.spill_store_bytes),
                       bytes(resources.spill_load_bytes), bytes(resources.shared_bytes),
                       fmt::format("{}", resources.threads),
                       fmt::format("{}", resources.blocks_per_multiprocessor),
                       resources.cached
                           ? "cached"
                           : fmt::format("{:.0f} ms", resources.compile_milliseconds)});
            for (const std::string& warning : resources.performance_warnings) {
                warnings += fmt::format("{} {} {}: {}\n", inspection.target, inspection.name,
                                        resources.kernel, warning);
            }
        }
        wall += inspection.wall_milliseconds;
    }
    if (!inspections.empty()) {
        const AttentionProblem& problem = inspections.front().problem;
        text += fmt::format("{}, NVRTC {}\n\n", kernel_text(problem),
                            inspections.front().nvrtc_version);
    }
    return text + table.text() + (warnings.empty() ? "" : "\n" + warnings) +
           fmt::format("\n{} chain{} in {:.0f} ms by the wall clock, opening NVRTC included\n",
                       inspections.size(), inspections.size() == 1 ? "" : "s", wall);
}

nlohmann::ordered_json to_json(const std::vector<Inspection>& inspections, bool texts) {
    if (inspections.size() == 1) {
        return inspection_json(inspections.front(), texts);
    }
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const Inspection& inspection : inspections) {
        all.push_back(inspection_json(inspection, texts));
    }
    return all;
}

void dump_cubins(const std::vector<Inspection>& inspections, const std::string& directory) {
    for (const Inspection& inspection : inspections) {
        for (const InspectedKernel& kernel : inspection.kernels) {
            write_file(std::filesystem::path(directory) /
                           fmt::format("{}_{}_{}.cubin", inspection.name, inspection.target,
                                       kernel.resources.kernel),
                       kernel.cubin);
        }
    }
}

void dump_sources(const std::vector<Inspection>& inspections, const std::string& directory) {
    for (const Inspection& inspection : inspections) {
        for (const InspectedKernel& kernel : inspection.kernels) {
            const std::filesystem::path folder =
                std::filesystem::path(directory) /
                fmt::format("{}_{}", inspection.name, inspection.target) / kernel.resources.kernel;
            for (const compiler::Header& file : compiler::source_closure(kernel.source)) {
                write_file(folder / file.name, file.text);
            }
            write_file(folder / compiler::specialisation_header, kernel.specialisation);
            write_file(folder / "options.txt",
                       fmt::format("{}\n", fmt::join(kernel.options, "\n")));
        }
    }
}

}  // namespace backlight::tool
