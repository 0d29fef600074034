// Defaults for structs of the C API, for languages without its macros.

#include "c_api/guard.hpp"
#include "c_api/structs.hpp"

using namespace backlight::c_api;

extern "C" {

backlight_status backlight_runtime_options_init(backlight_runtime_options* options,
                                                size_t struct_size) {
    return guarded([&] { initialise(options, "options", struct_size); });
}

backlight_status backlight_cache_layer_init(backlight_cache_layer* layer, size_t struct_size) {
    return guarded([&] { initialise(layer, "layer", struct_size); });
}

backlight_status backlight_counters_init(backlight_counters* counters, size_t struct_size) {
    return guarded([&] { initialise(counters, "counters", struct_size); });
}

backlight_status backlight_problem_init(backlight_problem* problem, size_t struct_size) {
    return guarded([&] { initialise(problem, "problem", struct_size); });
}

backlight_status backlight_tile_config_init(backlight_tile_config* config, size_t struct_size) {
    return guarded([&] { initialise(config, "config", struct_size); });
}

backlight_status backlight_kernel_resources_init(backlight_kernel_resources* resources,
                                                 size_t struct_size) {
    return guarded([&] { initialise(resources, "resources", struct_size); });
}

backlight_status backlight_tensors_init(backlight_tensors* tensors, size_t struct_size) {
    return guarded([&] { initialise(tensors, "tensors", struct_size); });
}

backlight_status backlight_tune_options_init(backlight_tune_options* options, size_t struct_size) {
    return guarded([&] { initialise(options, "options", struct_size); });
}

backlight_status backlight_tune_result_init(backlight_tune_result* result, size_t struct_size) {
    return guarded([&] { initialise(result, "result", struct_size); });
}

}  // extern "C"
