#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gtest/gtest.h>

#include "fixtures.h"

namespace gradus {
namespace {

using nlohmann::ordered_json;

ordered_json chat_fixture() { return ordered_json::parse(read_file(text_fixture("chat.json"))); }

ChatOptions chat_options(const ordered_json& given) {
  ChatOptions options;
  options.add_generation_prompt = given.value("add_generation_prompt", false);
  options.continue_final_message = given.value("continue_final_message", false);
  options.tools = given.value("tools", ordered_json());
  options.documents = given.value("documents", ordered_json());
  options.variables = given.value("variables", ordered_json::object());
  return options;
}

TEST(ChatTemplate, RendersTenStylesAsTransformers) {
  const auto tokenizer = Tokenizer::from_pretrained(text_fixture("bpe"));
  const auto fixture = chat_fixture();
  ASSERT_GT(fixture["cases"].size(), 200u);
  for (const auto& one : fixture["cases"]) {
    const auto& messages = fixture["messages"][one["messages"].get<size_t>()];
    const auto& given = fixture["options"][one["options"].get<size_t>()];
    auto options = chat_options(given);
    options.chat_template = fixture["template"][one["template"].get<size_t>()].get<std::string>();
    const auto what = options.chat_template->substr(0, 50) + messages.dump() + given.dump();
    if (one.contains("error")) {
      EXPECT_THROW(tokenizer->render_chat(messages, options), Error) << what;
      continue;
    }
    EXPECT_EQ(tokenizer->render_chat(messages, options), one["text"].get<std::string>()) << what;
    options.return_assistant_tokens_mask = given.value("mask", false);
    const auto encoding = tokenizer->apply_chat_template(messages, options);
    EXPECT_EQ(ordered_json(encoding.ids()), one["ids"]) << what;
    EXPECT_EQ(ordered_json(encoding.assistant_masks()), one["assistant_masks"]) << what;
  }
}

TEST(ChatTemplate, EvaluatesExpressionsAsJinja2) {
  const auto tokenizer = Tokenizer::from_pretrained(text_fixture("bpe"));
  const auto fixture = chat_fixture();
  ASSERT_GT(fixture["expressions"].size(), 80u);
  const auto messages = ordered_json::array({{{"role", "user"}, {"content", "x"}}});
  for (const auto& one : fixture["expressions"]) {
    ChatOptions options = {.chat_template = one["template"].get<std::string>()};
    options.variables["v"] = fixture["value"];
    if (one.contains("error"))
      EXPECT_THROW(tokenizer->render_chat(messages, options), Error) << one;
    else
      EXPECT_EQ(tokenizer->render_chat(messages, options), one["text"].get<std::string>()) << one;
  }
}

TEST(ChatTemplate, ErrorsSayWhatIsWrong) {
  const auto tokenizer = Tokenizer::from_pretrained(text_fixture("wordpiece"));
  const auto messages = ordered_json::array({{{"role", "user"}, {"content", "x"}}});
  const auto text_of = [&](const ordered_json& chat, ChatOptions options) {
    try {
      tokenizer->render_chat(chat, options);
    } catch (const Error& error) {
      return error.id() + ": " + error.what();
    }
    return std::string("no error");
  };
  EXPECT_NE(text_of(messages, {}).find("G-TEXT-11: gradus: the tokenizer has no chat template"),
            std::string::npos)
      << text_of(messages, {});
  EXPECT_NE(text_of(messages, {.chat_template = "{% if %}"})
                .find("G-TEXT-7: gradus: cannot parse the chat template"),
            std::string::npos);
  EXPECT_NE(text_of(messages, {.chat_template = "a\n{{ raise_exception('Only robots.') }}"})
                .find("refuses the conversation: Only robots. (line 2)"),
            std::string::npos)
      << text_of(messages, {.chat_template = "a\n{{ raise_exception('Only robots.') }}"});
  EXPECT_NE(text_of(ordered_json::array(), {.chat_template = "x"}).find("an empty list"),
            std::string::npos);
  EXPECT_NE(
      text_of(messages,
              {.add_generation_prompt = true, .continue_final_message = true, .chat_template = "x"})
          .find("cannot be used together"),
      std::string::npos);
}

TEST(ChatTemplate, KnowsTheDate) {
  const auto tokenizer = Tokenizer::from_pretrained(text_fixture("wordpiece"));
  const auto messages = ordered_json::array({{{"role", "user"}, {"content", "x"}}});
  const auto year = tokenizer->render_chat(messages, {.chat_template = "{{ strftime_now('%Y') }}"});
  EXPECT_EQ(year.size(), 4u);
  EXPECT_GE(std::stoi(year), 2025);
}

TEST(ChatTemplate, IsReadFromTheFolder) {
  const auto tokenizer = Tokenizer::from_pretrained(text_fixture("bpe"));
  ASSERT_TRUE(tokenizer->has_chat_template());
  const auto messages = ordered_json::array({{{"role", "user"}, {"content", "Hi"}}});
  EXPECT_EQ(tokenizer->render_chat(messages, {.add_generation_prompt = true}),
            "<|im_start|>system\nBe brief and "
            "kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\n<|im_start|>assistant\n");
}

}  // namespace
}  // namespace gradus
