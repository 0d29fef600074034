#include "external_program.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "backlight/error.hpp"

namespace backlight::tool {

bool is_executable(const std::string& file) {
    // A folder may be "executed" too.
    std::error_code failure;
    return std::filesystem::is_regular_file(file, failure) && ::access(file.c_str(), X_OK) == 0;
}

std::string found_on_path(const std::string& program) {
    const char* path = std::getenv("PATH");
    std::istringstream folders(path != nullptr ? path : "");
    for (std::string folder; std::getline(folders, folder, ':');) {
        std::string file = (folder.empty() ? "." : folder) + "/" + program;
        if (is_executable(file)) {
            return file;
        }
    }
    return {};
}

TemporaryFile::TemporaryFile(const std::string& name)
    : path_((std::filesystem::temp_directory_path() / fmt::format("backlight-{}-XXXXXX", name))
                .string()) {
    const int descriptor = ::mkostemp(path_.data(), O_CLOEXEC);
    if (descriptor < 0) {
        throw Error(ErrorCode::file_error,
                    fmt::format("no temporary file could be made as {}", path_));
    }
    ::close(descriptor);
}

TemporaryFile::~TemporaryFile() {
    ::unlink(path_.c_str());
}

ProgramResult run_program(const std::vector<std::string>& command) {
    const TemporaryFile log("output");
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.path().c_str(),
                                       O_WRONLY | O_TRUNC, 0);
    ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    std::vector<std::string> words = command;
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (std::string& word : words) {
        arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    pid_t process = 0;
    const int failure = ::posix_spawn(&process, words.front().c_str(), &actions, nullptr,
                                      arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    int status = 0;
    const bool ended = failure == 0 && ::waitpid(process, &status, 0) == process;
    std::ifstream file(log.path(), std::ios::binary);
    return {.succeeded = ended && WIFEXITED(status) && WEXITSTATUS(status) == 0,
            .output = {std::istreambuf_iterator<char>(file), {}}};
}

}  // namespace backlight::tool
