// run_speech_recognition_ctc.py: speech to text.
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/models/speech_models.h>

#include <map>
#include <set>

#include "tasks/registry.h"
#include "tasks/speech_data.h"
#include "text/backend.h"
#include "text/characters.h"
#include "text/regular_expression.h"

namespace gradus {
namespace tasks {
namespace {

namespace fs = std::filesystem;

void freeze_feature_encoder_of(PreTrainedModel& model) {
  auto* speech = dynamic_cast<SpeechModel*>(&model);
  if (speech == nullptr)
    throw Error("G-EXPORT-5", ErrorKind::model,
                "the export has decided which parameters of this model train",
                "Set --freeze_feature_encoder false.");
  speech->freeze_feature_encoder();
}

struct CTCModelFlags {
  std::optional<std::string> model_name_or_path = std::nullopt;
  std::optional<std::string> tokenizer_name_or_path = std::nullopt;
  std::optional<std::string> config_name = std::nullopt;
  std::optional<std::string> cache_dir = std::nullopt;
  bool freeze_feature_encoder = true;
  double attention_dropout = 0.0;
  double activation_dropout = 0.0;
  double feat_proj_dropout = 0.0;
  double hidden_dropout = 0.0;
  double final_dropout = 0.0;
  double mask_time_prob = 0.05;
  int64_t mask_time_length = 10;
  double mask_feature_prob = 0.0;
  int64_t mask_feature_length = 10;
  double layerdrop = 0.0;
  std::string ctc_loss_reduction = "mean";
  bool ctc_zero_infinity = false;
  bool add_adapter = false;
};

constexpr std::string_view kReductions[] = {"mean", "sum"};
constexpr OptionRow<CTCModelFlags> kCTCModelRows[] = {
    {&CTCModelFlags::model_name_or_path, "model_name_or_path", Group::model, any_value(),
     "The folder of the model to start from: weights, config.json, preprocessor_config.json."},
    {&CTCModelFlags::tokenizer_name_or_path, "tokenizer_name_or_path", Group::model, any_value(),
     "A folder with vocab.json; unset: the vocabulary is built from the data."},
    {&CTCModelFlags::config_name, "config_name", Group::model, any_value(),
     "A config.json or its folder, for fresh weights.", Origin::gradus},
    {&CTCModelFlags::cache_dir, "cache_dir", Group::model, any_value(),
     "Accepted for the script's sake: nothing is downloaded."},
    {&CTCModelFlags::freeze_feature_encoder, "freeze_feature_encoder", Group::model, any_value(),
     "Keep the convolutions over the sound as they are."},
    {&CTCModelFlags::attention_dropout, "attention_dropout", Group::model, within(0.0, 1.0),
     "Dropout of attention weights."},
    {&CTCModelFlags::activation_dropout, "activation_dropout", Group::model, within(0.0, 1.0),
     "Dropout inside the feed-forward layers."},
    {&CTCModelFlags::feat_proj_dropout, "feat_proj_dropout", Group::model, within(0.0, 1.0),
     "Dropout of the projected frames."},
    {&CTCModelFlags::hidden_dropout, "hidden_dropout", Group::model, within(0.0, 1.0),
     "Dropout of hidden states."},
    {&CTCModelFlags::final_dropout, "final_dropout", Group::model, within(0.0, 1.0),
     "Dropout before the head."},
    {&CTCModelFlags::mask_time_prob, "mask_time_prob", Group::model, within(0.0, 1.0),
     "SpecAugment: share of frames that masked spans begin to cover."},
    {&CTCModelFlags::mask_time_length, "mask_time_length", Group::model, at_least(1),
     "SpecAugment: frames of a masked span."},
    {&CTCModelFlags::mask_feature_prob, "mask_feature_prob", Group::model, within(0.0, 1.0),
     "SpecAugment: share of features that masked spans begin to cover."},
    {&CTCModelFlags::mask_feature_length, "mask_feature_length", Group::model, at_least(1),
     "SpecAugment: features of a masked span."},
    {&CTCModelFlags::layerdrop, "layerdrop", Group::model, within(0.0, 1.0),
     "Probability that a block is left out of a step."},
    {&CTCModelFlags::ctc_loss_reduction, "ctc_loss_reduction", Group::model, one_of(kReductions),
     "Whether the loss of a batch is the mean or the sum of its rows."},
    {&CTCModelFlags::ctc_zero_infinity, "ctc_zero_infinity", Group::model, any_value(),
     "Count rows whose text is longer than their frames as 0, not as infinite."},
    {&CTCModelFlags::add_adapter, "add_adapter", Group::model, any_value(),
     "Convolutions after the encoder that make fewer frames."},
};

struct CTCDataFlags {
  std::optional<std::string> dataset_name = std::nullopt;
  std::optional<std::string> dataset_config_name = std::nullopt;
  std::string train_split_name = "train+validation";
  std::string eval_split_name = "test";
  std::string audio_column_name = "audio";
  std::string text_column_name = "text";
  bool overwrite_cache = false;
  std::optional<int64_t> preprocessing_num_workers = std::nullopt;
  std::optional<int64_t> max_train_samples = std::nullopt;
  std::optional<int64_t> max_eval_samples = std::nullopt;
  std::optional<std::vector<std::string>> chars_to_ignore = std::nullopt;
  std::vector<std::string> eval_metrics = {"wer"};
  double max_duration_in_seconds = 20.0;
  double min_duration_in_seconds = 0.0;
  std::optional<std::string> token = std::nullopt;
  bool trust_remote_code = false;
  bool preprocessing_only = false;
  std::optional<std::string> phoneme_language = std::nullopt;
  std::string unk_token = "[UNK]";
  std::string pad_token = "[PAD]";
  std::string word_delimiter_token = "|";
  int64_t skip_bad_rows = 0;
};

constexpr OptionRow<CTCDataFlags> kCTCDataRows[] = {
    {&CTCDataFlags::dataset_name, "dataset_name", Group::data, any_value(),
     "A folder of sound files with metadata.csv, or of CSV, JSONL or Parquet files."},
    {&CTCDataFlags::dataset_config_name, "dataset_config_name", Group::data, any_value(),
     "A subfolder of --dataset_name."},
    {&CTCDataFlags::train_split_name, "train_split_name", Group::data, any_value(),
     "Splits to train on, joined by +."},
    {&CTCDataFlags::eval_split_name, "eval_split_name", Group::data, any_value(),
     "Splits to evaluate on, joined by +."},
    {&CTCDataFlags::audio_column_name, "audio_column_name", Group::data, any_value(),
     "The column with the sound: paths, or the Audio feature of the datasets package."},
    {&CTCDataFlags::text_column_name, "text_column_name", Group::data, any_value(),
     "The column with what is said."},
    {&CTCDataFlags::overwrite_cache, "overwrite_cache", Group::data, any_value(),
     "Accepted for the script's sake: decoded sound is kept in memory."},
    {&CTCDataFlags::preprocessing_num_workers, "preprocessing_num_workers", Group::data,
     at_least(1), "Threads that decode sound; unset: one per core, at most 8."},
    {&CTCDataFlags::max_train_samples, "max_train_samples", Group::data, at_least(1),
     "Train on the first rows only."},
    {&CTCDataFlags::max_eval_samples, "max_eval_samples", Group::data, at_least(1),
     "Evaluate on the first rows only."},
    {&CTCDataFlags::chars_to_ignore, "chars_to_ignore", Group::data, any_value(),
     "Characters that are removed from the texts; the inside of a regular expression's [ ]."},
    {&CTCDataFlags::eval_metrics, "eval_metrics", Group::data, any_value(), "wer, cer or both."},
    {&CTCDataFlags::max_duration_in_seconds, "max_duration_in_seconds", Group::data, at_least(0.0),
     "Clips of this length or longer are left out."},
    {&CTCDataFlags::min_duration_in_seconds, "min_duration_in_seconds", Group::data, at_least(0.0),
     "Clips of this length or shorter are left out."},
    {&CTCDataFlags::token, "token", Group::data, any_value(),
     "Accepted for the script's sake: nothing is downloaded."},
    {&CTCDataFlags::trust_remote_code, "trust_remote_code", Group::data, any_value(),
     "Accepted for the script's sake: no code of a model is run."},
    {&CTCDataFlags::preprocessing_only, "preprocessing_only", Group::data, any_value(),
     "Refused: prepared rows are kept in memory, so that there would be nothing to keep."},
    {&CTCDataFlags::phoneme_language, "phoneme_language", Group::data, any_value(),
     "Refused: texts are written in characters, not in phonemes."},
    {&CTCDataFlags::unk_token, "unk_token", Group::data, any_value(),
     "Symbol for unknown characters."},
    {&CTCDataFlags::pad_token, "pad_token", Group::data, any_value(),
     "Symbol for padding, which is CTC's blank."},
    {&CTCDataFlags::word_delimiter_token, "word_delimiter_token", Group::data, any_value(),
     "Symbol for the space between words."},
    {&CTCDataFlags::skip_bad_rows, "skip_bad_rows", Group::data, at_least(0),
     "Rows that may be left out because they cannot be read or decoded.", Origin::gradus},
};

/// Removes characters and makes the rest lower case, as the script does.
class TextCleaner {
 public:
  explicit TextCleaner(const std::optional<std::vector<std::string>>& ignored) {
    if (!ignored) return;
    std::string characters;
    for (const auto& one : *ignored) characters += one;
    pattern_.emplace("[" + characters + "]");
  }

  std::string operator()(const std::string& given) {
    if (!pattern_) return text::lowercase(given) + " ";
    std::string kept;
    for (const auto character : text::code_points(given)) {
      const auto symbol = text::utf8_of(std::u32string_view(&character, 1));
      const auto [place, is_new] = known_.emplace(character, false);
      if (is_new) place->second = pattern_->matches(symbol);
      if (!place->second) kept += symbol;
    }
    return text::lowercase(kept) + " ";
  }

 private:
  std::optional<text::RegularExpression> pattern_;
  std::map<char32_t, bool> known_;
};

/// One split: decoded clips and their texts.
struct SpokenRows {
  std::shared_ptr<DecodedRows> clips;
  std::vector<std::string> texts;
};

class SpeechRecognitionCTC : public Task {
 public:
  std::string name() const override { return "speech-recognition-ctc"; }
  void add_options(OptionSet& options) override {
    options.add(model_, std::span<const OptionRow<CTCModelFlags>>(kCTCModelRows));
    tasks::add_options(options, fresh_);
    options.add(data_, std::span<const OptionRow<CTCDataFlags>>(kCTCDataRows));
  }

  void check(const TrainingArguments& args) const override {
    const auto refuse = [](const std::string& message, const std::string& advice) {
      throw Error("G-TASK-9", ErrorKind::usage, message, advice);
    };
    check_model_flags(model_flags(),
                      {.fresh = &fresh_, .do_train = args.do_train, .tokenizer = false});
    if (!data_.dataset_name)
      refuse("speech-recognition-ctc has no data: --dataset_name is not set",
             "Name a folder of sound files with metadata.csv, or of CSV, JSONL or Parquet files.");
    for (const auto* token : {&data_.unk_token, &data_.pad_token, &data_.word_delimiter_token})
      if (token->empty())
        refuse(
            "--unk_token, --pad_token and --word_delimiter_token: expected a symbol, received "
            "an empty text",
            "Leave the flag out for the usual symbol.");
    if (args.label_smoothing_factor > 0)
      refuse("--label_smoothing_factor: CTC has no label for each frame that could be smoothed",
             "Leave it out.");
    for (const auto& metric : data_.eval_metrics)
      if (metric != "wer" && metric != "cer")
        refuse(fmt::format("--eval_metrics: there is no metric '{}'", metric),
               "Known are wer and cer.");
    if (data_.preprocessing_only)
      refuse("--preprocessing_only: prepared rows are kept in memory, so nothing would remain",
             "Leave it out.");
    if (data_.phoneme_language)
      refuse("--phoneme_language: texts are written in characters, not in phonemes",
             "Leave it out, and give a vocabulary with --tokenizer_name_or_path.");
    if (!model_.tokenizer_name_or_path && !args.do_train)
      refuse("--tokenizer_name_or_path is not set, and without training no vocabulary is built",
             "Name the folder of the trained model: it holds vocab.json.");
  }

  PreparedTask prepare(const TrainingArguments& args) override {
    const auto config = load_config(model_flags(), fresh_);
    const auto extractor = load_feature_extractor(model_flags(), config);
    SpokenRows train, eval;
    if (args.do_train) train = open(data_.train_split_name, data_.max_train_samples, extractor);
    if (args.do_eval || args.do_predict)
      eval = open(data_.eval_split_name, data_.max_eval_samples, extractor);
    const auto tokenizer = make_tokenizer(train, eval);
    const auto processor = std::make_shared<Wav2Vec2Processor>(extractor, tokenizer);
    auto model = load_model(ModelTask::ctc, model_flags(), fresh_, config_changes(tokenizer));
    if (model_.freeze_feature_encoder) freeze_feature_encoder_of(*model);
    if (dynamic_cast<SpeechModel*>(model.get()) == nullptr && args.do_train &&
        (model_.mask_time_prob > 0 || model_.mask_feature_prob > 0))
      log_warning(
          "An exported model masks no frames: --mask_time_prob and --mask_feature_prob "
          "have no effect on it.");
    if (args.should_save()) {
      processor->save_pretrained(*args.output_dir);
      model->save_config(*args.output_dir);
    }

    PreparedTask prepared;
    prepared.trainer.model = model;
    prepared.trainer.processing_class = processor;
    prepared.trainer.data_collator = DataCollatorCTCWithPadding({.feature_extractor = extractor});
    if (train.clips) prepared.trainer.train_dataset = rows_of(train, processor);
    if (eval.clips) {
      const auto rows = rows_of(eval, processor);
      if (args.do_eval) prepared.trainer.eval_dataset = rows;
      prepared.predict_dataset = rows;
    }
    set_metrics(prepared, processor);
    return prepared;
  }

 private:
  ModelFlags model_flags() const {
    ModelFlags flags;
    flags.model_name_or_path = model_.model_name_or_path;
    flags.config_name = model_.config_name;
    return flags;
  }

  SpokenRows open(const std::string& splits, std::optional<int64_t> most,
                  const Wav2Vec2FeatureExtractor& extractor) const {
    auto path = fs::path(*data_.dataset_name);
    if (data_.dataset_config_name) path /= *data_.dataset_config_name;
    auto rows = first_clips(
        open_speech(path.string(), splits, data_.audio_column_name, data_.skip_bad_rows), most);
    need_column(*rows, data_.audio_column_name, "audio_column_name");
    need_column(*rows, data_.text_column_name, "text_column_name");
    AudioDecodeOptions decode;
    decode.audio_column = data_.audio_column_name;
    decode.sampling_rate = extractor.sampling_rate;
    decode.skip_bad_rows = data_.skip_bad_rows;
    decode.threads = data_.preprocessing_num_workers.value_or(0);
    rows = rows->map(
        [column = data_.text_column_name](const Example& row) { return with_text(row, column); });
    SpokenRows spoken{decode_rows(rows, decode), {}};
    TextCleaner clean(data_.chars_to_ignore);
    for (int64_t i = 0; i < spoken.clips->size(); ++i)
      spoken.texts.push_back(clean(spoken.clips->get(i).at(data_.text_column_name).str()));
    return spoken;
  }

  /// `row`, which must say in text what is said. A row that does not fails as one that cannot be
  /// decoded does.
  static Example with_text(const Example& row, const std::string& column) {
    const auto* text = row.find(column);
    if (text == nullptr || !text->is_string())
      throw Error(
          "G-TASK-10", ErrorKind::data,
          fmt::format("--text_column_name '{}' {}, expected text", column,
                      text == nullptr || text->is_null() ? std::string("has no value")
                                                         : "is " + std::string(text->type_name())),
          "Correct the row, or leave it out with --skip_bad_rows. Words of digits only "
          "are numbers in CSV: write the table as JSONL with quotes, or as Parquet.");
    return row;
  }

  CTCTokenizer make_tokenizer(const SpokenRows& train, const SpokenRows& eval) const {
    if (model_.tokenizer_name_or_path)
      return CTCTokenizer::from_pretrained(*model_.tokenizer_name_or_path);
    CTCTokens tokens;
    tokens.unk_token = data_.unk_token;
    tokens.pad_token = data_.pad_token;
    tokens.word_delimiter_token = data_.word_delimiter_token;
    auto texts = train.texts;
    texts.insert(texts.end(), eval.texts.begin(), eval.texts.end());
    const auto vocabulary = ctc_vocabulary(texts, tokens);
    return CTCTokenizer({vocabulary.begin(), vocabulary.end()}, tokens);
  }

  nlohmann::json config_changes(const CTCTokenizer& tokenizer) const {
    return {{"feat_proj_dropout", model_.feat_proj_dropout},
            {"attention_dropout", model_.attention_dropout},
            {"hidden_dropout", model_.hidden_dropout},
            {"final_dropout", model_.final_dropout},
            {"mask_time_prob", model_.mask_time_prob},
            {"mask_time_length", model_.mask_time_length},
            {"mask_feature_prob", model_.mask_feature_prob},
            {"mask_feature_length", model_.mask_feature_length},
            {"layerdrop", model_.layerdrop},
            {"ctc_loss_reduction", model_.ctc_loss_reduction},
            {"ctc_zero_infinity", model_.ctc_zero_infinity},
            {"pad_token_id", *tokenizer.pad_token_id()},
            {"vocab_size", tokenizer.full_vocab_size()},
            {"activation_dropout", model_.activation_dropout},
            {"add_adapter", model_.add_adapter}};
  }

  /// Rows within the bounds of length, as the model takes them.
  std::shared_ptr<const Dataset> rows_of(
      const SpokenRows& spoken, const std::shared_ptr<const Wav2Vec2Processor>& processor) const {
    const auto rate = static_cast<double>(processor->feature_extractor().sampling_rate);
    std::vector<int64_t> kept;
    for (int64_t i = 0; i < spoken.clips->size(); ++i) {
      const auto length = static_cast<double>(spoken.clips->length(i));
      if (length > data_.min_duration_in_seconds * rate &&
          length < data_.max_duration_in_seconds * rate)
        kept.push_back(i);
    }
    if (kept.size() < static_cast<size_t>(spoken.clips->size()))
      log_info(fmt::format("{} of {} clips are left out because of their length.",
                           static_cast<size_t>(spoken.clips->size()) - kept.size(),
                           spoken.clips->size()));
    if (kept.empty())
      throw Error("G-TASK-10", ErrorKind::data, "no clip has a length within the bounds",
                  "Change --min_duration_in_seconds and --max_duration_in_seconds.");
    std::vector<Value::Ints> labels;
    for (const auto row : kept)
      labels.push_back(processor->encode(spoken.texts[static_cast<size_t>(row)]));
    std::vector<Example> numbers;
    for (size_t i = 0; i < kept.size(); ++i)
      numbers.push_back(Example{{"row", kept[i]}, {"labels", std::move(labels[i])}});
    return from_examples(std::move(numbers))
        ->map([clips = spoken.clips, processor,
               column = data_.audio_column_name](const Example& number) {
          const auto row = clips->get(number.at("row").integer());
          return Example{{"input_values", processor->feature_extractor()(row.at(column).tensor())},
                         {"labels", number.at("labels")}};
        });
  }

  void set_metrics(PreparedTask& prepared,
                   const std::shared_ptr<const Wav2Vec2Processor>& processor) const {
    const auto blank = *processor->pad_token_id();
    // Only the best symbols are kept: logits of long clips would fill the memory.
    prepared.trainer.preprocess_logits_for_metrics = [](const TensorList& logits,
                                                        const TensorList&) {
      return TensorList{logits.front().argmax(-1)};
    };
    prepared.trainer.compute_metrics = [processor, wanted = data_.eval_metrics,
                                        blank](const EvalPrediction& prediction) {
      const auto predictions = processor->batch_decode(prediction.predictions);
      const auto labels = prediction.label_ids.masked_fill(prediction.label_ids == -100, blank);
      const auto references = processor->batch_decode(labels, /*group_tokens=*/false);
      Metrics metrics;
      for (const auto& metric : wanted)
        metrics[metric] = metric == "wer" ? word_error_rate(references, predictions)
                                          : character_error_rate(references, predictions);
      return metrics;
    };
    prepared.write_predictions = [processor, blank](const PredictionOutput& output,
                                                    const fs::path& to) {
      std::string lines;
      // Batches of shorter clips are padded with -100, which would be read as an unknown symbol.
      const auto ids = output.predictions.masked_fill(output.predictions == -100, blank);
      for (const auto& text : processor->batch_decode(ids)) lines += text + "\n";
      write_file_atomically(to / "generated_predictions.txt", lines);
    };
  }

  CTCModelFlags model_;
  FreshModelFlags fresh_;
  CTCDataFlags data_;
};

}  // namespace
}  // namespace tasks

std::unique_ptr<Task> make_speech_recognition_ctc() {
  return std::make_unique<tasks::SpeechRecognitionCTC>();
}

}  // namespace gradus
