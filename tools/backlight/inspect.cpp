#include "inspect.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "attention/kernels.hpp"
#include "attention/validation.hpp"
#include "backlight/error.hpp"
#include "compiler/kernel_store.hpp"
#include "device/cuda_device.hpp"
#include "disassembler.hpp"
#include "json_file.hpp"
#include "runtime_implementation.hpp"

namespace backlight::tool {

namespace {

std::vector<device::Target> targets_of(const InspectOptions& options,
                                       const RuntimeOptions& environment) {
    std::vector<device::Target> targets;
    for (const std::string& name : options.targets) {
        targets.push_back(device::target_by_name(name));
    }
    if (!targets.empty()) {
        return targets;
    }
    try {
        const device::CudaDevice device(device::open_driver(environment.driver_path),
                                        options.device);
        return {device.properties().target};
    } catch (const Error& error) {
        // A device that was asked for by its number must be there.
        if (options.device != 0 && error.code() != ErrorCode::driver_not_found) {
            throw;
        }
        // No GPU, or none that the kernels run on; `doctor` tells which. Compiling needs none.
        return {device::target_by_name("sm_90a"), device::target_by_name("sm_120a")};
    }
}

AttentionProblem problem_of(const InspectOptions& options, const NamedConfig& named) {
    const std::int64_t seqlen = options.seqlen.value_or(default_seqlen(named.config));
    return options.features.applied_to({.batch = 1,
                                        .heads = 1,
                                        .seqlen_q = seqlen,
                                        .seqlen_kv = seqlen,
                                        .head_dim = options.head_dim,
                                        .causal = options.causal,
                                        .dtype = options.dtype});
}

/// Why the target does not take it, or nothing.
std::optional<std::string> refusal_of(const Inspection& wanted, const device::Target& target) {
    try {
        attention::validate(wanted.problem);
        attention::validate(wanted.config, wanted.problem, target);
        return std::nullopt;
    } catch (const Error& error) {
        return error.what();
    }
}

void compile(Inspection& inspection, const RuntimeOptions& environment,
             const device::Target& target) {
    const auto chain = attention::backward_chain(inspection.problem, inspection.config, target);
    const auto start = std::chrono::steady_clock::now();
    // A store for each combination: what one compiled must not make another look compiled fast.
    compiler::KernelStore store(
        {.nvrtc_path = environment.nvrtc_path, .cache_directory = environment.cache_directory});
    inspection.nvrtc_version = store.nvrtc().version();
    for (const attention::KernelPlan& plan : chain) {
        const compiler::KernelLookup compiled = store.get(plan.request);
        inspection.kernels.push_back({.resources = attention::kernel_resources(plan, compiled),
                                      .source = plan.request.source,
                                      .specialisation = plan.request.specialisation,
                                      .options = compiler::KernelStore::options_for(target),
                                      .cubin = compiled.kernel->cubin});
    }
    inspection.wall_milliseconds =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

/// Whether a preset that nobody named says nothing about the target: Hopper's of others, and what
/// plans choose where that is one of the others.
bool is_needless(const NamedConfig& named, const TileConfig& config, const device::Target& target) {
    if (named.is_default()) {
        return std::ranges::count(kernel_presets(), config_name(config), &KernelPreset::name) > 0;
    }
    return config.family == KernelFamily::wgmma && target.compute_major != 9;
}

void count_kernels(Inspection& inspection, const Disassembler& disassembler,
                   const device::Target& target) {
    for (InspectedKernel& kernel : inspection.kernels) {
        kernel.counted = count_kernel(disassembler.listing(kernel.cubin), kernel.resources.kernel,
                                      inspection.problem, inspection.config, target);
    }
}

void show_specialisations(const Inspection& inspection, std::ostream& out) {
    for (const InspectedKernel& kernel : inspection.kernels) {
        out << fmt::format("\n// {} {} {}: specialisation.cuh of {}\n", inspection.name,
                           inspection.target, kernel.resources.kernel, kernel.source);
        for (const std::string& option : kernel.options) {
            out << "// option " << option << '\n';
        }
        out << kernel.specialisation;
    }
}

}  // namespace

std::vector<Inspection> inspect_kernels(const InspectOptions& options,
                                        std::vector<std::string>* left_out) {
    RuntimeOptions runtime_options;
    runtime_options.disable_disk_cache = !options.use_cache;
    const RuntimeOptions environment = with_environment(runtime_options);
    // Before anything is compiled: it may not be there.
    const auto disassembler =
        options.counts ? std::optional<Disassembler>(options.disassembler) : std::nullopt;
    const std::vector<device::Target> targets = targets_of(options, environment);
    std::vector<NamedConfig> configs = named_configs(options.kernels, options.tiles);
    std::vector<Inspection> inspections;
    for (const device::Target& target : targets) {
        for (NamedConfig& named : configs) {
            if (options.bake_seqlen) {
                named.config.sequence_lengths = SequenceLengths::compile_time;
            }
            const auto wanted_for = [&](const device::Target& one) {
                const AttentionProblem problem = problem_of(options, named);
                return Inspection{.name = named.name,
                                  .target = one.name,
                                  .problem = problem,
                                  .config = config_for(named, problem, one)};
            };
            Inspection inspection = wanted_for(target);
            if (options.kernels.empty() && options.tiles.empty() &&
                is_needless(named, inspection.config, target)) {
                continue;
            }
            // Nobody named this target: it is enough that another one takes the kernel.
            if (const auto refusal = refusal_of(inspection, target);
                refusal && options.targets.empty() &&
                std::ranges::any_of(targets, [&](const device::Target& one) {
                    return !refusal_of(wanted_for(one), one);
                })) {
                if (left_out != nullptr) {
                    left_out->push_back(
                        fmt::format("{} for {}: {}", named.name, target.name, *refusal));
                }
                continue;
            }
            compile(inspection, environment, target);
            inspections.push_back(std::move(inspection));
            if (disassembler) {
                count_kernels(inspections.back(), *disassembler, target);
            }
        }
    }
    return inspections;
}

void inspect(const InspectOptions& options, std::ostream& out) {
    check_json_path(options.json);
    std::vector<std::string> left_out;
    const std::vector<Inspection> inspections = inspect_kernels(options, &left_out);
    if (!options.dump_cubin.empty()) {
        dump_cubins(inspections, options.dump_cubin);
    }
    if (!options.dump_source.empty()) {
        dump_sources(inspections, options.dump_source);
    }
    if (options.json != "-") {
        out << format_inspections(inspections) << format_counts(inspections);
        for (const std::string& each : left_out) {
            out << fmt::format("left out: {}\n", each);
        }
        if (options.show_specialisation) {
            for (const Inspection& inspection : inspections) {
                show_specialisations(inspection, out);
            }
        }
    }
    if (!options.json.empty()) {
        write_json(options.json, to_json(inspections, options.show_specialisation), out);
    }
}

}  // namespace backlight::tool
