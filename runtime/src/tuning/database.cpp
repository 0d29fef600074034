#include "tuning/database.hpp"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "tuning/search_space.hpp"

namespace backlight::tuning {

namespace {

auto place_order(const Record& record) {
    const bool constant = record.config.sequence_lengths == SequenceLengths::compile_time;
    return std::tuple(std::string_view(record.card.name), record.card.multiprocessors,
                      std::string_view(record.card.target), bucket_of(record.problem),
                      constant ? record.problem.seqlen_q : 0,
                      constant ? record.problem.seqlen_kv : 0);
}

bool earlier_place(const Record& left, const Record& right) {
    const auto left_order = place_order(left);
    const auto right_order = place_order(right);
    return left_order != right_order ? left_order < right_order
                                     : comes_before(left.config, right.config);
}

/// Whether `left` gives way to `right`: a strict order of records of one place.
bool gives_way(const Record& left, const Record& right) {
    const auto rank = [](const Record& record) {
        return std::tuple(record.date, record.samples_milliseconds.size(), record.checked,
                          record.kernel_digest, record.samples_milliseconds,
                          record.baseline_milliseconds, record.problem.batch, record.problem.heads,
                          record.problem.seqlen_q, record.problem.seqlen_kv,
                          record.problem.effective_softmax_scale(), record.problem.window_left,
                          record.problem.window_right, record.families);
    };
    return rank(left) < rank(right);
}

}  // namespace

void Database::put(Record record) {
    // Files are in order.
    if (records_.empty() || earlier_place(records_.back(), record)) {
        records_.push_back(std::move(record));
        return;
    }
    const auto place = std::ranges::lower_bound(records_, record, earlier_place);
    if (place != records_.end() && same_place(*place, record)) {
        *place = std::move(record);
    } else {
        records_.insert(place, std::move(record));
    }
}

void Database::put_all(const Database& other) {
    for (const Record& record : other.records_) {
        put(record);
    }
    for (const nlohmann::json& entry : other.foreign_) {
        keep_foreign(entry);
    }
}

void Database::merge_record(Record record) {
    const auto place = std::ranges::lower_bound(records_, record, earlier_place);
    if (place == records_.end() || !same_place(*place, record)) {
        records_.insert(place, std::move(record));
    } else if (gives_way(*place, record)) {
        *place = std::move(record);
    }
}

void Database::merge(const Database& other) {
    for (const Record& record : other.records_) {
        merge_record(record);
    }
    for (const nlohmann::json& entry : other.foreign_) {
        keep_foreign(entry);
    }
}

Database Database::checked_only() const {
    Database chosen;
    std::ranges::copy_if(records_, std::back_inserter(chosen.records_), &Record::checked);
    return chosen;
}

void Database::keep_foreign(nlohmann::json entry) {
    const auto place = std::ranges::lower_bound(foreign_, entry);
    if (place == foreign_.end() || *place != entry) {
        foreign_.insert(place, std::move(entry));
    }
}

}  // namespace backlight::tuning
