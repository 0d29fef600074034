/* Every function of the C API, as the test calls them: through `api`, which `find_functions` fills
 * with those that are linked, or, where BACKLIGHT_TEST_LIBRARY is the path of the shared library,
 * with what is found there by name, so that nothing is linked. */
#pragma once

#include "backlight/backlight.h"

#define BACKLIGHT_FUNCTIONS(X)         \
    X(backlight_version)               \
    X(backlight_version_number)        \
    X(backlight_status_name)           \
    X(backlight_last_error_message)    \
    X(backlight_cache_layer_init)      \
    X(backlight_runtime_options_init)  \
    X(backlight_runtime_create)        \
    X(backlight_runtime_destroy)       \
    X(backlight_runtime_target)        \
    X(backlight_runtime_device_name)   \
    X(backlight_counters_init)         \
    X(backlight_runtime_counters)      \
    X(backlight_runtime_layer_hits)    \
    X(backlight_problem_init)          \
    X(backlight_tile_config_init)      \
    X(backlight_kernel_preset_name)    \
    X(backlight_kernel_preset)         \
    X(backlight_backward_flops)        \
    X(backlight_backward_bytes)        \
    X(backlight_runtime_backward)      \
    X(backlight_runtime_prepare)       \
    X(backlight_plan_destroy)          \
    X(backlight_plan_problem)          \
    X(backlight_plan_config)           \
    X(backlight_plan_workspace_bytes)  \
    X(backlight_kernel_resources_init) \
    X(backlight_plan_kernel_count)     \
    X(backlight_plan_kernel_resources) \
    X(backlight_tensors_init)          \
    X(backlight_plan_run)              \
    X(backlight_tune_options_init)     \
    X(backlight_tune_result_init)      \
    X(backlight_runtime_tune)

struct functions {
#define BACKLIGHT_POINTER(name) __typeof__(&name) name;
    BACKLIGHT_FUNCTIONS(BACKLIGHT_POINTER)
#undef BACKLIGHT_POINTER
};

static struct functions api;

#ifdef BACKLIGHT_TEST_LIBRARY

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int find_functions(void) {
    void* library = dlopen(BACKLIGHT_TEST_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    void* address = NULL;
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 0;
    }
    /* C has no conversion from an object pointer to a function pointer. */
#define BACKLIGHT_FIND(name)                                              \
    address = dlsym(library, #name);                                      \
    if (address == NULL) {                                                \
        fprintf(stderr, "%s has no %s\n", BACKLIGHT_TEST_LIBRARY, #name); \
        return 0;                                                         \
    }                                                                     \
    memcpy(&api.name, &address, sizeof(address));
    BACKLIGHT_FUNCTIONS(BACKLIGHT_FIND)
#undef BACKLIGHT_FIND
    return 1;
}

#else

static int find_functions(void) {
#define BACKLIGHT_TAKE(name) api.name = name;
    BACKLIGHT_FUNCTIONS(BACKLIGHT_TAKE)
#undef BACKLIGHT_TAKE
    return 1;
}

#endif
