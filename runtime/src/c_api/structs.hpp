#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <type_traits>

#include "backlight/backlight.h"
#include "backlight/problem.hpp"
#include "backlight/runtime.hpp"
#include "backlight/tile_config.hpp"
#include "backlight/tuning.hpp"
#include "c_api/guard.hpp"

namespace backlight::c_api {

/// A struct of the C API with its defaults, and how much of it any caller must have: its first
/// version.
template <typename Struct>
struct StructOf;

#define BACKLIGHT_STRUCT(type, initialiser, first_version_bytes)        \
    template <>                                                         \
    struct StructOf<type> {                                             \
        static constexpr std::string_view init = #type "_init";         \
        static constexpr std::size_t least_bytes = first_version_bytes; \
        static type defaults() { return type initialiser; }             \
    };                                                                  \
    static_assert(std::is_function_v<decltype(type##_init)>, "errors name it")
// Sizes on a 64-bit machine, written out, so that none follows a field that is added.
BACKLIGHT_STRUCT(backlight_runtime_options, BACKLIGHT_RUNTIME_OPTIONS_INIT, 80);
BACKLIGHT_STRUCT(backlight_cache_layer, BACKLIGHT_CACHE_LAYER_INIT, 40);
BACKLIGHT_STRUCT(backlight_counters, BACKLIGHT_COUNTERS_INIT, 96);
BACKLIGHT_STRUCT(backlight_problem, BACKLIGHT_PROBLEM_INIT, 136);
BACKLIGHT_STRUCT(backlight_tile_config, BACKLIGHT_TILE_CONFIG_INIT, 48);
BACKLIGHT_STRUCT(backlight_kernel_resources, BACKLIGHT_KERNEL_RESOURCES_INIT, 72);
BACKLIGHT_STRUCT(backlight_tensors, BACKLIGHT_TENSORS_INIT, 320);
BACKLIGHT_STRUCT(backlight_tune_options, BACKLIGHT_TUNE_OPTIONS_INIT, 64);
BACKLIGHT_STRUCT(backlight_tune_result, BACKLIGHT_TUNE_RESULT_INIT, 48);
#undef BACKLIGHT_STRUCT

/// How large a struct may be that this library reads or fills: what is larger has no size that was
/// ever set.
inline constexpr std::size_t most_struct_bytes = 4096;

/// The struct_size of a caller's struct, unchecked. Any of a caller's fields may be unset, and so
/// unaligned reads are as likely as any other.
std::size_t struct_size_of(const void* given);

/// Copies what the caller's struct has over the defaults in `known`, of `bytes` bytes. Throws
/// `invalid_argument` where `given` is null, its size is none, or what `known` lacks is not zero.
void read_struct(const void* given, std::string_view name, std::string_view init,
                 std::size_t least_bytes, void* known, std::size_t bytes);

/// Throws where a struct of that size cannot be.
void check_size(std::size_t size, std::string_view name, std::string_view init,
                std::size_t least_bytes);

/// The struct size of something that the caller wants filled, after the same checks.
std::size_t fillable_size(const void* given, std::string_view name, std::string_view init,
                          std::size_t least_bytes);

/// Fills a struct of `struct_size` bytes with as much as it takes, and with zeros after that.
void fill_struct(void* given, std::size_t struct_size, const void* known, std::size_t bytes);

template <typename Struct>
Struct read(const Struct* given, std::string_view name) {
    Struct known = StructOf<Struct>::defaults();
    read_struct(given, name, StructOf<Struct>::init, StructOf<Struct>::least_bytes, &known,
                sizeof(known));
    return known;
}

template <typename Struct>
void fill(Struct* given, std::string_view name, Struct known) {
    const std::size_t size =
        fillable_size(given, name, StructOf<Struct>::init, StructOf<Struct>::least_bytes);
    known.struct_size = size;
    fill_struct(given, size, &known, sizeof(known));
}

/// What `backlight_..._init` does.
template <typename Struct>
void initialise(Struct* given, std::string_view name, std::size_t struct_size) {
    check_size(struct_size, name, StructOf<Struct>::init, StructOf<Struct>::least_bytes);
    required(given, name).struct_size = struct_size;
    fill(given, name, StructOf<Struct>::defaults());
}

/// A boolean: 0 or 1.
bool boolean(std::string_view field, std::int32_t value);

[[noreturn]] void refuse_value(std::string_view field, std::int32_t value,
                               std::initializer_list<const char*> names);

/// An enum whose values are 0, 1, 2 … in the order of `values`.
template <typename Enum>
Enum enumerator(std::string_view field, std::int32_t value, std::initializer_list<Enum> values) {
    if (value >= 0 && static_cast<std::size_t>(value) < values.size()) {
        return values.begin()[value];
    }
    if (values.size() == 2) {
        refuse_value(field, value, {to_string(values.begin()[0]), to_string(values.begin()[1])});
    }
    refuse_value(
        field, value,
        {to_string(values.begin()[0]), to_string(values.begin()[1]), to_string(values.begin()[2])});
}

AttentionProblem problem_of(const backlight_problem* given);
backlight_problem problem_in_c(const AttentionProblem& problem);

/// Nothing where `given` is null.
std::optional<TileConfig> config_of(const backlight_tile_config* given);
backlight_tile_config config_in_c(const TileConfig& config);

RuntimeOptions options_of(const backlight_runtime_options* given);

BackwardTensors tensors_of(const backlight_tensors* given);

TuneOptions tune_options_of(const backlight_tune_options* given);

}  // namespace backlight::c_api
