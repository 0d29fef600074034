#pragma once

#include <cstddef>
#include <filesystem>

namespace backlight::emulation {

/// A folder of this process alone, removed with all that it holds. A process that is killed leaves
/// its folders to the next one that makes some.
class TemporaryFolder {
  public:
    /// Removes what is left of dead processes first. Throws `file_error`.
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    const std::filesystem::path& path() const noexcept { return path_; }

  private:
    std::filesystem::path path_;
    /// The folder, open and locked (flock(2)) as long as its owner lives.
    int descriptor_ = -1;
};

/// Removes the temporary folders in `parent` that belong to this user and to no living process.
/// Returns how many.
std::size_t remove_left_folders(const std::filesystem::path& parent) noexcept;

}  // namespace backlight::emulation
