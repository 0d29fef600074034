#pragma once

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backlight/error.hpp"
#include "tuning/record.hpp"

namespace backlight::tuning {

/// Records, one a place (`same_place`), in an order that does not depend on that of their coming.
/// A plain value.
class Database {
  public:
    const std::vector<Record>& records() const& noexcept { return records_; }
    std::vector<Record> records() && noexcept { return std::move(records_); }

    /// In place of the one that has its place.
    void put(Record record);
    /// All of the other's, in place of those that have their places.
    void put_all(const Database& other);
    /// Takes over what the other has: where both have a record of a place, the newer counts; of the
    /// same date the one with more samples. Merging in any order gives the same.
    void merge(const Database& other);
    /// The same of one record.
    void merge_record(Record record);
    /// Without the records that no plan may use, which are kept only so that the tuner need not
    /// time them again.
    Database checked_only() const;

    /// Entries that this build does not understand, such as those of another family of kernels:
    /// kept as they are.
    const std::vector<nlohmann::json>& foreign() const noexcept { return foreign_; }
    void keep_foreign(nlohmann::json entry);

    bool operator==(const Database&) const = default;

  private:
    std::vector<Record> records_;
    std::vector<nlohmann::json> foreign_;
};

/// A database that is whole, but of a version that this build does not read.
class OtherVersion : public Error {
  public:
    using Error::Error;
};

/// JSON, a record a line; see docs/tuning.md.
std::string to_json_text(const Database& database);
/// Throws `file_error` for text that is no database of a version we read, `OtherVersion` where that
/// is all that is wrong; `name` is what the text is called there. Entries that are not understood
/// become foreign; of two records of a place the newer counts.
Database from_json_text(std::string_view text, const std::string& name);

/// The same, but of the records only those that plans may use: in text as `to_json_text` writes it
/// the others, of which a tuner leaves many more, are not even parsed.
Database checked_from_json_text(std::string_view text, const std::string& name);

/// Empty where there is no such file. Throws `file_error` where it cannot be read or is no
/// database.
Database read_database(const std::filesystem::path& path);
Database read_checked_records(const std::filesystem::path& path);

/// How records come to those that a file has already.
enum class Addition {
    /// Where both have a record of a place, the newer counts.
    merged,
    /// They have just been measured here, and count whatever date is on the others: a clock may
    /// have been ahead.
    measured
};

/// Adds records to the file, which need not exist, under a lock that other processes keep too, as
/// long as none holds it for longer than `lock_timeout`; returns what the file then holds. The file
/// is replaced as a whole: a reader finds the old or the new one. A file that can be read and is no
/// database is kept as "<file>.broken"; one of another version is left as it is, and so is whatever
/// cannot be read. Throws `file_error`.
Database add_to_file(const std::filesystem::path& path, const Database& additions,
                     Addition addition,
                     std::chrono::milliseconds lock_timeout = std::chrono::seconds(10));

/// Replaces the file, as a whole; throws `file_error`.
void write_database(const std::filesystem::path& path, const Database& database);

}  // namespace backlight::tuning
