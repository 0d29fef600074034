// The kernel store over the layers of the cache, with a compiler that costs nothing.

#include <fstream>
#include <nlohmann/json.hpp>

#include "backlight/cache/fault_injection.hpp"
#include "backlight/cache/pack.hpp"
#include "compiler/kernel_store.hpp"
#include "compiler/version_order.hpp"
#include "scripted_backend.hpp"
#include "test_support.hpp"

using namespace backlight;
using compiler::KernelStore;
using compiler::KernelStoreOptions;
using test::CapturedLog;
using test::check_refused;
using test::scripted_request;
using test::ScriptedBackend;
using namespace std::chrono_literals;

namespace {

namespace fs = std::filesystem;

/// A store with a compiler of that version, and the compiler.
struct Bench {
    explicit Bench(KernelStoreOptions options, std::string version = "1.0",
                   std::chrono::milliseconds pause = {})
        : compiler(std::make_shared<ScriptedBackend>(std::move(version), pause)), store([&] {
              options.backend = compiler;
              return std::move(options);
          }()) {}

    std::shared_ptr<ScriptedBackend> compiler;
    KernelStore store;
};

/// A compiler that cannot be opened.
class MissingBackend final : public ScriptedBackend {
  public:
    std::string version() override {
        throw Error(ErrorCode::nvrtc_not_found, "there is no compiler here");
    }
};

KernelStore store_without_compiler(KernelStoreOptions options) {
    options.backend = std::make_shared<MissingBackend>();
    return KernelStore(std::move(options));
}

/// The bytes of a pack of all that a directory holds.
std::string pack_of(const fs::path& directory) {
    cache::DiskCache disk({.directory = directory}, {});
    std::vector<cache::PackedEntry> entries;
    for (const cache::StoredEntry& stored : disk.list(cache::Check::heads).entries) {
        entries.push_back({stored.key, disk.load(stored.key).value()});
    }
    std::string reason;
    return cache::encode_pack(entries, reason).value();
}

std::vector<LayerHits> hits(const KernelStore& store) {
    return store.counters().hits_by_layer;
}

std::atomic<int> fail_from_call = -1;
std::atomic<int> calls_so_far = 0;

int failing(cache::SystemCall /*call*/) noexcept {
    return fail_from_call >= 0 && calls_so_far++ >= fail_from_call ? ESTALE : 0;
}

class InjectedFaults {
  public:
    explicit InjectedFaults(int first) {
        calls_so_far = 0;
        fail_from_call = first;
        cache::inject_faults(failing);
    }
    ~InjectedFaults() { cache::inject_faults(nullptr); }
    InjectedFaults(const InjectedFaults&) = delete;
    InjectedFaults& operator=(const InjectedFaults&) = delete;
};

}  // namespace

// --- Keys and entries ---------------------------------------------------------------------------

TEST_CASE("an entry is the same bytes whoever compiled it and however long that took") {
    const test::TemporaryDirectory directory;
    std::vector<std::string> packs;
    for (const char* folder : {"a", "b"}) {
        Bench bench({.cache_directory = directory.path() / folder});
        bench.store.get(scripted_request("x"));
        packs.push_back(pack_of(directory.path() / folder));
    }
    CHECK(packs[0] == packs[1]);
}

TEST_CASE("what is beside a cubin tells entry point and registers and how it came to be") {
    const test::TemporaryDirectory directory;
    Bench bench({.cache_directory = directory.path()});
    bench.store.get(scripted_request("x"));
    const cache::Listing listing = bench.store.cache().layer(0).list(cache::Check::everything);
    REQUIRE(listing.entries.size() == 1);
    const auto metadata = nlohmann::json::parse(listing.entries[0].metadata);
    CHECK(metadata.at("entry") == "some_kernel");
    CHECK(metadata.at("registers") == 40);
    CHECK_FALSE(metadata.contains("compile_milliseconds"));
    const auto provenance = nlohmann::json::parse(listing.entries[0].provenance);
    CHECK(provenance.at("compile_milliseconds") == 2.5);
    CHECK(provenance.at("compiled_at").get<std::string>().size() == 20);
    CHECK_FALSE(provenance.at("backlight").get<std::string>().empty());
}

TEST_CASE("another version of the compiler or another target is another kernel") {
    const test::TemporaryDirectory directory;
    const KernelStoreOptions options{.cache_directory = directory.path()};
    Bench first(options, "1.0");
    first.store.get(scripted_request("x"));
    first.store.get(scripted_request("x", "sm_120a"));
    CHECK(first.compiler->compiles == 2);
    Bench newer(options, "1.1");
    CHECK_FALSE(newer.store.get(scripted_request("x")).cached);
    CHECK(newer.compiler->compiles == 1);
}

TEST_CASE("a prebuilt cache that was copied elsewhere is hit by every kernel") {
    const test::TemporaryDirectory directory;
    Bench maker({.cache_directory = directory.path() / "here"});
    for (const char* kernel : {"x", "y", "z"}) {
        maker.store.get(scripted_request(kernel));
    }
    fs::copy(directory.path() / "here", directory.path() / "there", fs::copy_options::recursive);
    fs::permissions(directory.path() / "there", fs::perms::owner_all);
    fs::remove_all(directory.path() / "here");
    Bench user({.cache_directory = directory.path() / "there"});
    for (const char* kernel : {"x", "y", "z"}) {
        CHECK(user.store.get(scripted_request(kernel)).cached);
    }
    CHECK(user.compiler->compiles == 0);
}

// --- What a disk may do -------------------------------------------------------------------------

TEST_CASE("a compiled kernel is used though it cannot be stored") {
    const test::TemporaryDirectory directory;
    std::ofstream(directory.path() / "file") << "no directory";
    Bench bench({.cache_directory = directory.path() / "file"});
    CHECK_FALSE(bench.store.get(scripted_request("x")).kernel->cubin.empty());
    CHECK(bench.store.get(scripted_request("x")).cached);
    CHECK(bench.compiler->compiles == 1);
    CHECK(bench.store.counters().stores == 0);
    CHECK(bench.store.counters().failed_stores == 1);
}

TEST_CASE("whichever call of the disk fails first with all behind it the kernel is had") {
    const test::TemporaryDirectory directory;
    const auto expected = Bench({}).store.get(scripted_request("x")).kernel->cubin;
    int failed_calls = 0;
    for (int first = 0; first < 60; ++first) {
        CAPTURE(first);
        Bench bench(
            {.cache_directory = directory.path() / std::to_string(first), .lock_timeout = 1ms});
        {
            const CapturedLog log;
            const InjectedFaults faults(first);
            CHECK(bench.store.get(scripted_request("x")).kernel->cubin == expected);
            failed_calls += calls_so_far > first ? 1 : 0;
        }
        CHECK(bench.compiler->compiles == 1);
        Bench later({.cache_directory = directory.path() / std::to_string(first)});
        CHECK(later.store.get(scripted_request("x")).kernel->cubin == expected);
    }
    CHECK(failed_calls > 10);
    CHECK(failed_calls < 60);
}

TEST_CASE("the cubin that is handed out is the one compiled whatever becomes of the stored one") {
    const test::TemporaryDirectory directory;
    Bench bench({.cache_directory = directory.path()});
    const auto compiled = bench.store.get(scripted_request("x")).kernel;
    fs::remove_all(directory.path());
    CHECK(bench.store.get(scripted_request("x")).kernel == compiled);
    CHECK(bench.compiler->compiles == 1);
}

TEST_CASE("a process waits no longer than told for another that compiles the same kernel") {
    const test::TemporaryDirectory directory;
    Bench bench({.cache_directory = directory.path(), .lock_timeout = 20ms});
    // Another holder, as another process would be.
    cache::DiskCache other({.directory = directory.path()}, {});
    const cache::KeyLock held = other.lock(bench.store.key_of(scripted_request("x")), 0ms);
    REQUIRE(held.held());
    CHECK_FALSE(bench.store.get(scripted_request("x")).cached);
    CHECK(bench.compiler->compiles == 1);
    CHECK(bench.store.counters().stores == 1);
}

// --- Layers -------------------------------------------------------------------------------------

TEST_CASE("layers are looked in in their order and hits are counted by layer and name") {
    const test::TemporaryDirectory directory;
    Bench pack_maker({.cache_directory = directory.path() / "p"});
    pack_maker.store.get(scripted_request("in pack"));
    const std::string pack = pack_of(directory.path() / "p");
    Bench shipped_maker({.cache_directory = directory.path() / "shipped"});
    shipped_maker.store.get(scripted_request("in pack"));
    shipped_maker.store.get(scripted_request("shipped"));

    const KernelStoreOptions options{
        .cache_layers = {{.name = "embedded", .pack = std::as_bytes(std::span(pack))},
                         {.path = directory.path() / "shipped"},
                         {.name = "absent", .path = directory.path() / "absent"}},
        .cache_directory = directory.path() / "own"};
    {
        Bench bench(options);
        for (const char* kernel : {"in pack", "shipped", "new"}) {
            bench.store.get(scripted_request(kernel));
        }
        CHECK(bench.compiler->compiles == 1);
        CHECK(hits(bench.store) == std::vector<LayerHits>{{"embedded", 1},
                                                          {directory.path() / "shipped", 1},
                                                          {"absent", 0},
                                                          {directory.path() / "own", 0}});
        CHECK(bench.store.counters().misses == 1);
        CHECK(bench.store.counters().stores == 1);
        CHECK(bench.store.counters().compile_milliseconds == 2.5);
    }
    Bench later(options);
    CHECK(later.store.get(scripted_request("new")).cached);
    CHECK(hits(later.store).back().hits == 1);
    CHECK(later.store.layer_hits() == 1);
}

TEST_CASE("a layer must have a path or a pack and not both") {
    const std::string pack = "some bytes";
    check_refused(
        ErrorCode::invalid_argument,
        {"cache_layers[0] has the name 'mine', the path '' and a pack of 0 bytes: it must have "
         "one of path and pack"},
        [] { Bench bench({.cache_layers = {{.name = "mine"}}}); });
    check_refused(
        ErrorCode::invalid_argument,
        {"cache_layers[1] has the name '', the path 'p' and a pack of 10 bytes: it must have one "
         "of path and pack"},
        [&] {
            Bench bench({.cache_layers = {{.path = "q"},
                                          {.path = "p", .pack = std::as_bytes(std::span(pack))}}});
        });
}

TEST_CASE("a refused cubin is replaced from the next layer and then by a compile and stays away") {
    const test::TemporaryDirectory directory;
    const auto request = scripted_request("x");
    Bench({.cache_directory = directory.path() / "shipped"}).store.get(request);
    Bench({.cache_directory = directory.path() / "own"}).store.get(request);
    const KernelStoreOptions options{.cache_layers = {{.path = directory.path() / "shipped"}},
                                     .cache_directory = directory.path() / "own"};
    Bench bench(options);
    const auto shipped = bench.store.get(request).kernel;
    REQUIRE(shipped->origin);
    CHECK(shipped->origin->layer == 0);
    const auto own = bench.store.replace(request, shipped);
    REQUIRE(own.kernel->origin);
    CHECK(own.kernel->origin->layer == 1);
    CHECK(bench.compiler->compiles == 0);
    // Another thread that was refused the same one gets what replaced it.
    CHECK(bench.store.replace(request, shipped).kernel == own.kernel);
    const auto compiled = bench.store.replace(request, own.kernel);
    CHECK_FALSE(compiled.cached);
    CHECK_FALSE(compiled.kernel->origin);
    CHECK(bench.compiler->compiles == 1);
    CHECK(bench.store.counters().repairs == 1);
    CHECK(bench.store.get(request).kernel == compiled.kernel);
}

// --- Policy -------------------------------------------------------------------------------------

TEST_CASE("a forbidden compile names kernel and target and layers and what differs") {
    const test::TemporaryDirectory directory;
    Bench({.cache_directory = directory.path()})
        .store.get(scripted_request("constexpr int head_dim = 64;\nconstexpr int same = 1;\n"));
    Bench bench({.cache_layers = {{.name = "shipped", .path = directory.path()},
                                  {.name = "absent", .path = directory.path() / "absent"}},
                 .compile_policy = CompilePolicy::forbid});
    const auto wanted =
        scripted_request("constexpr int head_dim = 128;\nconstexpr int same = 1;\n");
    check_refused(ErrorCode::compile_forbidden,
                  {"some_kernel", "sm_90a", "shipped", directory.path().native(), "absent",
                   "specialisation: wanted constexpr int head_dim = 128;, found constexpr int "
                   "head_dim = 64;."},
                  [&] { bench.store.get(wanted); });
    check_refused(ErrorCode::compile_forbidden, {"target: wanted sm_120a, found sm_90a"}, [&] {
        bench.store.get(
            scripted_request("constexpr int head_dim = 64;\nconstexpr int same = 1;\n", "sm_120a"));
    });
    // The emulated device's kernels are none of a GPU's.
    auto emulated = scripted_request("constexpr int head_dim = 64;\nconstexpr int same = 1;\n");
    emulated.target.name = "emulated_sm_90a";
    check_refused(ErrorCode::compile_forbidden, {"no entries to compare with"},
                  [&] { bench.store.get(emulated); });
    CHECK(bench.compiler->compiles == 0);
    check_refused(ErrorCode::compile_forbidden, {"Layers looked in: none", "no entries"},
                  [&] { Bench({.compile_policy = CompilePolicy::forbid}).store.get(wanted); });
}

TEST_CASE("a warned compile tells the nearest entry and a silent one is not told") {
    const test::TemporaryDirectory directory;
    const CapturedLog log;
    Bench allowed({.cache_directory = directory.path()});
    allowed.store.get(scripted_request("head_dim = 64"));
    CHECK(log.text().empty());
    Bench warned({.cache_directory = directory.path(), .compile_policy = CompilePolicy::warn});
    warned.store.get(scripted_request("head_dim = 64"));
    CHECK(log.text().empty());
    warned.store.get(scripted_request("head_dim = 128"));
    CHECK(log.count("warning: ") == 1);
    CHECK(log.count("some_kernel for sm_90a") == 1);
    CHECK(log.count("specialisation: wanted head_dim = 128, found head_dim = 64") == 1);
    CHECK(warned.compiler->compiles == 1);
}

TEST_CASE("after warm-up a policy that forbids proves that nothing is compiled") {
    const test::TemporaryDirectory directory;
    Bench warm_up({.cache_directory = directory.path()});
    warm_up.store.get(scripted_request("x"));
    Bench bench({.cache_directory = directory.path(), .compile_policy = CompilePolicy::forbid});
    CHECK(bench.store.get(scripted_request("x")).cached);
    CHECK(bench.store.counters().compiles == 0);
}

// --- Without a compiler -------------------------------------------------------------------------

TEST_CASE("a kernel in a layer needs no compiler whatever the policy") {
    const test::TemporaryDirectory directory;
    Bench({.cache_directory = directory.path()}).store.get(scripted_request("x"));
    for (const CompilePolicy policy :
         {CompilePolicy::allow, CompilePolicy::warn, CompilePolicy::forbid}) {
        KernelStore store = store_without_compiler(
            {.cache_layers = {{.path = directory.path()}}, .compile_policy = policy});
        CHECK(store.get(scripted_request("x")).cached);
        const ErrorCode code = policy == CompilePolicy::forbid ? ErrorCode::compile_forbidden
                                                               : ErrorCode::nvrtc_not_found;
        check_refused(code, {}, [&] { store.get(scripted_request("y")); });
    }
}

TEST_CASE("without a compiler the newest version of the first layer that has any is taken") {
    const test::TemporaryDirectory directory;
    const auto cubin_of = [&](const std::string& version) {
        return Bench({}, version).store.get(scripted_request("x")).kernel->cubin;
    };
    for (const char* version : {"13.0.48", "12.8.93", "13.0.9"}) {
        Bench({.cache_directory = directory.path() / "a"}, version)
            .store.get(scripted_request("x"));
    }
    Bench({.cache_directory = directory.path() / "b"}, "14.0.1").store.get(scripted_request("x"));
    KernelStore store = store_without_compiler(
        {.cache_layers = {{.path = directory.path() / "a"}, {.path = directory.path() / "b"}}});
    CHECK(store.get(scripted_request("x")).kernel->cubin == cubin_of("13.0.48"));
    // A compiler that is there finds what it made itself, and else compiles.
    Bench with_compiler({.cache_layers = {{.path = directory.path() / "a"}}}, "12.8.93");
    CHECK(with_compiler.store.get(scripted_request("x")).kernel->cubin == cubin_of("12.8.93"));
    CHECK(with_compiler.compiler->compiles == 0);
    Bench other_compiler({.cache_layers = {{.path = directory.path() / "a"}}}, "12.9.1");
    CHECK(other_compiler.store.get(scripted_request("x")).kernel->cubin == cubin_of("12.9.1"));
    CHECK(other_compiler.compiler->compiles == 1);
}

TEST_CASE("without a compiler what another process has stored meanwhile is found") {
    const test::TemporaryDirectory directory;
    KernelStore store = store_without_compiler({.cache_directory = directory.path()});
    check_refused(ErrorCode::nvrtc_not_found, {}, [&] { store.get(scripted_request("x")); });
    Bench({.cache_directory = directory.path()}).store.get(scripted_request("x"));
    CHECK(store.get(scripted_request("x")).cached);
}

TEST_CASE("versions are compared by their numbers") {
    using compiler::is_newer;
    CHECK(is_newer("13.0.48", "13.0.9"));
    CHECK_FALSE(is_newer("13.0.9", "13.0.48"));
    CHECK(is_newer("13.0", "12.9.100"));
    CHECK(is_newer("12.8.1", "12.8"));
    CHECK_FALSE(is_newer("12.8", "12.8"));
    CHECK_FALSE(is_newer("12.08", "12.8"));
    CHECK(is_newer("g++ 13", "g++ 9"));
    CHECK(is_newer("123456789012345678901234567890", "99999999999999999999999999999"));
}

// --- Threads ------------------------------------------------------------------------------------

TEST_CASE("no more kernels are compiled at a time than compile_threads whoever asks") {
    for (const int limit : {1, 3}) {
        Bench bench({.compile_threads = limit}, "1.0", 10ms);
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back([&, i] {
                std::vector<compiler::KernelRequest> requests;
                for (int kernel = 0; kernel < 3; ++kernel) {
                    requests.push_back(scripted_request(std::to_string(3 * i + kernel)));
                }
                bench.store.get_all(requests);
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        CHECK(bench.compiler->compiles == 12);
        CHECK(bench.compiler->most_at_once == limit);
    }
    check_refused(ErrorCode::invalid_argument, {"compile_threads is -1"},
                  [] { Bench bench({.compile_threads = -1}); });
}

TEST_CASE("the kernels of one request are compiled at the same time and come in their order") {
    Bench bench({.compile_threads = 3}, "1.0", 50ms);
    const std::vector<compiler::KernelRequest> requests = {
        scripted_request("a"), scripted_request("b"), scripted_request("c")};
    const auto lookups = bench.store.get_all(requests);
    CHECK(bench.compiler->most_at_once == 3);
    for (std::size_t i = 0; i < requests.size(); ++i) {
        CHECK_FALSE(lookups[i].cached);
        CHECK(lookups[i].kernel == bench.store.get(requests[i]).kernel);
        CHECK(lookups[i].kernel->cubin ==
              ScriptedBackend::bytes_of("1.0sm_90a" + requests[i].specialisation));
    }
}
