#include "compiler/nvrtc_memo.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

#include "compiler/kernel_store.hpp"
#include "scripted_backend.hpp"
#include "test_support.hpp"

using namespace backlight;
using compiler::NvrtcMemo;
namespace fs = std::filesystem;

TEST_CASE("the version of an NVRTC is remembered while its file and the way to it are the same") {
    const test::TemporaryDirectory directory;
    const fs::path library = directory.path() / "libnvrtc.so";
    std::ofstream(library) << "a library";
    const NvrtcMemo memo(directory.path() / "memo.json");
    CHECK_FALSE(memo.recall("libnvrtc.so"));
    memo.keep("libnvrtc.so", library, "13.0.88");
    CHECK(NvrtcMemo(directory.path() / "memo.json").recall("libnvrtc.so") == "13.0.88");
    CHECK_FALSE(memo.recall("other.so"));
    {
        const test::Environment other_way("LD_LIBRARY_PATH", "/somewhere/else");
        CHECK_FALSE(memo.recall("libnvrtc.so"));
    }
    std::ofstream(library) << "another library";
    CHECK_FALSE(memo.recall("libnvrtc.so"));
    memo.keep("libnvrtc.so", library, "13.1.2");
    CHECK(memo.recall("libnvrtc.so") == "13.1.2");
    fs::remove(library);
    CHECK_FALSE(memo.recall("libnvrtc.so"));
}

TEST_CASE("a memo that cannot be read or written or is no memo is none") {
    const test::TemporaryDirectory directory;
    const fs::path library = directory.path() / "libnvrtc.so";
    std::ofstream(library) << "a library";
    const NvrtcMemo nowhere(directory.path() / "absent" / "memo.json");
    nowhere.keep("x", library, "13.0.88");
    CHECK_FALSE(nowhere.recall("x"));
    const fs::path file = directory.path() / "memo.json";
    for (const char* text : {"", "[]", "{}", "no json", R"({"asked": 7, "loader": null})"}) {
        std::ofstream(file) << text;
        CHECK_FALSE(NvrtcMemo(file).recall("x"));
    }
    NvrtcMemo({}).keep("x", library, "13.0.88");
    CHECK_FALSE(NvrtcMemo({}).recall("x"));
}

TEST_CASE("nothing that lies where a memo should be is waited for or followed") {
    const test::TemporaryDirectory directory;
    const fs::path library = directory.path() / "libnvrtc.so";
    std::ofstream(library) << "a library";
    const fs::path file = directory.path() / "memo.json";
    REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
    const NvrtcMemo memo(file);
    CHECK_FALSE(memo.recall("x"));
    memo.keep("x", library, "13.0.88");
    CHECK(memo.recall("x") == "13.0.88");

    // As another may put a link where the temporary's name can be foreseen.
    fs::remove(file);
    const fs::path precious = directory.path() / "precious";
    std::ofstream(precious) << "a file of this user";
    fs::create_symlink(precious, file.string() + "." + std::to_string(::getpid()));
    fs::create_symlink(precious, file);
    CHECK_FALSE(memo.recall("x"));
    memo.keep("x", library, "13.0.88");
    CHECK(memo.recall("x") == "13.0.88");
    CHECK(fs::file_size(precious) == std::string("a file of this user").size());
    CHECK(std::distance(fs::directory_iterator(directory.path()), {}) == 4);
}

namespace {

/// Remembers a version of its own.
class RememberedBackend final : public test::ScriptedBackend {
  public:
    RememberedBackend(std::string version, std::string remembered)
        : ScriptedBackend(std::move(version)), remembered_(std::move(remembered)) {}

    std::string version() override {
        ++opened;
        return ScriptedBackend::version();
    }
    std::optional<std::string> likely_version() override { return remembered_; }

    int opened = 0;

  private:
    std::string remembered_;
};

}  // namespace

TEST_CASE("a kernel in the cache is had without opening a compiler whose version is remembered") {
    const test::TemporaryDirectory directory;
    const auto request = test::scripted_request("x");
    const auto first = std::make_shared<RememberedBackend>("1.0", "1.0");
    compiler::KernelStore({.backend = first, .cache_directory = directory.path()}).get(request);
    CHECK(first->opened > 0);
    const auto second = std::make_shared<RememberedBackend>("1.0", "1.0");
    compiler::KernelStore store({.backend = second, .cache_directory = directory.path()});
    CHECK(store.get(request).cached);
    CHECK(second->opened == 0);
}

TEST_CASE("what is compiled is stored under the version that compiled it whatever is remembered") {
    const test::TemporaryDirectory directory;
    const auto request = test::scripted_request("x");
    const auto mistaken = std::make_shared<RememberedBackend>("2.0", "1.0");
    compiler::KernelStore store({.backend = mistaken, .cache_directory = directory.path()});
    CHECK_FALSE(store.get(request).cached);
    CHECK(store.cache().locate(store.key_of(request, "2.0")));
    CHECK_FALSE(store.cache().locate(store.key_of(request, "1.0")));
}

TEST_CASE("a second process with the same cache directory opens no NVRTC for what is there") {
    const test::TemporaryDirectory directory;
    RuntimeOptions options = test::fake_options();
    options.cache_directory = directory.path() / "cache";
    test::fresh_driver();
    const AttentionProblem problem{.seqlen_q = 512, .seqlen_kv = 512, .head_dim = 64};
    Runtime(options).backward(problem, kernel_preset("v3"));
    const test::CapturedLog log;
    logger().set_level(spdlog::level::info);
    Runtime runtime(options);
    runtime.backward(problem, kernel_preset("v3"));
    logger().set_level(spdlog::level::warn);
    CHECK(runtime.counters().layer_hits() == 3);
    CHECK(log.count("NVRTC") == 0);
}
