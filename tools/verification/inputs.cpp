#include "verification/inputs.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <string>

#include "backlight/error.hpp"
#include "half_types.hpp"
#include "verification/parallel.hpp"

namespace backlight::verification {
namespace {

/// Where an element stands. `head` counts (batch, head) pairs of its tensor, `kv_head` those of the
/// keys and values that go with it.
struct Element {
    std::uint64_t head;
    std::uint64_t kv_head;
    std::uint64_t row;
    std::uint64_t column;
    std::uint64_t columns;
    std::uint64_t index;
};

/// Independent sequences of one seed.
enum class Stream : std::uint64_t { q = 1, k, v, d_o, direction, dominant, numbers };

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection that mixes all 64 bits.
constexpr std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

/// Counter-based random numbers: any element can be drawn in any order, by any thread.
class Generator {
  public:
    Generator(std::uint64_t seed, Stream stream)
        : key_(mix(mix(seed + golden_ratio) + static_cast<std::uint64_t>(stream) * golden_ratio)) {}

    std::uint64_t bits(std::uint64_t index) const { return mix(key_ + (index + 1) * golden_ratio); }

    /// N(0, 1), by Box and Muller.
    double normal(std::uint64_t index) const {
        const double radius = std::sqrt(-2 * std::log(uniform(2 * index)));
        return radius * std::cos(2 * std::numbers::pi * uniform(2 * index + 1));
    }

    /// Student's t with three degrees of freedom (variance 3), scaled to variance 1.
    double heavy_tailed(std::uint64_t index) const {
        const double numerator = normal(4 * index);
        double chi_squared = 0;
        for (std::uint64_t i = 1; i < 4; ++i) {
            chi_squared += normal(4 * index + i) * normal(4 * index + i);
        }
        return numerator / std::sqrt(chi_squared);
    }

  private:
    static constexpr std::uint64_t golden_ratio = 0x9e3779b97f4a7c15ULL;

    /// In (0, 1]: never 0, whose logarithm is infinite.
    double uniform(std::uint64_t index) const {
        return (static_cast<double>(bits(index) >> 11) + 0.5) * 0x1p-53;
    }

    std::uint64_t key_;
};

class Builder {
    // Their types are deduced, so they stand before their users.
    static auto normal(const Generator& generator) {
        return [&generator](const Element& e) { return generator.normal(e.index); };
    }
    static auto heavy_tailed(const Generator& generator) {
        return [&generator](const Element& e) { return generator.heavy_tailed(e.index); };
    }
    static auto equal_rows(const Generator& generator) {
        return [&generator](const Element& e) {
            return generator.normal(e.head * e.columns + e.column);
        };
    }
    auto half_denormal(const Generator& generator) const {
        // The mantissa's bits and the exponent of the last one.
        const bool bf16 = problem_.dtype == DataType::bf16;
        const std::uint64_t mantissas = bf16 ? 0x7f : 0x3ff;
        const double step = bf16 ? 0x1p-133 : 0x1p-24;
        return [&generator, mantissas, step](const Element& e) {
            // Of another index than the normal numbers' own two.
            const std::uint64_t random = generator.bits(~e.index);
            if (e.row % 4 != 3 && (random & 1) != 0) {
                return generator.normal(e.index);
            }
            const auto mantissa = static_cast<double>(1 + (random >> 2) % mantissas);
            return ((random & 2) != 0 ? step : -step) * mantissa;
        };
    }

  public:
    Builder(const AttentionProblem& problem, InputKind kind, std::uint64_t seed)
        : problem_(problem),
          kind_(kind),
          q_(seed, Stream::q),
          k_(seed, Stream::k),
          v_(seed, Stream::v),
          d_o_(seed, Stream::d_o),
          direction_(seed, Stream::direction),
          dominant_(seed, Stream::dominant),
          heads_kv_(problem.effective_heads_kv()),
          head_dim_(static_cast<double>(problem.head_dim)),
          scale_(static_cast<double>(problem.effective_softmax_scale())) {}

    InputTensors build() const {
        switch (kind_) {
            case InputKind::normal:
                return tensors(normal(q_), normal(k_), normal(v_), normal(d_o_));
            case InputKind::large_logits:
                return large_logits();
            case InputKind::low_lse:
                return aligned_logits(true);
            case InputKind::high_lse:
                return aligned_logits(false);
            case InputKind::dominant_key:
                return dominant_key();
            case InputKind::equal_rows:
                return tensors(equal_rows(q_), equal_rows(k_), equal_rows(v_), equal_rows(d_o_));
            case InputKind::heavy_tails:
                return tensors(heavy_tailed(q_), heavy_tailed(k_), heavy_tailed(v_),
                               heavy_tailed(d_o_));
            case InputKind::denormals:
                return tensors(half_denormal(q_), half_denormal(k_), half_denormal(v_),
                               half_denormal(d_o_));
        }
        throw Error(ErrorCode::invalid_argument, "make_inputs: kind is none of InputKind's values");
    }

  private:
    InputTensors large_logits() const {
        const double amplitude = amplitude_of_kind();
        return tensors([&](const Element& e) { return amplitude * q_.normal(e.index); }, normal(k_),
                       normal(v_), normal(d_o_));
    }

    /// Queries lie around a direction of ±1 entries, keys around the same or the opposite of it.
    InputTensors aligned_logits(bool negative) const {
        const double amplitude = amplitude_of_kind();
        const double sign = (scale_ < 0) == negative ? 1 : -1;
        // Six standard deviations of a logit are then about 72, whatever head_dim is.
        const double noise = 0.3 * std::min(1.0, std::sqrt(head_dim_ / 64));
        return tensors(
            [&](const Element& e) { return amplitude * (axis(e) + noise * q_.normal(e.index)); },
            [&](const Element& e) {
                return sign * amplitude * (axis(e) + noise * k_.normal(e.index));
            },
            normal(v_), normal(d_o_));
    }

    /// The dominant key points where all queries do; the others are noise with logits of deviation
    /// about 1, of which even 2^16 sum to less than e^12.
    InputTensors dominant_key() const {
        const double amplitude = amplitude_of_kind();
        const double sign = scale_ < 0 ? -1 : 1;
        const double noise = 0.3 * std::min(1.0, std::sqrt(head_dim_ / 64));
        const double others = 1 / (std::abs(scale_) * std::sqrt(head_dim_) * amplitude);
        check_amplitude(others);
        const auto keys = static_cast<std::uint64_t>(problem_.seqlen_kv);
        const bool masked = problem_.causal || problem_.window_right;
        if (problem_.window_left) {
            throw Error(ErrorCode::invalid_argument,
                        "make_inputs: window_left is " + std::to_string(*problem_.window_left) +
                            "; dominant_key needs a key that all queries attend to");
        }
        return tensors(
            [&](const Element& e) { return amplitude * (axis(e) + noise * q_.normal(e.index)); },
            [&, keys, masked](const Element& e) {
                const std::uint64_t dominant = masked ? 0 : dominant_.bits(e.head) % keys;
                return e.row == dominant ? sign * amplitude * axis(e) : others * k_.normal(e.index);
            },
            normal(v_), normal(d_o_));
    }

    /// Entry of a random direction, ±1: exact in 16 bits. One of a head of keys and of all queries
    /// that use it.
    double axis(const Element& e) const {
        return (direction_.bits(e.kv_head * e.columns + e.column) & 1) != 0 ? 1.0 : -1.0;
    }

    double amplitude_of_kind() const {
        const double amplitude = query_amplitude(problem_, kind_);
        check_amplitude(amplitude);
        return amplitude;
    }

    /// Values pass ten times the amplitude only once in 10^22 draws.
    void check_amplitude(double amplitude) const {
        const auto largest = static_cast<double>(
            from_bits(problem_.dtype, problem_.dtype == DataType::bf16 ? 0x7f7f : 0x7bff));
        if (!(amplitude * 10 < largest) || amplitude < 1e-4) {
            throw Error(ErrorCode::invalid_argument,
                        "make_inputs: softmax_scale is " + std::to_string(scale_) + "; " +
                            to_string(kind_) + " needs entries of about " +
                            std::to_string(amplitude) + ", which " + to_string(problem_.dtype) +
                            " does not represent well");
        }
    }

    template <typename Q, typename K, typename V, typename DO>
    InputTensors tensors(const Q& q, const K& k, const V& v, const DO& d_o) const {
        const std::int64_t head_dim_v = problem_.effective_head_dim_v();
        return {.q = fill(problem_.heads, problem_.seqlen_q, problem_.head_dim, q),
                .k = fill(heads_kv_, problem_.seqlen_kv, problem_.head_dim, k),
                .v = fill(heads_kv_, problem_.seqlen_kv, head_dim_v, v),
                .d_o = fill(problem_.heads, problem_.seqlen_q, head_dim_v, d_o)};
    }

    template <typename Value>
    std::vector<std::uint16_t> fill(std::int64_t heads, std::int64_t seqlen, std::int64_t head_dim,
                                    const Value& value) const {
        constexpr std::int64_t rows_at_a_time = 64;
        const auto rows_of_head = static_cast<std::uint64_t>(seqlen);
        const auto columns = static_cast<std::uint64_t>(head_dim);
        const auto heads_per_kv_head = static_cast<std::uint64_t>(heads / heads_kv_);
        const std::int64_t rows = problem_.batch * heads * seqlen;
        std::vector<std::uint16_t> bits(static_cast<std::size_t>(rows) * columns);
        parallel_for((rows + rows_at_a_time - 1) / rows_at_a_time, [&](std::int64_t part) {
            const std::int64_t end = std::min(rows, (part + 1) * rows_at_a_time);
            for (auto row = static_cast<std::uint64_t>(part * rows_at_a_time);
                 row < static_cast<std::uint64_t>(end); ++row) {
                for (std::uint64_t column = 0; column < columns; ++column) {
                    const std::uint64_t index = row * columns + column;
                    const std::uint64_t head = row / rows_of_head;
                    bits[index] =
                        to_bits(problem_.dtype, value({.head = head,
                                                       .kv_head = head / heads_per_kv_head,
                                                       .row = row % rows_of_head,
                                                       .column = column,
                                                       .columns = columns,
                                                       .index = index}));
                }
            }
        });
        return bits;
    }

    AttentionProblem problem_;
    InputKind kind_;
    Generator q_, k_, v_, d_o_, direction_, dominant_;
    std::int64_t heads_kv_;
    double head_dim_;
    double scale_;
};

}  // namespace

const char* to_string(InputKind kind) noexcept {
    switch (kind) {
        case InputKind::normal:
            return "normal";
        case InputKind::large_logits:
            return "large_logits";
        case InputKind::low_lse:
            return "low_lse";
        case InputKind::high_lse:
            return "high_lse";
        case InputKind::dominant_key:
            return "dominant_key";
        case InputKind::equal_rows:
            return "equal_rows";
        case InputKind::heavy_tails:
            return "heavy_tails";
        case InputKind::denormals:
            return "denormals";
    }
    return "unknown";
}

InputKind input_kind(std::string_view name) {
    std::string names;
    for (const InputKind kind : input_kinds) {
        if (name == to_string(kind)) {
            return kind;
        }
        names += std::string(names.empty() ? "" : ", ") + to_string(kind);
    }
    throw Error(ErrorCode::invalid_argument,
                "input kind is \"" + std::string(name) + "\"; it must be one of " + names);
}

double query_amplitude(const AttentionProblem& problem, InputKind kind) {
    constexpr double deviation_of_large_logits = 25;
    constexpr double dominant_logit = 20;
    constexpr double aligned_logit = 225;
    const double scale = std::abs(static_cast<double>(problem.effective_softmax_scale()));
    const auto head_dim = static_cast<double>(problem.head_dim);
    // Of both a query and a key of ±1 entries, for a logit of ±`logit`.
    const auto aligned = [&](double logit) { return std::sqrt(logit / (scale * head_dim)); };
    switch (kind) {
        case InputKind::large_logits:
            return deviation_of_large_logits / (scale * std::sqrt(head_dim));
        case InputKind::low_lse:
        case InputKind::high_lse:
            return aligned(aligned_logit);
        case InputKind::dominant_key:
            return aligned(dominant_logit);
        default:
            return 1;
    }
}

InputTensors make_inputs(const AttentionProblem& problem, InputKind kind, std::uint64_t seed) {
    const std::int64_t heads_kv = problem.effective_heads_kv();
    if (std::min({problem.batch, problem.heads, heads_kv, problem.head_dim,
                  problem.effective_head_dim_v()}) < 1 ||
        std::min(problem.seqlen_q, problem.seqlen_kv) < 0 || problem.heads % heads_kv != 0) {
        throw Error(ErrorCode::invalid_argument,
                    "make_inputs: every extent must be at least 1, lengths 0, and heads_kv must "
                    "divide heads: " +
                        to_string(problem));
    }
    if (problem.packed) {
        // All rows alike, those of no sequence too.
        return Builder(problem.of_sequence({.seqlen_q = problem.packed->total_q,
                                            .seqlen_kv = problem.packed->total_kv}),
                       kind, seed)
            .build();
    }
    return Builder(problem, kind, seed).build();
}

std::vector<float> normal_numbers(std::size_t count, std::uint64_t seed) {
    constexpr std::size_t at_a_time = 4096;
    const Generator generator(seed, Stream::numbers);
    std::vector<float> numbers(count);
    parallel_for(static_cast<std::int64_t>((count + at_a_time - 1) / at_a_time),
                 [&](std::int64_t part) {
                     const std::size_t first = static_cast<std::size_t>(part) * at_a_time;
                     for (std::size_t i = first; i < std::min(count, first + at_a_time); ++i) {
                         numbers[i] = static_cast<float>(generator.normal(i));
                     }
                 });
    return numbers;
}

}  // namespace backlight::verification
