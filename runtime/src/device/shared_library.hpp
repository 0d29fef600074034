#pragma once

#include <span>
#include <string>

namespace backlight::device {

/// A library opened at run time. Never closed: the driver and NVRTC keep threads and exit handlers
/// of their own, and unloading them under these crashes at exit.
class SharedLibrary {
  public:
    /// Opens the first of the names that can be opened; on failure `opened()` is false and
    /// `failure()` lists every name with the loader's reason.
    explicit SharedLibrary(std::span<const std::string> names);

    bool opened() const noexcept { return handle_ != nullptr; }
    /// The file that was opened, as the loader resolved it.
    const std::string& path() const noexcept { return path_; }
    const std::string& failure() const noexcept { return failure_; }
    /// Null where the library does not export the symbol.
    void* symbol(const char* name) const noexcept;

  private:
    void* handle_ = nullptr;
    std::string path_;
    std::string failure_;
};

}  // namespace backlight::device
