/* The C API, by a program in C, over the fake driver: a whole backward, and what is refused. Built
 * twice: linked with the library, and with the shared library opened at run time. */

#include "functions.h"

#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            ++failures;                                                               \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
        }                                                                             \
    } while (0)

/* The call gave that status, and a message that holds the text. */
#define CHECK_REFUSED(expected, text, call)                                       \
    do {                                                                          \
        const backlight_status given = (call);                                    \
        const char* message = api.backlight_last_error_message();                 \
        if (given != (expected) || strstr(message, (text)) == NULL) {             \
            ++failures;                                                           \
            fprintf(stderr, "%s:%d: %s gave %s: %s\n", __FILE__, __LINE__, #call, \
                    api.backlight_status_name(given), message);                   \
        }                                                                         \
    } while (0)

#define CHECK_TAKEN(call)                                                                  \
    do {                                                                                   \
        const backlight_status given = (call);                                             \
        if (given != BACKLIGHT_SUCCESS) {                                                  \
            ++failures;                                                                    \
            fprintf(stderr, "%s:%d: %s gave %s: %s\n", __FILE__, __LINE__, #call,          \
                    api.backlight_status_name(given), api.backlight_last_error_message()); \
        }                                                                                  \
    } while (0)

/* A control function of the fake driver. */
static void* fake(const char* name) {
    void* library = dlopen(BACKLIGHT_FAKE_DRIVER_PATH, RTLD_NOW | RTLD_LOCAL);
    return library != NULL ? dlsym(library, name) : NULL;
}

static size_t launches(void) {
    size_t (*count)(void) = NULL;
    void* address = fake("fake_launch_count");
    memcpy(&count, &address, sizeof(address));
    return count();
}

static backlight_problem some_problem(void) {
    backlight_problem problem = BACKLIGHT_PROBLEM_INIT;
    problem.batch = 2;
    problem.heads = 4;
    problem.seqlen_q = 512;
    problem.seqlen_kv = 512;
    problem.head_dim = 64;
    problem.causal = 1;
    return problem;
}

/* Nothing is at these addresses. */
static backlight_tensors tensors_of(const backlight_problem* problem) {
    backlight_tensors tensors = BACKLIGHT_TENSORS_INIT;
    const int64_t row = problem->head_dim;
    const int64_t head = problem->seqlen_q * row;
    backlight_const_tensor* inputs[] = {&tensors.q, &tensors.k, &tensors.v, &tensors.o,
                                        &tensors.d_o};
    backlight_tensor* outputs[] = {&tensors.d_q, &tensors.d_k, &tensors.d_v};
    uintptr_t address = (uintptr_t)1 << 40;
    for (size_t i = 0; i < 5; ++i, address += (uintptr_t)1 << 24) {
        *inputs[i] =
            (backlight_const_tensor){(const void*)address, problem->heads * head, head, row};
    }
    for (size_t i = 0; i < 3; ++i, address += (uintptr_t)1 << 24) {
        *outputs[i] = (backlight_tensor){(void*)address, problem->heads * head, head, row};
    }
    tensors.lse = (backlight_const_rows){(const float*)address, problem->heads * problem->seqlen_q,
                                         problem->seqlen_q};
    return tensors;
}

static backlight_runtime* make_runtime(void) {
    backlight_runtime_options options = BACKLIGHT_RUNTIME_OPTIONS_INIT;
    backlight_runtime* runtime = NULL;
    options.driver_path = BACKLIGHT_FAKE_DRIVER_PATH;
    options.cache_directory = BACKLIGHT_TEST_CACHE;
    CHECK_TAKEN(api.backlight_runtime_create(&options, &runtime));
    CHECK(runtime != NULL);
    return runtime;
}

static void test_initialisers(void) {
#define CHECK_INITIALISER(type, initialiser)                                                       \
    do {                                                                                           \
        const type by_macro = initialiser;                                                         \
        type by_function;                                                                          \
        memset(&by_function, 0xff, sizeof(by_function));                                           \
        CHECK_TAKEN(api.type##_init(&by_function, sizeof(type)));                                  \
        CHECK(memcmp(&by_macro, &by_function, sizeof(type)) == 0);                                 \
        CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "is null", api.type##_init(NULL, sizeof(type))); \
        CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "struct_size is 4: it must be",                  \
                      api.type##_init(&by_function, 4));                                           \
    } while (0)
    CHECK_INITIALISER(backlight_cache_layer, BACKLIGHT_CACHE_LAYER_INIT);
    CHECK_INITIALISER(backlight_runtime_options, BACKLIGHT_RUNTIME_OPTIONS_INIT);
    CHECK_INITIALISER(backlight_counters, BACKLIGHT_COUNTERS_INIT);
    CHECK_INITIALISER(backlight_problem, BACKLIGHT_PROBLEM_INIT);
    CHECK_INITIALISER(backlight_tile_config, BACKLIGHT_TILE_CONFIG_INIT);
    CHECK_INITIALISER(backlight_kernel_resources, BACKLIGHT_KERNEL_RESOURCES_INIT);
    CHECK_INITIALISER(backlight_tensors, BACKLIGHT_TENSORS_INIT);
    CHECK_INITIALISER(backlight_tune_options, BACKLIGHT_TUNE_OPTIONS_INIT);
    CHECK_INITIALISER(backlight_tune_result, BACKLIGHT_TUNE_RESULT_INIT);
}

static void test_version(void) {
    CHECK(strcmp(api.backlight_version(), BACKLIGHT_VERSION_STRING) == 0);
    CHECK(api.backlight_version_number() == BACKLIGHT_VERSION);
    CHECK(strcmp(api.backlight_status_name(BACKLIGHT_SUCCESS), "success") == 0);
    CHECK(strcmp(api.backlight_status_name(BACKLIGHT_COMPILE_FORBIDDEN), "compile_forbidden") == 0);
    CHECK(strcmp(api.backlight_status_name(-7), "unknown") == 0);
}

static void test_presets(void) {
    backlight_tile_config config = BACKLIGHT_TILE_CONFIG_INIT;
    size_t count = 0;
    for (; api.backlight_kernel_preset_name(count) != NULL; ++count) {
        CHECK_TAKEN(api.backlight_kernel_preset(api.backlight_kernel_preset_name(count), &config));
    }
    CHECK(count >= 6);
    CHECK_TAKEN(api.backlight_kernel_preset("v3", &config));
    CHECK(config.family == BACKLIGHT_FAMILY_MMA && config.block_q == 32 && config.block_kv == 64);
    CHECK_TAKEN(api.backlight_kernel_preset("wgmma", &config));
    CHECK(config.family == BACKLIGHT_FAMILY_WGMMA && config.warps == 16);
    CHECK_REFUSED(BACKLIGHT_UNKNOWN_KERNEL, "v0", api.backlight_kernel_preset("v0", &config));
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "name is null",
                  api.backlight_kernel_preset(NULL, &config));
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "config is null",
                  api.backlight_kernel_preset("v3", NULL));
}

static void test_whole_way(void) {
    backlight_runtime* runtime = make_runtime();
    const backlight_problem problem = some_problem();
    backlight_tensors tensors = tensors_of(&problem);
    backlight_tile_config config = BACKLIGHT_TILE_CONFIG_INIT;
    backlight_kernel_resources resources = BACKLIGHT_KERNEL_RESOURCES_INIT;
    backlight_counters counters = BACKLIGHT_COUNTERS_INIT;
    backlight_problem planned = BACKLIGHT_PROBLEM_INIT;
    backlight_plan* plan = NULL;
    size_t workspace_bytes = 0;
    size_t kernels = 0;
    size_t before = 0;
    uint64_t hits = 0;
    const char* layer = NULL;
    void* const workspace = (void*)((uintptr_t)1 << 44);
    double flops = 0;

    CHECK(strcmp(api.backlight_runtime_target(runtime), "sm_90a") == 0);
    CHECK(strlen(api.backlight_runtime_device_name(runtime)) > 0);
    CHECK_TAKEN(api.backlight_kernel_preset("v2", &config));
    CHECK_TAKEN(api.backlight_runtime_prepare(runtime, &problem, &config, &plan));
    CHECK_TAKEN(api.backlight_runtime_counters(runtime, &counters));
    CHECK(counters.misses + counters.layer_hits >= 2);
    CHECK(counters.layers == 1);
    CHECK_TAKEN(api.backlight_runtime_layer_hits(runtime, 0, &layer, &hits));
    CHECK(strcmp(layer, BACKLIGHT_TEST_CACHE) == 0 && hits == counters.layer_hits);
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "layer is 1: it must be below counters.layers, 1",
                  api.backlight_runtime_layer_hits(runtime, 1, NULL, &hits));

    CHECK_TAKEN(api.backlight_plan_problem(plan, &planned));
    CHECK(memcmp(&planned, &problem, sizeof(problem)) == 0);
    CHECK_TAKEN(api.backlight_plan_config(plan, &config));
    CHECK(config.block_q == 64 && config.warps == 8);
    CHECK_TAKEN(api.backlight_plan_workspace_bytes(plan, &workspace_bytes));
    CHECK(workspace_bytes > 0);
    CHECK_TAKEN(api.backlight_plan_kernel_count(plan, &kernels));
    CHECK(kernels == 3);
    CHECK_TAKEN(api.backlight_plan_kernel_resources(plan, 1, &resources));
    CHECK(strstr(resources.kernel, "mma") != NULL && strcmp(resources.target, "sm_90a") == 0);
    CHECK(resources.registers > 0 && resources.threads == 256 && resources.shared_bytes > 0);
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "kernel is 3: it must be below",
                  api.backlight_plan_kernel_resources(plan, 3, &resources));
    CHECK_TAKEN(api.backlight_backward_flops(&problem, &flops));
    CHECK(flops == 5.0 * 2 * 4 * 512 * 512 * 64);

    /* A plan keeps what it needs. */
    api.backlight_runtime_destroy(runtime);
    before = launches();
    CHECK_TAKEN(api.backlight_plan_run(plan, &tensors, workspace, workspace_bytes, NULL));
    CHECK(launches() == before + kernels);

    CHECK_REFUSED(BACKLIGHT_WORKSPACE_TOO_SMALL, "workspace",
                  api.backlight_plan_run(plan, &tensors, workspace, workspace_bytes - 1, NULL));
    tensors.q.stride_seqlen = 100;
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT,
                  "q.stride_seqlen is 100: it must be a multiple of 8 elements",
                  api.backlight_plan_run(plan, &tensors, workspace, workspace_bytes, NULL));
    tensors.struct_size = 0;
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "tensors.struct_size is 0: it must be",
                  api.backlight_plan_run(plan, &tensors, workspace, workspace_bytes, NULL));
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "tensors is null",
                  api.backlight_plan_run(plan, NULL, workspace, workspace_bytes, NULL));
    CHECK(launches() == before + kernels);
    api.backlight_plan_destroy(plan);
}

static void test_newer_structs(void) {
    backlight_runtime* runtime = make_runtime();
    backlight_plan* plan = NULL;
    /* A header that has one field more. */
    struct {
        backlight_problem known;
        int64_t later;
    } newer = {.known = some_problem(), .later = 0};
    struct {
        backlight_counters known;
        int64_t later;
    } counted = {.known = BACKLIGHT_COUNTERS_INIT, .later = 7};
    newer.known.struct_size = sizeof(newer);
    CHECK_TAKEN(api.backlight_runtime_backward(runtime, &newer.known, NULL, &plan));
    api.backlight_plan_destroy(plan);
    newer.later = 1;
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT,
                  "problem.struct_size is 144 and byte 136 is 1: what is beyond the 136 bytes",
                  api.backlight_runtime_backward(runtime, &newer.known, NULL, &plan));
    CHECK(plan == NULL);
    counted.known.struct_size = 0;
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "backlight_counters_init sets it",
                  api.backlight_runtime_counters(runtime, &counted.known));
    counted.known.struct_size = sizeof(counted);
    CHECK_TAKEN(api.backlight_runtime_counters(runtime, &counted.known));
    CHECK(counted.known.struct_size == sizeof(counted) && counted.later == 0);
    api.backlight_runtime_destroy(runtime);
}

static void test_refused_problems(void) {
    backlight_runtime* runtime = make_runtime();
    backlight_plan* plan = (backlight_plan*)&failures;
    backlight_problem problem;
    backlight_tile_config config = BACKLIGHT_TILE_CONFIG_INIT;
#define CHECK_FIELD(field, value, status, text)                                        \
    do {                                                                               \
        problem = some_problem();                                                      \
        problem.field = (value);                                                       \
        CHECK_REFUSED(status, text,                                                    \
                      api.backlight_runtime_backward(runtime, &problem, NULL, &plan)); \
        CHECK(plan == NULL);                                                           \
    } while (0)
    CHECK_FIELD(struct_size, 0, BACKLIGHT_INVALID_ARGUMENT, "problem.struct_size is 0: it must be");
    CHECK_FIELD(struct_size, 128, BACKLIGHT_INVALID_ARGUMENT, "problem.struct_size is 128");
    CHECK_FIELD(struct_size, 141, BACKLIGHT_INVALID_ARGUMENT, "problem.struct_size is 141");
    CHECK_FIELD(struct_size, SIZE_MAX, BACKLIGHT_INVALID_ARGUMENT,
                "backlight_problem_init sets it");
    CHECK_FIELD(heads, 0, BACKLIGHT_INVALID_ARGUMENT, "heads is 0: it must be");
    CHECK_FIELD(heads_kv, 3, BACKLIGHT_INVALID_ARGUMENT, "heads_kv is 3: it must divide heads = 4");
    CHECK_FIELD(head_dim, 12, BACKLIGHT_UNSUPPORTED,
                "head_dim is 12: it must be a multiple of 8 from 8 to 256");
    CHECK_FIELD(window_left, -2, BACKLIGHT_INVALID_ARGUMENT, "window_left is -2");
    CHECK_FIELD(dtype, 7, BACKLIGHT_INVALID_ARGUMENT,
                "dtype is 7: it must be 0 (bf16) or 1 (fp16)");
    CHECK_FIELD(dtype, -1, BACKLIGHT_INVALID_ARGUMENT, "dtype is -1");
    CHECK_FIELD(mask_alignment, 2, BACKLIGHT_INVALID_ARGUMENT,
                "mask_alignment is 2: it must be 0 (top_left) or 1 (bottom_right)");
    CHECK_FIELD(gradient_type, 2, BACKLIGHT_INVALID_ARGUMENT,
                "gradient_type is 2: it must be 0 (input) or 1 (fp32)");
    CHECK_FIELD(causal, 2, BACKLIGHT_INVALID_ARGUMENT, "causal is 2: it must be 0 or 1");
    CHECK_FIELD(deterministic, -1, BACKLIGHT_INVALID_ARGUMENT,
                "deterministic is -1: it must be 0 or 1");
    CHECK_FIELD(accumulate_gradients, 1, BACKLIGHT_INVALID_ARGUMENT,
                "accumulate_gradients is true and gradient_type is input");
    CHECK_FIELD(softmax_scale, 0.5F, BACKLIGHT_INVALID_ARGUMENT,
                "softmax_scale is 0.5 and has_softmax_scale is 0");
    CHECK_FIELD(softmax_scale, NAN, BACKLIGHT_INVALID_ARGUMENT, "softmax_scale is nan");
    CHECK_FIELD(total_q, 5, BACKLIGHT_INVALID_ARGUMENT, "total_q is 5");
    CHECK_FIELD(reserved, 1, BACKLIGHT_INVALID_ARGUMENT, "problem.reserved is 1: it must be 0");

    problem = some_problem();
    config.family = 3;
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT,
                  "family is 3: it must be 0 (mma), 1 (wgmma) or 2 (mma_resident)",
                  api.backlight_runtime_backward(runtime, &problem, &config, &plan));
    config.family = BACKLIGHT_FAMILY_MMA;
    config.block_q = 17;
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "block_q is 17",
                  api.backlight_runtime_backward(runtime, &problem, &config, &plan));
    api.backlight_runtime_destroy(runtime);
}

static void test_null_arguments(void) {
    backlight_runtime* runtime = make_runtime();
    const backlight_problem problem = some_problem();
    backlight_counters counters = BACKLIGHT_COUNTERS_INIT;
    backlight_plan* plan = NULL;
    size_t count = 0;
    uint64_t hits = 0;
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "runtime is null",
                  api.backlight_runtime_create(NULL, NULL));
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "runtime is null",
                  api.backlight_runtime_backward(NULL, &problem, NULL, &plan));
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "problem is null",
                  api.backlight_runtime_backward(runtime, NULL, NULL, &plan));
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "plan is null",
                  api.backlight_runtime_prepare(runtime, &problem, NULL, NULL));
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "runtime is null",
                  api.backlight_runtime_counters(NULL, &counters));
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "counters is null",
                  api.backlight_runtime_counters(runtime, NULL));
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "hits is null",
                  api.backlight_runtime_layer_hits(runtime, 0, NULL, NULL));
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "runtime is null",
                  api.backlight_runtime_layer_hits(NULL, 0, NULL, &hits));
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "plan is null",
                  api.backlight_plan_workspace_bytes(NULL, &count));
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "plan is null",
                  api.backlight_plan_run(NULL, NULL, NULL, 0, NULL));
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "flops is null",
                  api.backlight_backward_flops(&problem, NULL));
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "runtime is null",
                  api.backlight_runtime_tune(NULL, &problem, NULL, NULL, NULL));
    CHECK(api.backlight_runtime_target(NULL) == NULL);
    api.backlight_runtime_destroy(NULL);
    api.backlight_plan_destroy(NULL);
    api.backlight_runtime_destroy(runtime);
}

static void test_refused_options(void) {
    backlight_runtime_options options = BACKLIGHT_RUNTIME_OPTIONS_INIT;
    backlight_cache_layer layers[2] = {BACKLIGHT_CACHE_LAYER_INIT, BACKLIGHT_CACHE_LAYER_INIT};
    backlight_runtime* runtime = (backlight_runtime*)&failures;
    options.driver_path = "/nonexistent/libcuda.so.1";
    CHECK_REFUSED(BACKLIGHT_DRIVER_NOT_FOUND, "/nonexistent/libcuda.so.1",
                  api.backlight_runtime_create(&options, &runtime));
    CHECK(runtime == NULL);
    options.driver_path = BACKLIGHT_FAKE_DRIVER_PATH;
    options.device = 99;
    CHECK_REFUSED(BACKLIGHT_DEVICE_NOT_FOUND, "99",
                  api.backlight_runtime_create(&options, &runtime));
    options.device = 0;
    options.compile_policy = 3;
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT,
                  "compile_policy is 3: it must be 0 (allow), 1 (warn) or 2 (forbid)",
                  api.backlight_runtime_create(&options, &runtime));
    options.compile_policy = BACKLIGHT_COMPILE_FORBID;
    options.disable_disk_cache = 1;
    options.cache_layer_count = 2;
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "cache_layers is null and cache_layer_count is 2",
                  api.backlight_runtime_create(&options, &runtime));
    options.cache_layers = layers;
    layers[1].pack_bytes = 5;
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT, "cache_layers[1].pack is null and pack_bytes is 5",
                  api.backlight_runtime_create(&options, &runtime));
    layers[1].pack_bytes = 0;
    layers[0].path = BACKLIGHT_TEST_CACHE;
    CHECK_REFUSED(
        BACKLIGHT_INVALID_ARGUMENT,
        "cache_layers[1] has the name '', the path '' and a pack of 0 bytes: it must have",
        api.backlight_runtime_create(&options, &runtime));
    layers[1].struct_size = 48;
    CHECK_REFUSED(BACKLIGHT_INVALID_ARGUMENT,
                  "cache_layers[1].struct_size is 48: it must be that of cache_layers[0], 40",
                  api.backlight_runtime_create(&options, &runtime));
}

/* A pack in memory that is none, and a directory: layers without kernels. */
static void test_layers(void) {
    backlight_runtime_options options = BACKLIGHT_RUNTIME_OPTIONS_INIT;
    backlight_cache_layer layers[2] = {BACKLIGHT_CACHE_LAYER_INIT, BACKLIGHT_CACHE_LAYER_INIT};
    const backlight_problem problem = some_problem();
    backlight_runtime* runtime = NULL;
    backlight_plan* plan = NULL;
    const char* name = NULL;
    uint64_t hits = 1;
    layers[0].name = "embedded";
    layers[0].pack = "this is no pack";
    layers[0].pack_bytes = 15;
    layers[1].path = "/nonexistent/kernels";
    options.driver_path = BACKLIGHT_FAKE_DRIVER_PATH;
    options.disable_disk_cache = 1;
    options.cache_layers = layers;
    options.cache_layer_count = 2;
    options.compile_policy = BACKLIGHT_COMPILE_FORBID;
    CHECK_TAKEN(api.backlight_runtime_create(&options, &runtime));
    CHECK_TAKEN(api.backlight_runtime_layer_hits(runtime, 0, &name, &hits));
    CHECK(strcmp(name, "embedded") == 0 && hits == 0);
    CHECK_TAKEN(api.backlight_runtime_layer_hits(runtime, 1, &name, &hits));
    CHECK(strcmp(name, "/nonexistent/kernels") == 0);
    CHECK_REFUSED(BACKLIGHT_COMPILE_FORBIDDEN, "embedded",
                  api.backlight_runtime_backward(runtime, &problem, NULL, &plan));
    api.backlight_runtime_destroy(runtime);
}

int main(void) {
    if (!find_functions()) {
        return 1;
    }
    CHECK(strcmp(api.backlight_last_error_message(), "") == 0);
    test_version();
    test_initialisers();
    test_presets();
    test_whole_way();
    test_newer_structs();
    test_refused_problems();
    test_null_arguments();
    test_refused_options();
    test_layers();
    if (failures == 0) {
        puts("the C API does as its header says");
    }
    return failures == 0 ? 0 : 1;
}
