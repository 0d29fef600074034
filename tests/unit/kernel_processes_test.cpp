// Many processes and threads that want the same kernels.

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <new>

#include "compiler/kernel_store.hpp"
#include "scripted_backend.hpp"
#include "test_support.hpp"

using namespace backlight;
using compiler::KernelStore;
using test::scripted_request;
using test::ScriptedBackend;
using namespace std::chrono_literals;

namespace {

constexpr int processes = 8;
constexpr int threads_each = 16;
constexpr int kernels = 20;

/// What the processes count together.
struct Shared {
    std::atomic<int> compiles = 0;
    std::atomic<int> right_kernels = 0;
    std::atomic<bool> start = false;
};

class SharedMemory {
  public:
    SharedMemory() {
        void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        REQUIRE(memory != MAP_FAILED);
        shared_ = new (memory) Shared;
    }
    ~SharedMemory() { ::munmap(shared_, sizeof(Shared)); }
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;

    Shared* operator->() const { return shared_; }

  private:
    Shared* shared_ = nullptr;
};

void want_all_kernels(const std::filesystem::path& directory, const SharedMemory& shared) {
    const auto compiler = std::make_shared<ScriptedBackend>("1.0", 5ms);
    {
        KernelStore store({.backend = compiler, .cache_directory = directory});
        while (!shared->start) {
            std::this_thread::sleep_for(1ms);
        }
        std::vector<std::thread> threads;
        for (int thread = 0; thread < threads_each; ++thread) {
            threads.emplace_back([&, thread] {
                for (int i = 0; i < kernels; ++i) {
                    // Each in an order of its own.
                    const auto name = std::to_string((i * 7 + thread) % kernels);
                    const auto kernel = store.get(scripted_request(name)).kernel;
                    if (kernel->cubin == ScriptedBackend::bytes_of("1.0sm_90a" + name)) {
                        ++shared->right_kernels;
                    }
                }
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
    }
    shared->compiles += compiler->compiles;
}

}  // namespace

TEST_CASE("eight processes of sixteen threads on a cold cache compile as often as there are keys") {
    const test::TemporaryDirectory directory;
    const SharedMemory shared;
    std::vector<pid_t> children;
    for (int process = 0; process < processes; ++process) {
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            int status = 1;
            try {
                want_all_kernels(directory.path(), shared);
                status = 0;
            } catch (const std::exception&) {
                // Told by the status.
            }
            ::_exit(status);
        }
        children.push_back(child);
    }
    shared->start = true;
    for (const pid_t child : children) {
        int status = -1;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK(status == 0);
    }
    CHECK(shared->right_kernels == processes * threads_each * kernels);
    CHECK(shared->compiles == kernels);
}
