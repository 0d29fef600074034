#include "planted_faults.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <utility>

#include "compiler/sources.hpp"

namespace backlight::test {

namespace {

std::string problem_name(const ProblemRun& run) {
    return fmt::format("{} {}", tool::to_string(run.problem), to_string(run.config));
}

/// Each problem of the faults once, under the most seeds that any of them asks for.
void require_clean(std::span<const PlantedFault> faults) {
    EmulatedSession unchanged;
    for (std::size_t i = 0; i < faults.size(); ++i) {
        const std::string name = problem_name(faults[i].run);
        std::uint64_t seeds = 0;
        bool seen = false;
        for (std::size_t j = 0; j < faults.size(); ++j) {
            if (problem_name(faults[j].run) == name) {
                seen = seen || j < i;
                seeds = std::max(seeds, faults[j].seeds);
            }
        }
        if (!seen) {
            const Outcome outcome = run_seeds(unchanged, faults[i].run, seeds);
            CHECK_MESSAGE(outcome.passed(), name << " unchanged: " << to_string(outcome));
        }
    }
}

}  // namespace

SourceEdit edit_of(std::string_view kernel, std::string from, std::string to) {
    std::string file;
    const std::string main = std::string(kernel) + ".cu";
    for (const compiler::Header& source : compiler::source_closure(main)) {
        const bool belongs = source.name.starts_with("attention_backward");
        if (belongs && source.text.find(from) != std::string_view::npos) {
            REQUIRE_MESSAGE(file.empty(), "only one file holds: " << from);
            file = source.name;
        }
    }
    REQUIRE_MESSAGE(!file.empty(), "a file holds: " << from);
    return {std::move(file), std::move(from), std::move(to)};
}

void require_found(std::span<const PlantedFault> faults) {
    require_clean(faults);
    for (const PlantedFault& fault : faults) {
        EmulatedSession session(one_thread(), fault.edits);
        const AcceptOutcome found = found_by(fault.reports);
        const Outcome outcome = run_seeds(session, fault.run, fault.seeds, found);
        CHECK_MESSAGE(found(outcome), fault.name << ": " << to_string(outcome));
    }
}

}  // namespace backlight::test
