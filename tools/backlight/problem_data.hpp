#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attention/extents.hpp"
#include "backlight/problem.hpp"
#include "backlight/runtime.hpp"
#include "backlight/tensors.hpp"
#include "guarded_buffer.hpp"
#include "session/device_buffer.hpp"
#include "session/session.hpp"
#include "support_kernels.hpp"
#include "tensor_layout.hpp"
#include "verification/inputs.hpp"
#include "verification/packing.hpp"

namespace backlight::tool {

/// dQ, dK and dV, contiguous, of the problem's shapes.
template <typename T>
struct Gradients {
    std::vector<T> d_q, d_k, d_v;

    bool operator==(const Gradients&) const = default;
};

/// The tensors of one problem on a device, and a workspace. All work is enqueued on the session's
/// stream.
///
///     SupportKernels kernels(session);
///     ProblemData data(kernels, problem, Layout::bshd);
///     data.randomise(seed);
///     data.run(*plan);
///     session.synchronise();
class ProblemData {
  public:
    enum class Operand { q, k, v, o, d_o, d_q, d_k, d_v };

    /// Allocates everything but the workspace, outputs poisoned. Of a packed problem, whose tensors
    /// are (1, heads, total, head_dim), `packing` says where the sequences lie; without it all have
    /// the largest lengths. Rows that are none's hold NaN, and are looked after like gaps.
    ProblemData(SupportKernels& kernels, const AttentionProblem& problem,
                Layout layout = Layout::bhsd, const verification::Packing& packing = {});

    const AttentionProblem& problem() const noexcept { return problem_; }
    Layout layout() const noexcept { return layout_; }
    /// Of a packed problem.
    const verification::Packing& packing() const noexcept { return packing_; }
    /// Other sequences within the same totals; set inputs anew, and the forward.
    void set_packing(const verification::Packing& packing);

    /// Q, K, V and dO of N(0, scale²), then `compute_forward`.
    void randomise(std::uint64_t seed, float scale = 1);
    /// Q, K, V and dO from the host, contiguous. O and LSE are to be computed or set after.
    void set_inputs(const verification::InputTensors& inputs);
    /// As kernels find them: of a broadcast tensor all indices have what was set last.
    verification::InputTensors inputs() const;
    /// O, contiguous, and LSE, (batch, heads, seqlen_q).
    void set_forward(std::span<const std::uint16_t> o, std::span<const float> lse);
    /// O, rounded to the problem's type, and LSE by the fp32 reference.
    void compute_forward();

    /// One tensor's elements in the order of memory. Not for slices of a packed tensor.
    void upload(Operand operand, std::span<const std::byte> bytes);
    std::vector<std::byte> download(Operand operand) const;
    void upload_lse(std::span<const float> lse);
    std::vector<float> download_lse() const;

    TensorView view(Operand operand) const noexcept;
    BackwardTensors tensors() const noexcept;

    /// Makes the workspace exactly so large, if it is not, and returns it. Its content is kept.
    void* workspace(std::size_t bytes);
    /// NaN in the outputs and the workspace, wherever a kernel fails to write.
    void poison();
    /// In the outputs alone: the workspace stays as the run before has left it.
    void poison_outputs();
    /// What the gradients hold before a run that adds to them; they must be fp32.
    void set_gradients(const std::array<std::vector<float>, 3>& values);
    /// Runs the plan on the session's stream, with a workspace of the plan's size.
    void run(const BackwardPlan& plan);

    /// The first buffer whose canary or gaps were overwritten, or nothing.
    std::optional<std::string> damaged_canary() const;

    /// What the outputs hold, as bits of the gradients' type; an element of fp32 is two words.
    /// Zeros in rows that no packed sequence has.
    Gradients<std::uint16_t> gradients() const;
    /// The gradients that the fp32 reference kernels compute from the same rounded inputs.
    Gradients<float> reference_gradients();

  private:
    /// Inputs and outputs lie in storages; with a packed layout several in one.
    struct Storage {
        std::string name;
        GuardedBuffer buffer;
        bool output = false;
    };
    struct Place {
        std::size_t storage = 0;
        std::int64_t offset = 0;
        std::array<std::int64_t, 3> strides{};
        attention::Extents extents{};
        std::size_t element_bytes = 0;

        std::size_t bytes() const noexcept {
            return static_cast<std::size_t>(extents.elements()) * element_bytes;
        }
        /// Of 16 bits, in an element.
        std::int64_t words() const noexcept {
            return static_cast<std::int64_t>(element_bytes / sizeof(std::uint16_t));
        }
    };

    void add_storage(std::string name, std::int64_t elements, bool output);
    /// Places the operand in a storage of its own, with gaps.
    void add_padded(const char* name, Place& place, bool output);
    /// The same with strides of 0, of an input.
    void add_broadcast(const char* name, Operand operand, Place& place);
    /// A storage's bytes, and which of them are no tensor's.
    std::vector<std::byte> content_and_gaps(std::size_t storage, std::vector<bool>& is_gap) const;
    bool gaps_intact(std::size_t storage) const;
    void poison_gaps(std::size_t storage);
    /// Rows of a head of an operand that sequences have; empty: all.
    std::vector<bool> used_rows(std::size_t operand) const;
    bool has_gaps() const noexcept {
        return layout_ == Layout::padded || problem_.packed.has_value();
    }
    /// NaN in what no sequence has, of inputs and LSE.
    void poison_unused_rows();
    /// Calls run(problem, arguments) for each sequence, or once for a problem that is not packed,
    /// with the arguments' tensors from the sequence's first row on.
    template <typename Run>
    void for_each_sequence(const kernel::ReferenceArguments& arguments, const Run& run) const;
    /// Where the kernel gets LSE with gaps: brings the contiguous one there.
    void spread_lse();
    /// Of batch and head, as kernels get it.
    std::array<std::int64_t, 2> lse_view_strides() const noexcept;
    /// Of an output, or of another tensor.
    std::size_t element_bytes(bool output) const noexcept;
    const Place& place(Operand operand) const noexcept {
        return places_[static_cast<std::size_t>(operand)];
    }
    /// Room for an operand as contiguous fp32, and the same with the operand's values in it.
    DeviceBuffer float_buffer(Operand operand) const;
    DeviceBuffer widened(Operand operand);

    /// In words of 16 bits, of which an element of fp32 has two.
    void scatter(Operand operand, std::span<const std::uint16_t> words);
    std::vector<std::uint16_t> gather(Operand operand) const;
    /// The same with zeros in what no sequence has.
    std::vector<std::uint16_t> gather_used(Operand operand) const;
    /// Null where there is none.
    const std::int32_t* sequence_array(std::size_t index) const noexcept;

    SupportKernels& kernels_;
    AttentionProblem problem_;
    Layout layout_;
    std::vector<Storage> storages_;
    std::array<Place, 8> places_;
    /// Contiguous, as the references take it.
    GuardedBuffer lse_;
    /// With gaps, for kernels; empty where the layout has none.
    GuardedBuffer padded_lse_;
    GuardedBuffer workspace_;
    verification::Packing packing_;
    /// cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv: those that there are.
    std::array<GuardedBuffer, 4> sequence_arrays_;
};

}  // namespace backlight::tool
