// run_wav2vec2_pretraining_no_trainer.py: wav2vec 2.0 learns from sound alone.
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/models/speech_models.h>
#include <gradus/trainers/wav2vec2_pretraining.h>

#include <numeric>

#include "tasks/registry.h"
#include "tasks/speech_data.h"
#include "tasks/text_data.h"

namespace gradus {
namespace tasks {
namespace {

namespace fs = std::filesystem;

struct PreTrainingFlags {
  std::optional<std::string> dataset_name = std::nullopt;
  std::optional<std::vector<std::string>> dataset_config_names = std::nullopt;
  std::vector<std::string> dataset_split_names = {"train"};
  std::optional<std::string> model_name_or_path = std::nullopt;
  std::optional<std::string> config_name = std::nullopt;
  std::optional<std::string> cache_dir = std::nullopt;
  std::optional<int64_t> preprocessing_num_workers = std::nullopt;
  bool overwrite_cache = false;
  bool preprocessing_only = false;
  std::optional<std::string> train_cache_file_name = std::nullopt;
  std::optional<std::string> validation_cache_file_name = std::nullopt;
  bool trust_remote_code = false;
  std::string audio_column_name = "audio";
  int64_t validation_split_percentage = 1;
  std::optional<int64_t> pad_to_multiple_of = std::nullopt;
  double max_duration_in_seconds = 5.0;
  double min_duration_in_seconds = 3.0;
  std::optional<double> mask_time_prob = std::nullopt;
  std::optional<int64_t> mask_time_length = std::nullopt;
  int64_t skip_bad_rows = 0;
};

constexpr OptionRow<PreTrainingFlags> kPreTrainingRows[] = {
    {&PreTrainingFlags::dataset_name, "dataset_name", Group::data, any_value(),
     "A folder of sound files, or of CSV, JSONL or Parquet files."},
    {&PreTrainingFlags::dataset_config_names, "dataset_config_names", Group::data, any_value(),
     "Subfolders of --dataset_name, one for each split name."},
    {&PreTrainingFlags::dataset_split_names, "dataset_split_names", Group::data, any_value(),
     "The splits to train on."},
    {&PreTrainingFlags::model_name_or_path, "model_name_or_path", Group::model, any_value(),
     "A folder with config.json and preprocessor_config.json. As in the script its weights are not "
     "used."},
    {&PreTrainingFlags::config_name, "config_name", Group::model, any_value(),
     "A config.json or its folder, in place of --model_name_or_path."},
    {&PreTrainingFlags::cache_dir, "cache_dir", Group::model, any_value(),
     "Accepted for the script's sake: nothing is downloaded."},
    {&PreTrainingFlags::preprocessing_num_workers, "preprocessing_num_workers", Group::data,
     at_least(1), "Threads that decode sound; unset: one per core, at most 8."},
    {&PreTrainingFlags::overwrite_cache, "overwrite_cache", Group::data, any_value(),
     "Accepted for the script's sake: decoded sound is kept in memory."},
    {&PreTrainingFlags::preprocessing_only, "preprocessing_only", Group::data, any_value(),
     "Refused: prepared rows are kept in memory, so that there would be nothing to keep."},
    {&PreTrainingFlags::train_cache_file_name, "train_cache_file_name", Group::data, any_value(),
     "Accepted for the script's sake: decoded sound is kept in memory."},
    {&PreTrainingFlags::validation_cache_file_name, "validation_cache_file_name", Group::data,
     any_value(), "Accepted for the script's sake: decoded sound is kept in memory."},
    {&PreTrainingFlags::trust_remote_code, "trust_remote_code", Group::data, any_value(),
     "Accepted for the script's sake: no code of a model is run."},
    {&PreTrainingFlags::audio_column_name, "audio_column_name", Group::data, any_value(),
     "The column with the sound: paths, or the Audio feature of the datasets package."},
    {&PreTrainingFlags::validation_split_percentage, "validation_split_percentage", Group::data,
     within(0, 100), "Share of the rows, from the front, that is kept for evaluation."},
    {&PreTrainingFlags::pad_to_multiple_of, "pad_to_multiple_of", Group::data, at_least(1),
     "Clips of a batch are padded to a multiple of this many samples."},
    {&PreTrainingFlags::max_duration_in_seconds, "max_duration_in_seconds", Group::data,
     at_least(0.0), "Longer clips are cut to this length."},
    {&PreTrainingFlags::min_duration_in_seconds, "min_duration_in_seconds", Group::data,
     at_least(0.0), "Clips of this length or shorter are left out."},
    {&PreTrainingFlags::mask_time_prob, "mask_time_prob", Group::model, within(0.0, 1.0),
     "Share of frames that masked spans begin to cover; unset: that of the config."},
    {&PreTrainingFlags::mask_time_length, "mask_time_length", Group::model, at_least(1),
     "Frames of a masked span; unset: that of the config."},
    {&PreTrainingFlags::skip_bad_rows, "skip_bad_rows", Group::data, at_least(0),
     "Rows that may be left out because they cannot be read or decoded.", Origin::gradus},
};

[[noreturn]] void refuse_pretraining(const std::string& message, const std::string& advice) {
  throw Error("G-TASK-9", ErrorKind::usage, message, advice);
}

class Wav2Vec2Pretraining : public Task {
 public:
  std::string name() const override { return "wav2vec2-pretraining"; }
  std::string trainer() const override { return "Wav2Vec2PreTrainer"; }
  void add_options(OptionSet& options) override {
    options.add(flags_, std::span<const OptionRow<PreTrainingFlags>>(kPreTrainingRows));
    tasks::add_options(options, fresh_);
  }

  void check(const TrainingArguments&) const override {
    if (!flags_.dataset_name)
      refuse_pretraining("wav2vec2-pretraining has no data: --dataset_name is not set",
                         "Name a folder of sound files.");
    if (!flags_.model_name_or_path && !flags_.config_name && !fresh_.model_type)
      refuse_pretraining("there is no config: --model_name_or_path is not set",
                         "Name a folder with config.json, or set --model_type wav2vec2.");
    if (flags_.preprocessing_only)
      refuse_pretraining(
          "--preprocessing_only: prepared rows are kept in memory, so nothing would remain",
          "Leave it out.");
    if (flags_.dataset_config_names &&
        flags_.dataset_config_names->size() != flags_.dataset_split_names.size())
      refuse_pretraining(
          fmt::format("there are {} --dataset_config_names and {} "
                      "--dataset_split_names: expected as many",
                      flags_.dataset_config_names->size(), flags_.dataset_split_names.size()),
          "Give one split name for each config name.");
  }

  PreparedTask prepare(const TrainingArguments& args) override {
    const auto config = load_config(model_flags(), fresh_);
    const auto extractor = load_feature_extractor(model_flags(), config);
    if (!extractor.do_normalize)
      refuse_pretraining("preprocessor_config.json: do_normalize must be true for pre-training",
                         "As in the script only normalised sound is trained on.");
    const auto model = model_from_config(ModelTask::audio_pretraining, config);
    const auto speech = std::dynamic_pointer_cast<Wav2Vec2ForPreTraining>(model);
    if (!speech || !config.value("do_stable_layer_norm", false) ||
        config.value("feat_extract_norm", "group") != "layer")
      refuse_pretraining(
          "config.json: pre-training needs do_stable_layer_norm true and feat_extract_norm "
          "\"layer\"",
          "The other form of wav2vec 2.0 is fine-tuned only.");

    const auto clips = decoded(args, extractor);
    const auto validation = clips->size() * flags_.validation_split_percentage / 100;
    if (validation == 0 && args.do_eval)
      refuse_pretraining(
          fmt::format("--validation_split_percentage {} of {} clips is less than one",
                      flags_.validation_split_percentage, clips->size()),
          "Raise it, or leave --do_eval out.");
    PreparedTask prepared;
    if (args.do_train)
      prepared.trainer.train_dataset = rows_between(clips, validation, clips->size(), extractor);
    if (args.do_eval) prepared.trainer.eval_dataset = rows_between(clips, 0, validation, extractor);
    prepared.trainer.model = model;
    Wav2Vec2CollatorOptions collator;
    collator.model = speech;
    collator.feature_extractor = extractor;
    collator.pad_to_multiple_of = flags_.pad_to_multiple_of;
    collator.mask_time_prob = flags_.mask_time_prob.value_or(config.value("mask_time_prob", 0.05));
    if (collator.mask_time_prob <= 0)
      refuse_pretraining("mask_time_prob is 0: there would be no masked frame to learn from",
                         "Set --mask_time_prob, for example to 0.65, or correct config.json.");
    collator.mask_time_length =
        flags_.mask_time_length.value_or(config.value("mask_time_length", int64_t{10}));
    collator.num_negatives = config.value("num_negatives", int64_t{100});
    prepared.trainer.data_collator = DataCollatorForWav2Vec2Pretraining(collator);
    if (args.should_save()) {
      extractor.save_pretrained(*args.output_dir);
      model->save_config(*args.output_dir);
    }
    return prepared;
  }

 private:
  ModelFlags model_flags() const {
    ModelFlags flags;
    flags.model_name_or_path = flags_.model_name_or_path;
    flags.config_name = flags_.config_name;
    return flags;
  }

  std::shared_ptr<DecodedRows> decoded(const TrainingArguments& args,
                                       const Wav2Vec2FeatureExtractor& extractor) const {
    std::vector<std::shared_ptr<const Dataset>> parts;
    for (size_t i = 0; i < flags_.dataset_split_names.size(); ++i) {
      auto path = fs::path(*flags_.dataset_name);
      if (flags_.dataset_config_names) path /= (*flags_.dataset_config_names)[i];
      parts.push_back(open_speech(path.string(), flags_.dataset_split_names[i],
                                  flags_.audio_column_name, flags_.skip_bad_rows));
    }
    auto rows = parts.front();
    if (parts.size() > 1) {
      rows = concatenate(std::move(parts));
      rows = shuffled({.rows = rows}, args.seed).rows;
    }
    need_column(*rows, flags_.audio_column_name, "audio_column_name");
    AudioDecodeOptions decode;
    decode.audio_column = flags_.audio_column_name;
    decode.sampling_rate = extractor.sampling_rate;
    decode.skip_bad_rows = flags_.skip_bad_rows;
    decode.threads = flags_.preprocessing_num_workers.value_or(0);
    return decode_rows(rows, decode);
  }

  /// Clips of a range, cut to the longest length, without those that are too short.
  std::shared_ptr<const Dataset> rows_between(const std::shared_ptr<DecodedRows>& clips,
                                              int64_t first, int64_t last,
                                              const Wav2Vec2FeatureExtractor& extractor) const {
    const auto rate = static_cast<double>(extractor.sampling_rate);
    const auto longest = static_cast<int64_t>(flags_.max_duration_in_seconds * rate);
    const auto shortest = static_cast<int64_t>(flags_.min_duration_in_seconds * rate);
    std::vector<int64_t> kept;
    for (auto row = first; row < last; ++row) {
      const auto length = std::min(clips->length(row), longest);
      if (shortest <= 0 ? length > 0 : length > shortest) kept.push_back(row);
    }
    if (kept.empty())
      throw Error("G-TASK-10", ErrorKind::data, "no clip is longer than the shortest length",
                  "Lower --min_duration_in_seconds.");
    return clips->select(std::move(kept))
        ->map([extractor, longest, column = flags_.audio_column_name](const Example& row) {
          const auto& samples = row.at(column).tensor();
          return Example{{"input_values",
                          extractor(samples.narrow(0, 0, std::min(samples.numel(), longest)))}};
        });
  }

  PreTrainingFlags flags_;
  FreshModelFlags fresh_;
};

}  // namespace
}  // namespace tasks

std::unique_ptr<Task> make_wav2vec2_pretraining() {
  return std::make_unique<tasks::Wav2Vec2Pretraining>();
}

}  // namespace gradus
