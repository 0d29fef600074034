#include <doctest/doctest.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backlight/cache/key.hpp"
#include "cache_test_support.hpp"

using backlight::cache::differing_fields;
using backlight::cache::digest_of;
using backlight::cache::FieldDifference;
using backlight::cache::Key;
using backlight::cache::KeyField;
using namespace backlight::cache_test;

TEST_CASE("two different lists of fields never give the same key") {
    const std::vector<std::vector<std::pair<std::string, std::string>>> lists = {
        {},
        {{"", ""}},
        {{"", ""}, {"", ""}},
        {{"a", "bc"}},
        {{"ab", "c"}},
        {{"abc", ""}},
        {{"", "abc"}},
        {{"a", "b"}, {"c", "d"}},
        {{"c", "d"}, {"a", "b"}},
        {{"a", "b=1:c"}, {"c", "d"}},
        {{"a", "b"}, {"a", "b"}},
        // Values that look like a field that follows, with its own length and without.
        {{"a", "b\n1:c=d"}},
        {{"a", "b\n1:c=1:d"}},
        {{"a", std::string("b\0", 2)}},
        {{"a", std::string("b\0\0", 3)}},
    };
    std::map<std::string, std::size_t> texts;
    std::map<std::string, std::size_t> digests;
    for (std::size_t i = 0; i < lists.size(); ++i) {
        Key key;
        for (const auto& [name, value] : lists[i]) {
            key.add(name, value);
        }
        CAPTURE(i);
        CHECK(texts.emplace(key.text(), i).second);
        CHECK(digests.emplace(key.digest(), i).second);
    }
}

TEST_CASE("a key's text is framed by lengths and begins with the schema") {
    CHECK(Key().text() == "6:schema=1:1\n");
    CHECK(Key().add("target", "sm_90a").add("options", "").text() ==
          "6:schema=1:1\n6:target=6:sm_90a\n7:options=0:\n");
}

TEST_CASE("keys of the same fields are equal, and others are not") {
    CHECK(some_key() == some_key());
    CHECK_FALSE(some_key() == some_key("v2"));
}

TEST_CASE("digests are those of XXH3-128 and stay what they were") {
    // The hash of no bytes is published with xxHash.
    CHECK(digest_of("") == "99aa06d3014798d86001c324468d497f");
    CHECK(Key().digest() == digest_of("6:schema=1:1\n"));
    // A change here makes every cache in use a miss: then raise the schema.
    CHECK(some_key().digest() == "49dc245d5e3f32f47b47c42548bad585");
}

TEST_CASE("a key is read back from its text with all its fields") {
    const Key key = Key()
                        .add("options", "-O3\n--std=c++17")
                        .add("", "")
                        .add("options", std::string("nul\0inside", 10))
                        .add("looks like a field", "3:abc=1:d\n");
    CHECK(key.fields() == std::vector<KeyField>{{"schema", "1"},
                                                {"options", "-O3\n--std=c++17"},
                                                {"", ""},
                                                {"options", std::string("nul\0inside", 10)},
                                                {"looks like a field", "3:abc=1:d\n"}});
    const auto read = Key::from_text(key.text());
    REQUIRE(read);
    CHECK(*read == key);
}

TEST_CASE("a key of another schema can be read too") {
    const auto read = Key::from_text("6:schema=2:77\n3:new=5:field\n");
    REQUIRE(read);
    CHECK(read->fields() == std::vector<KeyField>{{"schema", "77"}, {"new", "field"}});
    CHECK_FALSE(*read == Key().add("new", "field"));
}

TEST_CASE("what no key has for its text is not read as one") {
    const std::string whole = some_key().text();
    for (std::size_t size = 0; size < whole.size(); ++size) {
        // A text cut at the end of a field is the text of another key.
        const std::string cut = whole.substr(0, size);
        const bool at_field = !cut.empty() && cut.back() == '\n';
        CAPTURE(cut);
        CHECK(Key::from_text(cut).has_value() == at_field);
    }
    for (const char* text :
         {"x", "6:target=1:1\n", "06:schema=1:1\n", "6:schema=01:1\n", "+6:schema=1:1\n",
          "6:schema=1:1\n\n", "6:schema=1:1\r\n", "6:schema 1:1\n", "6-schema=1:1\n",
          "6:schema=2:1\n", "6:schema=-1:1\n", "6:schema=99999999999999999999:1\n",
          "18446744073709551615:schema=1:1\n", "6:schema=18446744073709551615:1\n"}) {
        CAPTURE(text);
        CHECK_FALSE(Key::from_text(text));
    }
}

TEST_CASE("the fields in which two keys differ are told by name with both values") {
    const Key wanted = Key().add("target", "sm_90a").add("options", "-O3").add("only here", "1");
    const Key found = Key().add("extra", "2").add("options", "-O2").add("target", "sm_90a");
    CHECK(differing_fields(wanted, wanted).empty());
    CHECK(differing_fields(wanted, found) ==
          std::vector<FieldDifference>{{"options", "-O3", "-O2"},
                                       {"only here", "1", std::nullopt},
                                       {"extra", std::nullopt, "2"}});
    // Fields of one name are compared in their order.
    CHECK(differing_fields(Key().add("a", "1").add("a", "2"), Key().add("a", "1").add("a", "3")) ==
          std::vector<FieldDifference>{{"a", "2", "3"}});
    CHECK(differing_fields(Key().add("a", ""), Key()) ==
          std::vector<FieldDifference>{{"a", "", std::nullopt}});
}
