#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attention/extents.hpp"
#include "attention/kernel_loader.hpp"
#include "attention/plan.hpp"
#include "measurement/support_kernels.hpp"
#include "tuning/scratch_memory.hpp"
#include "tuning/search.hpp"

namespace backlight::tuning {

/// Trials of one problem on a device. Everything is scratch: inputs of N(0, 1), outputs and
/// workspace are the trials' own, so that nothing of the caller's is overwritten or added to.
class DeviceTrials final : public Trials {
  public:
    /// Allocates and fills the tensors, and computes O and LSE. Throws `driver_failed` where the
    /// memory is not there.
    DeviceTrials(attention::KernelLoader& loader, const AttentionProblem& problem, Stream stream);
    ~DeviceTrials() override;

    std::string kernel_digest(const TileConfig& config) override;
    KernelResources compile(const TileConfig& config) override;
    double time(const TileConfig& config, bool rested) override;
    std::string check(const TileConfig& config) override;
    void release(const TileConfig& config) override;
    double seconds() const override;

  private:
    /// What is compared with the reference: heads of keys and values that are neighbours in the
    /// (batch, heads_kv) order, with the heads of queries that use them.
    struct Slice {
        std::int64_t first_kv_head = 0;
        std::int64_t kv_heads = 0;
        /// dQ, dK, dV.
        std::array<std::vector<float>, 3> reference;
    };

    device::Device& device() const { return loader_.device(); }
    AttentionProblem slice_problem(const Slice& slice) const;
    ScratchMemory floats(std::int64_t elements) const;
    /// Of a tensor of those extents.
    std::int64_t first_head(const Slice& slice, const attention::Extents& whole) const noexcept;
    /// Part of a tensor, from that head on, as contiguous fp32.
    ScratchMemory widened(const ScratchMemory& tensor, const attention::Extents& whole,
                          const attention::Extents& part, std::int64_t first_head);
    void compute_forward();
    void compute_reference(Slice& slice);
    void make_references();
    std::string compare(const Slice& slice, std::size_t gradient) const;

    const BackwardPlan& plan(const TileConfig& config);
    void run(const BackwardPlan& plan);

    attention::KernelLoader& loader_;
    AttentionProblem problem_;
    /// Of Q, of K, of V, of O, and of what is alike.
    attention::Extents queries_, keys_, values_, outputs_;
    Stream stream_;
    measurement::SupportKernels kernels_;
    ScratchMemory q_, k_, v_, o_, d_o_, lse_;
    /// dQ, dK, dV.
    std::array<ScratchMemory, 3> gradients_;
    ScratchMemory workspace_;
    /// Written before each sample, so that no tensor is left in the L2 cache; empty where there is
    /// none.
    ScratchMemory flush_;
    std::uint8_t flush_byte_ = 0;
    std::vector<Slice> slices_;
    std::vector<std::shared_ptr<const BackwardPlan>> plans_;
};

}  // namespace backlight::tuning
