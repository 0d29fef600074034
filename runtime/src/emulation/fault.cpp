#include "emulation/fault.hpp"

#include <fmt/format.h>

namespace backlight::emulation {

const char* to_string(FaultKind kind) noexcept {
    switch (kind) {
        case FaultKind::deadlock:
            return "deadlock";
        case FaultKind::data_race:
            return "data_race";
        case FaultKind::uninitialised_read:
            return "uninitialised_read";
        case FaultKind::copy_in_flight:
            return "copy_in_flight";
        case FaultKind::missing_proxy_fence:
            return "missing_proxy_fence";
        case FaultKind::source_overwritten:
            return "source_overwritten";
        case FaultKind::wrong_parity:
            return "wrong_parity";
        case FaultKind::missed_phase:
            return "missed_phase";
        case FaultKind::arrival_overflow:
            return "arrival_overflow";
        case FaultKind::transaction_mismatch:
            return "transaction_mismatch";
        case FaultKind::out_of_bounds:
            return "out_of_bounds";
        case FaultKind::misaligned:
            return "misaligned";
        case FaultKind::divergent_collective:
            return "divergent_collective";
        case FaultKind::barrier_misuse:
            return "barrier_misuse";
        case FaultKind::register_in_flight:
            return "register_in_flight";
        case FaultKind::missing_wgmma_fence:
            return "missing_wgmma_fence";
        case FaultKind::invalid_descriptor:
            return "invalid_descriptor";
        case FaultKind::invalid_tensor_map:
            return "invalid_tensor_map";
        case FaultKind::unavailable_instruction:
            return "unavailable_instruction";
        case FaultKind::invalid_register_count:
            return "invalid_register_count";
        case FaultKind::unfinished_copies:
            return "unfinished_copies";
    }
    return "unknown";
}

std::string to_string(Site site) {
    return fmt::format("{}:{}", site.file != nullptr ? site.file : "?", site.line);
}

}  // namespace backlight::emulation
