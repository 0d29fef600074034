#include "tune_command.hpp"

#include <memory>

#include "arguments.hpp"
#include "tune.hpp"

namespace backlight::tool {

void add_tune(const Setup& setup) {
    struct Arguments {
        TuneCommandOptions options;
        std::string dtype = "bf16";
        std::string budget = "60s";
        FeatureArguments features;
        bool causal = false, full = false, both = false;
    };
    const auto arguments = std::make_shared<Arguments>();
    TuneCommandOptions& options = arguments->options;
    CLI::App* command = setup.app.add_subcommand(
        "tune", "Time configurations on the GPU, and let plans use the best from then on");
    command->add_option("--shape", options.shapes,
                        "batch_heads_seqlen_headdim, may be repeated [8_16_4096_128]");
    command->add_flag("--causal", arguments->causal, "With the causal mask (the default)");
    command->add_flag("--full", arguments->full, "Without a mask");
    command->add_flag("--both", arguments->both, "With and without the mask");
    command->add_option("--dtype", arguments->dtype, "bf16 or fp16 [bf16]");
    arguments->features.add_to(*command);
    arguments->features.add_heads_to(*command);
    arguments->features.add_seqlen_kv_to(*command);
    command->add_option("--kernel-family", options.kernel_family,
                        "mma, wgmma or mma_resident [all that the card takes]");
    command->add_option("--tile", options.tiles,
                        "block_q,block_kv,warps,stages or family=wgmma,heads_per_group=8, may be "
                        "repeated: only these and the presets");
    command->add_option("--budget", arguments->budget, "Time for each problem [60s]");
    command->add_option("--repeats", options.repeats, "Samples of the fastest few [20]");
    command->add_flag("--retime", options.retime, "Also what the database has fresh figures of");
    command->add_option("--database", options.database,
                        "[BACKLIGHT_TUNING_PATH, else beside the cubin cache]");
    command->add_option("--merge", options.merge,
                        "Database to take records from, may be repeated; needs no GPU");
    command->add_option("--export", options.export_file,
                        "File for the records that plans may use; needs no GPU");
    command->add_option("--json", options.json, "File for every sample; - for standard output");
    command->add_option("--plot", options.plot, "Picture, .svg or .png, by gnuplot");
    command->add_option("--plot-from", options.plot_from,
                        "JSON of an earlier tune to draw, may be repeated; needs no GPU");
    command->callback([setup, arguments] {
        setup.action = [setup, arguments] {
            TuneCommandOptions& chosen = arguments->options;
            chosen.device = setup.device;
            chosen.full = arguments->full || arguments->both;
            chosen.causal = arguments->causal || arguments->both || !chosen.full;
            chosen.dtype = parse_dtype(arguments->dtype);
            chosen.features = arguments->features.resolve();
            chosen.budget_seconds = parse_budget(arguments->budget);
            tune(chosen, setup.out, setup.errors);
            return 0;
        };
    });
}

}  // namespace backlight::tool
