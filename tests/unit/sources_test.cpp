#include "compiler/sources.hpp"

#include <algorithm>
#include <regex>
#include <set>
#include <string>

#include "compiler/embedded_sources.hpp"
#include "compiler/specialisation.hpp"
#include "test_support.hpp"

using namespace backlight::compiler;
using backlight::ErrorCode;

namespace {

constexpr const char* chain_sources[] = {"attention_backward_delta.cu", "attention_backward_mma.cu",
                                         "attention_backward_convert.cu"};

}  // namespace

TEST_CASE("no kernel source includes anything from outside: each include is embedded or rendered") {
    std::set<std::string> names = {std::string(specialisation_header)};
    for (const EmbeddedSource& source : embedded_sources()) {
        names.insert(std::string(source.name));
    }
    const std::regex include(R"(#\s*include\s*(\S+))");
    std::size_t seen = 0;
    for (const EmbeddedSource& source : embedded_sources()) {
        const std::string text(source.text);
        for (std::sregex_iterator match(text.begin(), text.end(), include), end; match != end;
             ++match) {
            const std::string included = (*match)[1];
            CAPTURE(source.name);
            CAPTURE(included);
            REQUIRE(included.size() > 2);
            CHECK(included.front() == '"');
            CHECK(names.count(included.substr(1, included.size() - 2)) == 1);
            ++seen;
        }
    }
    CHECK(seen > 10);
}

TEST_CASE("inline PTX appears in primitives only") {
    const std::regex assembly(R"(\b(asm|__asm__|__asm)\b)");
    std::size_t in_primitives = 0;
    for (const EmbeddedSource& source : embedded_sources()) {
        const std::string text(source.text);
        const bool has = std::regex_search(text, assembly);
        if (source.name.starts_with("primitives/")) {
            in_primitives += has ? 1 : 0;
        } else {
            CHECK_MESSAGE(!has, std::string(source.name));
        }
    }
    CHECK(in_primitives > 0);
}

TEST_CASE("a source's closure is the source first, then each file it includes, once") {
    for (const char* name : chain_sources) {
        const auto closure = source_closure(name);
        REQUIRE_FALSE(closure.empty());
        CHECK(closure.front().name == name);
        std::set<std::string_view> names;
        for (const Header& header : closure) {
            CHECK(names.insert(header.name).second);
            CHECK(header.text == source_text(header.name));
        }
        CHECK(names.count("primitives/types.cuh") == 1);
        CHECK(names.count("arguments/attention_backward.h") == 1);
        CHECK(names.count(specialisation_header) == 0);
    }
}

TEST_CASE("every kernel source has a digest of its own, the same at each call") {
    std::set<std::string> digests;
    for (const char* name : chain_sources) {
        CHECK(source_digest(name) == source_digest(name));
        CHECK(digests.insert(source_digest(name)).second);
    }
}

TEST_CASE("a text of the caller's takes the place of a source and includes embedded files") {
    const std::string text = "#include \"primitives/mma.cuh\"\nextern \"C\" void kernel();\n";
    const auto closure = source_closure("own.cu", text);
    REQUIRE(closure.size() == 3);
    CHECK(closure[0].name == "own.cu");
    CHECK(closure[0].text == text);
    CHECK(closure[1].name == "primitives/mma.cuh");
    CHECK(closure[1].text == source_text("primitives/mma.cuh"));
    CHECK(closure[2].name == "primitives/types.cuh");

    CHECK(source_digest("own.cu", text) == source_digest("own.cu", text));
    CHECK(source_digest("own.cu", text) != source_digest("own.cu", text + "// Another.\n"));
    // Also where a file of that name is embedded.
    CHECK(source_digest(chain_sources[0], text) != source_digest(chain_sources[0]));
}

TEST_CASE("a source that is not embedded is an error with its name") {
    backlight::test::check_refused(ErrorCode::file_error, {"no_such_kernel.cu"},
                                   [] { source_text("no_such_kernel.cu"); });
    backlight::test::check_refused(ErrorCode::file_error, {"no_such_kernel.cu"},
                                   [] { source_digest("no_such_kernel.cu"); });
}
