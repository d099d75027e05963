#include "text/backend.h"

#include <gradus/core/error.h>
#include <gradus/core/json.h>

#ifdef GRADUS_WITH_TOKENIZERS
#include "text/tokenizers_c.h"

namespace gradus::text {

namespace {

/// The error text of a call, or nothing. Throws G-TEXT-12 when a limit was reached while gradus was
/// `doing` something.
std::optional<std::string> failure(char* error, const std::string& doing) {
  const auto text = error_of(error);
  if (!text || !text->starts_with(GTC_LIMIT)) return text;
  throw Error("G-TEXT-12", ErrorKind::model, "cannot " + doing + ": " + *text,
              "Real tokenizers and chat templates stay far below the limits, so this one is "
              "damaged or hostile.\nIf you trust it, GRADUS_LIMIT_FACTOR=8 in the environment "
              "raises the limits of memory, time and steps eightfold.");
}

/// For calls that fail only when something is wrong with the tokenizer itself.
void check(char* error) {
  if (const auto text = failure(error, "use the tokenizer"))
    throw Error("G-TEXT-2", ErrorKind::model, "the tokenizer cannot do this: " + *text);
}

std::string take(gtc_text text) {
  std::string copy(text.data == nullptr ? "" : text.data, text.size);
  gtc_text_free(text);
  return copy;
}

std::vector<int64_t> widen(const uint32_t* values, size_t count) {
  return {values, values + count};
}

std::vector<std::optional<int64_t>> optionals(const int64_t* values, size_t count) {
  std::vector<std::optional<int64_t>> list(count);
  for (size_t i = 0; i < count; ++i) {
    if (values[i] >= 0) list[i] = values[i];
  }
  return list;
}

Windows windows_of(const gtc_encodings* encodings, size_t input) {
  Windows windows(gtc_window_count(encodings, input));
  for (size_t w = 0; w < windows.size(); ++w) {
    gtc_window view{};
    gtc_get_window(encodings, input, w, &view);
    auto& window = windows[w];
    window.ids = widen(view.ids, view.length);
    window.type_ids = widen(view.type_ids, view.length);
    window.attention_mask = widen(view.attention_mask, view.length);
    window.special_tokens_mask = widen(view.special_tokens_mask, view.length);
    if (view.offsets == nullptr) continue;
    window.offsets.reserve(view.length);
    for (size_t i = 0; i < view.length; ++i)
      window.offsets.emplace_back(view.offsets[2 * i], view.offsets[2 * i + 1]);
    window.word_ids = optionals(view.word_ids, view.length);
    window.sequence_ids = optionals(view.sequence_ids, view.length);
  }
  return windows;
}

gtc_encode_options options_of(const BackendOptions& options) {
  return {.max_length = static_cast<size_t>(options.max_length),
          .stride = static_cast<size_t>(options.stride),
          .truncation = static_cast<int32_t>(options.truncation),
          .truncate_left = options.truncate_left,
          .add_special_tokens = options.add_special_tokens,
          .details = options.details,
          .split_special_tokens = options.split_special_tokens};
}

template <class Texts>
std::vector<gtc_span> spans_of(const Texts& texts) {
  std::vector<gtc_span> spans;
  spans.reserve(texts.size());
  for (const auto& text : texts) spans.push_back(span_of(text));
  return spans;
}

using EncodingsPtr = std::unique_ptr<gtc_encodings, decltype(&gtc_encodings_free)>;

void check_encode(char* error) {
  if (const auto text = failure(error, "tokenize")) {
    throw Error("G-TEXT-3", ErrorKind::data, "cannot tokenize: " + *text,
                "Texts must be UTF-8; max_length must leave room for the special tokens, and "
                "stride be smaller than what is left.");
  }
}

}  // namespace

struct Backend::Handle {
  gtc_tokenizer* tokenizer = nullptr;
  ~Handle() { gtc_free(tokenizer); }
};

Backend::Backend(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}
Backend::~Backend() = default;

std::unique_ptr<Backend> Backend::from_json(std::string_view json, const std::string& where,
                                            nlohmann::json& baked) {
  auto handle = std::make_unique<Handle>();
  gtc_text settings{};
  if (const auto text = failure(gtc_from_json(span_of(json), &handle->tokenizer, &settings),
                                "read " + where + " as a tokenizer")) {
    throw Error("G-TEXT-2", ErrorKind::model, "cannot read " + where + " as a tokenizer: " + *text,
                "It must be a tokenizer.json as transformers' save_pretrained writes it. Fetch or "
                "save the tokenizer again.");
  }
  baked = parse_json(take(settings));
  return std::unique_ptr<Backend>(new Backend(std::move(handle)));
}

std::unique_ptr<Backend> Backend::train(std::span<const std::string> files,
                                        const nlohmann::json& options) {
  auto handle = std::make_unique<Handle>();
  const auto names = spans_of(files);
  if (const auto text = failure(
          gtc_train(names.data(), names.size(), span_of(options.dump()), &handle->tokenizer),
          "train a tokenizer")) {
    throw Error("G-TEXT-6", ErrorKind::data, "cannot train a tokenizer: " + *text,
                "The files must be readable UTF-8 text, with more words than vocab_size asks for.");
  }
  return std::unique_ptr<Backend>(new Backend(std::move(handle)));
}

std::string Backend::to_json() const {
  gtc_text out{};
  check(gtc_to_json(handle_->tokenizer, 1, &out));
  return take(out);
}

void Backend::set_component(std::string_view component, const nlohmann::json& value) {
  check(gtc_set_component(handle_->tokenizer, span_of(component), span_of(value.dump())));
}

nlohmann::json Backend::component(std::string_view component) const {
  gtc_text out{};
  check(gtc_get_component(handle_->tokenizer, span_of(component), &out));
  return parse_json(take(out));
}

std::string Backend::model_type() const {
  gtc_text out{};
  check(gtc_get_component(handle_->tokenizer, span_of("model_type"), &out));
  return take(out);
}

int64_t Backend::add_tokens(const nlohmann::json& tokens) {
  size_t added = 0;
  check(gtc_add_tokens(handle_->tokenizer, span_of(tokens.dump()), &added));
  return static_cast<int64_t>(added);
}

nlohmann::json Backend::added_tokens() const {
  gtc_text out{};
  check(gtc_added_tokens(handle_->tokenizer, &out));
  return parse_json(take(out));
}

nlohmann::json Backend::vocab() const {
  gtc_text out{};
  check(gtc_vocab(handle_->tokenizer, &out));
  return parse_json(take(out));
}

int64_t Backend::vocab_size(bool with_added) const {
  size_t size = 0;
  check(gtc_vocab_size(handle_->tokenizer, with_added, &size));
  return static_cast<int64_t>(size);
}

std::optional<int64_t> Backend::token_to_id(std::string_view token) const {
  int64_t id = -1;
  check(gtc_token_to_id(handle_->tokenizer, span_of(token), &id));
  return id < 0 ? std::nullopt : std::optional(id);
}

std::optional<std::string> Backend::id_to_token(int64_t id) const {
  if (id < 0 || id > UINT32_MAX) return std::nullopt;
  gtc_text out{};
  check(gtc_id_to_token(handle_->tokenizer, static_cast<uint32_t>(id), &out));
  if (out.data == nullptr) return std::nullopt;
  return take(out);
}

int64_t Backend::special_tokens_to_add(bool pair) const {
  size_t count = 0;
  check(gtc_special_tokens_to_add(handle_->tokenizer, pair, &count));
  return static_cast<int64_t>(count);
}

std::vector<Windows> Backend::encode(std::span<const std::string_view> first,
                                     std::span<const std::string_view> second,
                                     const BackendOptions& options, int64_t threads) const {
  const auto one = spans_of(first);
  const auto other = spans_of(second);
  const auto settings = options_of(options);
  gtc_encodings* raw = nullptr;
  check_encode(gtc_encode(handle_->tokenizer, one.data(), other.empty() ? nullptr : other.data(),
                          one.size(), &settings, static_cast<size_t>(std::max<int64_t>(threads, 1)),
                          &raw));
  const EncodingsPtr encodings(raw, gtc_encodings_free);
  std::vector<Windows> inputs;
  inputs.reserve(one.size());
  for (size_t i = 0; i < one.size(); ++i) inputs.push_back(windows_of(raw, i));
  return inputs;
}

Windows Backend::encode_words(std::span<const std::string> first,
                              const std::vector<std::string>* second,
                              const BackendOptions& options) const {
  static constexpr gtc_span kEmpty{"", 0};
  const auto one = spans_of(first);
  const auto other = second != nullptr ? spans_of(*second) : std::vector<gtc_span>();
  const gtc_span* pair = second == nullptr ? nullptr : other.empty() ? &kEmpty : other.data();
  const auto settings = options_of(options);
  gtc_encodings* raw = nullptr;
  check_encode(gtc_encode_words(handle_->tokenizer, one.data(), one.size(), pair, other.size(),
                                &settings, &raw));
  const EncodingsPtr encodings(raw, gtc_encodings_free);
  return windows_of(raw, 0);
}

std::string Backend::decode(std::span<const uint32_t> ids, bool skip_special_tokens) const {
  gtc_text out{};
  check(gtc_decode(handle_->tokenizer, ids.data(), ids.size(), skip_special_tokens, &out));
  return take(out);
}

struct ChatTemplate::Handle {
  gtc_template* compiled = nullptr;
  ~Handle() { gtc_template_free(compiled); }
};

ChatTemplate::ChatTemplate(std::string_view source) : handle_(std::make_unique<Handle>()) {
  if (const auto text = failure(gtc_template_new(span_of(source), &handle_->compiled),
                                "parse the chat template")) {
    throw Error("G-TEXT-7", ErrorKind::model, "cannot parse the chat template: " + *text,
                "It must be a Jinja template as transformers' apply_chat_template takes it.");
  }
}

ChatTemplate::~ChatTemplate() = default;

ChatTemplate::Rendered ChatTemplate::render(const nlohmann::ordered_json& context,
                                            bool want_spans) const {
  std::string variables;
  try {
    variables = context.dump();
  } catch (const nlohmann::json::exception& error) {
    throw Error("G-TEXT-8", ErrorKind::data,
                std::string("cannot render the chat template: ") + error.what(),
                "Messages must be UTF-8 text.");
  }
  gtc_rendered raw{};
  if (const auto text =
          failure(gtc_template_render(handle_->compiled, span_of(variables), want_spans, &raw),
                  "render the chat template")) {
    throw Error("G-TEXT-8", ErrorKind::data, "the chat template refuses the conversation: " + *text,
                "Check roles, their order and the fields of the messages against what this model's "
                "template expects.");
  }
  Rendered rendered;
  rendered.text.assign(raw.text.data, raw.text.size);
  for (size_t i = 0; i < raw.span_count; ++i)
    rendered.spans.emplace_back(raw.spans[2 * i], raw.spans[2 * i + 1]);
  gtc_rendered_free(raw);
  return rendered;
}

namespace {

std::string in_other_case(std::string_view text, decltype(gtc_lower)* change) {
  gtc_text changed{};
  if (const auto error = failure(change(span_of(text), &changed), "read the text"))
    throw Error("G-TEXT-3", ErrorKind::data, "cannot read the text: " + *error,
                "Texts must be UTF-8; convert the file.");
  return take(changed);
}

}  // namespace

std::string lowercase(std::string_view text) { return in_other_case(text, gtc_lower); }

std::string uppercase(std::string_view text) { return in_other_case(text, gtc_upper); }

uint32_t character_class(char32_t character) { return gtc_character_class(character); }

}  // namespace gradus::text

#else  // a build without tokenizers-c

namespace gradus::text {

namespace {

[[noreturn]] void throw_missing() {
  throw Error("G-TEXT-1", ErrorKind::usage,
              "this build of gradus has no tokenizer: cargo 1.85 or newer was not found when it "
              "was configured",
              "Install Rust with rustup, then configure and build again; `gradus doctor` shows "
              "what was found.");
}

}  // namespace

struct Backend::Handle {};
Backend::Backend(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}
Backend::~Backend() = default;
std::unique_ptr<Backend> Backend::from_json(std::string_view, const std::string&, nlohmann::json&) {
  throw_missing();
}
std::unique_ptr<Backend> Backend::train(std::span<const std::string>, const nlohmann::json&) {
  throw_missing();
}
std::string Backend::to_json() const { throw_missing(); }
void Backend::set_component(std::string_view, const nlohmann::json&) { throw_missing(); }
nlohmann::json Backend::component(std::string_view) const { throw_missing(); }
std::string Backend::model_type() const { throw_missing(); }
int64_t Backend::add_tokens(const nlohmann::json&) { throw_missing(); }
nlohmann::json Backend::added_tokens() const { throw_missing(); }
nlohmann::json Backend::vocab() const { throw_missing(); }
int64_t Backend::vocab_size(bool) const { throw_missing(); }
std::optional<int64_t> Backend::token_to_id(std::string_view) const { throw_missing(); }
std::optional<std::string> Backend::id_to_token(int64_t) const { throw_missing(); }
int64_t Backend::special_tokens_to_add(bool) const { throw_missing(); }
std::vector<Windows> Backend::encode(std::span<const std::string_view>,
                                     std::span<const std::string_view>, const BackendOptions&,
                                     int64_t) const {
  throw_missing();
}
Windows Backend::encode_words(std::span<const std::string>, const std::vector<std::string>*,
                              const BackendOptions&) const {
  throw_missing();
}
std::string Backend::decode(std::span<const uint32_t>, bool) const { throw_missing(); }

struct ChatTemplate::Handle {};
ChatTemplate::ChatTemplate(std::string_view) { throw_missing(); }
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::Rendered ChatTemplate::render(const nlohmann::ordered_json&, bool) const {
  throw_missing();
}

std::string lowercase(std::string_view) { throw_missing(); }
std::string uppercase(std::string_view) { throw_missing(); }
uint32_t character_class(char32_t) { throw_missing(); }

}  // namespace gradus::text

#endif
