#include "tuning/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "backlight/error.hpp"
#include "logging.hpp"
#include "tuning/compile_pool.hpp"
#include "tuning/search_space.hpp"
#include "tuning/statistics.hpp"

namespace backlight::tuning {

namespace {

class Search {
  public:
    Search(const SearchRequest& request, const TuneOptions& options, Trials& trials)
        : request_(request), options_(options), trials_(trials), start_(trials.seconds()) {}

    std::vector<TuneCandidate> run() {
        for (const TileConfig& config : request_.compared) {
            add(config);
        }
        for (const TileConfig& config : request_.candidates) {
            add(config);
        }
        if (!trial_numbers_.empty()) {
            time_baseline_again();
            screen();
            if (request_.with_variants) {
                add_variants();
                screen();
            }
            time_finalists();
        }
        return std::move(candidates_);
    }

  private:
    bool is_compared(const TileConfig& config) const {
        return std::ranges::count(request_.compared, config) > 0;
    }

    double elapsed() const { return trials_.seconds() - start_; }
    bool out_of_budget() const { return elapsed() >= options_.budget.count(); }

    void tell(const char* stage, std::size_t done, std::size_t total, const TileConfig& config) {
        if (options_.progress) {
            options_.progress({.stage = stage,
                               .done = done,
                               .total = total,
                               .elapsed_seconds = elapsed(),
                               .config = config,
                               .best_milliseconds = std::isfinite(best_) ? best_ : 0});
        }
    }

    const Record* fresh_record(const TileConfig& config, const std::string& digest) const {
        if (options_.retime || !request_.baseline) {
            return nullptr;
        }
        for (const Record& record : request_.known) {
            if (record.config == config && record.kernel_digest == digest &&
                record.baseline_milliseconds > 0 && serves_lengths(record, request_.problem)) {
                return &record;
            }
        }
        return nullptr;
    }

    /// What has no fresh record is to be tried.
    void add(const TileConfig& config) {
        if (std::ranges::count(candidates_, config, &TuneCandidate::config) > 0) {
            return;
        }
        TuneCandidate candidate{.config = config};
        for (const KernelPreset& preset : kernel_presets()) {
            if (preset.config == config) {
                candidate.preset = preset.name;
            }
        }
        candidate.kernel_digest = trials_.kernel_digest(config);
        if (const Record* record = fresh_record(config, candidate.kernel_digest)) {
            candidate.outcome = record->checked ? TuneOutcome::timed : TuneOutcome::slow;
            candidate.from_database = true;
            candidate.baseline_milliseconds = record->baseline_milliseconds;
            set_samples(candidate, record->samples_milliseconds);
            best_known_ratio_ = std::min(
                best_known_ratio_, candidate.median_milliseconds / record->baseline_milliseconds);
        } else {
            trial_numbers_.push_back(candidates_.size());
        }
        candidates_.push_back(std::move(candidate));
    }

    static void set_samples(TuneCandidate& candidate, std::vector<double> samples) {
        candidate.median_milliseconds = median(samples);
        candidate.noise = noise(samples);
        candidate.samples_milliseconds = std::move(samples);
    }

    /// New figures are worth nothing beside old ones without the baseline between them.
    void time_baseline_again() {
        for (std::size_t i = 0; i < candidates_.size(); ++i) {
            if (candidates_[i].config == request_.baseline && candidates_[i].from_database) {
                candidates_[i] = {.config = candidates_[i].config,
                                  .preset = candidates_[i].preset,
                                  .kernel_digest = candidates_[i].kernel_digest};
                trial_numbers_.insert(trial_numbers_.begin(), i);
            }
        }
    }

    /// Tries all that are to be tried.
    void screen() {
        std::vector<TileConfig> configs;
        for (const std::size_t number : trial_numbers_) {
            configs.push_back(candidates_[number].config);
        }
        CompilePool pool(configs, options_.compile_threads,
                         [this](const TileConfig& config) { return trials_.compile(config); });
        for (std::size_t i = 0; i < configs.size(); ++i) {
            TuneCandidate& candidate = candidates_[trial_numbers_[i]];
            const bool compared = is_compared(candidate.config);
            if (!compared && out_of_budget()) {
                break;
            }
            tell("screen", i, configs.size(), candidate.config);
            try {
                candidate.resources = pool.wait(i);
                if (!compared && spills(candidate)) {
                    continue;
                }
                screen(candidate, compared);
            } catch (const Error& error) {
                if (compared) {
                    throw;
                }
                refuse(candidate, error);
            }
        }
        trial_numbers_.clear();
    }

    static bool spills(TuneCandidate& candidate) {
        if (candidate.resources->spill_store_bytes <= spilled_bytes_limit) {
            return false;
        }
        candidate.outcome = TuneOutcome::spilled;
        candidate.note = fmt::format("{} bytes a thread", candidate.resources->spill_store_bytes);
        return true;
    }

    void screen(TuneCandidate& candidate, bool compared) {
        trials_.time(candidate.config, false);  // To warm up.
        std::vector<double> samples;
        for (int i = 0; i < screening_samples; ++i) {
            samples.push_back(trials_.time(candidate.config, false));
            if (!compared && samples.back() > slow_ratio * best_) {
                break;
            }
        }
        set_samples(candidate, std::move(samples));
        if (candidate.config == request_.baseline) {
            screened_baseline_ = candidate.median_milliseconds;
            // What the database knows to be faster counts too.
            best_ = std::min(best_, best_known_ratio_ * screened_baseline_);
        }
        candidate.baseline_milliseconds = screened_baseline_;
        best_ = std::min(best_, candidate.median_milliseconds);
        candidate.outcome = TuneOutcome::slow;  // Until it is timed in full.
        if (!compared && candidate.median_milliseconds > slow_ratio * best_) {
            trials_.release(candidate.config);
        }
    }

    void refuse(TuneCandidate& candidate, const Error& error) {
        // The emulated device tells what a kernel did wrong where a GPU gives wrong numbers.
        candidate.outcome =
            error.code() == ErrorCode::kernel_fault ? TuneOutcome::wrong : TuneOutcome::refused;
        candidate.note = error.what();
        logger().info("tuning: {}: {}", to_string(candidate.config), error.what());
        trials_.release(candidate.config);
    }

    /// Candidates that were screened in this run, the fastest first.
    std::vector<std::size_t> screened() const {
        std::vector<std::size_t> numbers;
        for (std::size_t i = 0; i < candidates_.size(); ++i) {
            if (candidates_[i].outcome == TuneOutcome::slow && !candidates_[i].from_database) {
                numbers.push_back(i);
            }
        }
        std::ranges::sort(numbers, [&](std::size_t left, std::size_t right) {
            const TuneCandidate& a = candidates_[left];
            const TuneCandidate& b = candidates_[right];
            return a.median_milliseconds != b.median_milliseconds
                       ? a.median_milliseconds < b.median_milliseconds
                       : comes_before(a.config, b.config);
        });
        return numbers;
    }

    void add_variants() {
        constexpr std::size_t tiles = 2;
        std::vector<TileConfig> fastest;
        for (const std::size_t number : screened()) {
            if (fastest.size() < tiles) {
                fastest.push_back(candidates_[number].config);
            }
        }
        for (const TileConfig& config : fastest) {
            for (const TileConfig& variant : launch_variants(config)) {
                add(variant);
            }
        }
    }

    /// Those that may win, and those that they are compared with, if their gradients are right.
    std::vector<std::size_t> checked_finalists() {
        std::vector<std::size_t> chosen;
        std::size_t fast = 0;
        for (const std::size_t number : screened()) {
            const TuneCandidate& candidate = candidates_[number];
            const bool may_win =
                candidate.median_milliseconds <= finalist_ratio * best_ && fast < most_finalists;
            fast += may_win ? 1 : 0;
            if (may_win || is_compared(candidate.config)) {
                chosen.push_back(number);
            }
        }
        std::vector<std::size_t> finalists;
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            TuneCandidate& candidate = candidates_[chosen[i]];
            tell("check", i, chosen.size(), candidate.config);
            try {
                candidate.note = trials_.check(candidate.config);
            } catch (const Error& error) {
                if (error.code() != ErrorCode::kernel_fault) {
                    throw;
                }
                candidate.note = error.what();
            }
            if (candidate.note.empty()) {
                finalists.push_back(chosen[i]);
                continue;
            }
            candidate.outcome = TuneOutcome::wrong;
            logger().error("tuning: {} computes wrong gradients of {}: {}",
                           to_string(candidate.config), to_string(request_.problem),
                           candidate.note);
        }
        return finalists;
    }

    /// Interleaved repeat by repeat, every other time backwards, so that none always follows the
    /// same one.
    void time_finalists() {
        const std::vector<std::size_t> finalists = checked_finalists();
        std::vector<std::vector<double>> samples(finalists.size());
        for (int repeat = 0; repeat < options_.repeats; ++repeat) {
            if (repeat >= least_repeats && out_of_budget()) {
                break;
            }
            for (std::size_t i = 0; i < finalists.size(); ++i) {
                const std::size_t place = repeat % 2 == 0 ? i : finalists.size() - 1 - i;
                const TileConfig& config = candidates_[finalists[place]].config;
                tell("time", static_cast<std::size_t>(repeat) * finalists.size() + i,
                     static_cast<std::size_t>(options_.repeats) * finalists.size(), config);
                samples[place].push_back(trials_.time(config, true));
            }
        }
        double baseline = 0;
        for (std::size_t i = 0; i < finalists.size(); ++i) {
            TuneCandidate& candidate = candidates_[finalists[i]];
            candidate.outcome = TuneOutcome::timed;
            set_samples(candidate, std::move(samples[i]));
            if (candidate.config == request_.baseline) {
                baseline = candidate.median_milliseconds;
            }
        }
        for (const std::size_t number : finalists) {
            candidates_[number].baseline_milliseconds = baseline;
        }
    }

    const SearchRequest& request_;
    const TuneOptions& options_;
    Trials& trials_;
    double start_;
    std::vector<TuneCandidate> candidates_;
    /// Of the candidates that are to be tried next.
    std::vector<std::size_t> trial_numbers_;
    double best_ = std::numeric_limits<double>::infinity();
    double best_known_ratio_ = std::numeric_limits<double>::infinity();
    double screened_baseline_ = 0;
};

}  // namespace

void check_options(const TuneOptions& options) {
    if (!(options.budget.count() > 0)) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("budget is {} s: it must be above 0", options.budget.count()));
    }
    if (options.repeats < least_repeats) {
        throw Error(ErrorCode::invalid_argument, fmt::format("repeats is {}: it must be {} or more",
                                                             options.repeats, least_repeats));
    }
    if (options.compile_threads < 0) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("compile_threads is {}: it must be 0, for one a core, or more",
                                options.compile_threads));
    }
    kernel_family(options.kernel_family);
}

std::vector<TuneCandidate> search(const SearchRequest& request, const TuneOptions& options,
                                  Trials& trials) {
    check_options(options);
    return Search(request, options, trials).run();
}

}  // namespace backlight::tuning
