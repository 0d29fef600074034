#include "emulation/temporary_folder.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "test_support.hpp"

namespace backlight::emulation {

namespace {

namespace fs = std::filesystem;

/// A process that holds a temporary folder with a file in it until it is killed.
class FolderHolder {
  public:
    FolderHolder() {
        std::array<int, 2> pipe{};
        REQUIRE(::pipe(pipe.data()) == 0);
        process_ = ::fork();
        REQUIRE(process_ >= 0);
        if (process_ == 0) {
            const TemporaryFolder folder;
            std::ofstream(folder.path() / "kernel.so") << "object";
            const std::string path = folder.path().string();
            if (::write(pipe[1], path.data(), path.size()) < 0) {
                ::_exit(1);
            }
            ::close(pipe[1]);
            for (;;) {
                ::pause();
            }
        }
        ::close(pipe[1]);
        std::array<char, 4096> text{};
        const auto length = ::read(pipe[0], text.data(), text.size());
        ::close(pipe[0]);
        REQUIRE(length > 0);
        path_ = std::string(text.data(), static_cast<std::size_t>(length));
    }
    ~FolderHolder() { kill(); }
    FolderHolder(const FolderHolder&) = delete;
    FolderHolder& operator=(const FolderHolder&) = delete;

    void kill() {
        if (process_ > 0) {
            ::kill(process_, SIGKILL);
            ::waitpid(process_, nullptr, 0);
            process_ = -1;
        }
    }
    const fs::path& path() const noexcept { return path_; }

  private:
    pid_t process_ = -1;
    fs::path path_;
};

TEST_CASE(
    "a killed process leaves its folder to the next that makes one and a living one keeps it") {
    const test::TemporaryDirectory parent;
    const test::Environment temporary("TMPDIR", parent.path().string());
    FolderHolder holder;
    CHECK(holder.path().parent_path() == parent.path());
    const TemporaryFolder own;
    CHECK(remove_left_folders(parent.path()) == 0);
    CHECK(fs::exists(holder.path() / "kernel.so"));
    CHECK(fs::exists(own.path()));

    holder.kill();
    CHECK(fs::exists(holder.path() / "kernel.so"));
    const TemporaryFolder next;
    CHECK_FALSE(fs::exists(holder.path()));
    CHECK(fs::exists(own.path()));
    CHECK(fs::exists(next.path()));
}

TEST_CASE("only folders of this user are taken for left behind") {
    const test::TemporaryDirectory parent;
    const fs::path target = parent.path() / "kept";
    fs::create_directory(target);
    const fs::path link = parent.path() / "backlight-emulated-link";
    fs::create_directory_symlink(target, link);
    const fs::path file = parent.path() / "backlight-emulated-file";
    std::ofstream(file) << "text";
    const fs::path other = parent.path() / "backlight-emulated-other";
    fs::create_directory(other);
    constexpr uid_t another_user = 65534;
    const bool owned_by_another = ::geteuid() == 0;
    if (owned_by_another) {
        REQUIRE(::lchown(other.c_str(), another_user, another_user) == 0);
    }

    CHECK(remove_left_folders(parent.path()) == (owned_by_another ? 0 : 1));
    CHECK(fs::exists(target));
    CHECK(fs::is_symlink(link));
    CHECK(fs::exists(file));
    CHECK(fs::exists(other) == owned_by_another);
    CHECK(remove_left_folders(parent.path() / "missing") == 0);
}

TEST_CASE("no folder is taken from its maker while others look for what is left") {
    const test::TemporaryDirectory parent;
    const test::Environment temporary("TMPDIR", parent.path().string());
    std::atomic<int> lost = 0;
    {
        std::vector<std::jthread> makers;
        for (int i = 0; i < 4; ++i) {
            makers.emplace_back([&] {
                for (int made = 0; made < 200; ++made) {
                    const TemporaryFolder folder;
                    std::ofstream(folder.path() / "file") << "text";
                    remove_left_folders(parent.path());
                    lost += fs::exists(folder.path() / "file") ? 0 : 1;
                }
            });
        }
    }
    CHECK(lost == 0);
    CHECK(fs::is_empty(parent.path()));
}

}  // namespace

}  // namespace backlight::emulation
