#include <gradus/core/error.h>
#include <gtest/gtest.h>

#include <thread>

#include "../error_of.h"
#include "fixtures.h"
#include "text/backend.h"

// What hostile chat templates and tokenizers may take: every case ends by itself, with a text or an
// error that names the limit. Without the limits each of these ended the process or never ended.
namespace gradus {
namespace {

using text::Backend;
using text::ChatTemplate;

std::string times(size_t count, const std::string& text) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

/// The rendered text, or the message of the error.
std::string outcome(const std::string& source) {
  const nlohmann::ordered_json context = {
      {"messages", {{{"role", "user"}, {"content", "Hi"}}, {{"role", "bot"}, {"content", "Ho"}}}}};
  try {
    return ChatTemplate(source).render(context, false).text;
  } catch (const Error& error) {
    return error.id() + " " + error.message();
  }
}

const std::string kSelf = "{% set ns = namespace(x=1) %}{% set ns.x = ns %}";
const std::string kDeep =
    "{% set ns = namespace(x=[]) %}{% for a in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}";

struct HostileTemplate {
  const char* name;
  std::string source;
  const char* expected;
};

void expect_limits(const std::vector<HostileTemplate>& cases) {
  for (const auto& [name, source, expected] : cases) {
    const auto said = outcome(source);
    EXPECT_TRUE(said.starts_with("G-TEXT-12 ")) << name << ": " << said.substr(0, 200);
    EXPECT_NE(said.find(expected), std::string::npos) << name << ": " << said.substr(0, 200);
  }
}

TEST(TemplateLimits, AValueThatContainsItselfIsALimitOfDepth) {
  expect_limits({
      {"shown", kSelf + "{{ ns }}", "limit of depth"},
      {"as JSON", kSelf + "{{ ns|tojson }}", "limit of depth"},
      {"as text", kSelf + "{{ ns|string }}", "limit of depth"},
      {"in a list", kSelf + "{{ [ns, [ns]]|tojson }}", "limit of depth"},
      {"joined", kSelf + "{{ ns ~ '' }}", "limit of depth"},
      {"in upper case", kSelf + "{{ ns|upper }}", "limit of depth"},
  });
}

TEST(TemplateLimits, DeepValuesAreALimitOfDepth) {
  expect_limits({
      {"shown", kDeep + "{{ ns.x }}", "limit of depth"},
      {"joined", kDeep + "{{ ns.x ~ '' }}", "limit of depth"},
  });
}

TEST(TemplateLimits, DeepSourceIsAnErrorWhateverIsNested) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer loses its way when a handler of SIGSEGV leaves a stack";
#endif
  const std::vector<std::pair<const char*, std::string>> cases = {
      {"operators", "{{ " + times(100000, "1+") + "1 }}"},
      {"texts", "{{ " + times(100000, "'a'~") + "1 }}"},
      {"comparisons", "{{ " + times(100000, "1 and ") + "1 }}"},
      {"powers", "{{ " + times(100000, "1**") + "1 }}"},
      {"nots", "{{ " + times(100000, "not ") + "1 }}"},
      {"minus", "{{ " + times(100000, "-") + "1 }}"},
      {"brackets", "{{ " + times(100000, "(") + "1" + times(100000, ")") + " }}"},
      {"lists", "{{ " + times(100000, "[") + times(100000, "]") + " }}"},
      {"dicts", "{{ " + times(50000, "{1:") + "1" + times(50000, "}") + " }}"},
      {"filters", "{{ 1" + times(100000, "|string") + " }}"},
      {"items", "{{ messages" + times(100000, "[0]") + " }}"},
      {"attributes", "{{ messages" + times(100000, ".a") + " }}"},
      {"calls", "{{ messages" + times(100000, "()") + " }}"},
      {"tests", "{{ 1" + times(100000, " is string") + " }}"},
      {"conditions", "{{ " + times(50000, "1 if 0 else ") + "1 }}"},
      {"elifs", "{% if 0 %}" + times(50000, "{% elif 0 %}") + "{% endif %}"},
      {"ifs", times(50000, "{% if 1 %}") + times(50000, "{% endif %}")},
      {"fors", times(30000, "{% for a in [1] %}") + times(30000, "{% endfor %}")},
      {"withs", times(30000, "{% with a=1 %}") + times(30000, "{% endwith %}")},
      {"openings", times(400000, "{%") + "%}"},
      {"blanks", times(100000, "{%") + times(500000, " ") + "%}"},
      {"macro", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"},
      {"loop", "{% for a in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}"},
  };
  for (const auto& [name, source] : cases)  // some are computed after all
    EXPECT_LT(outcome(source).size(), 400u) << name << outcome(source).substr(0, 400);
  EXPECT_NE(outcome(cases[0].second).find("limit of depth"), std::string::npos);
}

TEST(TemplateLimits, EndlessLoopsAreALimitOfSteps) {
  const std::string open = "{% for a in range(99999) %}", close = "{% endfor %}";
  expect_limits({
      {"ranges", open + open + close + close, "limit of steps"},
      {"three ranges", open + open + open + "{{ a }}" + close + close + close, "limit of "},
  });
}

TEST(TemplateLimits, WhatGrowsIsALimitOfMemory) {
  expect_limits({
      {"batch", "{{ messages|batch(99999999999)|list }}", "limit of memory"},
      {"batch filled up", "{{ messages|batch(999999999, 'x')|list|length }}", "limit of memory"},
      {"slice", "{{ messages|slice(99999999999)|list }}", "limit of memory"},
      {"indent", "{{ 'x\\nx'|indent(99999999999) }}", "limit of memory"},
      {"JSON", "{{ [1]|tojson(indent=99999999999) }}", "limit of memory"},
      {"JSON of any size", "{{ [1]|tojson(indent=18446744073709551615) }}", "limit of memory"},
      {"text doubled",
       "{% set ns = namespace(s='0123456789abcdef') %}{% for a in range(64) %}{% set ns.s = ns.s ~ "
       "ns.s %}{% endfor %}{{ ns.s|length }}",
       "limit of memory"},
      {"list doubled",
       "{% set ns = namespace(s=[1]) %}{% for a in range(64) %}{% set ns.s = ns.s + ns.s %}{% "
       "endfor %}{{ ns.s|list|length }}",
       "limit of memory"},
      {"replaced", "{{ ('x' * 100000)|replace('x', 'y' * 100000)|length }}", "limit of memory"},
  });
}

TEST(TemplateLimits, OtherHugeArgumentsEndByThemselves) {
  for (const char* source :
       {"{{ 'x' * 99999999999 }}", "{{ ([1] * 99999999999)|length }}",
        "{{ 'x'|center(99999999999) }}", "{{ '%99999999999d'|format(1) }}", "{{ 9 ** 99999 }}",
        "{{ range(99999)|map('string')|list|sort|unique|list|length }}",
        "{{ range(99999999999)|list|length }}", "{{ 'x'.ljust(99999999999) }}",
        "{{ messages|tojson|wordwrap(0)|length }}", "{{ lipsum(99999999) }}"})
    EXPECT_LT(outcome(source).size(), 300u) << source;
}

TEST(TemplateLimits, TheNextRenderingWorksOnEveryThread) {
  const auto attack_and_render = [] {
    for (int i = 0; i < 3; ++i) {
      EXPECT_NE(outcome(kSelf + "{{ ns ~ '' }}").find("limit of depth"), std::string::npos);
      EXPECT_NE(outcome("{{ messages|batch(99999999999)|list }}").find("limit of memory"),
                std::string::npos);
      EXPECT_EQ(outcome("{{ messages|length }}"), "2");
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(attack_and_render);
  attack_and_render();
  for (auto& thread : threads) thread.join();
}

TEST(TemplateLimits, LongConversationsStayFarBelowThem) {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  for (int i = 0; i < 20000; ++i)
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", "some words"}});
  const ChatTemplate compiled(
      "{% for m in messages %}{% if m.role == 'user' %}<u>{% else %}<a>{% endif %}{{ "
      "m.content|trim "
      "}}{% endfor %}");
  EXPECT_EQ(compiled.render({{"messages", messages}}, true).text.size(), 20000u * 13);
}

TEST(TemplateLimits, TheMessageNamesTheLimitAndHowToRaiseIt) {
  expect_error([] { ChatTemplate("{# " + std::string(2 << 20, 'x') + " #}"); }, "G-TEXT-12",
               {"limit of size", "GRADUS_LIMIT_FACTOR"});
}

nlohmann::json words_tokenizer(const nlohmann::json& normalizer) {
  return {{"version", "1.0"},
          {"added_tokens", nlohmann::json::array()},
          {"normalizer", normalizer},
          {"model",
           {{"type", "WordLevel"}, {"vocab", {{"a", 0}, {"<unk>", 1}}}, {"unk_token", "<unk>"}}}};
}

/// What loading the tokenizer and encoding `input` end with.
std::string encoded(const nlohmann::json& tokenizer, std::string_view input) {
  try {
    nlohmann::json baked;
    const auto backend = Backend::from_json(tokenizer.dump(), "tokenizer.json", baked);
    return std::to_string(backend->encode(std::span(&input, 1), {}, {}, 1).at(0).at(0).ids.size());
  } catch (const Error& error) {
    return error.id() + " " + error.message();
  }
}

TEST(TokenizerLimits, NormalizersThatExplodeAreALimitOfMemory) {
  const nlohmann::json step = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1 << 20, 'a')}};
  const auto steps = nlohmann::json::array({step, step});
  const auto said =
      encoded(words_tokenizer({{"type", "Sequence"}, {"normalizers", steps}}), "a a a a");
  EXPECT_NE(said.find("limit of memory"), std::string::npos) << said;
  EXPECT_EQ(encoded(words_tokenizer(nullptr), "a"), "1");  // this thread goes on
}

TEST(TokenizerLimits, ACharsmapThatLiesIsAnError) {
  for (const char* map : {"8P///wAAAAAAAAAAAAAAAA==", "8P//fwAAAAAAAAAAAAAAAA==",
                          "////////////////", "AAAAAA==", "", "AA==", "BAAAAP////8AAAA="}) {
    const auto said = encoded(
        words_tokenizer({{"type", "Precompiled"}, {"precompiled_charsmap", map}}), "a b \xc3\xa9");
    EXPECT_LT(said.size(), 400u) << map << said.substr(0, 400);
  }
}

TEST(TokenizerLimits, ManyTextsOnManyThreadsAreALimitToo) {
  const nlohmann::json step = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1 << 20, 'a')}};
  const auto steps = nlohmann::json::array({step, step});
  nlohmann::json baked;
  const auto backend = Backend::from_json(
      words_tokenizer({{"type", "Sequence"}, {"normalizers", steps}}).dump(), "input", baked);
  const std::vector<std::string_view> texts(64, "b");
  auto hostile_texts = texts;
  hostile_texts[40] = "a";
  EXPECT_EQ(backend->encode(texts, {}, {}, 4).size(), 64u);
  expect_error([&] { backend->encode(hostile_texts, {}, {}, 4); }, "G-TEXT-12", {"limit of "});
  EXPECT_EQ(backend->encode(texts, {}, {}, 4).size(), 64u);
}

}  // namespace
}  // namespace gradus
