#include "inspect.hpp"

#include <fmt/format.h>

#include <chrono>

#include "attention/kernels.hpp"
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

Inspection inspect_one(const InspectOptions& options, const RuntimeOptions& environment,
                       NamedConfig named, const device::Target& target) {
    if (options.bake_seqlen) {
        named.config.sequence_lengths = SequenceLengths::compile_time;
    }
    const std::int64_t seqlen = options.seqlen.value_or(default_seqlen(named.config));
    Inspection inspection{.name = named.name,
                          .target = target.name,
                          .problem = {.batch = 1,
                                      .heads = 1,
                                      .seqlen_q = seqlen,
                                      .seqlen_kv = seqlen,
                                      .head_dim = options.head_dim,
                                      .causal = options.causal,
                                      .dtype = options.dtype},
                          .config = named.config};
    const auto chain = attention::backward_chain(inspection.problem, named.config, target);
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
    return inspection;
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

std::vector<Inspection> inspect_kernels(const InspectOptions& options) {
    RuntimeOptions runtime_options;
    runtime_options.disable_disk_cache = !options.use_cache;
    const RuntimeOptions environment = with_environment(runtime_options);
    const std::vector<NamedConfig> configs = named_configs(options.kernels, options.tiles);
    // Before anything is compiled: it may not be there.
    const auto disassembler =
        options.counts ? std::optional<Disassembler>(options.disassembler) : std::nullopt;
    std::vector<Inspection> inspections;
    for (const device::Target& target : targets_of(options, environment)) {
        for (const NamedConfig& named : configs) {
            // Of the presets that nobody named, Hopper's for Hopper.
            if (options.kernels.empty() && named.config.family == KernelFamily::wgmma &&
                options.tiles.empty() && target.compute_major != 9) {
                continue;
            }
            inspections.push_back(inspect_one(options, environment, named, target));
            if (disassembler) {
                count_kernels(inspections.back(), *disassembler, target);
            }
        }
    }
    return inspections;
}

void inspect(const InspectOptions& options, std::ostream& out) {
    check_json_path(options.json);
    const std::vector<Inspection> inspections = inspect_kernels(options);
    if (!options.dump_cubin.empty()) {
        dump_cubins(inspections, options.dump_cubin);
    }
    if (!options.dump_source.empty()) {
        dump_sources(inspections, options.dump_source);
    }
    if (options.json != "-") {
        out << format_inspections(inspections) << format_counts(inspections);
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
