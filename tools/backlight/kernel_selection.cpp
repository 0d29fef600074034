#include "kernel_selection.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "attention/kernels.hpp"
#include "backlight/error.hpp"
#include "configuration_choice.hpp"
#include "manifest.hpp"
#include "problem_features.hpp"
#include "runtime_implementation.hpp"

namespace backlight::tool {

namespace {

std::vector<device::Target> targets_of(const SelectionOptions& options) {
    std::vector<device::Target> targets;
    for (const std::string& name : options.targets) {
        targets.push_back(device::target_by_name(name));
    }
    if (targets.empty()) {
        targets = {device::target_by_name("sm_90a"), device::target_by_name("sm_120a")};
    }
    return targets;
}

std::vector<NamedConfig> configs_of(const SelectionOptions& options) {
    if (options.kernels.empty() && options.tiles.empty()) {
        return {};
    }
    return named_configs(options.kernels, options.tiles);
}

/// The problem with lengths that the configuration takes, where any will do.
AttentionProblem with_lengths(AttentionProblem problem, const TileConfig& config) {
    return problem.seqlen_q == 0 ? with_seqlen(std::move(problem), default_seqlen(config))
                                 : problem;
}

SelectedChain chain_of(const WantedProblem& wanted, const NamedConfig& named,
                       const device::Target& target) {
    if (named.config.sequence_lengths == SequenceLengths::compile_time &&
        wanted.problem.seqlen_q == 0) {
        throw Error(ErrorCode::invalid_argument,
                    "seqlen is not given: it must be, for kernels of one sequence length");
    }
    SelectedChain chain{.problem = with_lengths(wanted.problem, named.config), .config = named};
    for (attention::KernelPlan& plan : attention::backward_chain(
             chain.problem, config_for(named, chain.problem, target), target)) {
        chain.kernels.push_back(std::move(plan.request));
    }
    if (chain.kernels.empty()) {
        // Queries are never none here.
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("seqlen_kv is {}: it must be above 0, as there are no kernels of "
                                "no keys",
                                chain.problem.seqlen_kv));
    }
    return chain;
}

/// What a kernel has been asked for.
struct Uses {
    std::size_t index = 0;
    /// Each in the order of the first use.
    std::vector<std::string> features, configs;

    static void add(std::vector<std::string>& values, std::string value) {
        if (std::ranges::find(values, value) == values.end()) {
            values.push_back(std::move(value));
        }
    }
};

}  // namespace

void SelectionArguments::add_to(CLI::App& command) {
    command.add_option("--target", options_.targets,
                       "For example sm_120a, may be repeated [sm_90a sm_120a]");
    command.add_option("--shape", options_.shapes, "batch_heads_seqlen_headdim, may be repeated");
    command.add_option("--head-dim", options_.head_dims,
                       "Kernels for every sequence length, may be repeated [64 128]");
    command.add_flag("--causal", options_.causal, "With the causal mask");
    command.add_flag("--full", options_.full, "Without a mask");
    command.add_flag("--both", both_, "With and without the mask (the default)");
    command.add_option("--dtype", dtypes_, "bf16 or fp16, may be repeated [both]");
    features_.add_to(command);
    features_.add_query_heads_to(command);
    features_.add_heads_to(command);
    features_.add_seqlen_kv_to(command);
    command.add_option("--kernel", options_.kernels,
                       fmt::format("{} [default]", kernel_option_text));
    command.add_option(
        "--tile", options_.tiles,
        "block_q,block_kv,warps,stages or family=wgmma,heads_per_group=8, may be repeated");
    command.add_flag("--bake-seqlen", options_.bake_seqlen,
                     "Sequence lengths of the shapes as constants of the kernels");
    command.add_flag("--tuned", options_.tuned,
                     "What the tuning database chooses, besides --kernel and --tile");
    command.add_option("--manifest", options_.manifest,
                       "JSON list of problems; --kernel, --tile and --target count where an entry "
                       "has none of its own");
}

SelectionOptions SelectionArguments::resolve() const {
    SelectionOptions options = options_;
    options.causal = options.causal || both_;
    options.full = options.full || both_;
    for (const std::string& dtype : dtypes_) {
        options.dtypes.push_back(parse_dtype(dtype));
    }
    options.features = features_.resolve();
    if (options.features != ProblemFeatures{} && !options.manifest.empty() &&
        options.shapes.empty() && options.head_dims.empty()) {
        throw refused("manifest", options.manifest,
                      "left out with options of problems, or beside --shape or --head-dim: its "
                      "entries have fields for the same");
    }
    if (options.features.heads && !options.shapes.empty()) {
        throw refused("heads", std::to_string(*options.features.heads),
                      "left out with --shape, which tells them");
    }
    return options;
}

std::vector<WantedProblem> wanted_problems(const SelectionOptions& options) {
    const ManifestDefaults defaults{.configs = configs_of(options), .targets = targets_of(options)};
    std::vector<WantedProblem> wanted;
    const auto add = [&](const std::string& origin, AttentionProblem problem) {
        const bool both = options.causal == options.full;
        for (const bool causal : {false, true}) {
            if (!both && causal != options.causal) {
                continue;
            }
            for (const DataType dtype : options.dtypes.empty()
                                            ? std::vector{DataType::bf16, DataType::fp16}
                                            : options.dtypes) {
                problem.causal = causal;
                problem.dtype = dtype;
                wanted.push_back({.origin = origin,
                                  .problem = options.features.applied_to(problem),
                                  .configs = defaults.configs,
                                  .targets = defaults.targets});
            }
        }
    };
    for (const std::string& text : options.shapes) {
        const Shape shape = parse_shape(text);
        add(fmt::format("shape {}", text), {.batch = shape.batch,
                                            .heads = shape.heads,
                                            .seqlen_q = shape.seqlen,
                                            .seqlen_kv = shape.seqlen,
                                            .head_dim = shape.head_dim});
    }
    std::vector<std::int64_t> head_dims = options.head_dims;
    if (head_dims.empty() && options.shapes.empty() && options.manifest.empty()) {
        head_dims = {64, 128};
    }
    for (const std::int64_t head_dim : head_dims) {
        add(fmt::format("head-dim {}", head_dim), {.head_dim = head_dim});
    }
    if (!options.manifest.empty()) {
        std::vector<WantedProblem> listed = read_manifest(options.manifest, defaults);
        std::ranges::move(listed, std::back_inserter(wanted));
    }
    return wanted;
}

std::vector<SelectedChain> select_chains(const SelectionOptions& options,
                                         compiler::KernelStore& store) {
    ConfigurationChoice choice(options.tuned ? with_environment(RuntimeOptions{}).tuning_database
                                             : std::filesystem::path(),
                               store);
    std::vector<SelectedChain> chains;
    for (const WantedProblem& wanted : wanted_problems(options)) {
        for (const device::Target& target : wanted.targets) {
            std::vector<NamedConfig> configs = wanted.configs;
            const bool any_default = std::erase_if(configs, &NamedConfig::is_default) > 0;
            if (any_default || configs.empty() || options.tuned) {
                std::ranges::move(choice.configs_for(wanted.problem, target),
                                  std::back_inserter(configs));
            }
            for (NamedConfig& named : configs) {
                if (options.bake_seqlen) {
                    named.config.sequence_lengths = SequenceLengths::compile_time;
                }
                try {
                    chains.push_back(chain_of(wanted, named, target));
                } catch (const Error& error) {
                    throw Error(error.code(), fmt::format("{}, {}, {}: {}", wanted.origin,
                                                          named.name, target.name, error.what()));
                }
            }
        }
    }
    return chains;
}

std::vector<SelectedKernel> distinct_kernels(
    const std::vector<SelectedChain>& chains,
    const std::function<cache::Key(const compiler::KernelRequest&)>& key_of) {
    std::vector<SelectedKernel> kernels;
    std::unordered_map<std::string, Uses> uses;  // by key text
    for (const SelectedChain& chain : chains) {
        for (const compiler::KernelRequest& request : chain.kernels) {
            cache::Key key = key_of(request);
            const auto [use, first] = uses.try_emplace(key.text());
            if (first) {
                use->second.index = kernels.size();
                kernels.push_back(
                    {.request = request,
                     .key = std::move(key),
                     .serves = fmt::format("{} head_dim={}", to_string(chain.problem.dtype),
                                           head_dims_text(chain.problem))});
            }
            Uses::add(use->second.features, feature_text(chain.problem));
            const bool baked =
                chain.config.config.sequence_lengths == SequenceLengths::compile_time;
            Uses::add(use->second.configs,
                      baked ? fmt::format("{} N={}", chain.config.name, chain.problem.seqlen_q)
                            : chain.config.name);
        }
    }
    for (const auto& [text, use] : uses) {
        kernels[use.index].serves +=
            fmt::format(" {} {}", fmt::join(use.features, ","), fmt::join(use.configs, ","));
    }
    return kernels;
}

}  // namespace backlight::tool
