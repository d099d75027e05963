#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/core/nearest.h>

#include <algorithm>
#include <array>
#include <thread>

#include "text/tokenizer_impl.h"

namespace gradus {

namespace {

template <size_t N>
[[noreturn]] void throw_unknown_name(const char* option, const std::string& name,
                                     const std::array<std::string, N>& names) {
  throw Error(
      "G-TEXT-9", ErrorKind::usage,
      std::string(option) + " is \"" + name + "\", expected " + join_or(names) + ", true or false",
      did_you_mean(name, names));
}

/// What the options come to: the strategy and length transformers would settle on.
struct Plan {
  text::BackendOptions backend;
  std::optional<int64_t> max_length;
  Padding::Strategy padding = Padding::Strategy::none;
};

text::TruncationStrategy strategy_of(Truncation::Strategy strategy) {
  switch (strategy) {
    case Truncation::Strategy::longest_first: return text::TruncationStrategy::longest_first;
    case Truncation::Strategy::only_first: return text::TruncationStrategy::only_first;
    case Truncation::Strategy::only_second: return text::TruncationStrategy::only_second;
    default: return text::TruncationStrategy::none;
  }
}

void check_counts(const EncodeOptions& options) {
  if ((options.max_length && *options.max_length < 0) || options.stride < 0) {
    throw Error("G-TEXT-3", ErrorKind::usage, "max_length and stride must not be negative",
                "Leave max_length out for no limit.");
  }
}

Plan plan_of(const EncodeOptions& options, const text::TokenizerSettings& settings,
             bool has_pad_token) {
  check_counts(options);
  Plan plan;
  plan.padding = options.padding.strategy();
  plan.max_length = options.max_length;
  auto truncation = options.truncation.strategy();
  if (truncation == Truncation::Strategy::unset) {
    const bool implied = options.max_length && plan.padding == Padding::Strategy::none;
    truncation = implied ? Truncation::Strategy::longest_first : Truncation::Strategy::none;
  }
  if (!plan.max_length && !settings.model_max_length) {
    if (plan.padding == Padding::Strategy::max_length) plan.padding = Padding::Strategy::none;
    truncation = Truncation::Strategy::none;
  } else if (!plan.max_length && (plan.padding == Padding::Strategy::max_length ||
                                  truncation != Truncation::Strategy::none)) {
    plan.max_length = settings.model_max_length;
  }
  if (plan.padding != Padding::Strategy::none && !has_pad_token) {
    throw Error("G-TEXT-10", ErrorKind::usage,
                "asked to pad, but the tokenizer has no padding token",
                "Give it one: set_special_token(\"pad_token\", …) for a token it has, or "
                "add_special_tokens({{\"pad_token\", \"[PAD]\"}}).");
  }
  plan.backend = {
      .truncation = strategy_of(truncation),
      .max_length = plan.max_length.value_or(0),
      .stride = options.stride,
      .truncate_left = settings.truncation_side == PaddingSide::left,
      .add_special_tokens = options.add_special_tokens,
      .details = !options.ids_only,
      .split_special_tokens = options.split_special_tokens.value_or(settings.split_special_tokens)};
  return plan;
}

Encoding::Columns columns_of(const EncodeOptions& options,
                             const text::TokenizerSettings& settings) {
  return {
      .token_type_ids = options.return_token_type_ids.value_or(settings.takes("token_type_ids")),
      .attention_mask = options.return_attention_mask.value_or(settings.takes("attention_mask")),
      .special_tokens_mask = options.return_special_tokens_mask,
      .offset_mapping = options.return_offsets_mapping,
      .length = options.return_length};
}

Encoding encoding_of(text::Windows windows, const Encoding::Columns& columns, bool overflow) {
  Encoding first(std::move(windows.at(0)), columns);
  if (overflow) {
    std::vector<Encoding> rest;
    for (size_t i = 1; i < windows.size(); ++i) rest.emplace_back(std::move(windows[i]), columns);
    first.set_overflowing(std::move(rest));
  }
  return first;
}

/// Once per tokenizer, as transformers does.
void warn_too_long(const text::TokenizerSettings& settings, const EncodeOptions& options,
                   const text::Windows& windows, std::atomic<bool>& warned) {
  const auto length = static_cast<int64_t>(windows[0].ids.size());
  if (options.max_length || !settings.model_max_length || length <= *settings.model_max_length ||
      warned.exchange(true))
    return;
  log_warning(
      "Token indices sequence length is longer than the specified maximum sequence length for this "
      "model (" +
      std::to_string(length) + " > " + std::to_string(*settings.model_max_length) +
      "). Running this sequence through the model will result in indexing errors");
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

/// transformers' clean_up_tokenization.
std::string cleaned_up(std::string text) {
  static constexpr std::array<std::pair<const char*, const char*>, 10> kSteps = {{{" .", "."},
                                                                                  {" ?", "?"},
                                                                                  {" !", "!"},
                                                                                  {" ,", ","},
                                                                                  {" ' ", "'"},
                                                                                  {" n't", "n't"},
                                                                                  {" 'm", "'m"},
                                                                                  {" 's", "'s"},
                                                                                  {" 've", "'ve"},
                                                                                  {" 're", "'re"}}};
  for (const auto& [what, by] : kSteps) text = replaced(std::move(text), what, by);
  return text;
}

}  // namespace

Truncation::Truncation(const std::string& name) {
  static const std::array<std::string, 4> kNames = {"longest_first", "only_first", "only_second",
                                                    "do_not_truncate"};
  if (name == "longest_first")
    strategy_ = Strategy::longest_first;
  else if (name == "only_first")
    strategy_ = Strategy::only_first;
  else if (name == "only_second")
    strategy_ = Strategy::only_second;
  else if (name == "do_not_truncate")
    strategy_ = Strategy::none;
  else
    throw_unknown_name("truncation", name, kNames);
}

Padding::Padding(const std::string& name) {
  static const std::array<std::string, 3> kNames = {"longest", "max_length", "do_not_pad"};
  if (name == "longest")
    strategy_ = Strategy::longest;
  else if (name == "max_length")
    strategy_ = Strategy::max_length;
  else if (name == "do_not_pad")
    strategy_ = Strategy::none;
  else
    throw_unknown_name("padding", name, kNames);
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

std::shared_ptr<Tokenizer> TokenizerFactory::make(std::unique_ptr<text::Backend> backend,
                                                  text::TokenizerSettings settings) {
  auto impl = std::make_unique<Tokenizer::Impl>();
  impl->model_type = backend->model_type();
  impl->backend = std::move(backend);
  impl->settings = std::move(settings);
  return std::shared_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
}

std::shared_ptr<Tokenizer> Tokenizer::from_pretrained(const std::filesystem::path& directory,
                                                      const nlohmann::json& changes) {
  auto [backend, settings] = text::load_tokenizer_folder(expand_user(directory), changes);
  return TokenizerFactory::make(std::move(backend), std::move(settings));
}

std::shared_ptr<Tokenizer> Tokenizer::from_file(const std::filesystem::path& tokenizer_json) {
  const auto file = expand_user(tokenizer_json);
  nlohmann::json baked;
  auto backend = text::Backend::from_json(read_file(file), file.string(), baked);
  return TokenizerFactory::make(std::move(backend), {});
}

void Tokenizer::save_pretrained(const std::filesystem::path& directory) const {
  make_directory(directory);
  write_file_atomically(directory / "tokenizer.json", impl_->backend->to_json());
  write_file_atomically(directory / "tokenizer_config.json",
                        text::tokenizer_config_text(impl_->settings));
  for (const auto& [name, source] : impl_->settings.chat_templates) {
    if (name == "default") {
      write_file_atomically(directory / "chat_template.jinja", source);
      continue;
    }
    const auto folder = directory / "chat_templates";
    make_directory(folder);
    write_file_atomically(folder / (std::filesystem::path(name).filename().string() + ".jinja"),
                          source);
  }
}

Encoding Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const auto plan = plan_of(options, impl_->settings, pad_token_id().has_value());
  const bool paired = options.text_pair && !options.text_pair->empty();
  const std::string_view second =
      paired ? std::string_view(*options.text_pair) : std::string_view();
  auto inputs = impl_->backend->encode({&text, 1}, {&second, paired ? 1u : 0u}, plan.backend, 1);
  auto& windows = inputs.at(0);
  warn_too_long(impl_->settings, options, windows, impl_->warned_too_long);
  const auto longest = static_cast<int64_t>(windows[0].ids.size());
  if (const auto length =
          text::padded_length(plan.padding, longest, plan.max_length, options.pad_to_multiple_of)) {
    for (auto& window : windows)
      text::pad_window(window, *length, padding_side(), *pad_token_id(), pad_token_type_id());
  }
  return encoding_of(std::move(windows), columns_of(options, impl_->settings),
                     options.return_overflowing_tokens);
}

Encoding Tokenizer::encode_words(std::span<const std::string> words,
                                 const EncodeOptions& options) const {
  const auto plan = plan_of(options, impl_->settings, pad_token_id().has_value());
  auto windows = impl_->backend->encode_words(words, nullptr, plan.backend);
  warn_too_long(impl_->settings, options, windows, impl_->warned_too_long);
  const auto longest = static_cast<int64_t>(windows[0].ids.size());
  if (const auto length =
          text::padded_length(plan.padding, longest, plan.max_length, options.pad_to_multiple_of)) {
    for (auto& window : windows)
      text::pad_window(window, *length, padding_side(), *pad_token_id(), pad_token_type_id());
  }
  return encoding_of(std::move(windows), columns_of(options, impl_->settings),
                     options.return_overflowing_tokens);
}

std::vector<Encoding> Tokenizer::encode_batch(std::span<const std::string> texts,
                                              const EncodeOptions& options,
                                              std::span<const std::string> pairs,
                                              int64_t threads) const {
  if (!pairs.empty() && pairs.size() != texts.size()) {
    throw Error("G-TEXT-3", ErrorKind::usage,
                "encode_batch received " + std::to_string(texts.size()) + " texts and " +
                    std::to_string(pairs.size()) + " pairs",
                "Give one second text for each first one, or none.");
  }
  const auto plan = plan_of(options, impl_->settings, pad_token_id().has_value());
  const std::vector<std::string_view> first(texts.begin(), texts.end());
  const std::vector<std::string_view> second(pairs.begin(), pairs.end());
  if (threads <= 0) threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
  auto inputs = impl_->backend->encode(first, second, plan.backend, threads);
  int64_t longest = 0;
  for (const auto& windows : inputs) {
    warn_too_long(impl_->settings, options, windows, impl_->warned_too_long);
    longest = std::max(longest, static_cast<int64_t>(windows[0].ids.size()));
  }
  const auto length =
      text::padded_length(plan.padding, longest, plan.max_length, options.pad_to_multiple_of);
  const auto columns = columns_of(options, impl_->settings);
  std::vector<Encoding> encodings;
  encodings.reserve(inputs.size());
  for (auto& windows : inputs) {
    if (length) {
      for (auto& window : windows)
        text::pad_window(window, *length, padding_side(), *pad_token_id(), pad_token_type_id());
    }
    encodings.push_back(
        encoding_of(std::move(windows), columns, options.return_overflowing_tokens));
  }
  return encodings;
}

std::vector<std::string> Tokenizer::tokenize(std::string_view text) const {
  std::vector<std::string> tokens;
  for (const auto& token :
       convert_ids_to_tokens(encode(text, {.add_special_tokens = false, .ids_only = true}).ids()))
    tokens.push_back(token.value_or(""));
  return tokens;
}

std::string Tokenizer::decode(std::span<const int64_t> ids, const DecodeOptions& options) const {
  std::vector<uint32_t> narrow;
  narrow.reserve(ids.size());
  for (const auto id : ids) {
    if (id < 0) {
      throw Error("G-TEXT-5", ErrorKind::data,
                  "cannot decode the id " + std::to_string(id) + ": ids are 0 or more",
                  "Replace -100 in labels by the padding token's id before decoding.");
    }
    if (id <= UINT32_MAX) narrow.push_back(static_cast<uint32_t>(id));
  }
  auto text = impl_->backend->decode(narrow, options.skip_special_tokens);
  const bool clean =
      options.clean_up_tokenization_spaces.value_or(impl_->settings.clean_up_tokenization_spaces);
  if (!clean || (impl_->model_type == "BPE" && !impl_->settings.clean_up_bpe)) return text;
  return cleaned_up(std::move(text));
}

std::string Tokenizer::decode(const std::vector<int64_t>& ids, const DecodeOptions& options) const {
  return decode(std::span<const int64_t>(ids), options);
}

std::string Tokenizer::decode(const torch::Tensor& ids, const DecodeOptions& options) const {
  if (ids.dim() > 1) {
    throw Error("G-TEXT-5", ErrorKind::usage,
                "decode takes one row of ids, received a tensor with " + std::to_string(ids.dim()) +
                    " dimensions",
                "Use batch_decode for several rows.");
  }
  const auto row = ids.to(torch::kCPU, torch::kLong).reshape({-1}).contiguous();
  return decode(
      std::span<const int64_t>(row.const_data_ptr<int64_t>(), static_cast<size_t>(row.numel())),
      options);
}

std::vector<std::string> Tokenizer::batch_decode(const torch::Tensor& rows,
                                                 const DecodeOptions& options) const {
  const auto host = rows.to(torch::kCPU, torch::kLong).contiguous();
  std::vector<std::string> texts;
  for (int64_t i = 0; i < host.size(0); ++i) texts.push_back(decode(host[i], options));
  return texts;
}

std::vector<std::string> Tokenizer::batch_decode(const std::vector<std::vector<int64_t>>& rows,
                                                 const DecodeOptions& options) const {
  std::vector<std::string> texts;
  for (const auto& row : rows) texts.push_back(decode(row, options));
  return texts;
}

}  // namespace gradus
