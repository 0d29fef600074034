#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace backlight::tool {

/// A program of the CUDA toolkit that prints the machine instructions of a cubin: nvdisasm or
/// cuobjdump, told apart by the file's name.
class Disassembler {
  public:
    /// Takes `path`, else the file that BACKLIGHT_DISASSEMBLER_PATH names, else nvdisasm or
    /// cuobjdump of the PATH or of the toolkit's usual places. Throws `file_error` with what was
    /// looked for; a file that was named is not replaced by another.
    explicit Disassembler(const std::string& path = {});

    const std::string& path() const noexcept { return path_; }

    /// What `parse_sass` reads. Throws `file_error` with what the program said where it fails.
    std::string listing(std::span<const std::byte> cubin) const;

  private:
    std::string path_;
};

}  // namespace backlight::tool
