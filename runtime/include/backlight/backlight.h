#pragma once

/* Backlight in C (C11, and whatever calls C functions): the same library as the C++ headers, with
 * the same rules and the same texts of errors. docs/using_from_c.md has a whole program.
 *
 * Status: every function that can fail returns a backlight_status; backlight_last_error_message()
 * says why in words. What a function gives back through a pointer is valid after BACKLIGHT_SUCCESS
 * alone; after any other status a handle is null. No C++ exception leaves a function.
 *
 * Structs: `struct_size` is the size that the caller was compiled with. Make them by
 * BACKLIGHT_..._INIT or backlight_..._init, then set fields. A smaller struct, of an older header,
 * is taken, and the fields that it lacks have their defaults; a larger one, of a newer header, is
 * taken where all that this library does not know is zero. Fields that come later have zero as
 * their default. Structs that a function fills need a struct_size too; what this library does not
 * know is set to zero.
 *
 * Fields that are enums are int32_t and take the values named below; those that are booleans are
 * int32_t and take 0 or 1. `reserved` must be 0.
 *
 * Threads: every function may be called from any thread at any time, with the same handles too;
 * only destroying a handle must come after every other call with it. A thread must not be cancelled
 * within a call.
 *
 * Lengths and strides are counted in elements, sizes in bytes. Text is UTF-8 and ends in 0. */

#include <stddef.h>
#include <stdint.h>

#include "backlight/export.h"

/* Of this header. Before 1.0 a minor version may break programs; patches never do. */
#define BACKLIGHT_VERSION_MAJOR 0
#define BACKLIGHT_VERSION_MINOR 1
#define BACKLIGHT_VERSION_PATCH 0
#define BACKLIGHT_VERSION_STRING "0.1.0"
#define BACKLIGHT_VERSION \
    (BACKLIGHT_VERSION_MAJOR * 10000 + BACKLIGHT_VERSION_MINOR * 100 + BACKLIGHT_VERSION_PATCH)

/* A field that is optional and not given. */
#define BACKLIGHT_NOT_GIVEN (-1)

#ifdef __cplusplus
extern "C" {
#endif

/* A CUstream or cudaStream_t; null is the current context's default stream. */
struct CUstream_st;
typedef struct CUstream_st* backlight_stream;

typedef int32_t backlight_status;
enum backlight_status_values {
    BACKLIGHT_SUCCESS = 0,
    /* A field of a struct, or an argument, breaks a rule; the message names all three. */
    BACKLIGHT_INVALID_ARGUMENT = 1,
    /* The request is well formed, but no kernel of this build takes it. */
    BACKLIGHT_UNSUPPORTED = 2,
    BACKLIGHT_WORKSPACE_TOO_SMALL = 3,
    /* No preset has the given name. */
    BACKLIGHT_UNKNOWN_KERNEL = 4,
    /* A tile configuration needs more shared memory than a block of the target may have. */
    BACKLIGHT_SHARED_MEMORY_EXCEEDED = 5,
    /* libcuda.so.1 could not be opened, or lacks a function. */
    BACKLIGHT_DRIVER_NOT_FOUND = 10,
    /* The driver refused a call; the message has the driver's own name of the error. */
    BACKLIGHT_DRIVER_FAILED = 11,
    BACKLIGHT_DEVICE_NOT_FOUND = 12,
    /* The device is older than compute capability 9.0. */
    BACKLIGHT_UNSUPPORTED_DEVICE = 13,
    /* Kernels would have to be compiled or loaded while a stream is being captured. */
    BACKLIGHT_CAPTURE_ACTIVE = 14,
    BACKLIGHT_NVRTC_NOT_FOUND = 20,
    BACKLIGHT_NVRTC_TOO_OLD = 21,
    /* The message has NVRTC's path, version, options and whole log. */
    BACKLIGHT_COMPILE_FAILED = 22,
    /* No layer of the cache has the kernel, and the policy forbids to compile it. */
    BACKLIGHT_COMPILE_FORBIDDEN = 23,
    BACKLIGHT_FILE_ERROR = 30,
    /* Every configuration that the tuner checked computes wrong gradients. */
    BACKLIGHT_KERNEL_FAULT = 40,
    /* Of the emulated device, which this header does not offer. */
    BACKLIGHT_HOST_COMPILER_NOT_FOUND = 41,
    /* The host has no memory left. */
    BACKLIGHT_OUT_OF_MEMORY = 100,
    /* Anything else, such as a thread that the system refuses; the message says what. */
    BACKLIGHT_FAILED = 101
};

typedef int32_t backlight_data_type;
enum backlight_data_type_values { BACKLIGHT_BF16 = 0, BACKLIGHT_FP16 = 1 };

/* Query i stands at key i (sequences begin together, as PyTorch's is_causal has it), or at key
 * i + seqlen_kv - seqlen_q (they end together, as FlashAttention has it). */
typedef int32_t backlight_mask_alignment;
enum backlight_mask_alignment_values { BACKLIGHT_TOP_LEFT = 0, BACKLIGHT_BOTTOM_RIGHT = 1 };

/* In which type dQ, dK and dV are written. */
typedef int32_t backlight_gradient_type;
enum backlight_gradient_type_values { BACKLIGHT_GRADIENT_INPUT = 0, BACKLIGHT_GRADIENT_FP32 = 1 };

/* Where a kernel is in no layer of the cache: it is compiled; it is compiled and a warning tells
 * which entry comes nearest; or the call is refused, and NVRTC is not even opened. */
typedef int32_t backlight_compile_policy;
enum backlight_compile_policy_values {
    BACKLIGHT_COMPILE_ALLOW = 0,
    BACKLIGHT_COMPILE_WARN = 1,
    BACKLIGHT_COMPILE_FORBID = 2
};

typedef int32_t backlight_kernel_family;
enum backlight_kernel_family_values {
    BACKLIGHT_FAMILY_MMA = 0,
    BACKLIGHT_FAMILY_WGMMA = 1,
    BACKLIGHT_FAMILY_MMA_RESIDENT = 2
};

typedef int32_t backlight_sequence_lengths;
enum backlight_sequence_lengths_values {
    BACKLIGHT_LENGTHS_RUN_TIME = 0,
    BACKLIGHT_LENGTHS_COMPILE_TIME = 1
};

/* ---- Version and errors ---------------------------------------------------------------------- */

/* BACKLIGHT_VERSION_STRING and BACKLIGHT_VERSION of the library that is loaded. */
BACKLIGHT_API const char* backlight_version(void);
BACKLIGHT_API int32_t backlight_version_number(void);

/* For example "invalid_argument"; "unknown" of no status. */
BACKLIGHT_API const char* backlight_status_name(backlight_status status);

/* Why the last call of this thread that failed did so: what a C++ program finds in
 * backlight::Error::what(). Valid until the thread's next call that fails; "" before the first. */
BACKLIGHT_API const char* backlight_last_error_message(void);

/* ---- Runtime --------------------------------------------------------------------------------- */

/* A device, a compiler and a cache of kernels. Serves every GPU of its device's compute capability
 * in the process. */
typedef struct backlight_runtime backlight_runtime;

/* A read-only place of compiled kernels: a directory or a pack file by its path, or a pack in
 * memory, which must outlive the runtime. What is missing or damaged holds nothing. */
typedef struct backlight_cache_layer {
    size_t struct_size;
    /* For counters and messages; the path where it is null. */
    const char* name;
    const char* path;
    const void* pack;
    size_t pack_bytes;
} backlight_cache_layer;

#define BACKLIGHT_CACHE_LAYER_INIT \
    { sizeof(backlight_cache_layer), NULL, NULL, NULL, 0 }

/* Writes the defaults into a struct of that size, for languages without these macros; likewise
 * those below. */
BACKLIGHT_API backlight_status backlight_cache_layer_init(backlight_cache_layer* layer,
                                                          size_t struct_size);

/* Texts and paths that are null or empty mean the environment variable, then the usual place
 * (docs/using_the_library.md). All is copied, but for packs. */
typedef struct backlight_runtime_options {
    size_t struct_size;
    /* CUDA device ordinal. */
    int32_t device;
    /* Boolean: keep compiled kernels in memory only. */
    int32_t disable_disk_cache;
    const char* driver_path;
    const char* nvrtc_path;
    const char* cache_directory;
    const char* tuning_database;
    /* Looked in before the directory, in this order. All of one struct_size. */
    const backlight_cache_layer* cache_layers;
    size_t cache_layer_count;
    /* The directory keeps to so many bytes; 2^30 by default. */
    uint64_t cache_byte_limit;
    backlight_compile_policy compile_policy;
    /* Kernels that are compiled at the same time; 0: one a core. */
    int32_t compile_threads;
} backlight_runtime_options;

#define BACKLIGHT_RUNTIME_OPTIONS_INIT                                            \
    {                                                                             \
        sizeof(backlight_runtime_options), 0, 0, NULL, NULL, NULL, NULL, NULL, 0, \
            (uint64_t)1 << 30, 0, 0                                               \
    }

BACKLIGHT_API backlight_status backlight_runtime_options_init(backlight_runtime_options* options,
                                                              size_t struct_size);

/* `options`: null for the defaults. Opens the driver, makes no context. The caller destroys what it
 * gets. */
BACKLIGHT_API backlight_status backlight_runtime_create(const backlight_runtime_options* options,
                                                        backlight_runtime** runtime);
/* Null is allowed. Plans that were made stay good. */
BACKLIGHT_API void backlight_runtime_destroy(backlight_runtime* runtime);

/* For example "sm_90a"; valid as long as the runtime. Null where `runtime` is. */
BACKLIGHT_API const char* backlight_runtime_target(const backlight_runtime* runtime);
BACKLIGHT_API const char* backlight_runtime_device_name(const backlight_runtime* runtime);

/* Since the runtime was made. */
typedef struct backlight_counters {
    size_t struct_size;
    /* Kernels that were in memory, that a layer of the cache had, that none had. */
    uint64_t memory_hits;
    uint64_t layer_hits;
    uint64_t misses;
    uint64_t compiles;
    /* All compiles together, each as long as it took. */
    double compile_milliseconds;
    /* Kernels written to the directory, and those that could not be. */
    uint64_t stores;
    uint64_t failed_stores;
    uint64_t evictions;
    uint64_t repairs;
    uint64_t tensor_maps_encoded;
    /* Of backlight_runtime_layer_hits. */
    uint64_t layers;
} backlight_counters;

#define BACKLIGHT_COUNTERS_INIT \
    { sizeof(backlight_counters), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

BACKLIGHT_API backlight_status backlight_counters_init(backlight_counters* counters,
                                                       size_t struct_size);

BACKLIGHT_API backlight_status backlight_runtime_counters(const backlight_runtime* runtime,
                                                          backlight_counters* counters);
/* Kernels that the layer had, in the order in which they are looked in; the directory that is
 * written comes last. `name`, if not null, gets the layer's name, valid as long as the runtime. */
BACKLIGHT_API backlight_status backlight_runtime_layer_hits(const backlight_runtime* runtime,
                                                            size_t layer, const char** name,
                                                            uint64_t* hits);

/* ---- Problem and configuration --------------------------------------------------------------- */

/* One attention backward; backlight/problem.hpp has the formulas. Q (batch, heads, seqlen_q,
 * head_dim), K (batch, heads_kv, seqlen_kv, head_dim), V (batch, heads_kv, seqlen_kv, head_dim_v),
 * O and dO (batch, heads, seqlen_q, head_dim_v), LSE (batch, heads, seqlen_q): natural logarithm,
 * fp32. Packed sequences: `batch` of them lie in tensors (heads, total_q, head_dim), (heads_kv,
 * total_kv, head_dim) and so on, and seqlen_q and seqlen_kv are the largest lengths. */
typedef struct backlight_problem {
    size_t struct_size;
    int64_t batch;
    int64_t heads;
    /* Divides `heads`; BACKLIGHT_NOT_GIVEN: as many. */
    int64_t heads_kv;
    int64_t seqlen_q;
    int64_t seqlen_kv;
    /* A multiple of 8 from 8 to 256. */
    int64_t head_dim;
    /* Of values and outputs; BACKLIGHT_NOT_GIVEN: head_dim. */
    int64_t head_dim_v;
    backlight_data_type dtype;
    /* Boolean: no query attends to keys after its own position. */
    int32_t causal;
    /* Of the causal mask and the window; bottom-right by default. */
    backlight_mask_alignment mask_alignment;
    /* Boolean: every run on the same inputs gives the same bits, in dQ too. */
    int32_t deterministic;
    /* Keys before and after its own position that a query attends to; BACKLIGHT_NOT_GIVEN: all. */
    int64_t window_left;
    int64_t window_right;
    backlight_gradient_type gradient_type;
    /* Boolean: gradients, which must be fp32, are added to what is there. */
    int32_t accumulate_gradients;
    /* Boolean: softmax_scale counts; 1/sqrt(head_dim) where not, and softmax_scale must then be 0.
     */
    int32_t has_softmax_scale;
    float softmax_scale;
    /* Boolean: sequences lie packed, with so many rows; the totals must be 0 where not. */
    int32_t packed;
    int32_t reserved;
    int64_t total_q;
    int64_t total_kv;
} backlight_problem;

#define BACKLIGHT_PROBLEM_INIT                                                                     \
    {                                                                                              \
        sizeof(backlight_problem), 1, 1, -1, 0, 0, 0, -1, 0, 0, 1, 0, -1, -1, 0, 0, 0, 0.0F, 0, 0, \
            0, 0                                                                                   \
    }

BACKLIGHT_API backlight_status backlight_problem_init(backlight_problem* problem,
                                                      size_t struct_size);

/* How a kernel divides a problem; backlight/tile_config.hpp says what each family takes. */
typedef struct backlight_tile_config {
    size_t struct_size;
    backlight_kernel_family family;
    int32_t block_q;
    int32_t block_kv;
    int32_t warps;
    int32_t stages;
    int32_t heads_per_group;
    /* Boolean. */
    int32_t converts_d_q;
    backlight_sequence_lengths sequence_lengths;
    /* Boolean. */
    int32_t programmatic_dependent_launch;
    int32_t reserved;
} backlight_tile_config;

#define BACKLIGHT_TILE_CONFIG_INIT \
    { sizeof(backlight_tile_config), 0, 64, 64, 8, 1, 1, 0, 0, 1, 0 }

BACKLIGHT_API backlight_status backlight_tile_config_init(backlight_tile_config* config,
                                                          size_t struct_size);

/* The name of a preset ("v1", "wgmma", ...), by its number from 0 on; null after the last. */
BACKLIGHT_API const char* backlight_kernel_preset_name(size_t index);
/* The configuration of that name. */
BACKLIGHT_API backlight_status backlight_kernel_preset(const char* name,
                                                       backlight_tile_config* config);

/* Floating-point operations of the five products of the backward, as rates are formed from, and the
 * fewest bytes that it moves. Problems that no plan would be made for are refused alike. */
BACKLIGHT_API backlight_status backlight_backward_flops(const backlight_problem* problem,
                                                        double* flops);
BACKLIGHT_API backlight_status backlight_backward_bytes(const backlight_problem* problem,
                                                        double* bytes);

/* ---- Plan, then run -------------------------------------------------------------------------- */

/* A backward made ready for one problem: kernels compiled and loaded. Never changes; keeps what it
 * needs of the runtime alive. */
typedef struct backlight_plan backlight_plan;

/* The plan for a problem, with a configuration of the caller's, or null for what was tuned for the
 * problem, else shipped for the card, else the best guess. Asking again costs a lookup. The caller
 * destroys what it gets, each time. */
BACKLIGHT_API backlight_status backlight_runtime_backward(backlight_runtime* runtime,
                                                          const backlight_problem* problem,
                                                          const backlight_tile_config* config,
                                                          backlight_plan** plan);
/* As that, and makes the code ready in the calling thread's current context: after it, no run there
 * compiles or loads anything. Needed before the capture of a graph. */
BACKLIGHT_API backlight_status backlight_runtime_prepare(backlight_runtime* runtime,
                                                         const backlight_problem* problem,
                                                         const backlight_tile_config* config,
                                                         backlight_plan** plan);
/* Null is allowed. Work that was enqueued goes on. */
BACKLIGHT_API void backlight_plan_destroy(backlight_plan* plan);

BACKLIGHT_API backlight_status backlight_plan_problem(const backlight_plan* plan,
                                                      backlight_problem* problem);
BACKLIGHT_API backlight_status backlight_plan_config(const backlight_plan* plan,
                                                     backlight_tile_config* config);
/* Bytes of device memory that a run needs as scratch, exactly. Runs that may overlap need some
 * each. */
BACKLIGHT_API backlight_status backlight_plan_workspace_bytes(const backlight_plan* plan,
                                                              size_t* workspace_bytes);

/* What the compiler reported of one kernel. Texts are valid as long as the plan. */
typedef struct backlight_kernel_resources {
    size_t struct_size;
    const char* kernel;
    const char* target;
    int32_t registers;
    int32_t stack_bytes;
    int32_t spill_store_bytes;
    int32_t spill_load_bytes;
    int32_t threads;
    int32_t blocks_per_multiprocessor;
    /* Static and dynamic shared memory of a thread block. */
    uint64_t shared_bytes;
    /* 0 where the kernel was in a layer of the cache. */
    double compile_milliseconds;
    /* Boolean: the kernel came from the memory or the disk. */
    int32_t cached;
    /* Messages of the compiler that the kernel is slower than its source says: none, or a fault. */
    int32_t performance_warnings;
} backlight_kernel_resources;

#define BACKLIGHT_KERNEL_RESOURCES_INIT \
    { sizeof(backlight_kernel_resources), NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

BACKLIGHT_API backlight_status
backlight_kernel_resources_init(backlight_kernel_resources* resources, size_t struct_size);

/* In the order of launch; none of a problem without scores. */
BACKLIGHT_API backlight_status backlight_plan_kernel_count(const backlight_plan* plan,
                                                           size_t* count);
BACKLIGHT_API backlight_status backlight_plan_kernel_resources(
    const backlight_plan* plan, size_t kernel, backlight_kernel_resources* resources);

/* (batch, heads, seqlen, head_dim) in device memory; head_dim is contiguous, strides are of the
 * other three. backlight/tensors.hpp has the rules, which every run checks. */
typedef struct backlight_tensor {
    void* data;
    int64_t stride_batch;
    int64_t stride_head;
    int64_t stride_seqlen;
} backlight_tensor;

/* One that is only read. */
typedef struct backlight_const_tensor {
    const void* data;
    int64_t stride_batch;
    int64_t stride_head;
    int64_t stride_seqlen;
} backlight_const_tensor;

/* (batch, heads, seqlen_q), contiguous over seqlen_q. */
typedef struct backlight_const_rows {
    const float* data;
    int64_t stride_batch;
    int64_t stride_head;
} backlight_const_rows;

typedef struct backlight_tensors {
    size_t struct_size;
    backlight_const_tensor q;
    backlight_const_tensor k;
    backlight_const_tensor v;
    backlight_const_tensor o;
    backlight_const_tensor d_o;
    backlight_const_rows lse;
    backlight_tensor d_q;
    backlight_tensor d_k;
    backlight_tensor d_v;
    /* Packed sequences: (batch + 1) and (batch) in device memory; null otherwise. Without seqused
     * all rows are used. */
    const int32_t* cu_seqlens_q;
    const int32_t* cu_seqlens_kv;
    const int32_t* seqused_q;
    const int32_t* seqused_kv;
} backlight_tensors;

/* All else is null and 0. */
#define BACKLIGHT_TENSORS_INIT                                                                \
    {                                                                                         \
        sizeof(backlight_tensors), {NULL, 0, 0, 0}, {NULL, 0, 0, 0}, {NULL, 0, 0, 0},         \
            {NULL, 0, 0, 0}, {NULL, 0, 0, 0}, {NULL, 0, 0}, {NULL, 0, 0, 0}, {NULL, 0, 0, 0}, \
            {NULL, 0, 0, 0}, NULL, NULL, NULL, NULL                                           \
    }

BACKLIGHT_API backlight_status backlight_tensors_init(backlight_tensors* tensors,
                                                      size_t struct_size);

/* Enqueues the whole backward on `stream`: no allocation, no synchronisation; may be captured into
 * a CUDA graph. Nothing has been launched after an error that is not BACKLIGHT_DRIVER_FAILED.
 * `workspace`: device memory, 256-byte aligned, or null where no bytes are needed. */
BACKLIGHT_API backlight_status backlight_plan_run(const backlight_plan* plan,
                                                  const backlight_tensors* tensors, void* workspace,
                                                  size_t workspace_bytes, backlight_stream stream);

/* ---- Tuning ---------------------------------------------------------------------------------- */

/* How far the tuner has come. */
typedef struct backlight_tune_progress {
    size_t struct_size;
    /* "compile", "screen", "check" or "time". */
    const char* stage;
    uint64_t done;
    uint64_t total;
    double elapsed_seconds;
    /* Median of the fastest so far; 0 before there is one. */
    double best_milliseconds;
} backlight_tune_progress;

typedef struct backlight_tune_options {
    size_t struct_size;
    /* The family to search: "mma", "wgmma" or "mma_resident"; null: all that the device can run. */
    const char* kernel_family;
    /* No further configuration is begun after this; 60 by default. */
    double budget_seconds;
    /* 0: one a core, at most 16. */
    int32_t compile_threads;
    /* Samples of each of the fastest few; 20 by default, at least 5. */
    int32_t repeats;
    /* Boolean: time also what the database holds fresh figures of. */
    int32_t retime;
    int32_t reserved;
    backlight_stream stream;
    /* Called in the calling thread; null: not. The struct is valid during the call, which must
     * return. */
    void (*progress)(const backlight_tune_progress* progress, void* user);
    void* user;
} backlight_tune_options;

#define BACKLIGHT_TUNE_OPTIONS_INIT \
    { sizeof(backlight_tune_options), NULL, 60.0, 0, 20, 0, 0, NULL, NULL, NULL }

BACKLIGHT_API backlight_status backlight_tune_options_init(backlight_tune_options* options,
                                                           size_t struct_size);

/* What became of the search. */
typedef struct backlight_tune_result {
    size_t struct_size;
    /* Median of the winner, and of the preset "v3" in the same round; 0 where it was not timed. */
    double winner_milliseconds;
    double baseline_milliseconds;
    double seconds;
    /* Boolean: the budget sufficed for all. */
    int32_t complete;
    /* Configurations looked at; of these timed in full; and those whose gradients were wrong, a
     * fault of the kernel that should be reported. */
    int32_t candidates;
    int32_t timed;
    int32_t wrong;
} backlight_tune_result;

#define BACKLIGHT_TUNE_RESULT_INIT \
    { sizeof(backlight_tune_result), 0, 0, 0, 0, 0, 0, 0 }

BACKLIGHT_API backlight_status backlight_tune_result_init(backlight_tune_result* result,
                                                          size_t struct_size);

/* Times configurations on the device, keeps the figures in the tuning database, and lets
 * backlight_runtime_backward use the best from now on. The device's context must be current in the
 * calling thread; memory and work are the tuner's own. `options`: null for the defaults. `winner`
 * and `result`: null where not wanted. */
BACKLIGHT_API backlight_status backlight_runtime_tune(backlight_runtime* runtime,
                                                      const backlight_problem* problem,
                                                      const backlight_tune_options* options,
                                                      backlight_tile_config* winner,
                                                      backlight_tune_result* result);

#ifdef __cplusplus
}
#endif
