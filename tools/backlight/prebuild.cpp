#include "prebuild.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "backlight/cache/layered_cache.hpp"
#include "backlight/cache/pack.hpp"
#include "backlight/error.hpp"
#include "byte_text.hpp"
#include "command.hpp"
#include "compiler/cached_kernel.hpp"
#include "compiler/kernel_store.hpp"
#include "interrupt.hpp"
#include "prebuild_progress.hpp"
#include "runtime_implementation.hpp"
#include "text_table.hpp"

namespace backlight::tool {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

int jobs_of(const PrebuildOptions& options, std::size_t kernels) {
    const std::size_t wanted = options.jobs > 0 ? static_cast<unsigned>(options.jobs)
                                                : std::thread::hardware_concurrency();
    return static_cast<int>(std::clamp<std::size_t>(wanted, 1, std::max<std::size_t>(kernels, 1)));
}

/// The layers in front are not looked at: what is prebuilt shall be whole by itself.
compiler::KernelStoreOptions store_options(const PrebuildOptions& options) {
    if (options.jobs < 0) {
        throw refused("jobs", std::to_string(options.jobs), "0 (one a core) or more");
    }
    RuntimeOptions runtime_options;
    runtime_options.cache_directory = options.cache_directory;
    const RuntimeOptions environment = with_environment(std::move(runtime_options));
    if (environment.cache_directory.empty()) {
        throw refused("cache", "", "a directory: there is no default one without HOME");
    }
    return {.nvrtc_path = environment.nvrtc_path,
            .cache_directory = environment.cache_directory,
            .cache_byte_limit = environment.cache_byte_limit,
            // Whoever runs this command asks for it.
            .compile_policy = CompilePolicy::allow,
            .compile_threads = options.jobs};
}

const char* to_text(PrebuildOutcome outcome) {
    switch (outcome) {
        case PrebuildOutcome::compiled:
            return "compiled";
        case PrebuildOutcome::already_there:
            return "already there";
        case PrebuildOutcome::failed:
            return "failed";
        case PrebuildOutcome::not_reached:
            break;
    }
    return "not reached";
}

std::string task_text(const SelectedKernel& kernel) {
    return fmt::format("{} {} {}", kernel.request.target.name, kernel.request.entry, kernel.serves);
}

void build_one(compiler::KernelStore& store, PrebuiltKernel& built) {
    const Clock::time_point start = Clock::now();
    try {
        const compiler::KernelLookup found = store.get(built.kernel.request);
        built.compiled = found.kernel;
        built.outcome = found.cached ? PrebuildOutcome::already_there : PrebuildOutcome::compiled;
    } catch (const std::exception& error) {
        built.outcome = PrebuildOutcome::failed;
        built.problem = error.what();
    }
    built.seconds = seconds_since(start);
}

void build_all(compiler::KernelStore& store, std::vector<PrebuiltKernel>& kernels, int jobs,
               std::ostream& out) {
    std::vector<std::string> kinds;
    kinds.reserve(kernels.size());
    for (const PrebuiltKernel& built : kernels) {
        kinds.push_back(built.kernel.request.source);
    }
    ProgressDisplay display(out, terminal_columns(out), kinds, jobs);
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
        while (!InterruptGuard::requested()) {
            const std::size_t index = next++;
            if (index >= kernels.size()) {
                return;
            }
            PrebuiltKernel& built = kernels[index];
            const std::string task = task_text(built.kernel);
            display.started(task);
            build_one(store, built);
            display.finished(kinds[index], to_text(built.outcome), task, built.seconds,
                             built.problem);
        }
    };
    std::vector<std::jthread> workers;
    workers.reserve(static_cast<std::size_t>(jobs));
    for (int i = 0; i < jobs; ++i) {
        workers.emplace_back(work);
    }
}

bool is_made(const PrebuiltKernel& built) {
    return built.outcome == PrebuildOutcome::compiled ||
           built.outcome == PrebuildOutcome::already_there;
}

/// What is promised without a pack is that the kernels are in the cache, not that they were
/// compiled.
void check_kept(const compiler::KernelStore& store, PrebuildReport& report) {
    const cache::DiskCache& disk = *store.cache().writable();
    for (PrebuiltKernel& built : report.kernels) {
        if (!is_made(built) || disk.holds(built.kernel.key)) {
            continue;
        }
        const std::string refusal = disk.refusal();
        built.outcome = PrebuildOutcome::failed;
        built.problem = fmt::format(
            "{} is not in the cache '{}': {}", task_text(built.kernel), report.directory.string(),
            !refusal.empty() ? refusal
                             : fmt::format("it could not be stored, or was removed to keep to {}",
                                           byte_text(disk.options().byte_limit)));
    }
}

/// Out of memory, not out of the cache: a pack can be made where no cache can be.
void write_pack_of(const std::filesystem::path& path, PrebuildReport& report) {
    std::vector<cache::PackedEntry> entries;
    for (const PrebuiltKernel& built : report.kernels) {
        entries.push_back(
            {built.kernel.key, compiler::to_entry(*built.compiled, built.kernel.request.entry)});
    }
    std::string reason;
    std::error_code unknown;
    if (!cache::write_pack(path, entries, reason)) {
        throw Error(
            ErrorCode::file_error,
            fmt::format("pack is '{}': the file could not be written: {}", path.string(), reason));
    }
    report.pack_bytes = std::filesystem::file_size(path, unknown);
}

}  // namespace

std::size_t PrebuildReport::count(PrebuildOutcome outcome) const {
    return static_cast<std::size_t>(std::ranges::count(kernels, outcome, &PrebuiltKernel::outcome));
}

PrebuildReport prebuild_kernels(const PrebuildOptions& options, std::ostream& progress) {
    const Clock::time_point start = Clock::now();
    compiler::KernelStore store(store_options(options));
    const std::vector<SelectedChain> chains = select_chains(options.selection, store);
    PrebuildReport report{.chains = chains.size(),
                          .directory = store.cache().writable()->directory()};
    for (SelectedKernel& kernel :
         distinct_kernels(chains, [&](const auto& request) { return store.key_of(request); })) {
        report.kernels.push_back({.kernel = std::move(kernel)});
    }
    const int jobs = jobs_of(options, report.kernels.size());
    {
        const InterruptGuard guard;
        build_all(store, report.kernels, jobs, progress);
        report.interrupted = report.count(PrebuildOutcome::not_reached) > 0;
    }
    if (options.pack.empty()) {
        check_kept(store, report);
    } else if (exit_code(report) == exit_success) {
        write_pack_of(options.pack, report);
    }
    report.seconds = seconds_since(start);
    return report;
}

std::string format_report(const PrebuildReport& report, const PrebuildOptions& options) {
    struct Row {
        std::string target, kernel;
        std::size_t compiled = 0, already_there = 0, failed = 0, bytes = 0;
        double seconds = 0;

        void add(const PrebuiltKernel& built) {
            compiled += built.outcome == PrebuildOutcome::compiled ? 1 : 0;
            already_there += built.outcome == PrebuildOutcome::already_there ? 1 : 0;
            failed += built.outcome == PrebuildOutcome::failed ? 1 : 0;
            bytes += is_made(built) ? built.compiled->cubin.size() : 0;
            seconds += built.outcome == PrebuildOutcome::compiled ? built.seconds : 0;
        }
    };
    std::vector<Row> rows;
    Row total{.target = "all"};
    for (const PrebuiltKernel& built : report.kernels) {
        const compiler::KernelRequest& request = built.kernel.request;
        auto row = std::ranges::find_if(rows, [&](const Row& known) {
            return known.target == request.target.name && known.kernel == request.entry;
        });
        if (row == rows.end()) {
            row = rows.insert(row, {.target = request.target.name, .kernel = request.entry});
        }
        row->add(built);
        total.add(built);
    }
    rows.push_back(total);
    TextTable table({"target", "kernel", "compiled", "already there", "failed", "cubins", "time"},
                    2);
    for (const Row& row : rows) {
        table.add({row.target, row.kernel, std::to_string(row.compiled),
                   std::to_string(row.already_there), std::to_string(row.failed),
                   byte_text(row.bytes), fmt::format("{:.1f} s", row.seconds)});
    }
    std::string text = table.text();
    text += fmt::format(
        "\n{} kernels of {} chain{} in '{}', {} by the wall clock\n",
        report.count(PrebuildOutcome::compiled) + report.count(PrebuildOutcome::already_there),
        report.chains, report.chains == 1 ? "" : "s", report.directory.string(),
        clock_text(report.seconds));
    for (const PrebuiltKernel& built : report.kernels) {
        if (!built.problem.empty()) {
            text += fmt::format("failed: {}\n", built.problem);
        }
    }
    if (report.interrupted) {
        text += fmt::format(
            "interrupted: {} kernels are still to be made; the same command goes on from here\n",
            report.count(PrebuildOutcome::not_reached));
    }
    if (!options.pack.empty()) {
        text += report.pack_bytes > 0
                    ? fmt::format("pack '{}': {} kernels, {}\n", options.pack.string(),
                                  report.kernels.size(), byte_text(report.pack_bytes))
                    : fmt::format("pack '{}' is not written: it would not be complete\n",
                                  options.pack.string());
    }
    return text;
}

int exit_code(const PrebuildReport& report) {
    if (report.interrupted) {
        return exit_interrupted;
    }
    return report.count(PrebuildOutcome::failed) > 0 ? exit_failure : exit_success;
}

void add_prebuild(const Setup& setup) {
    struct Arguments {
        SelectionArguments selection;
        PrebuildOptions options;
    };
    const auto arguments = std::make_shared<Arguments>();
    CLI::App* command = setup.app.add_subcommand(
        "prebuild", "Compile kernels into a cache or a pack ahead of time; needs no GPU");
    arguments->selection.add_to(*command);
    command->add_option("-j,--jobs", arguments->options.jobs,
                        "Kernels compiled at the same time [one a core]");
    command->add_option("--cache", arguments->options.cache_directory,
                        "Directory to write to [the cubin cache]");
    command->add_option("--pack", arguments->options.pack,
                        "File that gets these kernels, and no others");
    command->footer(fmt::format("Exit code: {} if one could not be made, {} if interrupted.",
                                exit_failure, exit_interrupted));
    command->callback([setup, arguments] {
        setup.action = [setup, arguments] {
            if (setup.device.emulation) {
                throw refused("device", "emulated",
                              "left out: NVRTC compiles for each --target, with no device");
            }
            arguments->options.selection = arguments->selection.resolve();
            const PrebuildReport report = prebuild_kernels(arguments->options, setup.errors);
            setup.out << format_report(report, arguments->options);
            return exit_code(report);
        };
    });
}

}  // namespace backlight::tool
