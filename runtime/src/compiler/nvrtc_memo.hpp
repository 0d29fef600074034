#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace backlight::compiler {

/// Remembers from one process to the next which version the NVRTC of this machine is. To open it
/// and to ask it takes tens of milliseconds, which a process that finds all kernels in the cache
/// need not spend. What is remembered holds as long as the library is asked for in the same way and
/// its file is the same. Whatever goes wrong is as if nothing were remembered.
class NvrtcMemo {
  public:
    /// Empty: remembers nothing.
    explicit NvrtcMemo(std::filesystem::path file) : file_(std::move(file)) {}

    /// The version of the library that `asked` leads to.
    std::optional<std::string> recall(const std::string& asked) const noexcept;
    /// `library` is the file that `asked` led to.
    void keep(const std::string& asked, const std::filesystem::path& library,
              const std::string& version) const noexcept;

  private:
    std::filesystem::path file_;
};

}  // namespace backlight::compiler
