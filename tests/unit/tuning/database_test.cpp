// The tuning database: what it holds, how two become one, and what files do to it.

#include "tuning/database.hpp"

#include <spdlog/sinks/ostream_sink.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "backlight/error.hpp"
#include "logging.hpp"
#include "tuning/shipped.hpp"
#include "tuning/tunings.hpp"
#include "tuning_test_support.hpp"

using namespace backlight;
using namespace backlight::test;
using namespace backlight::tuning;

namespace {

const TileConfig v1 = kernel_preset("v1");
const TileConfig v2 = kernel_preset("v2");
const TileConfig v3 = kernel_preset("v3");

/// What the library logs while the object lives.
class LoggedText {
  public:
    LoggedText() : sink_(std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)) {
        logger().sinks().swap(kept_);
        logger().sinks().push_back(sink_);
    }
    ~LoggedText() { logger().sinks().swap(kept_); }
    LoggedText(const LoggedText&) = delete;
    LoggedText& operator=(const LoggedText&) = delete;

    std::size_t count(const std::string& part) const {
        const std::string all = text_.str();
        std::size_t found = 0;
        for (std::size_t at = all.find(part); at != std::string::npos;
             at = all.find(part, at + 1)) {
            ++found;
        }
        return found;
    }

  private:
    std::ostringstream text_;
    std::shared_ptr<spdlog::sinks::ostream_sink_mt> sink_;
    std::vector<spdlog::sink_ptr> kept_;
};

}  // namespace

TEST_CASE(
    "problems share a bucket up to the next power of two of lengths and of batch times heads") {
    const auto bucket = [](std::int64_t batch, std::int64_t heads, std::int64_t seqlen) {
        return bucket_of({.batch = batch,
                          .heads = heads,
                          .seqlen_q = seqlen,
                          .seqlen_kv = seqlen,
                          .head_dim = 128});
    };
    CHECK(bucket(8, 16, 4096) == bucket(16, 8, 4096));
    CHECK(bucket(8, 16, 4096) == bucket(8, 9, 2049));
    CHECK(bucket(8, 16, 4096) != bucket(8, 16, 4097));
    CHECK(bucket(8, 16, 4096) != bucket(8, 8, 4096));
    CHECK(bucket(1, 1, 16) == bucket(1, 1, 64));
    CHECK(bucket(8, 16, 4096).seqlen_q == 4096);
    CHECK(bucket(3, 5, 100).batch_heads == 16);
    AttentionProblem scaled = tuned_problem();
    scaled.softmax_scale = 0.5F;
    CHECK(bucket_of(scaled) == bucket_of(tuned_problem()));
    AttentionProblem half = tuned_problem();
    half.dtype = DataType::fp16;
    CHECK(bucket_of(half) != bucket_of(tuned_problem()));
    // The largest extents that a problem may have.
    CHECK(bucket(2147483647, 2147483647, 1).batch_heads == std::int64_t{1} << 62);
}

TEST_CASE("buckets are as far apart as their lengths and not at all related across masks") {
    const auto away = [](const AttentionProblem& left, const AttentionProblem& right) {
        return distance(bucket_of(left), bucket_of(right));
    };
    CHECK(away(tuned_problem(4096), tuned_problem(4096)) == 0);
    CHECK(away(tuned_problem(4096), tuned_problem(2048)) == 4);
    CHECK(away(tuned_problem(4096), tuned_problem(512)) == 12);
    CHECK(!away(tuned_problem(4096), tuned_problem(256)));
    CHECK(!away(tuned_problem(4096, 128, true), tuned_problem(4096, 128, false)));
    CHECK(!away(tuned_problem(4096, 128), tuned_problem(4096, 64)));
    AttentionProblem other = tuned_problem();
    other.batch = 4;
    other.dtype = DataType::fp16;
    CHECK(away(tuned_problem(), other) == 2);
}

TEST_CASE("a database survives its text and its file unchanged") {
    Record odd = record(v1, 1.2345678);
    odd.card.name = "Card \"with\" quotes, ünïcode";
    odd.problem.dtype = DataType::fp16;
    odd.problem.causal = false;
    odd.config.sequence_lengths = SequenceLengths::compile_time;
    odd.config.programmatic_dependent_launch = false;
    odd.checked = false;
    odd.samples_milliseconds = {0.000001, 1.5, 123456.789};
    Database database = database_of({record(v2, 2), record(v3, 3), odd});
    odd.samples_milliseconds = {1};
    CHECK(from_json_text(to_json_text(database), "text").records().size() == 3);
    const TemporaryDirectory folder;
    const auto file = folder.path() / "deep" / "tuning.json";
    write_database(file, database);
    CHECK(read_database(file) == from_json_text(to_json_text(database), "text"));
    CHECK(to_json_text(read_database(file)) == to_json_text(database));
    const Database read = read_database(file);
    CHECK(std::ranges::find(read.records(), v2, &Record::config)->samples_milliseconds ==
          std::vector<double>(20, 2));
    // A line a record, so that two files can be compared and merged by people too.
    CHECK(std::ranges::count(content_of(file), '\n') == 5);
}

TEST_CASE("a record of each family keeps all that it was timed with") {
    TileConfig wgmma = kernel_preset("wgmma");
    TileConfig other_order = wgmma;
    other_order.heads_per_group = wgmma.heads_per_group + 1;
    TileConfig deeper = wgmma;
    deeper.stages = wgmma.stages + 1;
    TileConfig same_tile_of_mma = wgmma;
    same_tile_of_mma.family = KernelFamily::mma;
    same_tile_of_mma.heads_per_group = 1;
    const Database database = database_of(
        {record(wgmma, 1), record(other_order, 2), record(deeper, 3), record(same_tile_of_mma, 4)});
    CHECK(database.records().size() == 4);
    CHECK(from_json_text(to_json_text(database), "text") == database);
}

TEST_CASE("a record keeps what its problem gives and the text says nothing of the rest") {
    AttentionProblem problem = tuned_problem();
    const auto text_of = [&] { return to_json_text(database_of({record(v3, 1, problem)})); };
    for (const char* field :
         {"heads_kv", "head_dim_v", "mask_alignment", "window_left", "window_right",
          "gradient_type", "accumulate_gradients", "deterministic"}) {
        CHECK(text_of().find(field) == std::string::npos);
    }
    problem.heads_kv = 4;
    problem.seqlen_kv = 8192;
    problem.head_dim_v = 64;
    problem.mask_alignment = MaskAlignment::top_left;
    problem.window_left = 1023;
    problem.window_right = 0;
    problem.gradient_type = GradientType::fp32;
    problem.accumulate_gradients = true;
    problem.deterministic = true;
    const Database read = from_json_text(text_of(), "test");
    REQUIRE(read.records().size() == 1);
    CHECK(read.foreign().empty());
    CHECK(read.records()[0].problem == problem);
    std::string broken = text_of();
    broken.replace(broken.find("top_left"), 8, "diagonal");
    CHECK(from_json_text(broken, "test").foreign().size() == 1);
}

TEST_CASE(
    "problems share a bucket whatever gives their heads and windows and only if these agree") {
    const AttentionProblem base = tuned_problem();
    AttentionProblem same = base;
    same.heads_kv = base.heads;
    same.head_dim_v = base.head_dim;
    same.mask_alignment = MaskAlignment::top_left;  // Lengths are equal.
    CHECK(bucket_of(same) == bucket_of(base));
    AttentionProblem window = base;
    window.window_left = 1023;
    AttentionProblem wider = base;
    wider.window_left = 1024;
    CHECK(bucket_of(window) == bucket_of(wider));
    std::vector<AttentionProblem> others(7, base);
    others[0].heads_kv = 4;
    others[1].head_dim_v = 64;
    others[2].window_left = 1024;
    others[3].window_right = 0;
    others[4].gradient_type = GradientType::fp32;
    others[5].deterministic = true;
    others[6].accumulate_gradients = true;
    std::set<std::string> texts = {to_string(bucket_of(base))};
    for (const AttentionProblem& other : others) {
        CAPTURE(to_string(other));
        CHECK_FALSE(distance(bucket_of(base), bucket_of(other)));
        texts.insert(to_string(bucket_of(other)));
    }
    CHECK(texts.size() == 8);
    AttentionProblem oblong = base;
    oblong.seqlen_kv = 2 * base.seqlen_q;
    AttentionProblem top_left = oblong;
    top_left.mask_alignment = MaskAlignment::top_left;
    CHECK_FALSE(distance(bucket_of(oblong), bucket_of(top_left)));
    oblong.causal = top_left.causal = false;
    CHECK(bucket_of(oblong) == bucket_of(top_left));
}

TEST_CASE("a record keeps the families of its search and an old one without them reads as none") {
    Record one = record(v1, 1);
    one.families = {KernelFamily::mma};
    Record none = record(v2, 1);
    none.families = {};
    const Database database = database_of({one, none, record(v3, 1)});
    const std::string text = to_json_text(database);
    CHECK(from_json_text(text, "text") == database);
    CHECK(checked_from_json_text(text, "text") == database);
    CHECK(text.find("\"families\":[\"mma\"]") != std::string::npos);
    CHECK(text.find("\"families\":[\"mma\",\"wgmma\",\"mma_resident\"]") != std::string::npos);
    // One that this build does not know makes no other strange.
    std::string later = text;
    later.replace(later.find("[\"mma\"]"), 7, "[\"later\",\"mma\"]");
    CHECK(from_json_text(later, "text") == database);
    CHECK(covers(one, KernelFamily::mma));
    CHECK_FALSE(covers(one, KernelFamily::wgmma));
    CHECK(covers(none, KernelFamily::mma));
    CHECK_FALSE(covers(none, KernelFamily::wgmma));
    CHECK(covers(record(v3, 1), KernelFamily::wgmma));
}

TEST_CASE("there is one record a place and the order of coming does not show") {
    const Record other_length = record(v2, 5, tuned_problem(2048));
    Database database = database_of({record(v1, 1), record(v2, 2), record(v2, 3), other_length});
    CHECK(database.records().size() == 3);
    CHECK(database == database_of({other_length, record(v2, 2), record(v2, 3), record(v1, 1)}));
    Record constant = record(v2, 4);
    constant.config.sequence_lengths = SequenceLengths::compile_time;
    Record constant_elsewhere = constant;
    constant_elsewhere.problem.seqlen_q = constant_elsewhere.problem.seqlen_kv = 3072;
    CHECK(same_place(record(v2, 1, tuned_problem(3072)), record(v2, 1)));
    CHECK(!same_place(constant, constant_elsewhere));
    database.put(constant);
    database.put(constant_elsewhere);
    CHECK(database.records().size() == 5);
}

TEST_CASE("merging takes the newer record and gives the same in every order") {
    Record newer = record(v2, 2);
    newer.date = "2026-02-01T00:00:00Z";
    Record more_samples = record(v1, 3);
    more_samples.samples_milliseconds.push_back(3);
    Record elsewhere = record(v3, 1);
    elsewhere.card.name = "Another card";
    const std::vector<Database> all = {database_of({record(v1, 1), record(v2, 1)}),
                                       database_of({newer, record(v3, 1)}),
                                       database_of({more_samples, elsewhere})};
    std::vector<std::size_t> order = {0, 1, 2};
    do {
        Database merged;
        for (const std::size_t i : order) {
            merged.merge(all[i]);
        }
        CHECK(merged == database_of({more_samples, newer, record(v3, 1), elsewhere}));
    } while (std::ranges::next_permutation(order).found);
}

TEST_CASE("records that this build does not understand are kept as they are") {
    std::string text = to_json_text(database_of({record(v2, 2)}));
    text.insert(text.find("\n]}"),
                ",\n{\"kernel_family\":\"later\",\"anything\":[1,2]},\n{\"checked\":3},\n7");
    Database database = from_json_text(text, "text");
    CHECK(database.records().size() == 1);
    CHECK(database.foreign().size() == 3);
    database.put(record(v3, 3));
    const Database again = from_json_text(to_json_text(database), "text");
    CHECK(again == database);
    CHECK(again.foreign().size() == 3);
}

TEST_CASE("a record with a figure that cannot be one is not understood") {
    const std::string good = to_json_text(database_of({record(v2, 2)}));
    REQUIRE(from_json_text(good, "text").records().size() == 1);
    const auto changed = [&](const std::string& from, const std::string& to) {
        std::string text = good;
        const std::size_t at = text.find(from);
        REQUIRE(at != std::string::npos);
        text.replace(at, from.size(), to);
        return from_json_text(text, "text").records().size();
    };
    CHECK(changed("[2.0,", "[2.5,") == 1);
    CHECK(changed("[2.0,", "[-2.0,") == 0);
    CHECK(changed("[2.0,", "[0,") == 0);
    CHECK(changed("[2.0,", "[null,") == 0);
    CHECK(changed("[2.0,", "[\"fast\",") == 0);
    CHECK(changed("\"block_q\":64", "\"block_q\":64.5") == 0);
    CHECK(changed("\"block_q\":64", "\"block_q\":99999999999") == 0);
    CHECK(changed("\"seqlen_q\":4096", "\"seqlen_q\":0") == 0);
    CHECK(changed("\"bf16\"", "\"fp8\"") == 0);
    CHECK(changed("\"run_time\"", "\"sometime\"") == 0);
    CHECK(changed("\"checked\":true", "\"checked\":1") == 0);
}

TEST_CASE("a file that is no database is refused by name and with the reason") {
    const TemporaryDirectory folder;
    const auto file = folder.path() / "tuning.json";
    CHECK(read_database(file) == Database{});
    const std::string good = to_json_text(database_of({record(v2, 2)}));
    for (const std::string& text :
         {std::string(), std::string("{"), good.substr(0, good.size() - 4), std::string("[]"),
          std::string("{\"records\": []}"),
          std::string(R"({"format": "backlight tuning", "version": 99, "records": []})")}) {
        write(file, text);
        CAPTURE(text);
        check_refused(ErrorCode::file_error, {"tuning database", file.string()},
                      [&] { read_database(file); });
    }
    check_refused(ErrorCode::file_error, {"regular file"}, [&] { read_database(folder.path()); });
}

TEST_CASE("a broken database is told once and is never fatal and is kept aside when replaced") {
    const TemporaryDirectory folder;
    const auto file = folder.path() / "tuning.json";
    write(file, "not a database");
    const LoggedText log;
    Tunings tunings(file);
    const auto fresh = [](const Record&) { return true; };
    for (int i = 0; i < 3; ++i) {
        CHECK(tunings.choose(tuned_problem(), properties(), fresh).source ==
              ChoiceSource::heuristic);
    }
    CHECK(log.count(file.string()) == 1);
    tunings.add(database_of({record(v1, 0.5)}));
    CHECK(tunings.choose(tuned_problem(), properties(), fresh).config == v1);
    CHECK(content_of(file.string() + ".broken") == "not a database");
    CHECK(read_database(file).records().size() == 1);
}

TEST_CASE("a database that cannot be written is told and counts in the process all the same") {
    const TemporaryDirectory folder;
    write(folder.path() / "file", "");
    const LoggedText log;
    Tunings tunings(folder.path() / "file" / "tuning.json");
    tunings.add(database_of({record(v1, 0.5)}));
    CHECK(
        tunings.choose(tuned_problem(), properties(), [](const Record&) { return true; }).config ==
        v1);
    CHECK(log.count("in this process only") == 1);
}

TEST_CASE("what two tuners add at the same time is all in the file") {
    const TemporaryDirectory folder;
    const auto file = folder.path() / "tuning.json";
    constexpr int writers = 4;
    constexpr int records = 8;
    std::vector<std::thread> threads;
    for (int writer = 0; writer < writers; ++writer) {
        threads.emplace_back([&, writer] {
            for (int i = 0; i < records; ++i) {
                Record one = record(v2, 1 + i);
                one.card.name = "Card " + std::to_string(writer) + " " + std::to_string(i);
                add_to_file(file, database_of({one}), Addition::merged);
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(read_database(file).records().size() == writers * records);
}

TEST_CASE("a writer that is killed at any moment leaves the old database or the new one") {
    const TemporaryDirectory folder;
    const auto file = folder.path() / "tuning.json";
    write_database(file, database_of({record(v1, 1)}));
    std::mt19937 random(1);
    std::uniform_int_distribution<int> microseconds(0, 3000);
    for (int round = 0; round < 50; ++round) {
        const pid_t writer = fork();
        REQUIRE(writer >= 0);
        if (writer == 0) {
            for (double time = 1;; ++time) {
                write_database(file, database_of({record(v1, time), record(v2, time)}));
            }
        }
        std::this_thread::sleep_for(std::chrono::microseconds(microseconds(random)));
        kill(writer, SIGKILL);
        waitpid(writer, nullptr, 0);
        const std::size_t count = read_database(file).records().size();
        CHECK((count == 1 || count == 2));
    }
}

TEST_CASE("a plan reads the checked records alone and the same whoever wrote the file") {
    Record screened = record(v1, 1);
    screened.checked = false;
    const Database database = database_of({screened, record(v2, 2), record(v3, 3)});
    const std::string text = to_json_text(database);
    CHECK(checked_from_json_text(text, "text") == database.checked_only());
    CHECK(checked_from_json_text(to_json_text(Database{}), "text") == Database{});
    const auto document = nlohmann::json::parse(text);
    CHECK(checked_from_json_text(document.dump(4), "text") == database.checked_only());
    // Lines in place, one of them broken: the whole is.
    std::string broken = text;
    broken[broken.find("\"checked\":true") - 2] = '\n';
    CHECK_THROWS_AS(checked_from_json_text(broken, "text"), Error);
}

TEST_CASE("only checked records are exported") {
    Record screened = record(v1, 1);
    screened.checked = false;
    const Database database = database_of({screened, record(v2, 2)});
    CHECK(database.checked_only() == database_of({record(v2, 2)}));
}

TEST_CASE("what is shipped is understood in full and may be used by plans") {
    const Database& shipped = shipped_database();
    CHECK(!shipped.records().empty());
    CHECK(shipped.foreign().empty());
    CHECK(shipped.checked_only() == shipped);
    for (const Record& one : shipped.records()) {
        CHECK(one.card.multiprocessors > 0);
        CHECK(one.baseline_milliseconds > 0);
        CHECK(one.samples_milliseconds.size() >= 5);
    }
}
