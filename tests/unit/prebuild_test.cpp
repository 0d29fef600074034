// Kernels compiled ahead of time, by NVRTC for real at the smallest selections.

#include "prebuild.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <streambuf>

#include "attention/kernels.hpp"
#include "backlight/cache/disk_cache.hpp"
#include "backlight/cache/pack.hpp"
#include "command.hpp"
#include "interrupt.hpp"
#include "prebuild_progress.hpp"
#include "test_support.hpp"

using namespace backlight;
using namespace backlight::tool;
using test::check_refused;
using test::Environment;

namespace {

PrebuildOptions smallest(const std::filesystem::path& directory) {
    PrebuildOptions options;
    options.selection.targets = {"sm_90a"};
    options.selection.head_dims = {64};
    options.selection.causal = true;
    options.selection.dtypes = {DataType::bf16};
    options.selection.kernels = {"v3"};
    options.cache_directory = directory;
    return options;
}

std::string bytes_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

/// A stream's end that sends the process an interrupt at the first line.
class InterruptingBuffer : public std::stringbuf {
  public:
    int sync() override {
        if (!raised_) {
            raised_ = true;
            std::raise(SIGINT);
        }
        return 0;
    }

  private:
    bool raised_ = false;
};

}  // namespace

TEST_CASE("a prebuilt entry is byte for byte the one that the library writes") {
    const test::TemporaryDirectory ahead;
    const test::TemporaryDirectory at_run_time;
    std::ostringstream progress;
    const PrebuildReport report = prebuild_kernels(smallest(ahead.path()), progress);
    CHECK(report.count(PrebuildOutcome::compiled) == 3);
    CHECK(exit_code(report) == exit_success);

    const AttentionProblem problem{
        .batch = 3, .heads = 5, .seqlen_q = 128, .seqlen_kv = 128, .head_dim = 64, .causal = true};
    compiler::KernelStore store(
        {.nvrtc_path = test::real_nvrtc_path(), .cache_directory = at_run_time.path()});
    const cache::DiskCache prebuilt(ahead.path(), nullptr);
    for (const attention::KernelPlan& plan : attention::backward_chain(
             problem, kernel_preset("v3"), device::target_by_name("sm_90a"))) {
        store.get(plan.request);
        const cache::Key key = store.key_of(plan.request);
        const std::string bytes = bytes_of(store.cache().writable()->path_of(key));
        CHECK(bytes.size() > 1000);
        CHECK(bytes_of(prebuilt.path_of(key)) == bytes);
    }
    CHECK(store.compiles() == 3);
}

TEST_CASE("a prebuild goes on from what is there and its pack has its kernels and no others") {
    const test::TemporaryDirectory directory;
    PrebuildOptions options = smallest(directory.path() / "cache");
    std::ostringstream progress;
    prebuild_kernels(options, progress);

    options.selection.full = true;
    options.pack = directory.path() / "both.pack";
    const PrebuildReport second = prebuild_kernels(options, progress);
    CHECK(second.count(PrebuildOutcome::already_there) == 3);
    CHECK(second.count(PrebuildOutcome::compiled) == 1);
    CHECK(contains(format_report(second, options), "both.pack': 4 kernels"));
    const std::string first_pack = bytes_of(options.pack);

    options.selection.causal = false;
    options.pack = directory.path() / "full.pack";
    prebuild_kernels(options, progress);
    CHECK(cache::Pack(options.pack, nullptr).size() == 3);

    // The same bytes whatever is compiled and in whatever order, by as many threads as you like.
    options.selection.causal = true;
    options.cache_directory = directory.path() / "afresh";
    options.jobs = 4;
    options.pack = directory.path() / "again.pack";
    CHECK(prebuild_kernels(options, progress).count(PrebuildOutcome::compiled) == 4);
    CHECK(bytes_of(options.pack) == first_pack);
}

TEST_CASE("an interrupted prebuild leaves a good cache and is gone on with") {
    const test::TemporaryDirectory directory;
    PrebuildOptions options = smallest(directory.path());
    options.jobs = 1;
    options.pack = directory.path() / "kernels.pack";
    InterruptingBuffer buffer;
    std::ostream progress(&buffer);
    const PrebuildReport report = prebuild_kernels(options, progress);
    CHECK(report.interrupted);
    CHECK(exit_code(report) == exit_interrupted);
    CHECK(report.count(PrebuildOutcome::compiled) == 1);
    CHECK(report.count(PrebuildOutcome::not_reached) == 2);
    CHECK_FALSE(std::filesystem::exists(options.pack));
    const std::string text = format_report(report, options);
    CHECK(contains(text, "2 kernels are still to be made"));
    CHECK(contains(text, "not written"));
    cache::DiskCache cache(options.cache_directory, nullptr);
    CHECK(cache.verify(false).entries.size() == 1);
    CHECK(cache.verify(false).bad.empty());

    std::ostringstream quiet;
    const PrebuildReport rest = prebuild_kernels(options, quiet);
    CHECK(rest.count(PrebuildOutcome::already_there) == 1);
    CHECK(rest.count(PrebuildOutcome::compiled) == 2);
    CHECK(exit_code(rest) == exit_success);
}

TEST_CASE("kernels that the compiler refuses are told with its log and no pack is written") {
    const test::TemporaryDirectory directory;
    const Environment nvrtc("BACKLIGHT_NVRTC_PATH", BACKLIGHT_FAKE_NVRTC_FAILS_PATH);
    PrebuildOptions options = smallest(directory.path() / "cache");
    options.pack = directory.path() / "kernels.pack";
    std::ostringstream progress;
    const PrebuildReport report = prebuild_kernels(options, progress);
    CHECK(report.count(PrebuildOutcome::failed) == 3);
    CHECK(exit_code(report) == exit_failure);
    CHECK_FALSE(std::filesystem::exists(options.pack));
    CHECK(contains(progress.str(), "this compiler takes no program"));
    CHECK(contains(format_report(report, options), "this compiler takes no program"));
}

TEST_CASE("a cache that is not to be trusted fails a prebuild but not the making of a pack") {
    const test::TemporaryDirectory directory;
    PrebuildOptions options = smallest(directory.path() / "cache");
    std::filesystem::create_directory(options.cache_directory);
    std::filesystem::permissions(options.cache_directory, std::filesystem::perms::all);
    std::ostringstream progress;
    const PrebuildReport report = prebuild_kernels(options, progress);
    CHECK(report.count(PrebuildOutcome::failed) == 3);
    CHECK(exit_code(report) == exit_failure);
    CHECK(contains(report.kernels[0].problem, options.cache_directory.string()));

    options.pack = directory.path() / "kernels.pack";
    CHECK(exit_code(prebuild_kernels(options, progress)) == exit_success);
    CHECK(cache::Pack(options.pack, nullptr).size() == 3);
}

TEST_CASE("prebuild needs no driver and refuses what it cannot do by name") {
    const test::TemporaryDirectory directory;
    const Environment driver("BACKLIGHT_DRIVER_PATH", "/nonexistent/libcuda.so.1");
    const std::string cache = (directory.path() / "cache").string();
    const auto outcome = [&](std::vector<std::string> arguments) {
        std::ostringstream out;
        std::ostringstream errors;
        arguments.insert(arguments.begin(), {"prebuild", "--cache", cache});
        const int code = run_command(arguments, out, errors);
        return std::to_string(code) + " " + out.str() + errors.str();
    };
    const std::string made = outcome({"--target", "sm_120a", "--head-dim", "64", "--full",
                                      "--dtype", "fp16", "--kernel", "v2", "-j", "2"});
    CHECK(made.starts_with("0 target"));
    CHECK(contains(made, "3 kernels of 1 chain in '" + cache + "'"));
    CHECK(contains(made, "[3/3] compiled sm_120a"));
    CHECK(contains(outcome({"--device", "emulated"}), "device is 'emulated'"));
    CHECK(contains(outcome({"--jobs", "-1", "--head-dim", "64"}),
                   "1 backlight: invalid_argument: jobs is '-1'"));
    CHECK(contains(outcome({"--target", "sm_80"}), "sm_80"));
    CHECK(contains(outcome({"--manifest", "/nonexistent.json"}), "file_error"));
    CHECK(contains(outcome({"--head-dim", "64", "--full", "--dtype", "fp16", "--kernel", "v2",
                            "--target", "sm_120a", "--pack", "/nonexistent/a.pack"}),
                   "pack is '/nonexistent/a.pack'"));
}

TEST_CASE("the rest of the time is judged by what has finished of the same kind") {
    RemainingTime time({"main", "main", "delta", "delta"}, 1);
    CHECK_FALSE(time.seconds().has_value());
    time.finished("main", 4);
    // Of delta nothing is known yet.
    CHECK(time.seconds() == doctest::Approx(4 + 2 * 4));
    time.finished("delta", 1);
    CHECK(time.seconds() == doctest::Approx(4 + 1));
    time.finished("main", 2);
    time.finished("delta", 1);
    CHECK(time.seconds() == doctest::Approx(0));

    RemainingTime shared({"main", "main", "main"}, 8);
    shared.finished("main", 6);
    CHECK(shared.seconds() == doctest::Approx(6));
    CHECK(clock_text(7.4) == "0:07");
    CHECK(clock_text(750) == "12:30");
    CHECK(clock_text(3723) == "1:02:03");
}

TEST_CASE("progress is a line a kernel or one line that is written over on a terminal") {
    std::ostringstream plain;
    {
        ProgressDisplay display(plain, 0, {"main", "main"}, 1);
        display.started("kernel one");
        display.finished("main", "compiled", "kernel one", 1, "");
        display.finished("main", "failed", "kernel two", 1, "the reason");
    }
    CHECK(plain.str().starts_with("[1/2] compiled kernel one in 1.0 s; 0:00 elapsed, about"));
    CHECK(contains(plain.str(), "[2/2] failed kernel two"));
    CHECK(contains(plain.str(), "\nthe reason\n"));
    CHECK_FALSE(contains(plain.str(), "\r"));

    std::ostringstream terminal;
    constexpr std::size_t columns = 30;
    {
        ProgressDisplay display(terminal, columns, {"main", "main"}, 1);
        display.started("a kernel with a long name that does not fit");
        display.finished("main", "compiled", "a kernel with a long name", 1, "");
    }
    CHECK_FALSE(contains(terminal.str(), "\n"));
    const std::string erase = "\r\x1b[K";
    std::size_t at = 0;
    int lines = 0;
    while ((at = terminal.str().find(erase, at)) != std::string::npos) {
        at += erase.size();
        const std::size_t end = std::min(terminal.str().find(erase, at), terminal.str().size());
        CHECK(end - at < columns);
        ++lines;
    }
    CHECK(lines == 3);
    CHECK(terminal.str().ends_with(erase));
}
