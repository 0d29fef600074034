// `backlight cache`, over entries whose cubins are made up.

#include "cache_command.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "attention/kernels.hpp"
#include "backlight/cache/disk_cache.hpp"
#include "backlight/cache/pack.hpp"
#include "cache_explain.hpp"
#include "cache_report.hpp"
#include "command.hpp"
#include "command_test_support.hpp"
#include "compiler/cached_kernel.hpp"
#include "compiler/kernel_store.hpp"
#include "specialisation_text.hpp"
#include "test_support.hpp"

using namespace backlight;
using namespace backlight::tool;
using test::check_refused;
using test::contains;
using test::Environment;
using test::Outcome;

namespace {

/// A cache directory with a kernel chain of v3 at head_dim 64, causal, bf16, for sm_90a.
class Fixture {
  public:
    Fixture()
        : store_({.nvrtc_path = test::real_nvrtc_path()}),
          path_(directory_.path() / "cache"),
          disk_(path_, nullptr) {
        for (const compiler::KernelRequest& request : requests("v3", "sm_90a")) {
            CHECK(disk_.store(key_of(request), entry_of(request), R"({"compiled_at": "then"})"));
        }
    }

    static std::vector<compiler::KernelRequest> requests(const char* preset, const char* target) {
        std::vector<compiler::KernelRequest> requests;
        for (const attention::KernelPlan& plan : attention::backward_chain(
                 {.seqlen_q = 4096, .seqlen_kv = 4096, .head_dim = 64, .causal = true},
                 kernel_preset(preset), device::target_by_name(target))) {
            requests.push_back(plan.request);
        }
        return requests;
    }

    cache::Key key_of(const compiler::KernelRequest& request, const std::string& version = "") {
        return version.empty() ? store_.key_of(request) : store_.key_of(request, version);
    }

    static cache::Entry entry_of(const compiler::KernelRequest& request) {
        return compiler::to_entry({.cubin = std::vector<std::byte>(2000, std::byte{7}),
                                   .resources = {.registers = 99, .spill_store_bytes = 12}},
                                  request.entry);
    }

    /// A pack with that chain.
    std::string pack(const char* name, const char* preset, const char* target,
                     const std::string& version = "") {
        std::vector<cache::PackedEntry> entries;
        for (const compiler::KernelRequest& request : requests(preset, target)) {
            entries.push_back({key_of(request, version), entry_of(request)});
        }
        std::string reason;
        const auto file = directory_.path() / name;
        REQUIRE(cache::write_pack(file, entries, reason));
        return file.string();
    }

    /// `backlight cache` with this directory and those arguments.
    Outcome run(std::vector<std::string> arguments) const {
        arguments.insert(arguments.begin(), "cache");
        arguments.insert(arguments.end(), {"--cache", path_.string()});
        return test::command(arguments);
    }

    Outcome explain(std::vector<std::string> arguments, const char* preset = "v3",
                    const char* target = "sm_90a") const {
        arguments.insert(arguments.begin(), {"explain", "--head-dim", "64", "--causal", "--dtype",
                                             "bf16", "--kernel", preset, "--target", target});
        return run(std::move(arguments));
    }

    const std::filesystem::path& path() const { return path_; }
    const std::filesystem::path& folder() const { return directory_.path(); }
    cache::DiskCache& disk() { return disk_; }

  private:
    test::TemporaryDirectory directory_;
    compiler::KernelStore store_;
    std::filesystem::path path_;
    cache::DiskCache disk_;
};

}  // namespace

TEST_CASE("ages and sizes are whole numbers with a unit") {
    using namespace std::chrono_literals;
    CHECK(parse_age("90s") == 90s);
    CHECK(parse_age("15m") == 15min);
    CHECK(parse_age("12h") == 12h);
    CHECK(parse_age("30d") == 30 * 24h);
    CHECK(parse_bytes("1000") == 1000);
    CHECK(parse_bytes("3K") == 3072);
    CHECK(parse_bytes("200M") == 200 * 1048576);
    CHECK(parse_bytes("1G") == 1073741824);
    for (const char* text :
         {"", "d", "30", "-1d", "1.5d", "30 d", "30dd", "99999999999999999999d", "999999999999d"}) {
        check_refused(ErrorCode::invalid_argument, {"unused-for", std::string("'") + text + "'"},
                      [&] { parse_age(text); });
    }
    for (const char* text : {"", "G", "-1", "1.5G", "1 G", "1T", "99999999999999999G"}) {
        check_refused(ErrorCode::invalid_argument, {"to-bytes", std::string("'") + text + "'"},
                      [&] { parse_bytes(text); });
    }
}

TEST_CASE("cache info tells of each layer whether it is used and why not") {
    Fixture cache;
    const std::string pack = cache.pack("good.pack", "v2", "sm_90a");
    const auto damaged = cache.folder() / "damaged.pack";
    std::ofstream(damaged) << "no pack at all";
    const auto open_to_all = cache.folder() / "open";
    std::filesystem::create_directory(open_to_all);
    std::filesystem::permissions(open_to_all, std::filesystem::perms::all);
    const Outcome told =
        cache.run({"info", "--layer", pack, "--layer", damaged.string(), "--layer",
                   open_to_all.string(), "--layer", "/nonexistent", "--json", "-"});
    CAPTURE(told.errors);
    REQUIRE(told.exit_code == exit_success);
    const auto layers = nlohmann::json::parse(told.out)["layers"];
    REQUIRE(layers.size() == 5);
    CHECK(layers[0]["state"] == "trusted");
    CHECK(layers[0]["kind"] == "pack");
    CHECK(layers[0]["entries"] == 3);
    CHECK(layers[1]["state"] == "refused");
    CHECK_FALSE(layers[1]["problem"].get<std::string>().empty());
    CHECK(layers[2]["state"] == "refused");
    CHECK(contains(layers[2]["problem"], open_to_all.string()));
    CHECK(layers[3]["state"] == "not there");
    CHECK(layers[4]["writable"] == true);
    CHECK(layers[4]["entries"] == 3);
    CHECK(layers[4]["bytes"] > 6000);
    CHECK(layers[4]["bad"] == 0);

    const std::string text = cache.run({"info", "--layer", open_to_all.string()}).out;
    CHECK(contains(text, "refused"));
    CHECK(contains(text, "limit 1.0 GiB"));
}

TEST_CASE("cache list shows the entries that the filters leave with what is kept of them") {
    Fixture cache;
    const std::string pack = cache.pack("other.pack", "v3", "sm_120a");
    const Outcome all = cache.run({"list", "--layer", pack});
    CHECK(contains(all.out, "6 entries"));
    CHECK(contains(all.out, "Element=bf16 head_dim=64 causal=true block_q=32 block_kv=64"));
    CHECK(contains(cache.run({"list", "--layer", pack, "--target", "sm_120"}).out, "3 entries"));
    CHECK(contains(cache.run({"list", "--kernel", "nothing"}).out, "0 entries"));
    CHECK(contains(cache.run({"list", "--target", "sm_80"}).errors, "sm_80"));

    const auto json =
        nlohmann::json::parse(cache.run({"list", "--kernel", "_mma", "--json", "-"}).out);
    REQUIRE(json.size() == 1);
    CHECK(json[0]["key"]["entry"] == "attention_backward_mma");
    CHECK(json[0]["key"]["target"] == "sm_90a");
    CHECK(json[0]["layer"] == cache.path().string());
    CHECK(json[0]["metadata"]["registers"] == 99);
    CHECK(json[0]["provenance"]["compiled_at"] == "then");
    CHECK(json[0]["payload_bytes"] == 2000);
    CHECK(json[0]["digest"].get<std::string>().size() == 32);

    // Nothing checks a provenance: one that is all brackets is told as it is, not laid out.
    const std::string brackets = std::string(20'000, '[') + std::string(20'000, ']');
    std::ofstream(
        std::filesystem::path(json[0]["path"].get<std::string>()).replace_extension(".provenance"))
        << brackets;
    const auto again =
        nlohmann::json::parse(cache.run({"list", "--kernel", "_mma", "--json", "-"}).out);
    CHECK(again.at(0).at("provenance") == brackets);
}

TEST_CASE("cache list fits 100 columns and keeps everything with long") {
    Fixture cache;
    const std::string pack = cache.pack("other.pack", "v2", "sm_120a");
    const cache::Key key = cache.key_of(Fixture::requests("v3", "sm_90a")[1]);
    const Outcome narrow = cache.run({"list", "--layer", pack});
    CAPTURE(narrow.out);
    for (const std::string_view line : lines_of(narrow.out)) {
        // A path is told whole, once.
        if (!line.starts_with("layer ")) {
            // Bytes, of which there are at least as many as columns.
            CHECK_MESSAGE(line.size() <= 102, std::string(line));
        }
    }
    CHECK(contains(narrow.out, "\n" + key.digest().substr(0, 8) + "  sm_90a"));
    CHECK_FALSE(contains(narrow.out, key.digest().substr(0, 9)));
    CHECK(contains(narrow.out, "2.0 KiB"));
    CHECK(contains(narrow.out, "now      2\n"));
    CHECK(contains(narrow.out, "seqlen_q=0 seqlen_…"));
    CHECK(contains(narrow.out, "\nlayer 1: " + pack + "\nlayer 2: " + cache.path().string()));

    const Outcome whole = cache.run({"list", "--layer", pack, "--long"});
    CAPTURE(whole.out);
    CHECK(contains(whole.out, key.digest() + "  " + cache.path().string()));
    CHECK(contains(whole.out, " shared_bytes_per_multiprocessor="));
    CHECK(contains(whole.out, " 2000  20"));  // bytes, and a date of this century
    CHECK_FALSE(contains(whole.out, "…"));
}

TEST_CASE("cache verify finds bad entries and removes them where it is told to") {
    Fixture cache;
    CHECK(cache.run({"verify"}).exit_code == exit_success);
    const auto file = cache.disk().path_of(cache.key_of(Fixture::requests("v3", "sm_90a")[1]));
    // A flipped byte in the middle of the cubin.
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(static_cast<std::streamoff>(std::filesystem::file_size(file)) - 1000);
    bytes.put('x');
    bytes.close();
    const Outcome found = cache.run({"verify"});
    CHECK(found.exit_code == exit_failure);
    CHECK(contains(found.out, "2 good"));
    CHECK(contains(found.out, "1 bad"));
    CHECK(contains(found.out, file.string() + "': its checksum is wrong\n"));
    CHECK(std::filesystem::exists(file));
    const Outcome removed = cache.run({"verify", "--remove-bad"});
    CHECK(removed.exit_code == exit_failure);
    CHECK(contains(removed.out, "; removed\n"));
    CHECK_FALSE(std::filesystem::exists(file));
    CHECK(cache.run({"verify"}).exit_code == exit_success);

    // What cannot be looked at has not been found good.
    std::ofstream(cache.folder() / "damaged.pack") << "no pack at all";
    const Outcome damaged =
        cache.run({"verify", "--layer", (cache.folder() / "damaged.pack").string()});
    CHECK(damaged.exit_code == exit_failure);
    CHECK(contains(damaged.out, "not checked"));
}

TEST_CASE("a path that is not there is refused by name where a cache or layer must be there") {
    Fixture cache;
    const std::string missing = (cache.folder() / "missing").string();
    const std::string file = (cache.folder() / "file").string();
    std::ofstream(file) << "no directory";
    const std::vector<std::vector<std::string>> actions = {
        {"list"}, {"verify"}, {"prune", "--all"}, {"explain", "--head-dim", "64"}};
    for (const std::vector<std::string>& action : actions) {
        CAPTURE(action.front());
        const auto refused = [&](std::vector<std::string> rest) {
            std::vector<std::string> arguments = {"cache"};
            arguments.insert(arguments.end(), action.begin(), action.end());
            arguments.insert(arguments.end(), rest.begin(), rest.end());
            const Outcome told = test::command(arguments);
            CHECK(told.exit_code == exit_failure);
            CHECK(told.out.empty());
            return told.errors;
        };
        CHECK(contains(refused({"--cache", missing}),
                       "file_error: cache is '" + missing +
                           "': nothing is there, and it must be a directory with entries"));
        CHECK(contains(refused({"--cache", file}), "cache is '" + file + "': it is a file, and"));
        CHECK(contains(refused({"--cache", cache.path(), "--layer", missing}),
                       "file_error: layer is '" + missing +
                           "': nothing is there, and it must be a directory with entries or a "
                           "pack"));
    }
    CHECK_FALSE(std::filesystem::exists(missing));
    const Outcome stray = test::command({"cache", "verify", missing});
    CHECK(stray.exit_code == exit_usage);
    CHECK(contains(stray.errors, missing));
    CHECK(contains(stray.errors, "named by --cache, a pack by --layer"));
    CHECK(cache.disk().list(cache::Check::heads).entries.size() == 3);
}

TEST_CASE("a cache that only the environment names may come to be later") {
    const test::TemporaryDirectory folder;
    const std::string later = (folder.path() / "later").string();
    const Environment path("BACKLIGHT_CACHE_PATH", later);
    const Outcome checked = test::command({"cache", "verify"});
    CHECK(checked.exit_code == exit_success);
    CHECK(contains(checked.out, later + ": not there\n"));
    CHECK(test::command({"cache", "list"}).exit_code == exit_success);
    CHECK(test::command({"cache", "prune", "--all"}).exit_code == exit_success);
}

TEST_CASE("cache prune without options names them with what they remove and removes nothing") {
    Fixture cache;
    const Outcome untold = cache.run({"prune"});
    CHECK(untold.exit_code == exit_failure);
    CHECK(untold.out.empty());
    for (const char* part : {"invalid_argument: prune", "removes nothing", "it must be told what",
                             "--unused-for AGE (what was not used for so long, for example 30d)",
                             "--to-bytes SIZE (the least recently used", "--all (every entry)"}) {
        CAPTURE(part);
        CHECK(contains(untold.errors, part));
    }
    CHECK(cache.disk().list(cache::Check::heads).entries.size() == 3);
}

TEST_CASE("cache prune removes what it is told to") {
    Fixture cache;
    CHECK(contains(cache.run({"prune", "--unused-for", "1d"}).out, "removed 0 entries"));
    CHECK(contains(cache.run({"prune", "--to-bytes", "1G"}).out, "removed 0 entries"));
    CHECK(contains(cache.run({"prune", "--to-bytes", "5K"}).out, "removed 2 entries"));
    CHECK(contains(cache.run({"prune", "--all"}).out, "removed 1 entries"));
    CHECK(contains(cache.run({"list"}).out, "0 entries"));
}

TEST_CASE("cache explain tells the layer of a hit") {
    Fixture cache;
    const Outcome own = cache.explain({});
    CAPTURE(own.out + own.errors);
    CHECK(own.exit_code == exit_success);
    CHECK_FALSE(contains(own.out, "miss"));
    CHECK(contains(own.out, cache.path().string()));
    CHECK(cache.explain({}, "v3", "sm_120a").exit_code == exit_failure);
    const std::string pack = cache.pack("shipped.pack", "v3", "sm_120a");
    const Outcome shipped = cache.explain({"--layer", pack}, "v3", "sm_120a");
    CHECK(shipped.exit_code == exit_success);
    CHECK(contains(shipped.out, "shipped.pack"));
}

TEST_CASE("cache explain shows the lines of the specialisation that the nearest entry has not") {
    Fixture cache;
    const Outcome told = cache.explain({}, "v2");
    CHECK(told.exit_code == exit_failure);
    CHECK(contains(told.out, "differs in 3 fields: block_q, stages, shared_bytes\n"));
    CHECK(contains(told.out, "wanted constexpr int block_q = 64;"));
    CHECK(contains(told.out, "found  constexpr int block_q = 32;"));
    CHECK_FALSE(contains(told.out, "head_dim = 64;"));
    // The same kernel for another target is nearer than another kernel for this one.
    const Outcome target = cache.explain({}, "v3", "sm_120a");
    CHECK(contains(target.out, "differs in 2 fields: target, --gpu-architecture\n"));
    CHECK(contains(target.out, "target: wanted 'sm_120a', found 'sm_90a'"));
    CHECK(contains(target.out, "wanted --gpu-architecture=sm_120a"));
    CHECK(contains(cache.run({"explain", "--head-dim", "264"}).errors, "264"));
}

TEST_CASE("cache explain compares a GPU's kernel with no entry of the emulated device") {
    Fixture cache;
    // Nearer than all others, but for being emulated: it differs in the target alone.
    for (compiler::KernelRequest request : Fixture::requests("v2", "sm_90a")) {
        request.target.name = std::string(device::emulated_target_prefix) + request.target.name;
        REQUIRE(cache.disk().store(cache.key_of(request), Fixture::entry_of(request), "{}"));
    }
    const Outcome told = cache.explain({}, "v2");
    CHECK(told.exit_code == exit_failure);
    CHECK(contains(told.out, "differs in 3 fields: block_q, stages, shared_bytes\n"));
    CHECK_FALSE(contains(told.out, "emulated"));
    cache.run({"prune", "--all"});
    for (compiler::KernelRequest request : Fixture::requests("v2", "sm_90a")) {
        request.target.name = std::string(device::emulated_target_prefix) + request.target.name;
        REQUIRE(cache.disk().store(cache.key_of(request), Fixture::entry_of(request), "{}"));
    }
    CHECK(contains(cache.explain({}, "v2").out, "no entries to compare with"));
}

TEST_CASE("cache explain says that another version of NVRTC counts where none may be used") {
    Fixture cache;
    const std::string pack = cache.pack("old.pack", "v2", "sm_90a", "1.2.3");
    const Outcome told = cache.explain({"--layer", pack}, "v2");
    CHECK(told.exit_code == exit_failure);
    CHECK(contains(told.out, "differs in 1 field: compiler\n"));
    CHECK(contains(told.out, "found '1.2.3'"));
    CHECK(contains(told.out, "a hit all the same where the policy forbids"));
    {
        const Environment policy("BACKLIGHT_COMPILE_POLICY", "forbid");
        const Outcome forbidden = cache.explain({"--layer", pack}, "v2");
        CHECK(forbidden.exit_code == exit_success);
        CHECK(contains(forbidden.out, "any version of NVRTC"));
    }
    const Environment nvrtc("BACKLIGHT_NVRTC_PATH", "/nonexistent/libnvrtc.so");
    const Outcome without = cache.explain({"--layer", pack}, "v2");
    CHECK(without.exit_code == exit_success);
    CHECK(contains(without.out, "/nonexistent/libnvrtc.so"));
}

TEST_CASE("a long value of a field is cut and a missing one is told") {
    const std::string text =
        difference_text({.name = "field", .wanted = std::string(500, 'a'), .found = std::nullopt});
    CHECK(text.size() < 200);
    CHECK(contains(text, "…"));
    CHECK(contains(text, "no such field"));
}

TEST_CASE("a specialisation is told in one line by its constants") {
    CHECK(specialisation_summary("// text = no;\nusing Element = bf16;\nconstexpr int n = 3;  // a "
                                 "comment = 4;\nconstexpr bool b = true;\nnamespace x {\n") ==
          "Element=bf16 n=3 b=true");
    CHECK(specialisation_summary("").empty());
}
