#include "tuning/kernel_digest.hpp"

#include "attention/kernels.hpp"

namespace backlight::tuning {

std::string main_kernel_digest(compiler::KernelStore& store, const AttentionProblem& problem,
                               const TileConfig& config, const device::Target& target) {
    return store.key_to_load(attention::backward_chain(problem, config, target)[1].request)
        .digest();
}

}  // namespace backlight::tuning
