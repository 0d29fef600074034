#include "tuning/tunings.hpp"

#include <array>

#include "backlight/error.hpp"
#include "logging.hpp"
#include "tuning/shipped.hpp"

namespace backlight::tuning {

void Tunings::read_once() {
    if (read_ || file_.empty()) {
        return;
    }
    read_ = true;
    try {
        user_.merge(read_checked_records(file_));
    } catch (const Error& error) {
        logger().warn("{}; it is not used", error.what());
    }
}

Choice Tunings::choose(const AttentionProblem& problem, const device::DeviceProperties& device,
                       const IsFresh& is_fresh, const IsUsable& is_usable) {
    const std::lock_guard lock(mutex_);
    read_once();
    const std::array<DatabaseLayer, 2> layers = {{
        {&user_, ChoiceSource::tuned},
        {&shipped_database(), ChoiceSource::shipped},
    }};
    return tuning::choose(problem, device, layers, is_fresh, is_usable);
}

Database Tunings::user() {
    const std::lock_guard lock(mutex_);
    read_once();
    Database all = user_;
    try {
        all.merge(file_.empty() ? Database{} : read_database(file_));
    } catch (const Error& error) {
        logger().debug("{}; it is not used", error.what());  // Told when it was read first.
    }
    if (!all.foreign().empty()) {
        logger().warn("tuning database '{}': {} of its records are not understood, and left alone",
                      file_.string(), all.foreign().size());
    }
    return all;
}

void Tunings::add(const Database& additions) {
    {
        const std::lock_guard lock(mutex_);
        read_once();
        user_.put_all(additions);
    }
    if (file_.empty()) {
        return;
    }
    try {
        // Without the mutex: it may have to wait for another process, and no plan shall.
        const Database whole = add_to_file(file_, additions, Addition::measured);
        const std::lock_guard lock(mutex_);
        user_.merge(whole);
    } catch (const Error& error) {
        logger().warn("{}; what was tuned counts in this process only", error.what());
    }
}

}  // namespace backlight::tuning
