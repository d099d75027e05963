#include <gradus/core/error.h>
#include <gradus/core/log.h>

#include <algorithm>
#include <array>

#include "text/tokenizer_impl.h"

namespace gradus {

namespace {

using nlohmann::ordered_json;

constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr std::array<const char*, 3> kReasoningFields = {"reasoning_content", "thinking",
                                                         "reasoning"};

[[noreturn]] void throw_chat(const std::string& message, const std::string& advice) {
  throw Error("G-TEXT-11", ErrorKind::usage, message, advice);
}

/// Length of the white-space character (Python's `str.isspace`) that ends `text`; 0 when it ends
/// otherwise.
size_t trailing_space(std::string_view text) {
  static constexpr std::array<std::string_view, 20> kWide = {
      "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003",
      "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a",
      "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\x1f"};
  if (text.empty()) return 0;
  const auto last = static_cast<unsigned char>(text.back());
  if (last == ' ' || (last >= 9 && last <= 13) || (last >= 0x1c && last <= 0x1f)) return 1;
  for (const auto wide : kWide) {
    if (text.ends_with(wide)) return wide.size();
  }
  return 0;
}

std::string_view stripped_end(std::string_view text) {
  while (const auto length = trailing_space(text)) text.remove_suffix(length);
  return text;
}

std::string_view stripped(std::string_view text) {
  text = stripped_end(text);
  for (size_t length = 1; length <= 3 && length <= text.size(); ++length) {
    if (trailing_space(text.substr(0, length)) == length) {
      text.remove_prefix(length);
      length = 0;
    }
  }
  return text;
}

/// Reasoning goes by several names; templates read one or the other.
void alias_reasoning(ordered_json& message) {
  for (const char* field : kReasoningFields) {
    if (!message.contains(field) || message[field].is_null()) continue;
    const auto reasoning = message[field];
    if (!message.contains("thinking")) message["thinking"] = reasoning;
    message["reasoning_content"] = reasoning;
    return;
  }
}

ordered_json checked_messages(const ordered_json& messages) {
  if (!messages.is_array() || messages.empty()) {
    throw_chat("a conversation must be a list of messages, received " +
                   std::string(messages.is_array() ? "an empty list" : messages.type_name()),
               "Give a list like [{\"role\": \"user\", \"content\": \"Hello\"}].");
  }
  auto chat = messages;
  for (auto& message : chat) {
    if (!message.is_object())
      throw_chat(std::string("a message must be an object, received ") + message.type_name(),
                 "Give each message a role and a content.");
    alias_reasoning(message);
  }
  return chat;
}

/// Puts the tag behind the text that is to be continued; returns that text.
std::string tag_final_message(ordered_json& chat, const std::string& field,
                              const std::string& source) {
  auto& message = chat.back();
  if (!message.contains(field) || message[field].is_null()) {
    throw_chat(
        "continue_final_message is set but the final message has no \"" + field + "\" to continue",
        "Let the conversation end with the message to continue.");
  }
  if (source.find(field) == std::string::npos)
    throw_chat("continue_final_message is set to \"" + field +
                   "\" but the chat template does not use this field",
               "Use \"content\".");
  auto& value = message[field];
  if (value.is_array()) {
    for (auto block = value.rbegin(); block != value.rend(); ++block) {
      if (!block->contains("text")) continue;
      const auto text = (*block)["text"].get<std::string>();
      (*block)["text"] = text + std::string(kContinueTag);
      return text;
    }
    throw_chat("continue_final_message is set but the final message has no text to continue",
               "Add a block with \"text\".");
  }
  const auto text = value.get<std::string>();
  for (const char* other : kReasoningFields) {
    if (other != field && field != "content" && message.contains(other) && message[other] == text)
      message[other] = text + std::string(kContinueTag);
  }
  value = text + std::string(kContinueTag);
  return text;
}

/// Cuts the rendered chat where the continued text ends.
std::string cut_at_tag(const std::string& rendered, const std::string& final_text) {
  const auto tag = stripped(kContinueTag);
  const auto at = rendered.rfind(tag);
  if (at == std::string::npos || rendered.find(stripped(final_text)) == std::string::npos) {
    throw_chat(
        "continue_final_message is set but the final message does not appear in the chat after "
        "applying the chat template",
        "The template leaves out parts of the final message; check that both fit together.");
  }
  if (std::string_view(rendered).substr(at).starts_with(kContinueTag))
    return rendered.substr(0, at);
  return std::string(stripped_end(std::string_view(rendered).substr(0, at)));
}

bool has_generation_blocks(const std::string& source) {
  for (size_t at = 0; (at = source.find("generation", at)) != std::string::npos; ++at) {
    auto before = std::string_view(source).substr(0, at);
    before = stripped_end(before);
    if (before.ends_with("-") || before.ends_with("+")) before.remove_suffix(1);
    if (before.ends_with("{%")) return true;
  }
  return false;
}

}  // namespace

std::shared_ptr<const text::ChatTemplate> Tokenizer::Impl::compiled(
    const std::string& source) const {
  const std::lock_guard lock(mutex);
  auto& entry = templates[source];
  if (!entry) entry = std::make_shared<const text::ChatTemplate>(source);
  return entry;
}

namespace {

/// The template to use: one given, one named, or the tokenizer's own.
std::string pick_template(const std::map<std::string, std::string>& own,
                          const ChatOptions& options) {
  if (options.chat_template) {
    const auto named = own.find(*options.chat_template);
    return named != own.end() && own.size() > 1 ? named->second : *options.chat_template;
  }
  if (own.size() > 1 && !options.tools.is_null() && own.contains("tool_use"))
    return own.at("tool_use");
  if (const auto found = own.find("default"); found != own.end()) return found->second;
  if (own.empty()) {
    throw_chat("the tokenizer has no chat template",
               "Give one with ChatOptions.chat_template or set_chat_template, or put "
               "chat_template.jinja into the model folder.");
  }
  std::string names;
  for (const auto& [name, source] : own) names += (names.empty() ? "" : ", ") + name;
  throw_chat("the tokenizer has several chat templates and none is the default one",
             "Name one of " + names + " in ChatOptions.chat_template.");
}

ordered_json context_of(const ordered_json& chat, const ChatOptions& options,
                        const text::TokenizerSettings& settings) {
  auto context = ordered_json::object();
  for (const auto& [name, token] : settings.special_tokens) context[name] = token;
  for (const auto& [name, value] : options.variables.items()) context[name] = value;
  context["messages"] = chat;
  context["tools"] = options.tools;
  context["documents"] = options.documents;
  context["add_generation_prompt"] = options.add_generation_prompt;
  return context;
}

void check_options(const ChatOptions& options) {
  if (!options.continue_final_message) return;
  if (options.add_generation_prompt) {
    throw_chat("continue_final_message and add_generation_prompt cannot be used together",
               "Use continue_final_message to continue the final message, add_generation_prompt "
               "to start a new one.");
  }
  if (options.return_assistant_tokens_mask) {
    throw_chat("continue_final_message and return_assistant_tokens_mask cannot be used together",
               "Use one of them.");
  }
}

}  // namespace

std::string Tokenizer::render_chat(const ordered_json& messages, const ChatOptions& options) const {
  check_options(options);
  const auto source = pick_template(impl_->settings.chat_templates, options);
  auto chat = checked_messages(messages);
  std::string final_text;
  if (options.continue_final_message)
    final_text = tag_final_message(chat, options.continue_field, source);
  auto rendered =
      impl_->compiled(source)->render(context_of(chat, options, impl_->settings), false).text;
  return options.continue_final_message ? cut_at_tag(rendered, final_text) : rendered;
}

Encoding Tokenizer::apply_chat_template(const ordered_json& messages,
                                        const ChatOptions& options) const {
  const EncodeOptions encode_options = {.max_length = options.max_length,
                                        .truncation = options.truncation,
                                        .add_special_tokens = false};
  if (!options.return_assistant_tokens_mask)
    return encode(render_chat(messages, options), encode_options);
  check_options(options);
  const auto source = pick_template(impl_->settings.chat_templates, options);
  if (!has_generation_blocks(source))
    log_warning_once(
        "return_assistant_tokens_mask is set but the chat template has no {% generation %} block");
  const auto rendered = impl_->compiled(source)->render(
      context_of(checked_messages(messages), options, impl_->settings), true);
  auto encoding = encode(rendered.text, encode_options);
  std::vector<int64_t> mask(static_cast<size_t>(encoding.size()), 0);
  for (const auto& [begin, end] : rendered.spans) {
    const auto first = encoding.char_to_token(begin);
    if (!first) break;  // cut off
    // As transformers: a last token that is not found, or is token 0, means everything up to the
    // end.
    const auto last = encoding.char_to_token(end - 1);
    const auto stop = last && *last != 0 ? *last + 1 : encoding.size();
    for (auto token = *first; token < stop; ++token) mask[static_cast<size_t>(token)] = 1;
  }
  encoding.set_assistant_masks(std::move(mask));
  return encoding;
}

bool Tokenizer::has_chat_template() const { return !impl_->settings.chat_templates.empty(); }

std::string Tokenizer::chat_template() const {
  return pick_template(impl_->settings.chat_templates, {});
}

void Tokenizer::set_chat_template(std::string source) {
  impl_->settings.chat_templates = {{"default", std::move(source)}};
}

}  // namespace gradus
