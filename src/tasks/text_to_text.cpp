#include "tasks/text_to_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/data/collators.h>
#include <gradus/tasks/text_metrics.h>
#include <gradus/trainers/seq2seq.h>

#include "text/characters.h"

namespace gradus::tasks {
namespace {

constexpr OptionRow<TextToTextFlags> kTextToTextRows[] = {
    {&TextToTextFlags::max_source_length, "max_source_length", Group::data, at_least(1),
     "Longer sources are cut to so many tokens."},
    {&TextToTextFlags::max_target_length, "max_target_length", Group::data, at_least(1),
     "Longer targets are cut to so many tokens."},
    {&TextToTextFlags::val_max_target_length, "val_max_target_length", Group::data, at_least(1),
     "The same for evaluation and prediction, and the longest text that is generated there; unset: "
     "max_target_length."},
    {&TextToTextFlags::pad_to_max_length, "pad_to_max_length", Group::data, any_value(),
     "Fill all rows up to these lengths; else to the longest of a batch."},
    {&TextToTextFlags::num_beams, "num_beams", Group::data, at_least(1),
     "Beams in evaluation and prediction."},
    {&TextToTextFlags::ignore_pad_token_for_loss, "ignore_pad_token_for_loss", Group::data,
     any_value(), "Padding of the targets does not count in the loss."},
    {&TextToTextFlags::source_prefix, "source_prefix", Group::data, any_value(),
     "Put before every source: \"summarize: \" for T5."},
    {&TextToTextFlags::forced_bos_token, "forced_bos_token", Group::data, any_value(),
     "Read with multilingual tokenizers only: the token that every generated text begins with, as "
     "a rule the code of the target language."},
};

// Places without a token become padding, which is no text.
torch::Tensor without_gaps(const torch::Tensor& ids, int64_t pad) {
  return ids.masked_fill(ids.eq(-100), pad).cpu();
}

std::vector<std::string> stripped_texts(const Tokenizer& tokenizer, const torch::Tensor& ids,
                                        std::optional<bool> clean_up = std::nullopt) {
  auto texts = decoded_texts(tokenizer, ids, clean_up);
  for (auto& text : texts) text = text::stripped(text);
  return texts;
}

double mean_length(const torch::Tensor& ids, int64_t pad) {
  return without_gaps(ids, pad).ne(pad).sum(1).to(torch::kDouble).mean().item<double>();
}

void write_texts(const Tokenizer& tokenizer, const PredictionOutput& output,
                 const std::filesystem::path& folder) {
  const auto texts = stripped_texts(tokenizer, output.prediction_parts.front(), true);
  write_file_atomically(folder / "generated_predictions.txt",
                        fmt::format("{}", fmt::join(texts, "\n")));
}

bool is_multilingual(const Tokenizer& tokenizer) {
  return tokenizer.tokenizer_class() == "MBartTokenizer" ||
         tokenizer.tokenizer_class() == "MBart50Tokenizer";
}

int64_t language_id(const Tokenizer& tokenizer, const std::string& flag, const std::string& code) {
  const auto id = tokenizer.convert_tokens_to_ids(code);
  if (id && id != tokenizer.unk_token_id()) return *id;
  throw Error("G-TASK-9", ErrorKind::usage,
              fmt::format("--{} is '{}', which is no token of the tokenizer", flag, code),
              "Give the code of a language as the tokenizer has it, for example en_XX.");
}

}  // namespace

int64_t required_pad_id(const Tokenizer& tokenizer) {
  if (const auto pad = tokenizer.pad_token_id()) return *pad;
  throw Error("G-TEXT-10", ErrorKind::model,
              "the tokenizer has no padding token, which texts of different length need",
              "Add a pad_token to tokenizer_config.json, for example the one that ends a text.");
}

void check_language(const Tokenizer& tokenizer, const std::string& flag, const std::string& code) {
  language_id(tokenizer, flag, code);
}

std::shared_ptr<PreTrainedModel> load_text_generator(const ModelFlags& flags,
                                                     const Tokenizer& tokenizer,
                                                     std::optional<int64_t> max_source_length,
                                                     const std::optional<std::string>& language) {
  std::optional<int64_t> start;
  const auto stored = load_config(flags, {});
  if (language && tokenizer.tokenizer_class() == "MBartTokenizer" &&
      stored.value("decoder_start_token_id", nlohmann::json()).is_null())
    start = tokenizer.convert_tokens_to_ids(*language);
  const auto model =
      load_model(ModelTask::seq2seq_lm, flags, {},
                 start ? nlohmann::json{{"decoder_start_token_id", *start}} : nlohmann::json());
  auto& generation = model->generation_config.options;
  if (start && !generation.decoder_start_token_id)
    generation.decoder_start_token_id = TokenIds(*start);
  grow_embeddings(*model, tokenizer);
  const auto config = model->config();
  if (!config.contains("decoder_start_token_id") || config["decoder_start_token_id"].is_null())
    throw Error("G-TASK-15", ErrorKind::model,
                "config.json does not say which token a text begins with: decoder_start_token_id "
                "is missing",
                "Set it; T5 begins with its padding token, id 0.");
  const auto positions = config.value("max_position_embeddings", nlohmann::json());
  if (max_source_length && positions.is_number_integer() &&
      positions.get<int64_t>() < *max_source_length)
    throw Error("G-TASK-15", ErrorKind::usage,
                fmt::format("--max_source_length is {}, but the model has only {} positions",
                            *max_source_length, positions.get<int64_t>()),
                fmt::format("Set --max_source_length to at most {}.", positions.get<int64_t>()));
  return model;
}

DataCollator text_to_text_collator(const std::shared_ptr<Tokenizer>& tokenizer,
                                   const std::shared_ptr<PreTrainedModel>& model, bool ignore_pad,
                                   std::optional<int64_t> length_step) {
  return DataCollatorForSeq2Seq(
      {.tokenizer = tokenizer,
       .prepare_decoder_input_ids =
           [model](const torch::Tensor& labels) {
             return model->prepare_decoder_input_ids_from_labels(labels);
           },
       .pad_to_multiple_of = length_step,
       .label_pad_token_id = ignore_pad ? -100 : required_pad_id(*tokenizer)});
}

std::vector<std::string> decoded_texts(const Tokenizer& tokenizer, const torch::Tensor& ids,
                                       std::optional<bool> clean_up) {
  return tokenizer.batch_decode(
      without_gaps(ids, required_pad_id(tokenizer)),
      {.skip_special_tokens = true, .clean_up_tokenization_spaces = clean_up});
}

void TextToTextTask::add_options(OptionSet& options) {
  LabelingTask::add_options(options);
  options.add(flags_, std::span<const OptionRow<TextToTextFlags>>(kTextToTextRows));
}

void TextToTextTask::check(const TrainingArguments& args) const {
  LabelingTask::check(args);
  check_padding(flags_.pad_to_max_length,
                {{"max_source_length", flags_.max_source_length},
                 {"max_target_length", flags_.max_target_length},
                 {"val_max_target_length", flags_.val_max_target_length}});
}

LabelingTask::Splits TextToTextTask::open_stages(const TrainingArguments& args) const {
  Splits splits;
  if (args.do_train) splits.train = open_split(data_, data_.train_file, "train");
  if (args.do_eval) splits.validation = open_split(data_, data_.validation_file, "validation");
  if (args.do_predict) splits.test = open_split(data_, predict_.test_file, "test");
  require_splits(args, splits, "Name the file with --validation_file or --test_file.");
  return limited(std::move(splits));
}

Split TextToTextTask::prepare_rows(const Split& first, const Split& split,
                                   const Tokenizers& tokenizers, int64_t target_length,
                                   int64_t vocabulary, bool progress) const {
  std::string key;
  const auto read = reader(first, split, key);
  const auto options_of = [&](int64_t length) {
    EncodeOptions options{.max_length = length, .truncation = true, .ids_only = true};
    if (flags_.pad_to_max_length) options.padding = "max_length";
    return options;
  };
  const auto prefix = flags_.source_prefix.value_or("");
  const auto ignored = flags_.pad_to_max_length && flags_.ignore_pad_token_for_loss
                           ? tokenizers.source->pad_token_id()
                           : std::nullopt;
  // It outlives this call, so it refers to nothing here.
  const auto function = [=, where = split.where, source = options_of(flags_.max_source_length),
                         target = options_of(target_length)](std::vector<Example> rows) {
    std::vector<std::string> sources, targets;
    for (const auto& row : rows)
      if (auto pair = read(row)) {
        sources.push_back(prefix + pair->first);
        targets.push_back(std::move(pair->second));
      }
    const auto inputs = tokenizers.source->encode_batch(sources, source, {}, 1),
               labels = tokenizers.target->encode_batch(targets, target, {}, 1);
    std::vector<Example> result;
    for (size_t i = 0; i < inputs.size(); ++i) {
      check_ids(inputs[i].ids(), vocabulary, where);
      check_ids(labels[i].ids(), vocabulary, where);
      auto row = inputs[i].example();
      auto ids = labels[i].ids();
      if (ignored) std::replace(ids.begin(), ids.end(), *ignored, int64_t{-100});
      row.set("labels", std::move(ids));
      result.push_back(std::move(row));
    }
    return result;
  };
  const auto settings = fmt::format(
      "{}|{}|{}|{}|{}|{}|{}|{}", key, prefix, flags_.max_source_length, target_length,
      flags_.pad_to_max_length, ignored.value_or(-1), vocabulary, tokenizers.language.value_or(""));
  return prepare_split(
      split, function,
      {.task = name(), .settings = settings, .wanted = "at least one row with both texts"}, model_,
      data_, progress);
}

TextToTextTask::Tokenizers TextToTextTask::load_tokenizers() const {
  const auto plain = load_tokenizer(model_);
  if (!is_multilingual(*plain)) return {plain, plain, std::nullopt};
  const auto [from, to] = languages(*plain);
  auto source = nlohmann::json::object(), target = source;
  source["src_lang"] = from;
  source["tgt_lang"] = target["src_lang"] = to;
  return {load_tokenizer(model_, source), load_tokenizer(model_, target), to};
}

PreparedTask TextToTextTask::prepare(const TrainingArguments& args) {
  auto splits = open_stages(args);
  const auto tokenizers = load_tokenizers();
  const auto& tokenizer = tokenizers.source;
  const auto model =
      load_text_generator(model_, *tokenizer, flags_.max_source_length, tokenizers.language);
  if (tokenizers.language && flags_.forced_bos_token)
    model->generation_config.options.forced_bos_token_id =
        language_id(*tokenizer, "forced_bos_token", *flags_.forced_bos_token);
  const bool progress = !args.disable_tqdm.value_or(false);
  const auto rows = embedding_rows(*model);
  const auto first = splits.train        ? splits.train
                     : splits.validation ? splits.validation
                                         : splits.test;
  if (splits.train)
    splits.train =
        prepare_rows(first, splits.train, tokenizers, flags_.max_target_length, rows, progress);
  for (auto* split : {&splits.validation, &splits.test})
    if (*split)
      *split = prepare_rows(first, *split, tokenizers, evaluation_length(), rows, progress);

  PreparedTask prepared;
  hand_over(prepared, model, tokenizer, splits);
  // With smoothed labels the model does not see them and needs the decoder's input; run_translation
  // fails there.
  if (flags_.pad_to_max_length && stacks_padded_rows() && args.label_smoothing_factor == 0)
    prepared.trainer.data_collator = default_data_collator;
  else
    prepared.trainer.data_collator = text_to_text_collator(
        tokenizer, model, flags_.ignore_pad_token_for_loss, length_step(args));
  if (arguments().as<Seq2SeqTrainingArguments>().predict_with_generate) {
    prepared.trainer.compute_metrics =
        [tokenizer, pad = required_pad_id(*tokenizer), score = scores(args, prepared),
         rounds = rounds_length()](const EvalPrediction& prediction) {
          const auto& generated = prediction.prediction_parts.front();
          auto all = score(stripped_texts(*tokenizer, prediction.label_ids),
                           stripped_texts(*tokenizer, generated));
          const auto length = mean_length(generated, pad);
          all["gen_len"] = rounds ? metrics::rounded(length, 4) : length;
          return all;
        };
    prepared.write_predictions = [tokenizer](const PredictionOutput& output,
                                             const std::filesystem::path& folder) {
      write_texts(*tokenizer, output, folder);
    };
  }
  finish(prepared);
  return prepared;
}

}  // namespace gradus::tasks
