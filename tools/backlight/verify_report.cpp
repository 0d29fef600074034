#include "verify_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>

#include "backlight/error.hpp"
#include "bench_report.hpp"
#include "emulation/emulated_device.hpp"
#include "emulation/host_compiler.hpp"
#include "json_file.hpp"
#include "runtime_implementation.hpp"
#include "tuning/search_space.hpp"
#include "verify_table.hpp"
#include "version.hpp"

namespace backlight::tool {

using nlohmann::json;

namespace {

void print_failures(const VerifyOptions& options, const std::vector<std::string>& failures) {
    constexpr std::size_t most_failures = 40;
    for (std::size_t i = 0; i < std::min(failures.size(), most_failures); ++i) {
        fmt::print("\nFAILED {}", failures[i]);
    }
    if (failures.size() > most_failures) {
        fmt::print("\n… and {} more", failures.size() - most_failures);
    }
    if (!failures.empty() && options.device.emulation) {
        fmt::print("\n\nThe same schedules again: {}", replay_command(options));
    }
}

/// The emulated device's counts, where it was asked to make them.
void print_bank_conflicts(const Session& session) {
    const auto* const device = dynamic_cast<const emulation::EmulatedDevice*>(&session.device());
    const auto counts =
        device != nullptr ? device->bank_conflicts() : std::vector<emulation::BankConflictCount>{};
    if (counts.empty()) {
        return;
    }
    fmt::print(
        "\nShared memory, by place: executions by a warp, wavefronts, the fewest possible\n");
    for (const emulation::BankConflictCount& count : counts) {
        fmt::print("{:<60} {:>12} {:>12} {:>12}\n", count.site, count.executions, count.wavefronts,
                   count.least_wavefronts);
    }
}

}  // namespace

json finite_or_null(double value) {
    return std::isfinite(value) ? json(value) : json(nullptr);
}

json to_json(const ProblemReport& report) {
    const AttentionProblem& problem = report.problem.problem;
    json tensors = json::array();
    for (const TensorReport& tensor : report.tensors) {
        tensors.push_back({{"tensor", tensor.tensor},
                           {"relative_l2", finite_or_null(tensor.accuracy.relative_l2)},
                           {"relative_l2_allowed", tensor.tolerance.relative_l2},
                           {"worst_row", finite_or_null(tensor.accuracy.worst_row)},
                           {"worst_row_allowed", tensor.tolerance.worst_row},
                           {"between_runs", finite_or_null(tensor.between_runs)}});
    }
    json document(tool::to_json(problem));
    document.update({{"kernel", report.kernel},
                     {"inputs", verification::to_string(report.problem.inputs)},
                     {"layout", to_string(report.problem.layout)},
                     {"reference", to_string(report.problem.reference)},
                     {"repeats", report.problem.repeats},
                     {"tensors", tensors},
                     {"failures", report.failures},
                     {"passed", report.passed()}});
    if (!report.problem.packing.is_empty()) {
        document["cu_seqlens_q"] = report.problem.packing.cu_seqlens_q;
        document["cu_seqlens_kv"] = report.problem.packing.cu_seqlens_kv;
    }
    return document;
}

json environment(Runtime& runtime, const DeviceChoice& device) {
    json document = {{"device", device.emulation ? "emulated" : runtime.device_name()},
                     {"target", runtime.target()},
                     {"backlight", {{"version", version()}, {"git_revision", git_revision()}}}};
    if (device.emulation) {
        document["host_compiler"] = emulation::HostCompiler().version();
        document["seed"] = device.emulation->seed;
        document["grid_order"] = to_string(device.emulation->grid_order);
    } else {
        document["nvrtc"] = runtime.implementation().store().nvrtc().version();
    }
    return document;
}

std::optional<NamedConfig> kernel_for(const Session& session,
                                      const std::vector<NamedConfig>& kernels, std::size_t index,
                                      const AttentionProblem& problem) {
    const device::Target& target = session.device().properties().target;
    const NamedConfig& kernel = kernels[index];
    const TileConfig config = config_for(kernel, problem, target);
    const auto is_named = [&](const NamedConfig& other) {
        return !other.is_default() && other.config == config;
    };
    if (!tuning::is_legal(config, problem, target) ||
        (kernel.is_default() && std::ranges::any_of(kernels, is_named))) {
        return std::nullopt;
    }
    return named_for(kernel, problem, target);
}

ProblemReport checked_report(Session& session, ProblemCheck& check, const CheckedProblem& problem,
                             const NamedConfig& kernel) {
    const auto plan = session.runtime().backward(problem.problem, kernel.config);
    try {
        return check.check(kernel.name, *plan);
    } catch (const Error& error) {
        // Only the emulated device tells what a kernel did wrong, and goes on to the next.
        if (error.code() != ErrorCode::kernel_fault) {
            throw;
        }
        return {
            .problem = problem, .kernel = kernel.name, .tensors = {}, .failures = {error.what()}};
    }
}

void print_heading(Runtime& runtime, const DeviceChoice& device) {
    fmt::print("{} ({})\n", runtime.device_name(), runtime.target());
    if (device.emulation) {
        fmt::print(
            "Kernels are executed on the CPU, under schedules of seed {} with blocks in {} order; "
            "only small\nproblems, each compared with fp64 on the host. The large ones need a "
            "GPU.\n",
            device.emulation->seed, to_string(device.emulation->grid_order));
    }
    fmt::print(
        "Relative L2 of each gradient and the worst row of all, the largest of each group.\n\n{}",
        table_heading());
    std::fflush(stdout);
}

nlohmann::json& VerificationTally::add(const ProblemReport& report) {
    for (const std::string& failure : report.failures) {
        failures_.push_back(
            fmt::format("{} {}: {}", report.kernel, to_string(report.problem), failure));
    }
    reports_.push_back(to_json(report));
    return reports_.back();
}

void VerificationTally::add_line(const KernelSummary& summary, const std::string& line) {
    if (summary.problems() > 0) {
        fmt::print("{}", line);
        std::fflush(stdout);
        problems_ += summary.problems();
        failed_ += summary.failed();
    }
}

void VerificationTally::finish(const VerifyOptions& options, Session& session, json more,
                               const std::string& remark) {
    print_failures(options, failures_);
    fmt::print("{}", remark);
    print_bank_conflicts(session);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
    fmt::print("\n{} problems, {} failed ({:.1f} s)\n", problems_, failed_, seconds.count());
    if (options.json.empty()) {
        return;
    }
    json document = environment(session.runtime(), options.device);
    document["problems"] = problems_;
    document["failed"] = failed_;
    document["seconds"] = seconds.count();
    document["reports"] = reports_;
    document.update(more);
    write_json(options.json, document, std::cout);
}

std::string replay_command(const VerifyOptions& options) {
    std::string command = "backlight verify --device ";
    if (options.device.emulation) {
        command += fmt::format("emulated --seed {} --grid-order {}", options.device.emulation->seed,
                               to_string(options.device.emulation->grid_order));
    } else {
        command += std::to_string(options.device.ordinal);
    }
    command += options.quick ? " --quick" : "";
    command += options.grid ? fmt::format(" --grid --grid-size {}", to_string(*options.grid)) : "";
    for (const std::string& kernel : options.kernels) {
        command += " --kernel " + kernel;
    }
    for (const std::string& tile : options.tiles) {
        command += " --tile " + tile;
    }
    for (const std::int64_t head_dim : options.head_dims) {
        command += fmt::format(" --head-dim {}", head_dim);
    }
    for (const DataType dtype : options.dtypes) {
        command += fmt::format(" --dtype {}", to_string(dtype));
    }
    if (options.repeats) {
        command += fmt::format(" --repeats {}", *options.repeats);
    }
    return command + options.features.command_line();
}

}  // namespace backlight::tool
