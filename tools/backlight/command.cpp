#include "command.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "arguments.hpp"
#include "backlight/error.hpp"
#include "bench.hpp"
#include "cache_command.hpp"
#include "doctor.hpp"
#include "emulation_arguments.hpp"
#include "inspect.hpp"
#include "prebuild.hpp"
#include "reproduce_command.hpp"
#include "run.hpp"
#include "session/device_choice.hpp"
#include "subcommand.hpp"
#include "tune_command.hpp"
#include "verify.hpp"
#include "version.hpp"

namespace backlight::tool {

Error refused(const char* option, const std::string& value, const char* rule) {
    return {ErrorCode::invalid_argument,
            fmt::format("{} is '{}': it must be {}", option, value, rule)};
}

namespace {

/// The chosen CUDA device, for subcommands that have no use for the emulated one; `rule` says why.
int cuda_ordinal(const DeviceChoice& device, const char* rule) {
    if (device.emulation) {
        throw refused("device", "emulated", rule);
    }
    return device.ordinal;
}

void add_bench(const Setup& setup) {
    struct Arguments {
        BenchOptions options;
        std::string direction = "backward";
        std::string dtype = "bf16";
        std::string layout = "bhsd";
        std::string regime = "cool";
        bool causal = false, full = false, both = false;
        bool no_pdl = false, no_matmul = false;
        ReproduceArguments reproduce;
        FeatureArguments features;
    };
    const auto arguments = std::make_shared<Arguments>();
    BenchOptions& options = arguments->options;
    CLI::App* command = setup.app.add_subcommand(
        "bench", "Time the whole backward on the GPU, beside the card's peak and lower bounds");
    command->add_option("--shape", options.shapes,
                        "batch_heads_seqlen_headdim, may be repeated [8_16_4096_128]");
    command->add_option("--kernel", options.kernels, fmt::format("{} [all]", kernel_option_text));
    command->add_option(
        "--tile", options.tiles,
        "block_q,block_kv,warps,stages or family=wgmma,heads_per_group=8, may be repeated");
    command->add_option("--direction", arguments->direction, "backward, the only one there is");
    command->add_flag("--causal", arguments->causal, "With the causal mask (the default)");
    command->add_flag("--full", arguments->full, "Without a mask");
    command->add_flag("--both", arguments->both, "With and without the mask");
    arguments->features.add_to(*command);
    arguments->features.add_heads_to(*command);
    arguments->features.add_seqlen_kv_to(*command);
    command->add_option("--dtype", arguments->dtype, "bf16 or fp16 [bf16]");
    command->add_option("--layout", arguments->layout,
                        "bhsd, bshd, packed_qkv, padded or broadcast [bhsd]");
    command
        ->add_option("--lengths", options.lengths,
                     "Lengths of packed sequences, for example 4096,128,1024: in place of the "
                     "shape's batch and length")
        ->delimiter(',')
        // CLI11 would read an empty text as a 0.
        ->check([](const std::string& text) {
            return std::string(text.empty() ? "a length is empty: each must be a number" : "");
        });
    command->add_flag("--bake-seqlen", options.bake_seqlen,
                      "Sequence lengths as constants of the kernels");
    command->add_flag("--no-pdl", arguments->no_pdl, "Without programmatic dependent launch");
    command->add_option("--repeats", options.repeats,
                        fmt::format("Repetitions [30]; below {} they are not for reporting",
                                    least_reported_repeats));
    command->add_option("--regime", arguments->regime,
                        "cool (a rest before each repetition) or hot (none) [cool]");
    command->add_option("--json", options.json, "File for every sample; - for standard output");
    command->add_option("--plot", options.plot,
                        "Picture over sequence lengths, .svg or .png, by gnuplot");
    command->add_option("--plot-from", options.plot_from,
                        "JSON of an earlier bench to draw, may be repeated; measures nothing");
    command->add_option("--profile", options.profile,
                        "Run this kernel once between cuProfilerStart and cuProfilerStop");
    command->add_option("--emulate-tensor-rate", options.emulate_tensor_rate,
                        "Slow the tensor cores to the rate of a target, for example sm_120, and "
                        "tell how busy kernels keep them (docs/emulated_tensor_rate.md)");
    command->add_flag("--host-time", options.host_time,
                      "Measure what a call costs the host, and the cold compile");
    command->add_flag("--no-matmul", arguments->no_matmul, "Leave the matrix product out");
    command->add_option("--peak-tflops", options.peak_tflops, "In place of the datasheet's");
    command->add_option("--peak-bandwidth", options.peak_bandwidth,
                        "GB/s, in place of the datasheet's");
    arguments->reproduce.add_to(*command);
    command->callback([setup, arguments, command] {
        setup.action = [setup, arguments, command] {
            BenchOptions& chosen = arguments->options;
            if (arguments->direction != "backward") {
                throw refused("direction", arguments->direction, "backward");
            }
            if (arguments->regime != "cool" && arguments->regime != "hot") {
                throw refused("regime", arguments->regime, "cool or hot");
            }
            arguments->reproduce.check(*command);
            if (arguments->reproduce.asked()) {
                chosen.cool = arguments->regime == "cool";
                chosen.matmul = !arguments->no_matmul;
                return arguments->reproduce.run(setup, chosen) ? exit_success : exit_failure;
            }
            chosen.device = cuda_ordinal(
                setup.device,
                "a CUDA device: how long the emulated one takes says nothing about a GPU");
            chosen.full = arguments->full || arguments->both;
            chosen.causal = arguments->causal || arguments->both || !chosen.full;
            chosen.dtype = parse_dtype(arguments->dtype);
            chosen.features = arguments->features.resolve();
            chosen.layout = layout_by_name(arguments->layout);
            chosen.cool = arguments->regime == "cool";
            chosen.programmatic_dependent_launch = !arguments->no_pdl;
            chosen.matmul = !arguments->no_matmul;
            bench(chosen, setup.out);
            return exit_success;
        };
    });
}

void add_verify(const Setup& setup) {
    struct Arguments {
        VerifyOptions options;
        std::vector<std::string> dtypes;
        bool grid = false;
        std::string grid_size;
        FeatureArguments features;
        EmulationArguments schedule;
    };
    const auto arguments = std::make_shared<Arguments>();
    VerifyOptions& options = arguments->options;
    CLI::App* command = setup.app.add_subcommand(
        "verify",
        "Compare kernels with references, on a GPU or emulated; exit code 1 if one is wrong");
    command->add_option("--kernel", options.kernels, fmt::format("{} [all]", kernel_option_text));
    command->add_option(
        "--tile", options.tiles,
        "block_q,block_kv,warps,stages or family=wgmma,heads_per_group=8, may be repeated");
    command->add_option("--head-dim", options.head_dims, "May be repeated [64 128]");
    command->add_option("--dtype", arguments->dtypes, "bf16 or fp16, may be repeated [both]");
    arguments->features.add_to(*command);
    arguments->features.add_heads_to(*command);
    command->add_option("--repeats", options.repeats, "Runs of each problem [3]");
    arguments->schedule.add_to(*command);
    command->add_flag("--quick", options.quick, "A few problems of each group only");
    command->add_flag(
        "--grid", arguments->grid,
        "Problems with every pair of lengths, masks, heads, layouts, inputs and so on");
    command->add_option("--grid-size", arguments->grid_size,
                        "small or large [small on the emulated device, large on a GPU]");
    command->add_flag(
        "--against-emulated", options.against_emulated,
        "Run the emulated device's problems on the GPU and on both compare dK and dV");
    command->add_option("--json", options.json, "File for every figure");
    command->callback([setup, arguments] {
        setup.action = [setup, arguments] {
            VerifyOptions& chosen = arguments->options;
            chosen.device = arguments->schedule.applied_to(setup.device);
            chosen.features = arguments->features.resolve();
            if (!arguments->dtypes.empty()) {
                chosen.dtypes.clear();
            }
            for (const std::string& dtype : arguments->dtypes) {
                chosen.dtypes.push_back(parse_dtype(dtype));
            }
            if (chosen.against_emulated && chosen.device.emulation) {
                throw refused("against-emulated", "given",
                              "left out with --device emulated: it compares a CUDA device with it");
            }
            if (chosen.repeats && *chosen.repeats < 1) {
                throw refused("repeats", std::to_string(*chosen.repeats), "1 or more");
            }
            if (chosen.repeats == 1 && chosen.features.deterministic) {
                throw refused("repeats", "1",
                              "2 or more with --deterministic: one run has no other to have the "
                              "same bits as");
            }
            if (!arguments->grid && !arguments->grid_size.empty()) {
                throw refused("grid-size", arguments->grid_size, "left out without --grid");
            }
            if (arguments->grid) {
                if (chosen.quick || chosen.against_emulated ||
                    chosen.features != ProblemFeatures{}) {
                    throw refused("grid", "given",
                                  "left out with --quick, --against-emulated and features of "
                                  "problems: the grid has all of these features");
                }
                const GridSize usual = chosen.device.emulation ? GridSize::small : GridSize::large;
                chosen.grid =
                    arguments->grid_size.empty() ? usual : grid_size_by_name(arguments->grid_size);
            }
            return verify(chosen);
        };
    });
}

void add_run(const Setup& setup) {
    struct Arguments {
        RunOptions options;
        std::string layout = "bhsd";
        FeatureArguments features;
        EmulationArguments schedule;
    };
    const auto arguments = std::make_shared<Arguments>();
    RunOptions& options = arguments->options;
    CLI::App* command = setup.app.add_subcommand(
        "run", "q, k, v, do (and o, lse) from a safetensors file to dq, dk, dv in another");
    command->add_option("--in", options.in, "File to read")->required();
    command->add_option("--out", options.out, "File to write")->required();
    command->add_option(
        "--kernel", options.kernel,
        "Preset, a configuration's name, or default (what the library chooses) [default]");
    command->add_flag("--causal", options.causal, "With the causal mask");
    arguments->features.add_to(*command);
    command->add_option("--softmax-scale", options.softmax_scale, "[1/sqrt(head_dim)]");
    command->add_option("--layout", arguments->layout, "bhsd or bshd [bhsd]");
    arguments->schedule.add_to(*command);
    command->callback([setup, arguments] {
        setup.action = [setup, arguments] {
            arguments->options.device = arguments->schedule.applied_to(setup.device);
            arguments->options.layout = layout_by_name(arguments->layout, file_layouts);
            arguments->options.features = arguments->features.resolve();
            return run_file(arguments->options);
        };
    });
}

void add_inspect(const Setup& setup) {
    struct Arguments {
        InspectOptions options;
        FeatureArguments features;
        std::string dtype = "bf16";
        std::string show;
    };
    const auto arguments = std::make_shared<Arguments>();
    InspectOptions& options = arguments->options;
    CLI::App* command = setup.app.add_subcommand(
        "inspect", "Compile and tell registers, spills, shared memory; needs no GPU");
    command->add_option("--target", options.targets,
                        "For example sm_120a, may be repeated [the GPU's, else sm_90a sm_120a]");
    command->add_option("--kernel", options.kernels, fmt::format("{} [all]", kernel_option_text));
    command->add_option(
        "--tile", options.tiles,
        "block_q,block_kv,warps,stages or family=wgmma,heads_per_group=8, may be repeated");
    command->add_option("--head-dim", options.head_dim, "[128]");
    command->add_flag("--causal", options.causal, "With the causal mask");
    command->add_option("--dtype", arguments->dtype, "bf16 or fp16 [bf16]");
    command->add_option("--seqlen", options.seqlen, "Sequence length [about 4096]");
    arguments->features.add_to(*command);
    arguments->features.add_query_heads_to(*command);
    arguments->features.add_heads_to(*command);
    arguments->features.add_seqlen_kv_to(*command);
    command->add_flag("--bake-seqlen", options.bake_seqlen,
                      "The sequence length as a constant of the kernel");
    command->add_flag("--cache", options.use_cache, "Use the cubin cache; compile afresh without");
    command->add_option("--json", options.json, "File; - for standard output");
    command->add_option("--show", arguments->show, "specialisation: the rendered text and options");
    command->add_flag("--counts", options.counts,
                      "Count the machine instructions of main loops, and tell what bounds them");
    command->add_option("--disassembler", options.disassembler,
                        "nvdisasm or cuobjdump, for --counts [BACKLIGHT_DISASSEMBLER_PATH, PATH]");
    command->add_option("--dump-cubin", options.dump_cubin, "Directory for the cubins");
    command->add_option("--dump-source", options.dump_source,
                        "Directory for all that NVRTC is given");
    command->callback([setup, arguments] {
        setup.action = [setup, arguments] {
            InspectOptions& chosen = arguments->options;
            if (!arguments->show.empty() && arguments->show != "specialisation") {
                throw refused("show", arguments->show, "specialisation");
            }
            if (!chosen.disassembler.empty() && !chosen.counts) {
                throw refused("disassembler", chosen.disassembler,
                              "left out without --counts, which alone needs it");
            }
            chosen.device = cuda_ordinal(
                setup.device,
                "a CUDA device, or left out where there is a --target: registers and spills are "
                "what NVRTC makes of a kernel, and the emulated device has the host's compiler");
            chosen.dtype = parse_dtype(arguments->dtype);
            chosen.features = arguments->features.resolve();
            chosen.show_specialisation = !arguments->show.empty();
            inspect(chosen, setup.out);
            return exit_success;
        };
    });
}

void add_doctor(const Setup& setup) {
    const auto json = std::make_shared<std::string>();
    CLI::App* command = setup.app.add_subcommand(
        "doctor", "What was found of driver, NVRTC, GPUs and cache, and what to do about the rest");
    command->add_option("--json", *json, "File; - for standard output");
    command->footer(fmt::format(
        "Exit code: {} if kernels can be compiled and run, {} if only compiled, {} if neither.",
        doctor_can_run, doctor_can_compile, doctor_can_do_neither));
    command->callback(
        [setup, json] { setup.action = [setup, json] { return doctor(*json, setup.out); }; });
}

}  // namespace

int run_command(const std::vector<std::string>& arguments, std::ostream& out,
                std::ostream& errors) {
    try {
        CLI::App app("Attention backward, compiled at run time", "backlight");
        app.set_version_flag("--version",
                             fmt::format("backlight {} ({})", version(), git_revision()));
        std::string device_text = "0";
        app.add_option("--device", device_text,
                       "CUDA device, or emulated: execute the kernels on the CPU [0]");
        // Global options may come after the subcommand, where people put them.
        app.fallthrough();
        app.require_subcommand(0, 1);
        DeviceChoice device;
        Action action;
        const Setup setup{
            .app = app, .device = device, .out = out, .errors = errors, .action = action};
        add_bench(setup);
        add_tune(setup);
        add_verify(setup);
        add_run(setup);
        add_inspect(setup);
        add_prebuild(setup);
        add_cache(setup);
        add_doctor(setup);
        try {
            // CLI11 takes them last first.
            app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
        } catch (const CLI::ParseError& error) {
            if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
                return app.exit(error, out, errors);  // --help, --version
            }
            const bool stray = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
            errors << "backlight: usage: " << error.what()
                   << (stray && app.got_subcommand("cache")
                           ? "\na directory to look in is named by --cache, a pack by --layer"
                           : "")
                   << "\nbacklight --help and backlight COMMAND --help tell the options\n";
            return exit_usage;
        }
        if (!action) {
            errors << "backlight: usage: a subcommand is required: bench, tune, verify, run, "
                      "inspect, prebuild, cache or doctor\nbacklight --help tells the options\n";
            return exit_usage;
        }
        device = parse_device(device_text);
        return action();
    } catch (const Error& error) {
        errors << "backlight: " << to_string(error.code()) << ": " << error.what() << '\n';
    } catch (const std::exception& error) {
        errors << "backlight: unexpected: " << error.what() << '\n';
    }
    return exit_failure;
}

}  // namespace backlight::tool
