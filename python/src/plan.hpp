#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>

#include "backlight/runtime.hpp"
#include "runtimes.hpp"

namespace backlight::python {

/// What Python asks a plan for, all of it plain numbers. A window or a total of −1 is none.
struct PlanRequest {
    int device = 0;
    bool fp16 = false;
    std::int64_t batch = 0, heads = 0, heads_kv = 0;
    std::int64_t seqlen_q = 0, seqlen_kv = 0;
    std::int64_t head_dim = 0, head_dim_v = 0;
    bool causal = false;
    bool top_left = false;
    std::int64_t window_left = -1, window_right = -1;
    double softmax_scale = 0;
    bool deterministic = false;
    std::int64_t total_q = -1, total_kv = -1;
    /// Dense tensors are (batch, seqlen, heads, head_dim), else (batch, heads, seqlen, head_dim).
    bool bshd = false;
};

/// A plan with what is needed to run it on tensors of Python's.
class Plan {
  public:
    /// Compiles and loads what is not there yet. Called without the interpreter's lock.
    explicit Plan(const PlanRequest& request);

    std::size_t workspace_bytes() const noexcept { return workspace_bytes_; }
    std::string describe() const;

    /// Reads the tensors' addresses and strides and enqueues the backward, the latter without the
    /// interpreter's lock. A workspace of None is taken from PyTorch's allocator, of the stream
    /// that is current there, and given back. False, and nothing is enqueued, where there was none
    /// to take, or where the strides or the address of `d_o` are none that the kernels take: a
    /// contiguous copy will do. The arrays of packed sequences are None where there are none.
    bool run(nanobind::handle d_o, nanobind::handle q, nanobind::handle k, nanobind::handle v,
             nanobind::handle o, nanobind::handle lse, nanobind::handle d_q, nanobind::handle d_k,
             nanobind::handle d_v, nanobind::handle workspace, std::uintptr_t stream,
             nanobind::handle cu_seqlens_q, nanobind::handle cu_seqlens_kv,
             nanobind::handle seqused_q, nanobind::handle seqused_kv) const;

    /// The same again and again on one set of tensors, `count` times: microseconds that a run takes
    /// the calling thread, without anything of Python.
    double time(const nanobind::sequence& arguments, int count) const;

  private:
    TensorView view(const char* name, nanobind::handle tensor) const;
    BackwardTensors tensors(nanobind::handle d_o, nanobind::handle q, nanobind::handle k,
                            nanobind::handle v, nanobind::handle o, nanobind::handle lse,
                            nanobind::handle d_q, nanobind::handle d_k, nanobind::handle d_v,
                            nanobind::handle cu_seqlens_q, nanobind::handle cu_seqlens_kv,
                            nanobind::handle seqused_q, nanobind::handle seqused_kv) const;

    DeviceRuntime* device_;
    int device_index_ = 0;
    std::shared_ptr<const BackwardPlan> plan_;
    std::size_t workspace_bytes_ = 0;
    bool packed_ = false;
    bool bshd_ = false;
};

}  // namespace backlight::python
