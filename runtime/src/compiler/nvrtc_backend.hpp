#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "compiler/backend.hpp"
#include "compiler/nvrtc.hpp"
#include "compiler/nvrtc_memo.hpp"

namespace backlight::compiler {

/// NVRTC as the compiler of kernels: cubins for a target, with what ptxas tells of them.
class NvrtcBackend final : public Backend {
  public:
    /// Opens nothing yet.
    explicit NvrtcBackend(std::string path, NvrtcMemo memo = NvrtcMemo({}))
        : path_(std::move(path)), memo_(std::move(memo)) {}

    /// NVRTC, opened at the first call; a failure to open it is not kept.
    const Nvrtc& nvrtc();

    static std::vector<std::string> options_for(const device::Target& target);

    std::string version() override { return nvrtc().version(); }
    std::optional<std::string> likely_version() override;
    std::vector<std::string> options(const device::Target& target) const override {
        return options_for(target);
    }
    std::string source_digest(const KernelRequest& request) const override;
    CompiledKernel compile(const KernelRequest& request) override;

    /// The PTX of a request: for tests and reading.
    std::string ptx(const KernelRequest& request);

  private:
    std::string path_;
    NvrtcMemo memo_;
    std::mutex mutex_;
    std::unique_ptr<const Nvrtc> nvrtc_;
};

}  // namespace backlight::compiler
