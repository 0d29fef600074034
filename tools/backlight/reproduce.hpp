#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "peers_run.hpp"
#include "published_table.hpp"

namespace backlight::tool {

struct ReproduceOptions {
    /// CUDA device ordinal.
    int device = 0;
    /// Presets; empty: every numbered one.
    std::vector<std::string> kernels;
    int repeats = 30;
    /// Rest before each repetition ("cool"), or none ("hot").
    bool cool = true;
    /// Leave the matrix product out.
    bool matmul = true;
    PeersOptions peers;
    /// File, or "-" for `out` (and no tables then).
    std::string json = "backlight_article.json";
};

/// Measures what a published table is of: our kernels in this process, compared with fp32 besides,
/// and once more beside cuDNN and FlashAttention-2 in a process of bench_peers.py, where that can
/// be had. Writes tables and one JSON document; clocks are read and never set. False where a
/// kernel failed or its gradients are wrong, which the document has too. Throws Error; nothing is
/// launched where an argument is refused.
bool reproduce(const PublishedTable& table, const ReproduceOptions& options, std::ostream& out);

}  // namespace backlight::tool
