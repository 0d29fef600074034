#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "attention/kernels.hpp"
#include "problem_data.hpp"
#include "session/session.hpp"

namespace backlight::tool {

/// A part of the chain of kernels that a backward is.
enum class ChainPart { before_main, main, after_main };

/// The chain of a backward, loaded and with everything that a launch takes: what a plan launches,
/// whole or in parts.
class ReadyChain {
  public:
    /// The tensors and the workspace, of `workspace_bytes`, must outlive it. For `mma_repeats` see
    /// `attention::backward_chain`.
    ReadyChain(Session& session, const ProblemData& data, const TileConfig& config, void* workspace,
               int mma_repeats = 1);

    static std::size_t workspace_bytes(const AttentionProblem& problem, const TileConfig& config);

    /// Enqueues the whole chain on the session's stream.
    void launch() const;
    /// Enqueues one part, whose kernels wait for what is ahead of them in the stream to end.
    void launch(ChainPart part) const;

    const std::vector<KernelResources>& resources() const noexcept { return resources_; }

  private:
    static constexpr std::size_t main_index = 1;

    void launch(std::size_t kernel, device::LaunchShape shape) const;

    Stream stream_;
    std::vector<std::shared_ptr<const device::Kernel>> kernels_;
    std::vector<device::LaunchShape> shapes_;
    std::vector<KernelResources> resources_;
    attention::DeltaKernelArguments delta_{};
    attention::MainArguments main_;
    attention::ConvertKernelArguments convert_{};
};

}  // namespace backlight::tool
