#pragma once

#include <string>
#include <vector>

namespace backlight::tool {

/// Whether the file is there and may be executed.
bool is_executable(const std::string& file);

/// The file of a program on the PATH, or empty.
std::string found_on_path(const std::string& program);

/// A file in the system's folder for such, removed with the object.
class TemporaryFile {
  public:
    /// `name`: what it is for, as a part of its name. Throws `file_error`.
    explicit TemporaryFile(const std::string& name);
    ~TemporaryFile();
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;

    const std::string& path() const noexcept { return path_; }

  private:
    std::string path_;
};

struct ProgramResult {
    /// It was started and ended with exit code 0.
    bool succeeded = false;
    /// Standard output and errors, as they came.
    std::string output;
};

/// Runs a program, named by its file, with its arguments, to its end.
ProgramResult run_program(const std::vector<std::string>& command);

}  // namespace backlight::tool
