#include "reproduce.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "attention/kernels.hpp"
#include "backlight/error.hpp"
#include "backlight/tile_config.hpp"
#include "bench.hpp"
#include "environment.hpp"
#include "json_file.hpp"
#include "problem_check.hpp"
#include "reproduction.hpp"
#include "session/gpu.hpp"

namespace backlight::tool {

namespace {

/// The presets that the card takes go into `kernels`; of the others, why not.
void choose_kernels(const std::vector<std::string>& names, const device::Target& target,
                    Reproduction& reproduction) {
    for (const std::string& name : names) {
        const TileConfig& config = kernel_preset(name);
        try {
            attention::backward_chain(reproduction.table.problem(), config, target);
            reproduction.kernels.push_back(name);
        } catch (const Error& error) {
            reproduction.left_out.push_back({name, error.what()});
        }
    }
    if (reproduction.kernels.empty()) {
        throw Error(ErrorCode::unsupported,
                    fmt::format("{} takes none of {}: {}", target.name, fmt::join(names, ", "),
                                reproduction.left_out.front().reason));
    }
}

/// Compares each kernel's gradients with fp32, all heads of them. A kernel whose launch fails
/// leaves nothing to go on with: that is thrown, with the kernel's name.
void check_accuracy(Gpu& gpu, Reproduction& reproduction) {
    SupportKernels support(gpu);
    ProblemCheck check(support, {.problem = reproduction.table.problem(),
                                 .reference = Reference::device_fp32,
                                 .repeats = 1});
    for (const std::string& name : reproduction.kernels) {
        try {
            reproduction.accuracy.push_back(check.check(name, kernel_preset(name)));
        } catch (const Error& error) {
            throw Error(error.code(),
                        fmt::format("{}: {}\n--kernel, repeated, measures the others alone", name,
                                    error.what()));
        }
    }
}

/// What `bench` writes of the kernels on the table's problem.
nlohmann::ordered_json bench_document(const ReproduceOptions& options,
                                      const Reproduction& reproduction) {
    const PublishedTable& table = reproduction.table;
    std::ostringstream document;
    bench({.device = options.device,
           .shapes = {table.shape},
           .kernels = reproduction.kernels,
           .causal = table.causal,
           .full = !table.causal,
           .dtype = table.dtype,
           .repeats = options.repeats,
           .cool = options.cool,
           .matmul = options.matmul,
           .json = "-"},
          document);
    return nlohmann::ordered_json::parse(document.str());
}

/// What is said before anything is measured.
void announce(const Reproduction& reproduction, const std::string& peers_problem,
              std::ostream& out) {
    const PublishedTable& table = reproduction.table;
    const Environment& environment = reproduction.environment;
    out << fmt::format("{} ({}), driver {}, CUDA {}, NVRTC {}, backlight {} ({})\n",
                       environment.gpu, environment.target,
                       environment.driver_version.empty() ? "?" : environment.driver_version,
                       environment.cuda_version, environment.nvrtc_version, environment.version,
                       environment.git_revision);
    out << fmt::format("Reproduces \"{}\" ({}): {} {} {}, {} at {} MHz and {} W\n", table.title,
                       table.date, table.shape, to_string(table.dtype),
                       table.causal ? "causal" : "full", table.gpu, table.sm_clock_mhz,
                       table.power_limit_watts);
    const auto told = [](std::optional<double> value) {
        return value ? fmt::format("{:.0f}", *value) : std::string("?");
    };
    const ClockState& clocks = reproduction.clocks_before;
    out << fmt::format("SM clock {} MHz now, {} MHz at most; power limit {} W\n",
                       told(clocks.sm_clock_mhz), told(clocks.highest_sm_clock_mhz),
                       told(clocks.power_limit_watts));
    if (is_published_card(reproduction)) {
        const auto commands =
            locking_commands(reproduction.bus_id, table.sm_clock_mhz, table.power_limit_watts);
        out << "The published figures are of a locked clock. This command sets none; you can, by "
               "the first two of these\nbefore it, and free it again by the last:\n    "
            << fmt::format("{}\n", fmt::join(commands, "\n    "));
    }
    if (!peers_problem.empty()) {
        out << fmt::format("Without peers: {}\n", peers_problem);
    }
    out << '\n' << std::flush;
}

/// Everything in this process. The device is left when it ends, so that the peers' process has it
/// to itself. `tables`: tell what is going on.
void measure_alone(const ReproduceOptions& options, const std::string& peers_problem, bool tables,
                   std::ostream& out, Reproduction& reproduction) {
    RuntimeOptions runtime_options;
    runtime_options.device = options.device;
    Gpu gpu(runtime_options);
    choose_kernels(options.kernels.empty() ? numbered_presets() : options.kernels,
                   gpu.device().properties().target, reproduction);
    const Nvml nvml(gpu.cuda_device());
    reproduction.environment = environment_of(gpu, nvml);
    reproduction.bus_id = nvml.bus_id();
    reproduction.clocks_before = clock_state(nvml);
    if (tables) {
        announce(reproduction, peers_problem, out);
    }
    // Whatever a kernel does, there is a document to send.
    try {
        check_accuracy(gpu, reproduction);
        reproduction.bench = bench_document(options, reproduction);
    } catch (const Error& error) {
        reproduction.failure = fmt::format("{}: {}", to_string(error.code()), error.what());
    }
    reproduction.clocks_after = clock_state(nvml);
}

void measure_beside_peers(const ReproduceOptions& options, const PeersTools& tools,
                          Reproduction& reproduction) {
    const PublishedTable& table = reproduction.table;
    reproduction.peers = run_peers(
        tools, {.device = options.device,
                .cell = fmt::format("{}_{}", table.shape, table.causal ? "causal" : "full"),
                .kernels = reproduction.kernels,
                .peers = reproduction.wanted_peers,
                .regime = reproduction.regime,
                .repeats = options.repeats});
    try {
        rows_of(reproduction);
    } catch (const Error& error) {
        reproduction.peers.problem = error.what();
        reproduction.peers.document = nullptr;
    }
}

void check_options(const ReproduceOptions& options) {
    if (options.repeats < least_reported_repeats) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("repeats is {}: it must be {} or more with --reproduce, which is "
                                "for reporting",
                                options.repeats, least_reported_repeats));
    }
    std::ranges::for_each(options.kernels, kernel_preset);
    for (const std::string& kernel : options.kernels) {
        if (std::ranges::count(options.kernels, kernel) > 1) {
            throw Error(ErrorCode::invalid_argument,
                        fmt::format("kernel is '{}' twice: with --reproduce each must be given "
                                    "once, as a row of the table",
                                    kernel));
        }
    }
    check_json_path(options.json);
}

}  // namespace

bool reproduce(const PublishedTable& table, const ReproduceOptions& options, std::ostream& out) {
    check_options(options);
    const PeersTools tools = find_peers(options.peers, executable_folder());
    const bool tables = options.json != "-";
    Reproduction reproduction{
        .table = table, .regime = options.cool ? "cool" : "hot", .wanted_peers = {"cudnn", "fa2"}};
    measure_alone(options, tools.problem, tables, out, reproduction);
    if (tables && tools.problem.empty()) {
        out << fmt::format("The same beside PyTorch {}, in a process of its own …\n\n",
                           tools.versions.value("torch", ""))
            << std::flush;
    }
    measure_beside_peers(options, tools, reproduction);
    const nlohmann::ordered_json document = to_json(reproduction);
    write_json(options.json, document, out);
    if (tables) {
        out << format_reproduction(reproduction)
            << fmt::format("\n{}: written. {}.\n", options.json,
                           document.at("send").get<std::string>());
    }
    return reproduction.failure.empty() &&
           std::ranges::all_of(reproduction.accuracy, &ProblemReport::passed);
}

}  // namespace backlight::tool
