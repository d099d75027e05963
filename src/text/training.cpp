#include <gradus/core/error.h>

#include <array>

#include "text/tokenizer_class.h"
#include "text/tokenizer_impl.h"

namespace gradus {

namespace {

/// The names special tokens go by, told from their spelling.
constexpr std::array<std::pair<const char*, const char*>, 14> kSpellings = {
    {{"[PAD]", "pad_token"},
     {"<pad>", "pad_token"},
     {"[UNK]", "unk_token"},
     {"<unk>", "unk_token"},
     {"[CLS]", "cls_token"},
     {"[SEP]", "sep_token"},
     {"[MASK]", "mask_token"},
     {"<mask>", "mask_token"},
     {"<s>", "bos_token"},
     {"</s>", "eos_token"},
     {"<|endoftext|>", "bos_token"},
     {"<|endoftext|>", "eos_token"},
     {"<|endoftext|>", "unk_token"},
     {"<|padding|>", "pad_token"}}};

std::shared_ptr<Tokenizer> trained(const char* kind,
                                   const std::vector<std::filesystem::path>& files,
                                   const TokenizerTraining& training,
                                   std::vector<std::string> special_tokens,
                                   std::vector<std::string> input_names) {
  if (files.empty())
    throw Error("G-TEXT-6", ErrorKind::usage, "cannot train a tokenizer from no files",
                "Give at least one text file.");
  if (training.vocab_size <= 0 || training.min_frequency < 0) {
    throw Error("G-TEXT-6", ErrorKind::usage,
                "vocab_size must be above 0 and min_frequency not negative",
                "The defaults are 30000 and 2.");
  }
  if (!training.special_tokens.empty()) special_tokens = training.special_tokens;
  std::vector<std::string> names;
  for (const auto& file : files) names.push_back(file.string());
  const nlohmann::json options = {{"kind", kind},
                                  {"vocab_size", training.vocab_size},
                                  {"min_frequency", training.min_frequency},
                                  {"special_tokens", special_tokens},
                                  {"lowercase", training.lowercase},
                                  {"add_prefix_space", training.add_prefix_space}};
  auto backend = text::Backend::train(names, options);
  text::TokenizerSettings settings;
  settings.model_input_names = std::move(input_names);
  for (const auto& token : special_tokens) {
    for (const auto& [spelling, name] : kSpellings) {
      if (token == spelling && settings.find_special(name) == nullptr)
        settings.set_special(name, token);
    }
  }
  text::rebuild_post_processor(*backend, settings);
  return TokenizerFactory::make(std::move(backend), std::move(settings));
}

}  // namespace

std::shared_ptr<Tokenizer> Tokenizer::train_bpe(const std::vector<std::filesystem::path>& files,
                                                const TokenizerTraining& training) {
  return trained("bpe", files, training, {"<|endoftext|>"}, {"input_ids", "attention_mask"});
}

std::shared_ptr<Tokenizer> Tokenizer::train_wordpiece(
    const std::vector<std::filesystem::path>& files, const TokenizerTraining& training) {
  return trained("wordpiece", files, training, {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"},
                 {"input_ids", "token_type_ids", "attention_mask"});
}

std::shared_ptr<Tokenizer> Tokenizer::train_unigram(const std::vector<std::filesystem::path>& files,
                                                    const TokenizerTraining& training) {
  return trained("unigram", files, training, {"<pad>", "</s>", "<unk>"},
                 {"input_ids", "attention_mask"});
}

}  // namespace gradus
