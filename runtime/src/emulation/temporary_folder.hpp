#pragma once

#include <filesystem>

namespace backlight::emulation {

/// A folder of this process alone, removed with all that it holds.
class TemporaryFolder {
  public:
    /// Throws `file_error`.
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    const std::filesystem::path& path() const noexcept { return path_; }

  private:
    std::filesystem::path path_;
};

}  // namespace backlight::emulation
