/* Where every field of every struct of version 0.1 lies, on 64-bit machines. What is here never
 * changes: programs that were compiled before rely on it. Fields that come later are added. */

#include <stddef.h>

#include "backlight/backlight.h"

#define AT(type, field, offset) \
    _Static_assert(offsetof(type, field) == (offset), #type "." #field " must stay where it is")
#define SIZE(type, size) _Static_assert(sizeof(type) >= (size), #type " must not shrink")

AT(backlight_cache_layer, struct_size, 0);
AT(backlight_cache_layer, name, 8);
AT(backlight_cache_layer, path, 16);
AT(backlight_cache_layer, pack, 24);
AT(backlight_cache_layer, pack_bytes, 32);
SIZE(backlight_cache_layer, 40);

AT(backlight_runtime_options, struct_size, 0);
AT(backlight_runtime_options, device, 8);
AT(backlight_runtime_options, disable_disk_cache, 12);
AT(backlight_runtime_options, driver_path, 16);
AT(backlight_runtime_options, nvrtc_path, 24);
AT(backlight_runtime_options, cache_directory, 32);
AT(backlight_runtime_options, tuning_database, 40);
AT(backlight_runtime_options, cache_layers, 48);
AT(backlight_runtime_options, cache_layer_count, 56);
AT(backlight_runtime_options, cache_byte_limit, 64);
AT(backlight_runtime_options, compile_policy, 72);
AT(backlight_runtime_options, compile_threads, 76);
SIZE(backlight_runtime_options, 80);

AT(backlight_counters, struct_size, 0);
AT(backlight_counters, memory_hits, 8);
AT(backlight_counters, layer_hits, 16);
AT(backlight_counters, misses, 24);
AT(backlight_counters, compiles, 32);
AT(backlight_counters, compile_milliseconds, 40);
AT(backlight_counters, stores, 48);
AT(backlight_counters, failed_stores, 56);
AT(backlight_counters, evictions, 64);
AT(backlight_counters, repairs, 72);
AT(backlight_counters, tensor_maps_encoded, 80);
AT(backlight_counters, layers, 88);
SIZE(backlight_counters, 96);

AT(backlight_problem, struct_size, 0);
AT(backlight_problem, batch, 8);
AT(backlight_problem, heads, 16);
AT(backlight_problem, heads_kv, 24);
AT(backlight_problem, seqlen_q, 32);
AT(backlight_problem, seqlen_kv, 40);
AT(backlight_problem, head_dim, 48);
AT(backlight_problem, head_dim_v, 56);
AT(backlight_problem, dtype, 64);
AT(backlight_problem, causal, 68);
AT(backlight_problem, mask_alignment, 72);
AT(backlight_problem, deterministic, 76);
AT(backlight_problem, window_left, 80);
AT(backlight_problem, window_right, 88);
AT(backlight_problem, gradient_type, 96);
AT(backlight_problem, accumulate_gradients, 100);
AT(backlight_problem, has_softmax_scale, 104);
AT(backlight_problem, softmax_scale, 108);
AT(backlight_problem, packed, 112);
AT(backlight_problem, reserved, 116);
AT(backlight_problem, total_q, 120);
AT(backlight_problem, total_kv, 128);
SIZE(backlight_problem, 136);

AT(backlight_tile_config, struct_size, 0);
AT(backlight_tile_config, family, 8);
AT(backlight_tile_config, block_q, 12);
AT(backlight_tile_config, block_kv, 16);
AT(backlight_tile_config, warps, 20);
AT(backlight_tile_config, stages, 24);
AT(backlight_tile_config, heads_per_group, 28);
AT(backlight_tile_config, converts_d_q, 32);
AT(backlight_tile_config, sequence_lengths, 36);
AT(backlight_tile_config, programmatic_dependent_launch, 40);
AT(backlight_tile_config, reserved, 44);
SIZE(backlight_tile_config, 48);

AT(backlight_kernel_resources, struct_size, 0);
AT(backlight_kernel_resources, kernel, 8);
AT(backlight_kernel_resources, target, 16);
AT(backlight_kernel_resources, registers, 24);
AT(backlight_kernel_resources, stack_bytes, 28);
AT(backlight_kernel_resources, spill_store_bytes, 32);
AT(backlight_kernel_resources, spill_load_bytes, 36);
AT(backlight_kernel_resources, threads, 40);
AT(backlight_kernel_resources, blocks_per_multiprocessor, 44);
AT(backlight_kernel_resources, shared_bytes, 48);
AT(backlight_kernel_resources, compile_milliseconds, 56);
AT(backlight_kernel_resources, cached, 64);
AT(backlight_kernel_resources, performance_warnings, 68);
SIZE(backlight_kernel_resources, 72);

AT(backlight_tensor, data, 0);
AT(backlight_tensor, stride_batch, 8);
AT(backlight_tensor, stride_head, 16);
AT(backlight_tensor, stride_seqlen, 24);
SIZE(backlight_tensor, 32);

AT(backlight_const_tensor, data, 0);
AT(backlight_const_tensor, stride_batch, 8);
AT(backlight_const_tensor, stride_head, 16);
AT(backlight_const_tensor, stride_seqlen, 24);
SIZE(backlight_const_tensor, 32);

AT(backlight_const_rows, data, 0);
AT(backlight_const_rows, stride_batch, 8);
AT(backlight_const_rows, stride_head, 16);
SIZE(backlight_const_rows, 24);

AT(backlight_tensors, struct_size, 0);
AT(backlight_tensors, q, 8);
AT(backlight_tensors, k, 40);
AT(backlight_tensors, v, 72);
AT(backlight_tensors, o, 104);
AT(backlight_tensors, d_o, 136);
AT(backlight_tensors, lse, 168);
AT(backlight_tensors, d_q, 192);
AT(backlight_tensors, d_k, 224);
AT(backlight_tensors, d_v, 256);
AT(backlight_tensors, cu_seqlens_q, 288);
AT(backlight_tensors, cu_seqlens_kv, 296);
AT(backlight_tensors, seqused_q, 304);
AT(backlight_tensors, seqused_kv, 312);
SIZE(backlight_tensors, 320);

AT(backlight_tune_progress, struct_size, 0);
AT(backlight_tune_progress, stage, 8);
AT(backlight_tune_progress, done, 16);
AT(backlight_tune_progress, total, 24);
AT(backlight_tune_progress, elapsed_seconds, 32);
AT(backlight_tune_progress, best_milliseconds, 40);
SIZE(backlight_tune_progress, 48);

AT(backlight_tune_options, struct_size, 0);
AT(backlight_tune_options, kernel_family, 8);
AT(backlight_tune_options, budget_seconds, 16);
AT(backlight_tune_options, compile_threads, 24);
AT(backlight_tune_options, repeats, 28);
AT(backlight_tune_options, retime, 32);
AT(backlight_tune_options, reserved, 36);
AT(backlight_tune_options, stream, 40);
AT(backlight_tune_options, progress, 48);
AT(backlight_tune_options, user, 56);
SIZE(backlight_tune_options, 64);

AT(backlight_tune_result, struct_size, 0);
AT(backlight_tune_result, winner_milliseconds, 8);
AT(backlight_tune_result, baseline_milliseconds, 16);
AT(backlight_tune_result, seconds, 24);
AT(backlight_tune_result, complete, 32);
AT(backlight_tune_result, candidates, 36);
AT(backlight_tune_result, timed, 40);
AT(backlight_tune_result, wrong, 44);
SIZE(backlight_tune_result, 48);
